package endpoints

import (
	"errors"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"

	liqodfake "github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
)

// rig is an Enforcer before a fake API server that keeps UIDs, resource versions and
// finalizers. The test refreshes the caches itself. It starts no goroutine.
type rig struct {
	t      *testing.T
	core   *fake.Clientset
	liqod  *liqodfake.Clientset
	clock  *clocktesting.FakePassiveClock
	events *record.FakeRecorder
	e      *Enforcer

	serial int
	writes []string // verb and resource of each write of the Enforcer
	reads  int
	refuse map[string]error                       // answer to a write, by verb and resource
	lost   map[string]bool                        // writes that are applied but whose answer is lost
	admit  func(slice *discoveryv1.EndpointSlice) // what admission changes in every write; may be nil
}

var errLost = errors.New("connection lost") // a sentinel of the tests

func newRig(t *testing.T, shadow *offloadingv1beta1.ShadowEndpointSlice, slices ...*discoveryv1.EndpointSlice) *rig {
	r := &rig{
		t: t, core: fake.NewClientset(), liqod: liqodfake.NewSimpleClientset(),
		clock: clocktesting.NewFakePassiveClock(testTime()), refuse: map[string]error{}, lost: map[string]bool{},
	}
	r.core.PrependReactor("*", "endpointslices", r.reactSlices)
	r.liqod.PrependReactor("*", "shadowendpointslices", r.reactShadows)
	if shadow != nil {
		shadow.ResourceVersion = r.next()
		require.NoError(t, r.liqod.Tracker().Add(shadow))
	}
	for _, slice := range slices {
		require.NoError(t, r.core.Tracker().Add(slice))
	}
	r.restart()
	return r
}

func (r *rig) next() string { r.serial++; return strconv.Itoa(1000 + r.serial) }

// restart replaces the Enforcer by a new process with freshly listed caches. The consumer's
// health stays.
func (r *rig) restart() {
	fcs := []any{peer()}
	var nodes, pods []any
	if r.e != nil {
		fcs, nodes, pods = r.e.cfg.ForeignClusters.GetStore().List(), r.e.cfg.Nodes.GetStore().List(), r.e.cfg.Pods.GetStore().List()
	}
	r.events = record.NewFakeRecorder(100)
	shared, selected := informers.NewSharedInformerFactory(r.core, 0), informers.NewSharedInformerFactory(r.core, 0)
	cfg := config(r.core, r.liqod, externalversions.NewSharedInformerFactory(r.liqod, 0), shared, selected)
	cfg.Recorder, cfg.Env.Clock = r.events, r.clock
	e := New(cfg)
	r.e = e
	require.NoError(r.t, e.cfg.Namespaces.GetIndexer().Add(twin()))
	require.NoError(r.t, e.cfg.ForeignClusters.GetIndexer().Replace(fcs, ""))
	require.NoError(r.t, e.cfg.Nodes.GetIndexer().Replace(nodes, ""))
	require.NoError(r.t, e.cfg.Pods.GetIndexer().Replace(pods, ""))
	r.refresh()
}

func (r *rig) key() loop.Key { return loop.Key{Namespace: testNamespace, Name: testName} }

func (r *rig) slice() *discoveryv1.EndpointSlice {
	obj, err := r.core.Tracker().Get(discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), testNamespace, testName)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(r.t, err)
	slice := obj.(*discoveryv1.EndpointSlice).DeepCopy()
	slice.ManagedFields = nil // the caches have none
	return slice
}

func (r *rig) shadow() *offloadingv1beta1.ShadowEndpointSlice {
	obj, err := r.liqod.Tracker().Get(offloadingv1beta1.SchemeGroupVersion.WithResource("shadowendpointslices"), testNamespace, testName)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(r.t, err)
	return obj.(*offloadingv1beta1.ShadowEndpointSlice).DeepCopy()
}

// refresh updates the caches from the API server and delivers the deletions to the
// Enforcer.
func (r *rig) refresh() { r.refreshShadow(); r.refreshSlice() }

