package virtualnode

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"

	liqofake "github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
)

var start = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

var milan = loop.Key{Namespace: "liqo-tenant-milano", Name: "milan"}

func virtualNode(change ...func(*offloadingv1beta1.VirtualNode)) *offloadingv1beta1.VirtualNode {
	vn := &offloadingv1beta1.VirtualNode{
		ObjectMeta: metav1.ObjectMeta{Namespace: milan.Namespace, Name: milan.Name, UID: "vn-uid", Generation: 3, CreationTimestamp: metav1.NewTime(start.Add(-time.Hour))},
		Spec:       offloadingv1beta1.VirtualNodeSpec{ClusterID: "milano", KubeconfigSecretRef: corev1.LocalObjectReference{Name: "kubeconfig"}},
	}
	for _, c := range change {
		c(vn)
	}
	return vn
}

func held(vn *offloadingv1beta1.VirtualNode) {
	vn.Finalizers = []string{offloadingv1beta1.VirtualNodeFinalizer}
}

func deleted(vn *offloadingv1beta1.VirtualNode) {
	held(vn)
	now := metav1.NewTime(start)
	vn.DeletionTimestamp = &now
}

func ourNode(ready corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "milan", UID: "node-uid", Labels: map[string]string{offloadingv1beta1.TypeLabel: offloadingv1beta1.TypeVirtualNode}},
		Spec:       corev1.NodeSpec{ProviderID: "liqo://milano/milan"},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: ready, Reason: "ProviderReady", Message: "milano answers"}}},
	}
}

func namespaceMap(namespaces ...string) *offloadingv1beta1.NamespaceMap {
	m := &offloadingv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: milan.Namespace, Name: "milano"}}
	m.Spec.DesiredMapping = map[string]string{}
	for _, n := range namespaces {
		m.Spec.DesiredMapping[n] = n + "-rome"
	}
	return m
}

// rig is a Lifecycle with fake API servers.
type rig struct {
	*Lifecycle
	kube   *fake.Clientset
	liqo   *liqofake.Clientset
	events *record.FakeRecorder
	clock  *clocktesting.FakePassiveClock
	kubes  informers.SharedInformerFactory
	liqos  externalversions.SharedInformerFactory
}

func newRig(t *testing.T, liqo []runtime.Object, kube ...runtime.Object) *rig {
	t.Helper()
	r := &rig{
		kube:   fake.NewClientset(kube...),
		liqo:   liqofake.NewSimpleClientset(liqo...),
		events: record.NewFakeRecorder(100),
		clock:  clocktesting.NewFakePassiveClock(start),
	}
	r.serveFields()
	r.kubes = informers.NewSharedInformerFactory(r.kube, 0)
	r.liqos = externalversions.NewSharedInformerFactory(r.liqo, 0)
	core, rbac := r.kubes.Core().V1(), r.kubes.Rbac().V1()
	l, err := NewLifecycle(Config{
		Base: Base{
			Kube: r.kube, VirtualNodes: r.liqos.Offloading().V1beta1().VirtualNodes(), Nodes: core.Nodes(),
			Events: r.events, Env: loop.Env{Clock: r.clock, Log: zap.NewNop()},
		},
		Liqo: r.liqo, NamespaceMaps: r.liqos.Offloading().V1beta1().NamespaceMaps(),
		Deployments: r.kubes.Apps().V1().Deployments(), Budgets: r.kubes.Policy().V1().PodDisruptionBudgets(), ServiceAccounts: core.ServiceAccounts(),
		RoleBindings: rbac.RoleBindings(), ClusterRoleBindings: rbac.ClusterRoleBindings(),
		VirtualKubelet: VirtualKubeletDefaults{Image: "liqod:v1", Replicas: 2, Args: []string{"--clusterID=rome"}, ImagePullPolicy: corev1.PullIfNotPresent},
		Drain:          usualDrain(),
	})
	require.NoError(t, err)
	r.Lifecycle = l
	return r
}

func usualDrain() DrainConfig {
	return DrainConfig{Timeout: 5 * time.Minute, ForceAfter: 2 * time.Minute}
}

