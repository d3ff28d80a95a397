package endpoints

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	liqodfake "github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/reasons"
)

// running is an Enforcer that runs with started informers.
type running struct {
	*testing.T
	core  *fake.Clientset
	pods  *fake.Clientset // has the EndpointSlices that Kubernetes makes of selectors
	liqod *liqodfake.Clientset
	e     *Enforcer
}

func newRunning(t *testing.T) running {
	return newRunningWith(t, same{}, newShadow(), twin(func(ns *corev1.Namespace) { ns.Labels = nil }))
}

func newRunningWith(t *testing.T, remap Remapper, shadow *offloadingv1beta1.ShadowEndpointSlice, namespace *corev1.Namespace) running {
	r := running{T: t, core: fake.NewClientset(namespace), pods: fake.NewClientset(), liqod: liqodfake.NewSimpleClientset(shadow, peer())}
	r.core.PrependReactor("create", "endpointslices", func(a clienttesting.Action) (bool, runtime.Object, error) {
		slice := a.(clienttesting.CreateAction).GetObject().(*discoveryv1.EndpointSlice)
		slice.UID = types.UID("made-" + time.Now().String())
		return false, nil, nil
	})
	own, core := externalversions.NewSharedInformerFactory(r.liqod, 0), informers.NewSharedInformerFactory(r.core, 0)
	selected := informers.NewSharedInformerFactoryWithOptions(r.pods, 0, informers.WithTransform(TrimOwn))
	cfg := config(r.core, r.liqod, own, core, selected)
	cfg.Remap = remap
	r.e = New(cfg)
	require.Zero(t, len(r.core.Actions())+len(r.liqod.Actions()), "New starts nothing")
	own.Start(t.Context().Done())
	core.Start(t.Context().Done())
	selected.Start(t.Context().Done())
	return r
}

func (r running) lead() (stop func()) {
	return kubetest.Run(r, func(ctx context.Context) error { return r.e.Run(ctx, 2) })
}

// becomes waits until the endpoints are as wanted: +address if ready, else -address; "none"
// if there are none, "gone" if there is no EndpointSlice.
func (r running) becomes(want string) {
	r.Helper()
	have := ""
	require.Eventually(r, func() bool {
		slice, err := r.core.DiscoveryV1().EndpointSlices(testNamespace).Get(r.Context(), testName, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			have = "gone"
		case err != nil:
			have = err.Error()
		case len(slice.Endpoints) == 0:
			have = "none"
		case *slice.Endpoints[0].Conditions.Ready:
			have = "+" + slice.Endpoints[0].Addresses[0]
		default:
			have = "-" + slice.Endpoints[0].Addresses[0]
		}
		return have == want
	}, time.Minute, 5*time.Millisecond, "want %s, have %s", want, have)
}

// says waits until the condition of the shadow has a reason.
func (r running) says(reason string) {
	r.Helper()
	require.Eventually(r, func() bool {
		s, err := r.liqod.OffloadingV1beta1().ShadowEndpointSlices(testNamespace).Get(r.Context(), testName, metav1.GetOptions{})
		return err == nil && len(s.Status.Conditions) == 1 && s.Status.Conditions[0].Reason == reason
	}, time.Minute, 5*time.Millisecond)
}

// leader is the pod of the consumer that runs here at an address.
func leader(address string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: "leader", Labels: map[string]string{
			offloadingv1beta1.OriginLabel: origin, offloadingv1beta1.LocalPodUIDLabel: "home-1",
		}},
		Spec: corev1.PodSpec{NodeName: "milan-sim-1"}, Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: address}}},
	}
}

func (r running) setPeer(mods ...clusterMod) {
	_, err := r.liqod.CoreV1beta1().ForeignClusters().Update(r.Context(), peer(mods...), metav1.UpdateOptions{})
	require.NoError(r, err)
}

// TestRunWakesForOwnPods: a shadow whose endpoint is a pod of this cluster is queued when
// that pod ends or its health changes, however the endpoint names it.
func TestRunWakesForOwnPods(t *testing.T) {
	byNode, byAddress, byUID := ownedBy("milan", "10.200.1.9"), at("10.200.1.9"), at("10.90.1.9")
	byUID.TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "leader", UID: "home-1"}
	for name, own := range map[string]discoveryv1.Endpoint{"node": byNode, "address": byAddress, "UID": byUID} {
		t.Run(name, func(t *testing.T) { requireWakesFor(t, own) })
	}
}