func (r *rig) refreshShadow() {
	if s := r.shadow(); s != nil {
		require.NoError(r.t, r.e.cfg.Shadows.GetIndexer().Add(s))
		return
	}
	for _, shadow := range r.e.shadows.List() {
		require.NoError(r.t, r.e.cfg.Shadows.GetIndexer().Delete(shadow))
		r.e.shadows.Gone(shadow)
		r.e.shadowGone(shadow, false)
	}
}

func (r *rig) refreshSlice() {
	have := r.slice()
	shown := have != nil && have.Labels[discoveryv1.LabelManagedBy] == offloadingv1beta1.ManagedByShadowEndpointSlice
	for _, slice := range r.e.slices.List() {
		if !shown || have.UID != slice.UID {
			require.NoError(r.t, r.e.cfg.Slices.GetIndexer().Delete(slice))
			r.e.slices.Gone(slice)
			r.e.sliceGone(slice, true)
		}
	}
	if shown {
		require.NoError(r.t, r.e.cfg.Slices.GetIndexer().Add(have))
	}
}

// peer replaces all ForeignClusters by one.
func (r *rig) peer(mods ...clusterMod) {
	require.NoError(r.t, r.e.cfg.ForeignClusters.GetIndexer().Replace([]any{peer(mods...)}, ""))
}

func (r *rig) noPeer() {
	require.NoError(r.t, r.e.cfg.ForeignClusters.GetIndexer().Replace(nil, ""))
}

func (r *rig) node(name string, addresses ...string) *corev1.Node {
	node := &corev1.Node{}
	node.Name = name
	for _, a := range addresses {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	require.NoError(r.t, r.e.cfg.Nodes.GetIndexer().Add(node))
	return node
}

// pod adds or changes a pod that runs in this cluster for the consumer.
func (r *rig) pod(address string, mods ...func(*corev1.Pod)) {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name, pod.Labels = testNamespace, "pod-"+address, map[string]string{offloadingv1beta1.OriginLabel: origin}
	pod.Spec.NodeName, pod.Status.PodIPs = "milan-sim-1", []corev1.PodIP{{IP: address}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	for _, mod := range mods {
		mod(pod)
	}
	require.NoError(r.t, r.e.cfg.Pods.GetIndexer().Add(pod))
}

// sync runs one sync with the caches as they are, and returns the writes.
func (r *rig) sync() ([]string, error) {
	r.writes = nil
	err := r.e.sync(r.t.Context(), r.key())
	return r.writes, err
}

// syncs is sync, which succeeds.
func (r *rig) syncs() []string {
	r.t.Helper()
	writes, err := r.sync()
	require.NoError(r.t, err)
	return writes
}

// settle refreshes the caches and syncs until there are no more writes, and returns the
// writes.
func (r *rig) settle() []string {
	r.t.Helper()
	var all []string
	for range 20 {
		r.refresh()
		writes, err := r.sync()
		all = append(all, writes...)
		if len(writes) == 0 && !errors.Is(err, errLost) {
			return all
		}
	}
	r.t.Fatalf("it does not come to rest: %v", all)
	return nil
}

func (r *rig) change(mods ...sliceMod) {
	slice := r.slice()
	for _, mod := range mods {
		mod(slice)
	}
	slice.ResourceVersion = r.next()
	require.NoError(r.t, r.core.Tracker().Update(discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), slice, testNamespace))
}

func (r *rig) changeShadow(mods ...shadowMod) {
	s := r.shadow()
	for _, mod := range mods {
		mod(s)
	}
	s.Generation++
	s.ResourceVersion = r.next()
	require.NoError(r.t, r.liqod.Tracker().Update(offloadingv1beta1.SchemeGroupVersion.WithResource("shadowendpointslices"), s, testNamespace))
}

func (r *rig) deleteSlice() {
	require.NoError(r.t, r.core.Tracker().Delete(discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), testNamespace, testName))
}

