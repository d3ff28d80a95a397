package replication

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	corefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

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
	t.Parallel()
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
	t.Parallel()
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

// peers is a directory with at most one peer.
type peers struct {
	mu   sync.Mutex
	peer *Peer
}

func (p *peers) Peer(id string) (Peer, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if id != "milan" || p.peer == nil {
		return Peer{}, false
	}
	return *p.peer, true
}

func (p *peers) set(peer *Peer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.peer = peer
}

type world struct {
	t            *testing.T
	home, remote *fake.Clientset
	core         *corefake.Clientset
	informers    externalversions.SharedInformerFactory
	peers        *peers
	r            *Replicator
}

func newWorld(t *testing.T, home, remote []runtime.Object) *world {
	w := &world{t: t, home: fake.NewSimpleClientset(home...), remote: fake.NewSimpleClientset(remote...), peers: &peers{}}
	w.informers = externalversions.NewSharedInformerFactory(w.home, 0)
	w.core = corefake.NewClientset()
	w.r = New(Config{ClusterID: "rome", Kube: w.core, Liqo: w.home, Maps: w.informers.Offloading().V1beta1().NamespaceMaps(), Peers: w.peers, Log: zaptest.NewLogger(t)})
	w.informers.Offloading().V1beta1().NamespaceMaps().Informer()
	w.informers.Start(t.Context().Done())
	w.informers.WaitForCacheSync(t.Context().Done())
	w.peers.set(w.way("1"))
	w.r.Changed("milan")
	return w
}

func (w *world) way(revision string) *Peer {
	return &Peer{Revision: revision, Liqo: w.remote, Identity: func(context.Context) error { return nil }}
}

func (w *world) run() (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- w.r.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(w.t, <-done)
	})
	w.t.Cleanup(stop)
	return stop
}

func (w *world) eventually(what string, f func() bool) {
	w.t.Helper()
	require.Eventually(w.t, f, time.Minute, 5*time.Millisecond, what)
}

func (w *world) copied() *nm { return get(w.t, w.remote, "liqo-tenant-rome", "milan") }
func (w *world) own() *nm    { return get(w.t, w.home, "liqo-tenant-milan", "milan") }

func get(t *testing.T, c *fake.Clientset, namespace, name string) *nm {
	m, err := c.OffloadingV1beta1().NamespaceMaps(namespace).Get(context.Background(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	return m
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

func (w *world) settled() (home, remote int) {
	w.t.Helper()
	since := time.Now()
	w.eventually("writes end", func() bool {
		h, r := writes(w.home), writes(w.remote)
		if h != home || r != remote {
			home, remote, since = h, r, time.Now()
		}
		return time.Since(since) > 150*time.Millisecond
	})
	return home, remote
}

func TestThereAndBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, []runtime.Object{homeMap(map[string]string{"web": "web-rome"})}, nil)
	w.run()
	w.eventually("copied", func() bool { return w.copied() != nil })
	require.Equal(t, remoteMap(nil).Labels, w.copied().Labels)
	require.Equal(t, map[string]string{"web": "web-rome"}, w.copied().Spec.DesiredMapping)
	w.settled()

	m := w.copied()
	m.Status = offloadingv1beta1.NamespaceMapStatus{ObservedGeneration: 1, CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{"web": accepted("web-rome")}}
	_, err := w.remote.OffloadingV1beta1().NamespaceMaps(m.Namespace).UpdateStatus(t.Context(), m, metav1.UpdateOptions{})
	require.NoError(t, err)
	w.eventually("answered", func() bool { return w.own().Status.CurrentMapping["web"] == accepted("web-rome") })
	w.settled()

	h := w.own()
	h.Spec.DesiredMapping = map[string]string{"shop": "shop-rome"}
	_, err = w.home.OffloadingV1beta1().NamespaceMaps(h.Namespace).Update(t.Context(), h, metav1.UpdateOptions{})
	require.NoError(t, err)
	w.eventually("follows", func() bool { return w.copied().Spec.DesiredMapping["shop"] == "shop-rome" })
	require.NotContains(t, w.copied().Spec.DesiredMapping, "web")
	w.settled()

	// A copy that somebody deletes or changes over there is made right.
	require.NoError(t, w.remote.OffloadingV1beta1().NamespaceMaps("liqo-tenant-rome").Delete(t.Context(), "milan", metav1.DeleteOptions{}))
	w.eventually("made again", func() bool { return w.copied() != nil })
	require.NotEmpty(t, w.own().Status.CurrentMapping, "an answer stands until there is another")

	require.NoError(t, w.home.OffloadingV1beta1().NamespaceMaps("liqo-tenant-milan").Delete(t.Context(), "milan", metav1.DeleteOptions{}))
	w.eventually("deletion follows", func() bool { return w.copied() == nil })
}

func TestRestartWritesNothing(t *testing.T) {
	t.Parallel()
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
}

func TestDeletedWhileAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, []runtime.Object{remoteMap(map[string]string{"web": "web-rome"})})
	w.run()
	w.eventually("deletion is caught up", func() bool { return w.copied() == nil })
	deletes := 0
	for _, a := range w.remote.Actions() {
		if d, ok := a.(clienttesting.DeleteActionImpl); ok {
			deletes++
			require.EqualValues(t, "copy", *d.DeleteOptions.Preconditions.UID)
		}
	}
	require.Equal(t, 1, deletes)
}