// serveFields makes the fake support the field selector spec.nodeName in pod lists, as an
// API server does.
func (r *rig) serveFields() {
	r.kube.PrependReactor("list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		fields := action.(clienttesting.ListAction).GetListRestrictions().Fields
		if fields.Empty() {
			return false, nil, nil
		}
		obj, err := r.kube.Tracker().List(corev1.SchemeGroupVersion.WithResource("pods"), corev1.SchemeGroupVersion.WithKind("Pod"), "")
		if err != nil {
			return true, nil, err
		}
		all, want := obj.(*corev1.PodList), &corev1.PodList{}
		for _, pod := range all.Items {
			if name, _ := fields.RequiresExactMatch("spec.nodeName"); pod.Spec.NodeName == name {
				want.Items = append(want.Items, pod)
			}
		}
		return true, want, nil
	})
}

// turn runs one sync with up-to-date caches, which succeeds, and returns the writes. again means
// that the sync asked to be requeued.
func (r *rig) turn(t *testing.T, key loop.Key) (writes []string, again bool) {
	t.Helper()
	writes, again, err := r.try(t, key)
	require.NoError(t, err)
	return writes, again
}

// try is turn for a sync that may fail. err is nil if it asked to be requeued.
func (r *rig) try(t *testing.T, key loop.Key) (writes []string, again bool, err error) {
	t.Helper()
	r.settle(t)
	r.kube.ClearActions()
	r.liqo.ClearActions()
	err = r.sync(t.Context(), key)
	if err != nil && strings.HasPrefix(err.Error(), "again in") {
		again, err = true, nil
	}
	for _, client := range []kubetest.Recorder{r.kube, r.liqo} {
		for _, write := range kubetest.TakeWrites(kept{client}) {
			writes = append(writes, strings.Join(strings.Fields(write)[:3], " "))
		}
	}
	return writes, again, err
}

// kept is a client whose record of requests stays.
type kept struct{ kubetest.Recorder }

func (kept) ClearActions() {}

// settle fills the caches from the fake API servers.
func (r *rig) settle(t *testing.T) {
	t.Helper()
	ctx, all := t.Context(), metav1.ListOptions{}
	core, rbac, offloading := r.kubes.Core().V1(), r.kubes.Rbac().V1(), r.liqos.Offloading().V1beta1()
	fill(t, core.Nodes().Informer(), func() (runtime.Object, error) { return r.kube.CoreV1().Nodes().List(ctx, all) })
	fill(t, core.ServiceAccounts().Informer(), func() (runtime.Object, error) { return r.kube.CoreV1().ServiceAccounts("").List(ctx, all) })
	fill(t, rbac.RoleBindings().Informer(), func() (runtime.Object, error) { return r.kube.RbacV1().RoleBindings("").List(ctx, all) })
	fill(t, rbac.ClusterRoleBindings().Informer(), func() (runtime.Object, error) { return r.kube.RbacV1().ClusterRoleBindings().List(ctx, all) })
	fill(t, r.kubes.Apps().V1().Deployments().Informer(), func() (runtime.Object, error) { return r.kube.AppsV1().Deployments("").List(ctx, all) })
	fill(t, r.kubes.Policy().V1().PodDisruptionBudgets().Informer(), func() (runtime.Object, error) { return r.kube.PolicyV1().PodDisruptionBudgets("").List(ctx, all) })
	fill(t, offloading.VirtualNodes().Informer(), func() (runtime.Object, error) { return r.liqo.OffloadingV1beta1().VirtualNodes("").List(ctx, all) })
	fill(t, offloading.NamespaceMaps().Informer(), func() (runtime.Object, error) { return r.liqo.OffloadingV1beta1().NamespaceMaps("").List(ctx, all) })
}

func fill(t *testing.T, informer cache.SharedIndexInformer, list func() (runtime.Object, error)) {
	t.Helper()
	obj, err := list()
	require.NoError(t, err)
	items, err := meta.ExtractList(obj)
	require.NoError(t, err)
	content := make([]any, 0, len(items))
	for _, item := range items {
		content = append(content, item)
	}
	require.NoError(t, informer.GetIndexer().Replace(content, ""))
}
