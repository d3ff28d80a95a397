package host

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/netfabric/kernel"
	"github.com/liqod/liqod/netfabric/plan"
)

const (
	// refusalsEvery is the time between two looks at the counters.
	refusalsEvery = time.Minute
	// refusalsAgain is the time after which an event is written again although the number has not
	// doubled. API servers keep an event for an hour by default.
	refusalsAgain = 30 * time.Minute
)

// keepOwners keeps which peers a plan has, by their ranges.
func (f *fabric) keepOwners(peers []plan.Peer) {
	owners := map[netip.Prefix]string{}
	for _, p := range peers {
		for _, r := range p.Theirs.All() {
			owners[r] = p.ID
		}
	}
	f.owners.Swap(owners)
}

// refusedOf returns how many packets of each peer in the plan a host has dropped.
func (f *fabric) refusedOf(host Counted) (map[string]uint64, error) {
	ranges, err := host.Refused()
	if err != nil {
		return nil, err
	}
	out := map[string]uint64{}
	for r, peer := range f.owners.Get() {
		out[peer] += ranges[r]
	}
	return out, nil
}

// RecordRefusals records an event about the Connection of each peer of which this host has dropped
// packets, until ctx is done. source says which host this is.
func (f *fabric) RecordRefusals(ctx context.Context, host Counted, client typedcorev1.EventsGetter, source corev1.EventSource) error {
	last := map[string]recorded{}
	for range loop.Ticks(ctx, f.clk, refusalsEvery, nil) {
		all, err := f.refusedOf(host)
		if err != nil {
			f.log.Warn("reading the counters of dropped packets failed; will try again", zap.Error(err))
			continue
		}
		maps.DeleteFunc(last, func(peer string, _ recorded) bool { return all[peer] == 0 })
		for peer, n := range all {
			now := f.clk.Now()
			if !last[peer].due(n, now) {
				continue
			}
			if err := f.writeRefused(ctx, client, source, peer, n); err != nil {
				f.log.Warn("recording an event failed; will try again", zap.String("peer", peer), zap.Error(err))
				continue
			}
			last[peer] = recorded{n, now}
		}
	}
	return nil
}

// recorded is what the last event about a peer said.
type recorded struct {
	packets uint64
	at      time.Time
}

// due reports whether an event about n packets is due. A peer chooses the number of its packets,
// and meets many hosts, so the event is written when the number has doubled, and seldom otherwise.
// A number that is lower than before is of a table that has been replaced.
func (r recorded) due(n uint64, now time.Time) bool {
	return n > 0 && (n < r.packets || n >= 2*r.packets || n > r.packets && now.Sub(r.at) >= refusalsAgain)
}

// writeRefused writes the one event about n packets of a peer.
func (f *fabric) writeRefused(ctx context.Context, client typedcorev1.EventsGetter, source corev1.EventSource, peer string, n uint64) error {
	key := loop.Key{Namespace: corev1beta1.TenantNamespace(peer), Name: peer}
	c := store.Cached[*networkingv1beta1.Connection](f.src.Connections.Informer().GetStore(), key)
	if c == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	host, now := sha256.Sum256([]byte(source.Component+"/"+source.Host)), metav1.NewTime(f.clk.Now())
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: fmt.Sprintf("%s.refused-%x", peer, host[:6])},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: networkingv1beta1.SchemeGroupVersion.String(), Kind: "Connection", Namespace: c.Namespace, Name: c.Name, UID: c.UID,
		},
		Type: corev1.EventTypeWarning, Reason: networkingv1beta1.ReasonPacketsRefused, Source: source,
		Message: fmt.Sprintf("%s has dropped %d packets of peer %s to what this cluster does not share with it; liqod_guard_dropped_packets_total has the reasons", source.Host, n, peer),
		Count:   int32(min(n, math.MaxInt32)), FirstTimestamp: now, LastTimestamp: now,
	}
	body, err := json.Marshal(store.Patch{"count": event.Count, "lastTimestamp": now, "message": event.Message})
	if err != nil {
		return fmt.Errorf("encoding an event: %w", err)
	}
	events := client.Events(c.Namespace)
	_, err = events.Patch(ctx, event.Name, types.MergePatchType, body, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		_, err = events.Create(ctx, event, metav1.CreateOptions{})
	}
	if store.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing event %s/%s: %w", event.Namespace, event.Name, err)
	}
	return nil
}

// Counted is the network of a host that counts: a *kernel.Kernel.
type Counted interface {
	Tunnel() (kernel.Mode, map[string]kernel.Peer, error)
	Counters(ctx context.Context) (map[string]uint64, error)
	Refused() (map[netip.Prefix]uint64, error)
}