// TestStaleCacheDeletesNothing has a cache in which the NamespaceMap is missing although
// it exists.
func TestStaleCacheDeletesNothing(t *testing.T) {
	t.Parallel()
	home := homeMap(map[string]string{"web": "web-rome"})
	w := newWorld(t, []runtime.Object{home}, []runtime.Object{remoteMap(map[string]string{"web": "web-rome"})})
	require.NoError(t, w.informers.Offloading().V1beta1().NamespaceMaps().Informer().GetStore().Delete(home))
	w.run()
	_, remote := w.settled()
	require.Zero(t, remote)
}

func TestImpostorIsNotWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t, []runtime.Object{homeMap(map[string]string{"web": "web-rome"})}, nil)
	var asked sync.Once
	called := make(chan struct{})
	way := w.way("2")
	way.Identity = func(context.Context) error {
		asked.Do(func() { close(called) })
		return errors.New("another cluster")
	}
	w.peers.set(way)
	w.run()
	<-called
	_, remote := w.settled()
	require.Zero(t, remote)

	w.peers.set(w.way("3")) // new credentials: the right cluster
	w.r.Changed("milan")
	w.eventually("copied", func() bool { return w.copied() != nil })
}

func TestPeerComesAndGoes(t *testing.T) {
	t.Parallel()
	home := homeMap(map[string]string{"web": "web-rome"})
	home.Status.CurrentMapping = map[string]offloadingv1beta1.RemoteNamespaceStatus{"web": accepted("web-rome")}
	w := newWorld(t, []runtime.Object{home}, nil)
	away := true
	var mu sync.Mutex
	w.remote.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		return away, nil, apierrors.NewServiceUnavailable("away")
	})
	stop := w.run()
	h, _ := w.settled()
	require.Zero(t, h, "a peer that is away changes nothing here")
	require.Nil(t, homeStatusOf(w.own(), "shop"))

	w.peers.set(nil)
	w.r.Changed("milan")
	w.eventually("stopped", func() bool { return w.r.manager.Len() == 0 })
	mu.Lock()
	away = false
	mu.Unlock()
	w.peers.set(w.way("2"))
	w.r.Changed("milan")
	w.eventually("copied", func() bool { return w.copied() != nil })
	require.Equal(t, accepted("web-rome"), w.own().Status.CurrentMapping["web"])
	stop()
	require.Empty(t, w.r.running)
}

func homeStatusOf(m *nm, ns string) *offloadingv1beta1.RemoteNamespaceStatus {
	if s, ok := m.Status.CurrentMapping[ns]; ok {
		return &s
	}
	return nil
}

