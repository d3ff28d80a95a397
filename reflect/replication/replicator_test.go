package replication

import (
	"context"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	corefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/health"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
)

// TestMain leaves errors of informers to the handler that logs them. The next one sleeps until
// a time after the last error, which the clock of a bubble would reach years later.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	os.Exit(m.Run())
}

type nm = offloadingv1beta1.NamespaceMap

func homeMap(desired map[string]string) *nm {
	return &nm{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan", UID: "home", Generation: 4},
		Spec: offloadingv1beta1.NamespaceMapSpec{DesiredMapping: desired}}
}

func remoteMap(desired map[string]string) *nm {
	return &nm{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-rome", Name: "milan", UID: "copy", Generation: 2, Labels: map[string]string{
		offloadingv1beta1.ReplicatedLabel: "true", offloadingv1beta1.OriginIDLabel: "rome", corev1beta1.RemoteClusterIDLabel: "rome"}},
		Spec: offloadingv1beta1.NamespaceMapSpec{DesiredMapping: desired}}
}

func accepted(name string) offloadingv1beta1.RemoteNamespaceStatus {
	return offloadingv1beta1.RemoteNamespaceStatus{RemoteNamespace: name, Phase: offloadingv1beta1.MappingAccepted}
}

func TestPullNamespaceMap(t *testing.T) {
	desired := map[string]string{"web": "web-rome"}
	ok := map[string]offloadingv1beta1.RemoteNamespaceStatus{"web": accepted("web-rome")}
	status := func(observed int64, current map[string]offloadingv1beta1.RemoteNamespaceStatus) offloadingv1beta1.NamespaceMapStatus {
		return offloadingv1beta1.NamespaceMapStatus{ObservedGeneration: observed, CurrentMapping: current}
	}
	for name, tc := range map[string]struct {
		before, remote, want offloadingv1beta1.NamespaceMapStatus
		copied               map[string]string
	}{
		"an answer":                   {status(0, nil), status(2, ok), status(4, ok), desired},
		"no answer yet keeps the old": {status(3, ok), status(0, nil), status(3, ok), desired},
		"an answer to an older copy":  {status(3, nil), status(1, ok), status(3, ok), desired},
		"the copy differs still":      {status(3, nil), status(2, ok), status(3, ok), map[string]string{"web": "other"}},
		"what was not asked":          {status(0, nil), status(2, map[string]offloadingv1beta1.RemoteNamespaceStatus{"kube-system": accepted("x")}), status(4, nil), desired},
		"another name than asked":     {status(0, nil), status(2, map[string]offloadingv1beta1.RemoteNamespaceStatus{"web": accepted("x")}), status(4, map[string]offloadingv1beta1.RemoteNamespaceStatus{"web": {RemoteNamespace: "x", Phase: offloadingv1beta1.MappingTerminating}}), desired},
		"no longer asked": {status(3, map[string]offloadingv1beta1.RemoteNamespaceStatus{"old": accepted("old")}),
			status(2, map[string]offloadingv1beta1.RemoteNamespaceStatus{"old": accepted("old")}),
			status(4, map[string]offloadingv1beta1.RemoteNamespaceStatus{"old": {RemoteNamespace: "old", Phase: offloadingv1beta1.MappingTerminating}}), desired},
	} {
		t.Run(name, func(t *testing.T) {
			home, remote := homeMap(desired), remoteMap(tc.copied)
			home.Status, remote.Status = tc.before, tc.remote
			pullNamespaceMap(remote, home)
			require.Equal(t, tc.want, home.Status)
		})
	}
}

