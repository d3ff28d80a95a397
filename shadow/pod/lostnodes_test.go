package pod

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/reasons"
)

const forceDelete = "delete pods " + testNamespace + "/"

type nodeMod = func(*corev1.Node)

func newNode(name string, status corev1.ConditionStatus, since time.Duration, mods ...nodeMod) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("node-" + name), CreationTimestamp: ago(24 * time.Hour)},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, LastTransitionTime: ago(since)}}},
	}
	for _, mod := range mods {
		mod(n)
	}
	return n
}

// stuckPod was deleted before the given time, with a grace period of 30 s, on node lost.
func stuckPod(name string, deleted time.Duration, mods ...podMod) *corev1.Pod {
	grace, at := int64(30), ago(deleted-30*time.Second)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: testNamespace, UID: types.UID("pod-" + name), ResourceVersion: "7",
			Labels:            map[string]string{offloadingv1beta1.ManagedByLabel: offloadingv1beta1.ManagedByShadowPod},
			DeletionTimestamp: &at, DeletionGracePeriodSeconds: &grace, Finalizers: []string{offloadingv1beta1.RemotePodFinalizer},
			Annotations: map[string]string{offloadingv1beta1.ShadowPodUIDAnnotation: "shadow-1"},
		},
		Spec:   corev1.PodSpec{NodeName: "lost", Containers: []corev1.Container{{Name: "main"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, mod := range mods {
		mod(p)
	}
	return p
}

func onNode(name string) podMod { return func(p *corev1.Pod) { p.Spec.NodeName = name } }

func TestForceAt(t *testing.T) {
	minute := newNode("lost", corev1.ConditionUnknown, time.Minute)
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		node *corev1.Node
		ok   bool
		want time.Duration // from now
	}{
		"both long ago":             {stuckPod("a", time.Hour), newNode("lost", corev1.ConditionFalse, time.Hour), true, -time.Hour + 30*time.Second + clockSkew},
		"grace has not passed":      {stuckPod("a", 10*time.Second), minute, true, 20*time.Second + clockSkew},
		"NotReady for a short time": {stuckPod("a", time.Hour), newNode("lost", corev1.ConditionUnknown, 10*time.Second), true, 20*time.Second + clockSkew},
		"never reported":            {stuckPod("a", time.Hour), newNode("lost", "", 0, func(n *corev1.Node) { n.Status.Conditions = nil }), true, -time.Hour + 30*time.Second + clockSkew},
		"ended, and not removed":    {stuckPod("a", time.Hour, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), newNode("lost", corev1.ConditionFalse, time.Hour), true, -time.Hour + 30*time.Second + clockSkew},
		"Ready":                     {stuckPod("a", time.Hour), newNode("lost", corev1.ConditionTrue, time.Hour), false, 0},
		"node deleted":              {stuckPod("a", time.Hour), nil, false, 0},
		"virtual node": {stuckPod("a", time.Hour), newNode("lost", corev1.ConditionFalse, time.Hour, func(n *corev1.Node) {
			n.Labels = map[string]string{offloadingv1beta1.TypeLabel: offloadingv1beta1.TypeVirtualNode}
		}), false, 0},
		"not deleted":        {stuckPod("a", 0, func(p *corev1.Pod) { p.DeletionTimestamp = nil }), minute, false, 0},
		"not bound":          {stuckPod("a", time.Hour, onNode("")), minute, false, 0},
		"of no ShadowPod":    {stuckPod("a", time.Hour, foreign), minute, false, 0},
		"only finalizers":    {stuckPod("a", time.Hour, func(p *corev1.Pod) { p.DeletionGracePeriodSeconds = new(int64) }), minute, false, 0},
		"grace is not known": {stuckPod("a", time.Hour, func(p *corev1.Pod) { p.DeletionGracePeriodSeconds = nil }), minute, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			at, ok := forceAt(tc.pod, tc.node)
			require.Equal(t, tc.ok, ok)
			if ok {
				require.Equal(t, testTime().Add(tc.want), at.UTC())
			}
		})
	}
}

// lostRig is a LostNodes whose caches and API server hold what the test says. It starts no
// goroutine.
type lostRig struct {
	t      *testing.T
	core   *fake.Clientset
	pods   coreinformers.PodInformer
	nodes  coreinformers.NodeInformer
	clock  *clocktesting.FakePassiveClock
	events *record.FakeRecorder
	l      *LostNodes
}

