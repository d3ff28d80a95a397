package replication

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/health"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
)

// counter counts the queued keys and passes them to a tracker.
type counter struct {
	*health.Tracker
	mu     sync.Mutex
	queued map[string]int
}

func (c *counter) Queued(name string, key loop.Key) {
	c.mu.Lock()
	c.queued[name]++
	c.mu.Unlock()
	c.Tracker.Queued(name, key)
}

func (c *counter) count(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queued[name]
}

// TestAPeerThatIsAwayIsNotLate has one reachable peer, and another that is unreachable
// for hours.
func TestAPeerThatIsAwayIsNotLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		oslos := homeMap(map[string]string{"web": "web-rome"})
		oslos.Namespace, oslos.Name, oslos.UID = "liqo-tenant-oslo", "oslo", "home-oslo"
		w := newWorld(t, []runtime.Object{homeMap(map[string]string{"web": "web-rome"}), oslos}, nil)
		oslo, away := fake.NewSimpleClientset(), &atomic.Bool{}
		away.Store(true)
		oslo.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			return away.Load(), nil, apierrors.NewServiceUnavailable("away")
		})
		identity := func(context.Context) error { return nil }
		directory := &ways{byID: map[string]Peer{"milan": *w.way("1"), "oslo": {Revision: "1", Liqo: oslo, Identity: identity}}}
		observer := &counter{Tracker: health.NewTracker(5*time.Minute, clock.RealClock{}), queued: map[string]int{}}
		forgotten := make(chan string, 10)
		cfg := w.r.cfg
		cfg.Log, cfg.Peers, cfg.Observer, cfg.Forget = zaptest.NewLogger(t), directory, observer, func(name string) { forgotten <- name }
		w.r = New(cfg)
		w.r.Changed("milan")
		w.r.Changed("oslo")
		w.run()
		w.settled()
		require.NotNil(t, w.copied())
		require.NotZero(t, observer.count("replica-NamespaceMap-milan"))
		oslos.Spec.DesiredMapping = map[string]string{"shop": "shop-rome"}
		kubetest.Update(t, w.home.OffloadingV1beta1().NamespaceMaps(oslos.Namespace), oslos)
		time.Sleep(6 * time.Minute)
		w.settled()
		require.NoError(t, observer.Check())
		require.Zero(t, observer.count("replica-NamespaceMap-oslo"))

		away.Store(false)
		w.settled()
		require.NotNil(t, get(t, oslo, "liqo-tenant-rome", "oslo"))
		require.NotZero(t, observer.count("replica-NamespaceMap-oslo"), "from the sync on, keys count")
		directory.set("oslo", nil)
		w.r.Changed("oslo")
		for <-forgotten != "replica-NamespaceMap-oslo" {
			continue // another kind of oslo's
		}
	})
}

func (w *world) trouble() string {
	c := meta.FindStatusCondition(w.own().Status.Conditions, offloadingv1beta1.RemoteNamespaceReady)
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + c.Reason + ": " + c.Message
}

// TestTroubleIsShown has a peer that rejects requests in several ways and later accepts
// them.
func TestTroubleIsShown(t *testing.T) {
	forbidden := func(verb string) error {
		return apierrors.NewForbidden(offloadingv1beta1.Resource("namespacemaps"), "milan", errors.New("no right to "+verb))
	}
	theirs := remoteMap(map[string]string{"x": "y"})
	theirs.Labels = nil
	for name, tc := range map[string]struct {
		remote   []runtime.Object
		verb     string // refused by the peer
		identity error
		want     string
	}{
		"no right to create":      {nil, "create", nil, "no right to create"},
		"no right to watch":       {nil, "list", nil, "no right to list"},
		"no right to update":      {[]runtime.Object{remoteMap(nil)}, "update", nil, "no right to update"},
		"another cluster":         {nil, "", errors.New("another cluster answers"), "another cluster answers"},
		"a map of the peer's own": {[]runtime.Object{theirs}, "", nil, "the peer has its own NamespaceMap liqo-tenant-rome/milan"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, []runtime.Object{homeMap(map[string]string{"web": "web-rome"})}, tc.remote)
				bad := &atomic.Bool{}
				bad.Store(true)
				if tc.verb != "" {
					w.remote.PrependReactor(tc.verb, "namespacemaps", func(clienttesting.Action) (bool, runtime.Object, error) {
						return bad.Load(), nil, forbidden(tc.verb)
					})
				}
				way, asked := w.way("2"), &atomic.Int32{}
				way.Identity = func(context.Context) error {
					asked.Add(1)
					if bad.Load() {
						return tc.identity
					}
					return nil
				}
				w.peers.set("milan", way)
				w.run()
				before, sent := w.settled()
				require.NotZero(t, asked.Load(), "the peer is asked who it is")
				if tc.identity != nil {
					require.Zero(t, sent, "nothing is written to another cluster")
				}
				require.Contains(t, w.trouble(), "False ReplicationFailed: ")
				require.Contains(t, w.trouble(), tc.want)
				home, _ := w.settled()
				require.Equal(t, before, home, "what is shown already is not written again")

				bad.Store(false)
				if tc.remote != nil && tc.verb == "" {
					require.NoError(t, w.remote.OffloadingV1beta1().NamespaceMaps("liqo-tenant-rome").Delete(t.Context(), "milan", metav1.DeleteOptions{}))
				}
				w.settled()
				require.Empty(t, w.trouble(), "it is taken back")
				require.Equal(t, map[string]string{"web": "web-rome"}, w.copied().Spec.DesiredMapping)
			})
		})
	}
}

// TestSwappedCluster replaces the cluster at the address of a peer.
func TestSwappedCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, []runtime.Object{homeMap(map[string]string{"web": "web-rome"})}, nil)
		swapped := &atomic.Bool{}
		way := w.way("2")
		way.Identity = func(context.Context) error {
			if swapped.Load() {
				return errors.New("another cluster answers")
			}
			return nil
		}
		w.peers.set("milan", way)
		w.run()
		_, before := w.settled()
		require.NotNil(t, w.copied())

		swapped.Store(true)
		h := w.own()
		h.Spec.DesiredMapping = map[string]string{"shop": "shop-rome"}
		kubetest.Update(t, w.home.OffloadingV1beta1().NamespaceMaps(h.Namespace), h)
		_, after := w.settled()
		require.NotEmpty(t, w.trouble())
		require.Equal(t, before, after)
		require.Contains(t, w.copied().Spec.DesiredMapping, "web")
	})
}

// TestRefusedLater has a peer that revokes the right to watch after the caches have
// synced.
func TestRefusedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		desired := map[string]string{"web": "web-rome"}
		w := newWorld(t, []runtime.Object{homeMap(desired)}, []runtime.Object{remoteMap(desired)})
		clk := clocktesting.NewFakeClock(time.Now())
		p := w.pair(clk)
		p.watchFailed(t.Context(), apierrors.NewForbidden(offloadingv1beta1.Resource("namespacemaps"), "milan", errors.New("no right")))
		synctest.Wait() // the cache has it
		require.NotEmpty(t, w.trouble())
		require.ErrorContains(t, p.sync(t.Context(), milanKey), "again in", "what is cached is equal, and proves nothing")
		require.NotEmpty(t, w.trouble())
		clk.Step(unwatchedFor)
		require.NoError(t, p.sync(t.Context(), milanKey))
		require.Empty(t, w.trouble(), "it was not refused again for long")
	})
}