// TestPullNamespaceMapUnacceptable requires that invalid parts of a peer's status do not
// keep the valid ones from being copied.
func TestPullNamespaceMapUnacceptable(t *testing.T) {
	home, remote := homeMap(map[string]string{"web": "web-rome", "db": "db-rome"}), remoteMap(map[string]string{"web": "web-rome", "db": "db-rome"})
	home.Status = offloadingv1beta1.NamespaceMapStatus{ObservedGeneration: 4, CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{"web": accepted("web-rome")}}
	told := func(kind, reason, message string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: message, ObservedGeneration: -1, LastTransitionTime: metav1.Unix(1, 0)}
	}
	remote.Status = offloadingv1beta1.NamespaceMapStatus{ObservedGeneration: remote.Generation,
		CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{
			"web": {RemoteNamespace: "web-rome", Phase: "Exploded"},
			"db":  {RemoteNamespace: "db-rome", Phase: offloadingv1beta1.MappingCreationLoopBackOff, Message: strings.Repeat("x", 1<<20)},
		},
		Conditions: []metav1.Condition{told("Ready", "Well", strings.Repeat("x", 1<<20)), told("Ready", "Again", ""), told("not a type!", "Well", ""), told("Other", "no reason", "")},
	}
	pullNamespaceMap(remote, home)
	require.Equal(t, accepted("web-rome"), home.Status.CurrentMapping["web"], "what was said before stands")
	require.Len(t, home.Status.CurrentMapping["db"].Message, maxMessage)
	require.Len(t, home.Status.Conditions, 1)
	require.Equal(t, "Again", home.Status.Conditions[0].Reason)
	require.Empty(t, validation.ValidateConditions(home.Status.Conditions, nil))
}

// ways is a directory of peers.
type ways struct {
	mu   sync.Mutex
	byID map[string]Peer
}

func (w *ways) Peer(id string) (Peer, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p, ok := w.byID[id]
	return p, ok
}

// set replaces a peer; nil removes it.
func (w *ways) set(id string, peer *Peer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.byID, id)
	if peer != nil {
		w.byID[id] = *peer
	}
}

func to(id string, peer Peer) *ways { return &ways{byID: map[string]Peer{id: peer}} }

// started runs the informers of a pair or a pull, and no workers: the test calls sync itself.
func started[P interface{ wire() error }](t *testing.T, p P, factory *externalversions.SharedInformerFactory) P {
	t.Helper()
	require.NoError(t, p.wire()) // makes the factory
	(*factory).Start(t.Context().Done())
	(*factory).WaitForCacheSync(t.Context().Done())
	return p
}

type world struct {
	t            *testing.T
	home, remote *fake.Clientset
	core         *corefake.Clientset
	informers    externalversions.SharedInformerFactory
	peers        *ways
	r            *Replicator
}

func newWorld(t *testing.T, home, remote []runtime.Object) *world {
	w := &world{t: t, home: fake.NewSimpleClientset(home...), remote: fake.NewSimpleClientset(remote...), peers: &ways{byID: map[string]Peer{}}}
	w.informers = externalversions.NewSharedInformerFactory(w.home, 0)
	w.core = corefake.NewClientset()
	w.r = New(configOf(t, w.informers, Config{ClusterID: "rome", Kube: w.core, Liqo: w.home, Peers: w.peers}))
	w.peers.set("milan", w.way("1"))
	w.r.Changed("milan")
	return w
}

// configOf returns a configuration of a cluster that uses no peer, and starts its informers.
func configOf(t *testing.T, f externalversions.SharedInformerFactory, cfg Config) Config {
	no := func(context.Context, string) (bool, error) { return false, nil }
	sharing := f.Sharing().V1alpha1()
	cfg.Maps, cfg.Requests, cfg.Offers = f.Offloading().V1beta1().NamespaceMaps(), sharing.ResourceRequests(), sharing.ResourceOffers()
	cfg.Configurations, cfg.CapacityWanted, cfg.NetworkPublished = f.Networking().V1beta1().Configurations(), no, no
	cfg.Env = loop.Env{Clock: clock.RealClock{}, Log: zaptest.NewLogger(t), Observer: health.NewTracker(5*time.Minute, clock.RealClock{})}
	cfg.Forget, cfg.Delayed, cfg.HomeLost, cfg.budget = func(string) {}, func(string) {}, func() time.Time { return time.Time{} }, newBudget()
	cfg.Maps.Informer()
	cfg.Requests.Informer()
	cfg.Offers.Informer()
	cfg.Configurations.Informer()
	f.Start(t.Context().Done())
	f.WaitForCacheSync(t.Context().Done())
	return cfg
}

func (w *world) way(revision string) *Peer {
	return &Peer{Revision: revision, Liqo: w.remote, Identity: func(context.Context) error { return nil }}
}

func (w *world) run() (stop func()) {
	return kubetest.Run(w.t, w.r.Run)
}

func (w *world) copied() *nm { return get(w.t, w.remote, "liqo-tenant-rome", "milan") }
func (w *world) own() *nm    { return get(w.t, w.home, "liqo-tenant-milan", "milan") }