func requireWakesFor(t *testing.T, own discoveryv1.Endpoint) {
	r := newRunning(t)
	kubetest.Update(t, r.core.CoreV1().Namespaces(), twin())
	kubetest.Update(t, r.liqod.OffloadingV1beta1().ShadowEndpointSlices(testNamespace), newShadow(endpointsOf(own)))
	defer r.lead()()
	r.becomes("none")
	pods := r.core.CoreV1().Pods(testNamespace)
	pod := leader("10.200.1.9")
	kubetest.Create(t, pods, pod)
	r.becomes("+10.200.1.9")
	r.setPeer(check(corev1beta1.ConditionAPIServer, metav1.ConditionFalse, ago(0)))
	r.becomes("-10.200.1.9")
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	kubetest.UpdateStatus(t, pods, pod)
	r.becomes("+10.200.1.9")
	pod.Status.Phase = corev1.PodFailed
	kubetest.UpdateStatus(t, pods, pod)
	r.becomes("none")
	pod.Status.Phase = corev1.PodRunning
	kubetest.UpdateStatus(t, pods, pod)
	r.becomes("+10.200.1.9")
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = new(metav1.Now()), new(int64(30))
	kubetest.Update(t, pods, pod)
	r.becomes("-10.200.1.9")
	require.NoError(t, pods.Delete(t.Context(), "leader", metav1.DeleteOptions{}))
	r.becomes("none")
}

// TestRun drives the Enforcer through its informers: each kind of event that affects a
// shadow queues it.
func TestRun(t *testing.T) {
	r := newRunning(t)
	ctx, ready := t.Context(), "+10.100.1.5"
	stop := r.lead()
	r.says(reasons.NotTwinNamespace)
	kubetest.Update(t, r.core.CoreV1().Namespaces(), twin())
	r.becomes(ready)

	r.setPeer(check(corev1beta1.ConditionAPIServer, metav1.ConditionFalse, ago(0)))
	r.becomes("-10.100.1.5")
	r.setPeer(check(corev1beta1.ConditionAPIServer, metav1.ConditionTrue, ago(0)))
	r.becomes(ready)
	require.NoError(t, r.liqod.CoreV1beta1().ForeignClusters().Delete(ctx, peer().Name, metav1.DeleteOptions{}))
	r.becomes("none")
	kubetest.Create(t, r.liqod.CoreV1beta1().ForeignClusters(), peer())
	r.becomes(ready)

	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Address: "10.100.1.5"}}}}
	kubetest.Create(t, r.core.CoreV1().Nodes(), node)
	r.becomes("none")
	node.Status.Addresses = nil
	kubetest.Update(t, r.core.CoreV1().Nodes(), node)
	r.becomes(ready)

	require.NoError(t, r.core.DiscoveryV1().EndpointSlices(testNamespace).Delete(ctx, testName, metav1.DeleteOptions{}))
	r.becomes(ready)
	stop()

	// A process that does not lead writes nothing. At the start of a new term it handles
	// the changes in between.
	require.NoError(t, r.liqod.OffloadingV1beta1().ShadowEndpointSlices(testNamespace).Delete(ctx, testName, metav1.DeleteOptions{}))
	require.Eventually(t, func() bool { return len(r.e.cfg.Shadows.GetStore().List()) == 0 }, time.Minute, 5*time.Millisecond)
	r.becomes(ready)
	stop = r.lead()
	r.becomes("gone")
	stop()
}

// TestKeysBelongToConsumers: the slices of a consumer take turns with those of others, also
// while its namespace is not in the cache.
func TestKeysBelongToConsumers(t *testing.T) {
	r := newRig(t, newShadow())
	require.Equal(t, origin, r.e.consumer(r.key()))
	require.Equal(t, origin, r.e.consumer(podsKey(testNamespace)))
	require.Equal(t, origin, r.e.consumer(podsKey(testNamespace+"/uid")))
	require.NoError(t, r.e.cfg.Namespaces.GetIndexer().Delete(twin()))
	require.Equal(t, origin, r.e.consumer(r.key()))
	require.Empty(t, r.e.consumer(loop.Key{Namespace: "gone", Name: "s"}))
}
