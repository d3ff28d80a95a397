package endpoints

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/liqod/liqod/kube/loop"
)

// sent is the last write of an EndpointSlice. If another client keeps reverting it, or
// deletes the EndpointSlice, the next write of the same content backs off.
type sent struct {
	want  [sha256.Size]byte
	at    time.Time
	delay time.Duration // before the same content may be written again
}

// again returns the state after want was written.
func (s sent) again(want [sha256.Size]byte, now time.Time) sent {
	next := sent{want: want, at: now}
	if s.want == want {
		next.delay = loop.RepairDelay(s.delay, now.Sub(s.at))
	}
	return next
}

// wholeOf returns a hash of a wanted EndpointSlice.
func wholeOf(want *discoveryv1.EndpointSlice) ([sha256.Size]byte, error) {
	body, err := json.Marshal(want)
	if err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("encoding the EndpointSlice as wanted: %w", err)
	}
	return sha256.Sum256(body), nil
}

// sending records that the API server accepted want.
func (m *memory) sending(want *discoveryv1.EndpointSlice, now time.Time) error {
	whole, err := wholeOf(want)
	if err != nil {
		return err
	}
	key := loop.Key{Namespace: want.Namespace, Name: want.Name}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sent[key] = m.sent[key].again(whole, now)
	return nil
}

// due returns when want may be written again; the zero time means at once.
func (m *memory) due(want *discoveryv1.EndpointSlice, now time.Time) (time.Time, error) {
	m.mu.Lock()
	last := m.sent[loop.Key{Namespace: want.Namespace, Name: want.Name}]
	m.mu.Unlock()
	next := last.at.Add(last.delay)
	if !now.Before(next) {
		return time.Time{}, nil // the common case: skip the hash
	}
	whole, err := wholeOf(want)
	if err != nil || whole != last.want {
		return time.Time{}, err
	}
	return next, nil
}

func (m *memory) forgetSent(key loop.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.sent, key)
}