func get(t *testing.T, c *fake.Clientset, namespace, name string) *nm {
	return kubetest.Find(t, c.OffloadingV1beta1().NamespaceMaps(namespace), name)
}

func writes(c *fake.Clientset) int {
	n := 0
	for _, a := range c.Actions() {
		switch a.GetVerb() {
		case "get", "list", "watch":
		default:
			n++
		}
	}
	return n
}

// settled lets the loops work for longer than they delay a key, and returns the numbers of writes
// so far.
func (w *world) settled() (home, remote int) {
	return kubetest.Settled(2*time.Minute, w.home), writes(w.remote)
}

func TestThereAndBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, []runtime.Object{homeMap(map[string]string{"web": "web-rome"})}, nil)
		w.run()
		w.settled()
		require.Equal(t, remoteMap(nil).Labels, w.copied().Labels)
		require.Equal(t, map[string]string{"web": "web-rome"}, w.copied().Spec.DesiredMapping)

		m := w.copied()
		m.Status = offloadingv1beta1.NamespaceMapStatus{ObservedGeneration: 1, CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{"web": accepted("web-rome")}}
		kubetest.UpdateStatus(t, w.remote.OffloadingV1beta1().NamespaceMaps(m.Namespace), m)
		w.settled()
		require.Equal(t, accepted("web-rome"), w.own().Status.CurrentMapping["web"])

		h := w.own()
		h.Spec.DesiredMapping = map[string]string{"shop": "shop-rome"}
		kubetest.Update(t, w.home.OffloadingV1beta1().NamespaceMaps(h.Namespace), h)
		w.settled()
		require.Equal(t, map[string]string{"shop": "shop-rome"}, w.copied().Spec.DesiredMapping)

		// A copy that somebody deletes or changes over there is made right.
		require.NoError(t, w.remote.OffloadingV1beta1().NamespaceMaps("liqo-tenant-rome").Delete(t.Context(), "milan", metav1.DeleteOptions{}))
		w.settled()
		require.NotNil(t, w.copied(), "made again")
		require.NotEmpty(t, w.own().Status.CurrentMapping, "an answer stands until there is another")

		require.NoError(t, w.home.OffloadingV1beta1().NamespaceMaps("liqo-tenant-milan").Delete(t.Context(), "milan", metav1.DeleteOptions{}))
		w.settled()
		require.Nil(t, w.copied(), "the deletion follows")
	})
}

func TestRestartWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		desired := map[string]string{"web": "web-rome"}
		home, remote := homeMap(desired), remoteMap(desired)
		remote.Status = offloadingv1beta1.NamespaceMapStatus{ObservedGeneration: 2, CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{"web": accepted("web-rome")}}
		home.Status = *remote.Status.DeepCopy()
		home.Status.ObservedGeneration = 4
		w := newWorld(t, []runtime.Object{home}, []runtime.Object{remote})
		for range 2 { // leadership comes twice
			stop := w.run()
			h, r := w.settled()
			require.Zero(t, h)
			require.Zero(t, r)
			stop()
		}
	})
}

func TestDeletedWhileAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil, []runtime.Object{remoteMap(map[string]string{"web": "web-rome"})})
		w.run()
		w.settled()
		require.Nil(t, w.copied(), "the deletion is caught up")
		deletes := 0
		for _, a := range w.remote.Actions() {
			if d, ok := a.(clienttesting.DeleteActionImpl); ok {
				deletes++
				require.EqualValues(t, "copy", *d.DeleteOptions.Preconditions.UID)
			}
		}
		require.Equal(t, 1, deletes)
	})
}

// TestStaleCacheDeletesNothing has a cache in which the NamespaceMap is missing although
// it exists.
func TestStaleCacheDeletesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home := homeMap(map[string]string{"web": "web-rome"})
		w := newWorld(t, []runtime.Object{home}, []runtime.Object{remoteMap(map[string]string{"web": "web-rome"})})
		require.NoError(t, w.informers.Offloading().V1beta1().NamespaceMaps().Informer().GetStore().Delete(home))
		w.run()
		_, remote := w.settled()
		require.Zero(t, remote)
	})
}

func TestPeerComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home := homeMap(map[string]string{"web": "web-rome"})
		home.Status.CurrentMapping = map[string]offloadingv1beta1.RemoteNamespaceStatus{"web": accepted("web-rome")}
		w := newWorld(t, []runtime.Object{home}, nil)
		var away atomic.Bool
		away.Store(true)
		w.remote.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			return away.Load(), nil, apierrors.NewServiceUnavailable("away")
		})
		stop := w.run()
		h, _ := w.settled()
		require.Zero(t, h, "a peer that is away changes nothing here")
		require.NotContains(t, w.own().Status.CurrentMapping, "shop")

		w.peers.set("milan", nil)
		w.r.Changed("milan")
		w.settled()
		require.Empty(t, w.r.running, "stopped")
		away.Store(false)
		w.peers.set("milan", w.way("2"))
		w.r.Changed("milan")
		w.settled()
		require.NotNil(t, w.copied())
		require.Equal(t, accepted("web-rome"), w.own().Status.CurrentMapping["web"])
		stop()
		require.Empty(t, w.r.running)
	})
}

func TestPeersOwnMapIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		theirs := remoteMap(map[string]string{"x": "y"})
		theirs.Labels = nil
		replicated := homeMap(map[string]string{"a": "b"})
		replicated.Name = "other"
		replicated.Labels = map[string]string{offloadingv1beta1.ReplicatedLabel: "true"}
		stray := homeMap(map[string]string{"a": "b"})
		stray.Name = "stray"
		w := newWorld(t, []runtime.Object{homeMap(map[string]string{"web": "web-rome"}), replicated, stray}, []runtime.Object{theirs})
		w.run()
		_, tried := w.settled()
		require.NotZero(t, tried)
		require.Equal(t, map[string]string{"x": "y"}, w.copied().Spec.DesiredMapping)
		require.Nil(t, get(t, w.remote, "liqo-tenant-rome", "other"))
		require.Nil(t, get(t, w.remote, "liqo-tenant-rome", "stray"))
	})
}

func TestLostLabelsAreRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := remoteMap(map[string]string{"web": "web-rome"})
		delete(remote.Labels, offloadingv1beta1.OriginIDLabel)
		w := newWorld(t, []runtime.Object{homeMap(map[string]string{"web": "web-rome"})}, []runtime.Object{remote})
		w.run()
		w.settled()
		require.Equal(t, "rome", w.copied().Labels[offloadingv1beta1.OriginIDLabel])
	})
}

// TestBothDirections has requests from rome to milan and from milan to rome.
func TestBothDirections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ofMilan := homeMap(map[string]string{"shop": "shop-milan"})
		ofMilan.Namespace, ofMilan.Name, ofMilan.UID = "liqo-tenant-rome", "rome", "milans"
		w := newWorld(t, []runtime.Object{homeMap(map[string]string{"web": "web-rome"})}, []runtime.Object{ofMilan})
		informers := externalversions.NewSharedInformerFactory(w.remote, 0)
		back := New(configOf(t, informers, Config{ClusterID: "milan", Liqo: w.remote,
			Peers: to("rome", Peer{Revision: "1", Liqo: w.home, Identity: func(context.Context) error { return nil }})}))
		back.Changed("rome")
		w.run()
		(&world{t: t, r: back}).run()

		theirs := func() *nm { return get(t, w.home, "liqo-tenant-milan", "rome") }
		home, remote := w.settled()
		require.Equal(t, []int{1, 1}, []int{home, remote}, "one copy is made in each")
		require.Equal(t, "rome", w.copied().Labels[offloadingv1beta1.OriginIDLabel])
		require.Equal(t, "milan", theirs().Labels[offloadingv1beta1.OriginIDLabel])
		require.Equal(t, map[string]string{"web": "web-rome"}, w.copied().Spec.DesiredMapping)
		require.Equal(t, map[string]string{"shop": "shop-milan"}, theirs().Spec.DesiredMapping)

		// The end of one direction leaves the other alone.
		require.NoError(t, w.home.OffloadingV1beta1().NamespaceMaps("liqo-tenant-milan").Delete(t.Context(), "milan", metav1.DeleteOptions{}))
		w.settled()
		require.Nil(t, w.copied())
		require.NotNil(t, theirs())
		require.NotNil(t, get(t, w.remote, "liqo-tenant-rome", "rome"))
	})
}
