package host

import (
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/netfabric/kernel"
)

// fileKeys is a KeyStore in a folder.
type fileKeys string

func (f fileKeys) load(name string) (key kernel.Key, made time.Time, err error) {
	path := filepath.Join(string(f), name)
	text, err := os.ReadFile(path)
	if err != nil {
		return key, made, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return key, made, err
	}
	key, err = kernel.ParseKey(string(text))
	return key, info.ModTime(), err
}

func (f fileKeys) make(name string) error {
	path := filepath.Join(string(f), name)
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	key, err := kernel.GenerateKey()
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(key.Private()), 0o600)
}

func (f fileKeys) Read(context.Context) (out Keys, err error) {
	if err := f.make("key"); err != nil {
		return out, err
	}
	if out.Key, out.Made, err = f.load("key"); err != nil {
		return out, err
	}
	if out.Next, out.NextMade, err = f.load("next"); errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return out, err
}

func (f fileKeys) Prepare(context.Context) error { return f.make("next") }

func (f fileKeys) Promote(context.Context) error {
	return os.Rename(filepath.Join(string(f), "next"), filepath.Join(string(f), "key"))
}

// rotate writes on the Lease that the key is to be replaced.
func (a *apis) rotate(ctx context.Context, g *GatewayHost) error {
	body := []byte(`{"metadata":{"annotations":{"` + RotateKey + `":"` + g.rotation.keys.Get().Key.Public() + `"}}}`)
	_, err := a.kube.CoordinationV1().Leases(homeNamespace).Patch(ctx, LeaseName(1), types.MergePatchType, body, metav1.PatchOptions{})
	return err
}

// stream sends a packet each millisecond from the pod of a town to that of the other one, which
// answers each.
type stream struct {
	conn net.Conn
	stop chan struct{}
	wg   sync.WaitGroup

	mu   sync.Mutex
	sent []time.Time
	back map[int]bool
}

func (w *town) stream(t *testing.T) *stream {
	t.Helper()
	s := &stream{stop: make(chan struct{}), back: map[int]bool{}}
	require.NoError(t, w.pod.Do(func() (err error) {
		s.conn, err = net.Dial("udp4", "10.200.1.10:7778")
		return err
	}))
	s.wg.Go(func() {
		ticker := time.NewTicker(time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-s.stop:
				return
			case <-ticker.C:
			}
			s.mu.Lock()
			n := len(s.sent)
			s.sent = append(s.sent, time.Now())
			s.mu.Unlock()
			_, _ = s.conn.Write(binary.BigEndian.AppendUint32(nil, uint32(n)))
		}
	})
	s.wg.Go(func() {
		packet := make([]byte, 10)
		for {
			n, err := s.conn.Read(packet)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil && n == 4 {
				s.mu.Lock()
				s.back[int(binary.BigEndian.Uint32(packet))] = true
				s.mu.Unlock()
			}
		}
	})
	t.Cleanup(s.end)
	return s
}

func (s *stream) end() {
	select {
	case <-s.stop:
		return
	default:
	}
	close(s.stop)
	time.AfterFunc(time.Second, func() { _ = s.conn.Close() }) // the last answers are on their way
	s.wg.Wait()
}

// lost returns the number of packets without an answer, and the longest time without any.
func (s *stream) lost() (lost, sent int, hole time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := time.Time{}
	for n, at := range s.sent {
		if !s.back[n] {
			lost++
			continue
		}
		if !last.IsZero() {
			hole = max(hole, at.Sub(last))
		}
		last = at
	}
	return lost, len(s.sent), hole
}

// pairOfTowns are two towns that reach each other.
type pairOfTowns struct {
	rome, milan *town
	says        map[*town]string // the announcement of each, as the other has it
}

func newPairOfTowns(t *testing.T) *pairOfTowns {
	t.Helper()
	internet := kubetest.NewNetns(t)
	internet.Sh(t, "echo 1 > /proc/sys/net/ipv4/ip_forward")
	p := &pairOfTowns{rome: newTown(t, "rome", "203.0.113.2", internet), milan: newTown(t, "milan", "198.51.100.2", internet), says: map[*town]string{}}
	p.milan.Endpoint = "198.51.100.2:51840" // rome dials
	for _, w := range []*town{p.rome, p.milan} {
		w.up(t)
		w.runNode(t)
	}
	p.exchange(t, p.rome)
	p.exchange(t, p.milan)
	p.rome.reaches(t, "at first")
	p.milan.reaches(t, "at first")
	for _, w := range []*town{p.rome, p.milan} {
		w.eventually(t, "the peer answers probes", isConnected)
	}
	return p
}