// newLostRig puts the objects into the caches and the API server.
func newLostRig(t *testing.T, objects ...runtime.Object) *lostRig {
	r := &lostRig{
		t: t, core: fake.NewClientset(objects...), events: record.NewFakeRecorder(100), clock: clocktesting.NewFakePassiveClock(testTime()),
	}
	factory := informers.NewSharedInformerFactory(r.core, 0)
	r.pods, r.nodes = factory.Core().V1().Pods(), factory.Core().V1().Nodes()
	l := NewLostNodes(LostNodesConfig{Kube: r.core, Nodes: r.nodes, Pods: r.pods, Recorder: r.events, Env: loop.Env{Clock: r.clock, Log: zap.NewNop()}})
	r.l = l
	for _, obj := range objects {
		if node, ok := obj.(*corev1.Node); ok {
			require.NoError(t, r.nodes.Informer().GetIndexer().Add(node))
		} else {
			require.NoError(t, r.pods.Informer().GetIndexer().Add(obj))
		}
	}
	return r
}

func (r *lostRig) sync(name string) error {
	return r.l.sync(r.t.Context(), loop.Key{Namespace: testNamespace, Name: name})
}

// onServer changes only the API server; the caches keep what they have.
func (r *lostRig) onServer(obj runtime.Object, resource string) {
	r.t.Helper()
	namespace := ""
	if resource == "pods" {
		namespace = testNamespace
	}
	require.NoError(r.t, r.core.Tracker().Update(corev1.SchemeGroupVersion.WithResource(resource), obj, namespace))
}

func (r *lostRig) gone(resource, namespace, name string) {
	r.t.Helper()
	require.NoError(r.t, r.core.Tracker().Delete(corev1.SchemeGroupVersion.WithResource(resource), namespace, name))
}

func (r *lostRig) fails(verb, resource string, err error) {
	r.core.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
}

func TestLostNodesSync(t *testing.T) {
	refused := errors.New("refused")
	podResource := schema.GroupResource{Resource: "pods"}
	for name, tc := range map[string]struct {
		change  func(*lostRig)
		want    error // nil and no deletion: kept
		deletes bool
	}{
		"force-deleted":               {func(*lostRig) {}, nil, true},
		"node back before the delete": {func(r *lostRig) { r.onServer(newNode("lost", corev1.ConditionTrue, 0), "nodes") }, nil, false},
		"node back and lost again":    {func(r *lostRig) { r.onServer(newNode("lost", corev1.ConditionFalse, 0), "nodes") }, loop.After(30*time.Second + clockSkew), false},
		"node deleted since":          {func(r *lostRig) { r.gone("nodes", "", "lost") }, nil, false},
		"node not in the cache": {func(r *lostRig) {
			require.NoError(r.t, r.nodes.Informer().GetIndexer().Delete(newNode("lost", "", 0)))
		}, nil, false},
		"pod gone since":         {func(r *lostRig) { r.gone("pods", testNamespace, "a") }, nil, false},
		"pod of another UID":     {func(r *lostRig) { r.onServer(stuckPod("a", time.Hour, uid("other")), "pods") }, nil, false},
		"ended by the kubelet":   {func(r *lostRig) { r.onServer(stuckPod("a", time.Hour, noGrace), "pods") }, nil, false},
		"deleted already":        {func(r *lostRig) { r.fails("delete", "pods", apierrors.NewNotFound(podResource, "a")) }, nil, true},
		"changed in between":     {func(r *lostRig) { r.fails("delete", "pods", apierrors.NewConflict(podResource, "a", refused)) }, loop.After(conflictRetry), true},
		"pod cannot be read":     {func(r *lostRig) { r.fails("get", "pods", refused) }, refused, false},
		"node cannot be read":    {func(r *lostRig) { r.fails("get", "nodes", refused) }, refused, false},
		"deletion refused":       {func(r *lostRig) { r.fails("delete", "pods", refused) }, refused, true},
		"no other node is Ready": {func(r *lostRig) { require.NoError(r.t, r.nodes.Informer().GetIndexer().Delete(newNode("well", "", 0))) }, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newLostRig(t, stuckPod("a", time.Hour), newNode("lost", corev1.ConditionUnknown, time.Hour), newNode("well", corev1.ConditionTrue, time.Hour))
			tc.change(r)
			require.ErrorIs(t, r.sync("a"), tc.want)
			if !tc.deletes {
				require.Empty(t, r.events.Events)
				kubetest.RequireWrites(t, r.core)
				return
			}
			i := slices.IndexFunc(r.core.Actions(), func(a clienttesting.Action) bool { return a.GetVerb() == "delete" })
			options := r.core.Actions()[i].(clienttesting.DeleteActionImpl).DeleteOptions
			require.Zero(t, *options.GracePeriodSeconds)
			require.Equal(t, types.UID("pod-a"), *options.Preconditions.UID)
			require.Equal(t, "7", *options.Preconditions.ResourceVersion)
			kubetest.RequireWrites(t, r.core, forceDelete+"a")
			if name == "force-deleted" {
				event := <-r.events.Events
				require.Contains(t, event, "Warning "+reasons.NodeFailureForceDeleted)
				require.Contains(t, event, "node lost is NotReady since 2030-01-01T11:00:00Z; its containers may still run there")
			}
		})
	}
}