func (r *rig) deleteShadow() {
	require.NoError(r.t, r.liqod.Tracker().Delete(offloadingv1beta1.SchemeGroupVersion.WithResource("shadowendpointslices"), testNamespace, testName))
}

// reason returns the reason of the shadow's condition Enforced.
func (r *rig) reason() string {
	if c := r.shadow().Status.Conditions; len(c) > 0 {
		return c[0].Reason
	}
	return ""
}

// ready lists the endpoints: +address if ready, else -address.
func (r *rig) ready() []string {
	var out []string
	for _, e := range r.slice().Endpoints {
		sign := "-"
		if *e.Conditions.Ready {
			sign = "+"
		}
		out = append(out, sign+e.Addresses[0])
	}
	return out
}

func (r *rig) note(what string, act func() (runtime.Object, error)) (bool, runtime.Object, error) {
	r.writes = append(r.writes, what)
	if err := r.refuse[what]; err != nil {
		return true, nil, err
	}
	obj, err := act()
	if r.lost[what] {
		return true, nil, errLost
	}
	return true, obj, err
}

func (r *rig) reactSlices(a clienttesting.Action) (bool, runtime.Object, error) {
	gvr := a.GetResource()
	switch a := a.(type) {
	case clienttesting.CreateActionImpl:
		return r.note("create", func() (runtime.Object, error) {
			slice := a.GetObject().(*discoveryv1.EndpointSlice).DeepCopy()
			slice.UID, slice.ResourceVersion = types.UID("made-"+r.next()), r.next()
			if r.admit != nil {
				r.admit(slice)
			}
			return slice, r.core.Tracker().Create(gvr, slice, slice.Namespace)
		})
	case clienttesting.DeleteActionImpl:
		return r.note("delete", func() (runtime.Object, error) {
			have := r.slice()
			switch {
			case have == nil:
				return nil, apierrors.NewNotFound(gvr.GroupResource(), testName)
			case a.GetDeleteOptions().Preconditions == nil || *a.GetDeleteOptions().Preconditions.UID != have.UID:
				return nil, apierrors.NewConflict(gvr.GroupResource(), testName, errors.New("UID"))
			case len(have.Finalizers) > 0:
				r.change(deleting)
				return nil, nil
			}
			return nil, r.core.Tracker().Delete(gvr, testNamespace, testName)
		})
	case clienttesting.UpdateActionImpl:
		return r.note("update", func() (runtime.Object, error) { return r.update(a) })
	}
	r.reads++
	return false, nil, nil
}

func (r *rig) update(a clienttesting.UpdateActionImpl) (runtime.Object, error) {
	next, have := a.GetObject().(*discoveryv1.EndpointSlice).DeepCopy(), r.slice()
	if have == nil {
		return nil, apierrors.NewNotFound(a.GetResource().GroupResource(), testName)
	}
	if next.UID != have.UID || next.ResourceVersion != have.ResourceVersion {
		return nil, apierrors.NewConflict(a.GetResource().GroupResource(), testName, errors.New("UID or version"))
	}
	if r.admit != nil {
		r.admit(next)
	}
	r.change(func(s *discoveryv1.EndpointSlice) { *s = *next })
	return r.slice(), nil
}

func (r *rig) reactShadows(a clienttesting.Action) (bool, runtime.Object, error) {
	update, ok := a.(clienttesting.UpdateActionImpl)
	if !ok {
		r.reads++
		return false, nil, nil
	}
	return r.note("status", func() (runtime.Object, error) {
		next, have := update.GetObject().(*offloadingv1beta1.ShadowEndpointSlice), r.shadow()
		if have == nil {
			return nil, apierrors.NewNotFound(a.GetResource().GroupResource(), testName)
		}
		if next.ResourceVersion != have.ResourceVersion {
			return nil, apierrors.NewConflict(a.GetResource().GroupResource(), testName, errors.New("stale"))
		}
		have.Status, have.ResourceVersion = next.Status, r.next()
		return have, r.liqod.Tracker().Update(a.GetResource(), have, testNamespace)
	})
}