// exchange gives what a gateway announces to the other town, as the API servers do.
func (p *pairOfTowns) exchange(t *testing.T, from *town) Announcement {
	t.Helper()
	a, to := from.announced(t), p.milan
	if from == p.milan {
		to = p.rome
	}
	if text := strings.Join(a.Keys(), " "); p.says[from] != text {
		p.says[from] = text
		to.meet(t, from.ClusterID, corev1beta1.TrustOrganisation, a, "10.200.0.0/16", "10.201.0.0/16")
	}
	return a
}

// rotate has the gateway of a town replace its key.
func (w *town) rotate(t *testing.T) {
	t.Helper()
	w.give(t, order{Rotate: true})
}

// rotated waits until a gateway has another key than before, and the other town has been given
// it.
func (p *pairOfTowns) rotated(t *testing.T, w *town, before string) {
	t.Helper()
	require.Eventually(t, func() bool {
		a := p.exchange(t, w)
		return a.PublicKey != before && a.NextPublicKey == ""
	}, patience, 50*time.Millisecond, "%s replaces its key", w.ClusterID)
}

// mostLost is far below what a session loses that has to wait for its next handshake: 5 s.
const mostLost = 1500

// A gateway replaces its key under traffic: the one that dials, then the other one, then both
// at the same time.
func TestNetnsRotation(t *testing.T) {
	p := newPairOfTowns(t)
	for name, towns := range map[string][]*town{"of the one that dials": {p.rome}, "of the one that is dialled": {p.milan}, "of both": {p.rome, p.milan}} {
		before := map[*town]string{}
		s := p.rome.stream(t)
		for _, w := range towns {
			before[w] = p.exchange(t, w).PublicKey
			w.rotate(t)
		}
		require.Eventually(t, func() bool {
			left := false
			for _, w := range towns {
				a := p.exchange(t, w)
				left = left || a.PublicKey == before[w] || a.NextPublicKey != ""
			}
			return !left
		}, patience, 50*time.Millisecond, name)
		p.rome.reaches(t, "after the rotation "+name)
		s.end()
		lost, sent, hole := s.lost()
		t.Logf("rotation %s: %d of %d packets lost, longest hole %s (the goal is 200 ms)", name, lost, sent, hole)
		require.NotZero(t, sent)
		require.Less(t, lost, mostLost, name)
		for _, w := range []*town{p.rome, p.milan} {
			require.True(t, isConnected(w.ask(t)), "the tunnel was up all the time")
		}
	}
}

// A peer that is away while the key is replaced is reached again, when it has the new key from
// its API server. So is one whose gateway is killed after it has accepted the next key.
func TestNetnsRotationWithoutThePeer(t *testing.T) {
	t.Parallel()
	p := newPairOfTowns(t)
	before := p.exchange(t, p.rome).PublicKey
	p.milan.down(t, unix.SIGKILL)
	p.rome.eventually(t, "the peer is silent", func(o told) bool { return !isConnected(o) })
	p.rome.rotate(t)
	require.Eventually(t, func() bool { return p.rome.announced(t).PublicKey != before }, patience, 50*time.Millisecond)
	p.milan.up(t)
	p.milan.announced(t)
	p.says = map[*town]string{} // its fake API server is new as well
	p.exchange(t, p.rome)
	p.exchange(t, p.milan)
	p.milan.reaches(t, "after a rotation while it was away")
	p.rome.reaches(t, "after a rotation while the peer was away")

	// The gateway is killed in the middle.
	before = p.exchange(t, p.rome).PublicKey
	p.rome.rotate(t)
	p.rome.eventually(t, "the next key is announced", func(o told) bool {
		a, err := readAnnouncement(o.Lease)
		return err == nil && a.NextPublicKey != ""
	})
	p.rome.down(t, syscall.SIGKILL)
	p.rome.up(t)
	p.says = map[*town]string{}
	p.exchange(t, p.milan)
	p.rotated(t, p.rome, before)
	p.rome.reaches(t, "after a kill in the middle of a rotation")
	p.milan.reaches(t, "after a kill of the peer in the middle of a rotation")
}