func uid(uid types.UID) podMod { return func(p *corev1.Pod) { p.UID = uid } }

func noGrace(p *corev1.Pod) { p.DeletionGracePeriodSeconds = new(int64) }

// TestLostNodesRate requires that two nodes share one bounded rate.
func TestLostNodesRate(t *testing.T) {
	r := newLostRig(t, stuckPod("a", time.Hour), stuckPod("b", time.Hour, onNode("lost-2")),
		newNode("lost", corev1.ConditionUnknown, time.Hour), newNode("lost-2", corev1.ConditionFalse, time.Hour), newNode("well", corev1.ConditionTrue, time.Hour))
	require.NoError(t, r.sync("a"))
	require.ErrorIs(t, r.sync("b"), loop.After(forceSpacing))
	kubetest.RequireWrites(t, r.core, forceDelete+"a")
	r.clock.SetTime(testTime().Add(forceSpacing))
	require.NoError(t, r.sync("b"))
	kubetest.RequireWrites(t, r.core, forceDelete+"b")
}

// TestForcedPodIsReplaced requires that the Enforcer counts the restarts of a force-deleted
// pod, which only its finalizer keeps, and creates it again.
func TestForcedPodIsReplaced(t *testing.T) {
	shadow := newShadow(always)
	lost := stuckPod(testName, time.Hour, noGrace, func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", RestartCount: 2}}
	})
	r := newRig(t, shadow, lost)
	r.settle()
	require.NotNil(t, r.pod())
	require.NotEqual(t, lost.UID, r.pod().UID)
	require.Equal(t, []offloadingv1beta1.ContainerRestarts{{Name: "main", Count: 3}}, r.shadow().Status.Restarts)
}

// TestLostNodesRun drives LostNodes through its informers: pods of the lost nodes are
// deleted when another node becomes Ready, pods of the Ready node are not.
func TestLostNodesRun(t *testing.T) {
	old := func(n *corev1.Node) {
		n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(time.Now().Add(-time.Hour))
	}
	past := func(p *corev1.Pod) { p.DeletionTimestamp.Time = time.Now().Add(-time.Hour) }
	core := fake.NewClientset(
		newNode("lost", corev1.ConditionUnknown, 0, old), newNode("lost-2", corev1.ConditionFalse, 0, old), newNode("well", corev1.ConditionFalse, 0, old),
		stuckPod("a", 0, past), stuckPod("b", 0, past, onNode("lost-2")), stuckPod("c", 0, past, onNode("well")))
	factory := informers.NewSharedInformerFactory(core, 0)
	l := NewLostNodes(LostNodesConfig{
		Kube: core, Nodes: factory.Core().V1().Nodes(), Pods: factory.Core().V1().Pods(),
		Recorder: record.NewFakeRecorder(100), Env: loop.Env{Clock: clock.RealClock{}, Log: zap.NewNop()},
	})
	require.Empty(t, core.Actions(), "NewLostNodes starts nothing")
	factory.Start(t.Context().Done())
	defer kubetest.Run(t, func(ctx context.Context) error { return l.Run(ctx, 5) })()

	kubetest.UpdateStatus(t, core.CoreV1().Nodes(), newNode("well", corev1.ConditionTrue, 0, old))
	require.Eventually(t, func() bool {
		pods := kubetest.List(t, core.CoreV1().Pods(testNamespace)).Items
		return len(pods) == 1 && pods[0].Name == "c"
	}, time.Minute, 5*time.Millisecond)
}