func TestPeersOwnMapIsLeftAlone(t *testing.T) {
	t.Parallel()
	theirs := remoteMap(map[string]string{"x": "y"})
	theirs.Labels = nil
	replicated := homeMap(map[string]string{"a": "b"})
	replicated.Name = "other"
	replicated.Labels = map[string]string{offloadingv1beta1.ReplicatedLabel: "true"}
	stray := homeMap(map[string]string{"a": "b"})
	stray.Name = "stray"
	w := newWorld(t, []runtime.Object{homeMap(map[string]string{"web": "web-rome"}), replicated, stray}, []runtime.Object{theirs})
	w.run()
	w.eventually("tried", func() bool { return writes(w.remote) > 0 })
	require.Equal(t, map[string]string{"x": "y"}, w.copied().Spec.DesiredMapping)
	require.Nil(t, get(t, w.remote, "liqo-tenant-rome", "other"))
	require.Nil(t, get(t, w.remote, "liqo-tenant-rome", "stray"))
}

func TestLostLabelsAreRestored(t *testing.T) {
	t.Parallel()
	remote := remoteMap(map[string]string{"web": "web-rome"})
	delete(remote.Labels, offloadingv1beta1.OriginIDLabel)
	w := newWorld(t, []runtime.Object{homeMap(map[string]string{"web": "web-rome"})}, []runtime.Object{remote})
	w.run()
	w.eventually("restored", func() bool { return w.copied().Labels[offloadingv1beta1.OriginIDLabel] == "rome" })
}

// onePeer is a directory with exactly one peer.
type onePeer struct {
	id  string
	way Peer
}

func (p onePeer) Peer(id string) (Peer, bool) { return p.way, id == p.id }

// TestBothDirections has requests from rome to milan and from milan to rome.
func TestBothDirections(t *testing.T) {
	t.Parallel()
	ofMilan := homeMap(map[string]string{"shop": "shop-milan"})
	ofMilan.Namespace, ofMilan.Name, ofMilan.UID = "liqo-tenant-rome", "rome", "milans"
	w := newWorld(t, []runtime.Object{homeMap(map[string]string{"web": "web-rome"})}, []runtime.Object{ofMilan})
	informers := externalversions.NewSharedInformerFactory(w.remote, 0)
	maps := informers.Offloading().V1beta1().NamespaceMaps()
	maps.Informer()
	informers.Start(t.Context().Done())
	informers.WaitForCacheSync(t.Context().Done())
	back := New(Config{ClusterID: "milan", Liqo: w.remote, Maps: maps, Log: zaptest.NewLogger(t),
		Peers: onePeer{"rome", Peer{Revision: "1", Liqo: w.home, Identity: func(context.Context) error { return nil }}}})
	back.Changed("rome")
	w.run()
	(&world{t: t, r: back}).run()

	theirs := func() *nm { return get(t, w.home, "liqo-tenant-milan", "rome") }
	w.eventually("copied to milan", func() bool { return w.copied() != nil })
	w.eventually("copied to rome", func() bool { return theirs() != nil })
	home, remote := w.settled()
	require.Equal(t, []int{1, 1}, []int{home, remote}, "one copy is made in each")
	require.Equal(t, "rome", w.copied().Labels[offloadingv1beta1.OriginIDLabel])
	require.Equal(t, "milan", theirs().Labels[offloadingv1beta1.OriginIDLabel])
	require.Equal(t, map[string]string{"web": "web-rome"}, w.copied().Spec.DesiredMapping)
	require.Equal(t, map[string]string{"shop": "shop-milan"}, theirs().Spec.DesiredMapping)

	// The end of one direction leaves the other alone.
	require.NoError(t, w.home.OffloadingV1beta1().NamespaceMaps("liqo-tenant-milan").Delete(t.Context(), "milan", metav1.DeleteOptions{}))
	w.eventually("withdrawn from milan", func() bool { return w.copied() == nil })
	w.settled()
	require.NotNil(t, theirs())
	require.NotNil(t, get(t, w.remote, "liqo-tenant-rome", "rome"))
}
