package virtualnode

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/reasons"
)

func podOn(node, name string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "uid-1", CreationTimestamp: metav1.NewTime(start.Add(-time.Minute))},
		Spec:       corev1.PodSpec{NodeName: node, TerminationGracePeriodSeconds: ptr.To[int64](30)},
	}
	for _, c := range change {
		c(pod)
	}
	return pod
}

func daemon(pod *corev1.Pod) {
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "d", UID: "d", Controller: ptr.To(true)}}
}

func late(pod *corev1.Pod) { pod.CreationTimestamp = metav1.NewTime(start.Add(time.Second)) }

func leaving(grace int64) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		now := metav1.NewTime(start)
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &now, &grace
		pod.Finalizers = []string{"example.com/kept"}
	}
}

func TestPlanDrain(t *testing.T) {
	cfg := usualDrain()
	mirror := func(pod *corev1.Pod) { pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }
	for name, tc := range map[string]struct {
		pods  []*corev1.Pod
		after time.Duration
		step  step
		press []string
		left  int
	}{
		"nothing there":                 {},
		"pods are evicted":              {pods: []*corev1.Pod{podOn("milan", "a"), podOn("milan", "b")}, press: []string{"a", "b"}, left: 2},
		"those that leave are awaited":  {pods: []*corev1.Pod{podOn("milan", "a", leaving(30))}, left: 1},
		"finalizers are not ours":       {pods: []*corev1.Pod{podOn("milan", "a", leaving(0))}},
		"daemons go last":               {pods: []*corev1.Pod{podOn("milan", "a"), podOn("milan", "d", daemon), podOn("milan", "m", mirror)}, press: []string{"a"}, left: 3},
		"daemons alone":                 {pods: []*corev1.Pod{podOn("milan", "d", daemon), podOn("milan", "m", mirror)}, press: []string{"d", "m"}, left: 2},
		"daemons that come again":       {pods: []*corev1.Pod{podOn("milan", "d", daemon, late)}},
		"after the timeout":             {pods: []*corev1.Pod{podOn("milan", "a"), podOn("milan", "b", leaving(30))}, after: 5 * time.Minute, step: stepDelete, press: []string{"a"}, left: 2},
		"after the bound, all":          {pods: []*corev1.Pod{podOn("milan", "a"), podOn("milan", "b", leaving(30)), podOn("milan", "d", daemon)}, after: 7 * time.Minute, step: stepForce, press: []string{"a", "b", "d"}, left: 3},
		"after the bound, only waiting": {pods: []*corev1.Pod{podOn("milan", "a", leaving(0))}, after: time.Hour, step: stepForce},
	} {
		t.Run(name, func(t *testing.T) {
			p := planDrain(tc.pods, start, start.Add(tc.after), cfg)
			var press []string
			for _, pod := range p.pods {
				press = append(press, pod.Name)
			}
			require.Equal(t, tc.press, press)
			require.Equal(t, tc.left, p.left)
			require.Equal(t, tc.step, p.step)
		})
	}
}

// serveEvictions makes the fake delete evicted pods, except those that a disruption budget
// guards.
func (r *rig) serveEvictions(guarded ...string) {
	r.kube.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		eviction, ok := a.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction)
		if !ok {
			return false, nil, nil
		}
		if slices.Contains(guarded, eviction.Name) {
			return true, nil, apierrors.NewTooManyRequests("the disruption budget", 10)
		}
		return true, nil, r.kube.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), a.GetNamespace(), eviction.Name)
	})
}

// refuseEvictions makes the fake refuse each eviction as the API server does for the given
// disruption budgets, by pod. An empty budget is a refusal for another reason.
func (r *rig) refuseEvictions(budgets map[string]string) {
	r.kube.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		eviction, ok := a.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction)
		if !ok {
			return false, nil, nil
		}
		refused := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
		if budget := budgets[eviction.Name]; budget != "" {
			refused.ErrStatus.Details.Causes = append(refused.ErrStatus.Details.Causes, metav1.StatusCause{
				Type: policyv1.DisruptionBudgetCause, Message: "The disruption budget " + budget + " needs 2 healthy pods and has 2 currently",
			})
		}
		return true, nil, refused
	})
}

func TestDrainNamesTheBudgetsThatBlockIt(t *testing.T) {
	blocked := func(name string) string {
		return "in namespace shop, The disruption budget " + name + " needs 2 healthy pods and has 2 currently"
	}
	for name, tc := range map[string]struct {
		pods    []string
		budgets map[string]string
		says    string
	}{
		"one pod":      {[]string{"a"}, map[string]string{"a": "web"}, "1 pod is left; it is evicted until 12:05:00 UTC and deleted then; evictions are refused: " + blocked("web")},
		"one budget":   {[]string{"a", "b"}, map[string]string{"a": "web", "b": "web"}, "2 pods are left; they are evicted until 12:05:00 UTC and deleted then; evictions are refused: " + blocked("web")},
		"other causes": {[]string{"a"}, nil, "1 pod is left; it is evicted until 12:05:00 UTC and deleted then"},
		"many budgets": {
			[]string{"a", "b", "c", "d", "e"}, map[string]string{"a": "v", "b": "w", "c": "x", "d": "y", "e": "z"},
			"5 pods are left; they are evicted until 12:05:00 UTC and deleted then; evictions are refused: " + blocked("v") + "; " + blocked("w") + "; " + blocked("x") + "; and 2 more",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var pods []runtime.Object
			for _, p := range tc.pods {
				pods = append(pods, podOn("milan", p))
			}
			r := standing(t, pods...)
			r.refuseEvictions(tc.budgets)
			_, again := r.turn(t, milan)
			require.True(t, again)
			require.Equal(t, tc.says, r.condition(t, "Ready").Message)
		})
	}
}

// standing returns a rig with a complete VirtualNode that is being deleted.
func standing(t *testing.T, kube ...runtime.Object) *rig {
	t.Helper()
	r := newRig(t, objects(virtualNode(held), namespaceMap("shop")), append(kube, ourNode(corev1.ConditionTrue))...)
	r.turn(t, milan)
	require.NoError(t, r.liqo.Tracker().Update(offloadingv1beta1.SchemeGroupVersion.WithResource("virtualnodes"), virtualNode(deleted), milan.Namespace))
	return r
}

// finish syncs until the VirtualNode is gone, and checks that nothing is left.
func (r *rig) finish(t *testing.T) {
	t.Helper()
	for range 10 {
		_, again := r.turn(t, milan)
		if !again {
			break
		}
	}
	r.requireGone(t)
}

func (r *rig) requireGone(t *testing.T) {
	t.Helper()
	all := metav1.ListOptions{}
	nodes := kubetest.List(t, r.kube.CoreV1().Nodes(), all)
	require.Empty(t, nodes.Items)
	accounts := kubetest.List(t, r.kube.CoreV1().ServiceAccounts(""), all)
	require.Empty(t, accounts.Items)
	bindings := kubetest.List(t, r.kube.RbacV1().RoleBindings(""), all)
	require.Empty(t, bindings.Items)
	clusterBindings := kubetest.List(t, r.kube.RbacV1().ClusterRoleBindings(), all)
	require.Empty(t, clusterBindings.Items)
	deployments := kubetest.List(t, r.kube.AppsV1().Deployments(""), all)
	require.Empty(t, deployments.Items)
	vn := kubetest.Get(t, r.liqo.OffloadingV1beta1().VirtualNodes(milan.Namespace), milan.Name)
	require.Empty(t, vn.Finalizers)
}

func TestDeletion(t *testing.T) {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: milan.Namespace, Name: "vk-milan", UID: "lease-uid"}}
	shared := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: milan.Namespace, Name: "reflection", UID: "shared-uid"}}
	r := standing(t, podOn("milan", "a"), podOn("milan", "b"), podOn("worker-1", "elsewhere"), lease, shared)
	r.serveEvictions()
	writes, again := r.turn(t, milan)
	require.True(t, again)
	slices.Sort(writes[1:3])
	require.Equal(t, []string{
		"patch nodes milan",
		"create pods/eviction shop/a",
		"create pods/eviction shop/b",
		"update virtualnodes/status liqo-tenant-milano/milan",
	}, writes)
	require.Equal(t, reasons.Draining, r.condition(t, "Ready").Reason)
	require.Equal(t, "2 pods are left; they are evicted until 12:05:00 UTC and deleted then", r.condition(t, "Ready").Message)
	node := kubetest.Get(t, r.kube.CoreV1().Nodes(), "milan")
	require.True(t, node.Spec.Unschedulable)

	writes, again = r.turn(t, milan)
	require.True(t, again)
	require.Equal(t, []string{"delete deployments liqo-tenant-milano/vk-milan", "update virtualnodes/status liqo-tenant-milano/milan"}, writes)
	require.Equal(t, reasons.Deleting, r.condition(t, "Ready").Reason)

	writes, again = r.turn(t, milan)
	require.False(t, again)
	require.Equal(t, []string{
		"delete nodes milan",
		"delete rolebindings kube-system/liqod-vkubelet-authentication-reader:liqo-tenant-milano:milan",
		"delete rolebindings liqo-tenant-milano/liqod-vkubelet-tenant:milan",
		"delete rolebindings shop/liqod-vkubelet-namespace:liqo-tenant-milano:milan",
		"delete clusterrolebindings liqod-vkubelet-cluster:liqo-tenant-milano:milan",
		"delete poddisruptionbudgets liqo-tenant-milano/vk-milan",
		"delete serviceaccounts liqo-tenant-milano/vk-milan",
		"delete leases liqo-tenant-milano/vk-milan",
		"delete leases liqo-tenant-milano/reflection",
		"update virtualnodes liqo-tenant-milano/milan",
	}, writes)
	for _, a := range r.kube.Actions() {
		if d, ok := a.(clienttesting.DeleteActionImpl); ok {
			require.NotNil(t, d.DeleteOptions.Preconditions, d.Name)
			require.NotNil(t, d.DeleteOptions.Preconditions.UID, d.Name)
		}
	}
	r.requireGone(t)
	_, err := r.kube.CoreV1().Pods("shop").Get(t.Context(), "elsewhere", metav1.GetOptions{})
	require.NoError(t, err, "a pod of another node is left alone")
}

func TestBudgetDelaysUntilTheDeadline(t *testing.T) {
	r := standing(t, podOn("milan", "a"), podOn("milan", "b", func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](3600) }))
	r.serveEvictions("a", "b")
	for range 3 { // each is refused, and nothing is lost
		_, again := r.turn(t, milan)
		require.True(t, again)
	}
	r.clock.SetTime(start.Add(5 * time.Minute))
	_, again := r.turn(t, milan)
	require.True(t, again)
	graces := map[string]*int64{}
	for _, a := range r.kube.Actions() {
		if d, ok := a.(clienttesting.DeleteActionImpl); ok {
			require.Equal(t, "uid-1", string(*d.DeleteOptions.Preconditions.UID))
			graces[d.Name] = d.DeleteOptions.GracePeriodSeconds
		}
	}
	require.Equal(t, map[string]*int64{"a": nil, "b": ptr.To[int64](120)}, graces)
	r.finish(t)
}

// TestDeletionWithoutTaint: on a Node without the taint are pods that liqod may not delete. The
// taint comes when it would delete them, and not while their budgets are respected.
func TestDeletionWithoutTaint(t *testing.T) {
	other := corev1.Taint{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}
	taints := func(r *rig) []corev1.Taint {
		node := kubetest.Get(t, r.kube.CoreV1().Nodes(), "milan")
		return node.Spec.Taints
	}
	for name, tc := range map[string]struct {
		pod   *corev1.Pod
		after time.Duration
		have  []corev1.Taint
		want  []corev1.Taint
	}{
		"it is evicted":        {pod: podOn("milan", "a")},
		"it is deleted":        {pod: podOn("milan", "a"), after: 5 * time.Minute, have: []corev1.Taint{other}, want: []corev1.Taint{other, offloadingv1beta1.VirtualNodeTaint()}},
		"of a DaemonSet":       {pod: podOn("milan", "a", daemon), want: []corev1.Taint{offloadingv1beta1.VirtualNodeTaint()}},
		"it leaves":            {pod: podOn("milan", "a", leaving(30)), after: 5 * time.Minute},
		"there is one, edited": {pod: podOn("milan", "a", daemon), have: []corev1.Taint{{Key: offloadingv1beta1.VirtualNodeTaintKey, Effect: corev1.TaintEffectNoExecute}}, want: []corev1.Taint{{Key: offloadingv1beta1.VirtualNodeTaintKey, Effect: corev1.TaintEffectNoExecute}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := standing(t, tc.pod)
			node := ourNode(corev1.ConditionTrue)
			node.Spec.Taints = tc.have
			require.NoError(t, r.kube.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), node, ""))
			r.serveEvictions("a")
			r.kube.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewForbidden(corev1.Resource("pods"), "a", fmt.Errorf("it does not tolerate the taint"))
			})
			r.clock.SetTime(start.Add(tc.after))
			_, _, err := r.try(t, milan)
			require.Equal(t, tc.want != nil, err != nil, "%v", err)
			require.Equal(t, tc.want, taints(r))
		})
	}
}

func TestProviderAway(t *testing.T) {
	r := standing(t, podOn("milan", "a", leaving(30)))
	r.clock.SetTime(start.Add(6 * time.Minute))
	writes, again := r.turn(t, milan)
	require.True(t, again)
	require.NotContains(t, writes, "delete pods shop/a", "it was deleted before")
	r.clock.SetTime(start.Add(7 * time.Minute))
	writes, again = r.turn(t, milan)
	require.True(t, again)
	require.Equal(t, []string{"update virtualnodes/status liqo-tenant-milano/milan"}, writes, "first it is put on record")
	owed := r.condition(t, ConditionDrained)
	vn, err := r.liqo.OffloadingV1beta1().VirtualNodes("liqo-tenant-milano").Get(t.Context(), "milan", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, []string{"shop-rome"}, vn.Status.ForcedIn)
	require.Equal(t, "pods did not end in 7m0s and are removed without waiting for cluster milano; their ShadowPods with the label "+
		"offloading.liqo.io/nodename=milan may stay there, until a VirtualNode milan is made again or their namespace is no longer "+
		"offloaded to the cluster. Namespaces there: shop-rome", owed.Message)
	require.Equal(t, "Warning "+reasons.ForcedDeletion+" "+owed.Message, <-r.events.Events)
	writes, _ = r.turn(t, milan)
	require.Contains(t, writes, "delete pods shop/a")
	r.finish(t)
	require.Equal(t, owed.Message, r.condition(t, ConditionDrained).Message)
	require.Empty(t, r.events.Events, "told once")
}

// TestForcedIn: the list keeps earlier namespaces, names each once, and is bounded. The message has it.
func TestForcedIn(t *testing.T) {
	require.Empty(t, forcedIn(nil, nil), "pods of namespaces that are not offloaded leave nothing there")
	require.Equal(t, []string{"a-rome", "b-rome"}, forcedIn([]string{"b-rome"}, []string{"a-rome", "a-rome"}))
	var many []string
	for i := range 1000 {
		many = append(many, fmt.Sprintf("%063d", i))
	}
	list := forcedIn(nil, many)
	require.Len(t, list, offloadingv1beta1.MostForcedIn)
	require.Equal(t, list, forcedIn(list, many), "the same pods give the same list")

	r := newRig(t, objects(virtualNode()))
	vn := virtualNode()
	require.NotContains(t, r.forcedMessage(vn), "Namespaces there")
	vn.Status.ForcedIn = list
	require.Less(t, len(r.forcedMessage(vn)), 32768, "the schema allows messages of this length")
}

func TestEvictionTroubleIsShownAndRetried(t *testing.T) {
	r := standing(t, podOn("milan", "a"))
	r.kube.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewInternalError(fmt.Errorf("two budgets"))
	})
	_, _, err := r.try(t, milan)
	require.ErrorContains(t, err, "two budgets")
	require.Equal(t, reasons.Draining, r.condition(t, "Ready").Reason)
	r.clock.SetTime(start.Add(5 * time.Minute))
	r.finish(t)
}

func TestForeignNodeIsLeftAlone(t *testing.T) {
	r := standing(t, podOn("milan", "a"))
	foreign := ourNode(corev1.ConditionTrue)
	foreign.Spec.ProviderID = "aws:///i-1"
	require.NoError(t, r.kube.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), foreign, ""))
	for range 5 {
		_, again := r.turn(t, milan)
		if !again {
			break
		}
	}
	require.Empty(t, r.virtualNode(t).Finalizers)
	node := kubetest.Get(t, r.kube.CoreV1().Nodes(), "milan")
	require.False(t, node.Spec.Unschedulable)
	kubetest.Get(t, r.kube.CoreV1().Pods("shop"), "a")
}

func TestVkubeletPodsAreAwaitedWithinBounds(t *testing.T) {
	vkubelet := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: milan.Namespace, Name: "vk-milan-x", UID: "x", Labels: ownLabels(virtualNode())}}
	leaving(30)(vkubelet)
	r := standing(t, vkubelet)
	for range 4 {
		_, again := r.turn(t, milan)
		require.True(t, again)
	}
	_, err := r.kube.CoreV1().Nodes().Get(t.Context(), "milan", metav1.GetOptions{})
	require.NoError(t, err, "the Node outlives its vkubelet")
	r.clock.SetTime(start.Add(3 * time.Minute))
	r.finish(t)
}

func TestNodeMadeAgainIsRemovedAgain(t *testing.T) {
	r := standing(t)
	again := 0
	r.kube.PrependReactor("delete", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		again++
		return again == 1, nil, nil // a vkubelet that still ran creates the Node again after the first delete
	})
	r.finish(t)
	require.Equal(t, 2, again)
}

func TestLateDaemonPodsGoWithTheNode(t *testing.T) {
	r := standing(t, podOn("milan", "d", daemon, late))
	r.finish(t)
	_, err := r.kube.CoreV1().Pods("shop").Get(t.Context(), "d", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err))
}

func TestForegroundDeletionOfTheDeployment(t *testing.T) {
	r := standing(t)
	gvr := appsv1.SchemeGroupVersion.WithResource("deployments")
	d := kubetest.Get(t, r.kube.AppsV1().Deployments(milan.Namespace), "vk-milan")
	now := metav1.NewTime(start)
	d.DeletionTimestamp, d.Finalizers = &now, []string{metav1.FinalizerDeleteDependents}
	require.NoError(t, r.kube.Tracker().Update(gvr, d, d.Namespace))
	writes, again := r.turn(t, milan)
	require.True(t, again)
	require.NotContains(t, writes, "delete nodes milan")
	require.NoError(t, r.kube.Tracker().Delete(gvr, d.Namespace, d.Name))
	r.finish(t)
}

// TestTenantNamespaceDeletedByHand: the VirtualNode of a provider that is still wanted comes again,
// for the same Node and its pods. One that people made, or of a provider that is not wanted, is
// drained.
func TestTenantNamespaceDeletedByHand(t *testing.T) {
	for name, tc := range map[string]struct {
		offered, wanted, lost bool
	}{
		"of an offer, wanted": {true, true, true}, "of an offer, not wanted": {true, false, false}, "made by people": {false, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			now := metav1.NewTime(start)
			r := standing(t, podOn("milan", "a"), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: milan.Namespace, DeletionTimestamp: &now, Finalizers: []string{"kubernetes"}}})
			r.serveEvictions()
			r.Lifecycle.cfg.Wanted = func(_ context.Context, id string) (bool, error) { return tc.wanted && id == "milano", nil }
			vn := r.virtualNode(t)
			if tc.offered {
				vn.Labels = map[string]string{offloadingv1beta1.ManagedByLabel: sharingv1alpha1.ManagedByOffer}
			}
			require.NoError(t, r.liqo.Tracker().Update(offloadingv1beta1.SchemeGroupVersion.WithResource("virtualnodes"), vn, vn.Namespace))
			require.NoError(t, r.kube.Tracker().Delete(appsv1.SchemeGroupVersion.WithResource("deployments"), milan.Namespace, "vk-milan"))
			writes, again := r.turn(t, milan)
			require.Equal(t, !tc.lost, slices.Contains(writes, "create pods/eviction shop/a"))
			require.Equal(t, !tc.lost, again)
			if !tc.lost {
				return
			}
			require.Empty(t, r.virtualNode(t).Finalizers)
			node := kubetest.Get(t, r.kube.CoreV1().Nodes(), "milan")
			require.False(t, node.Spec.Unschedulable)
		})
	}
}

func TestTenantNamespaceGoingToo(t *testing.T) {
	for name, going := range map[string]bool{"a namespace that goes": true, "a namespace that stays": false} {
		t.Run(name, func(t *testing.T) {
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: milan.Namespace}}
			if going {
				now := metav1.NewTime(start)
				namespace.DeletionTimestamp, namespace.Finalizers = &now, []string{"kubernetes"}
			}
			r := standing(t, namespace)
			require.NoError(t, r.kube.Tracker().Delete(appsv1.SchemeGroupVersion.WithResource("deployments"), milan.Namespace, "vk-milan"))
			for _, resource := range []string{"serviceaccounts", "leases"} {
				verb := map[string]string{"serviceaccounts": "delete", "leases": "get"}[resource]
				r.kube.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, apierrors.NewForbidden(corev1.Resource(resource), "vk-milan", fmt.Errorf("no right"))
				})
			}
			_, again, err := r.try(t, milan)
			require.False(t, again)
			if going {
				require.NoError(t, err)
				require.Empty(t, r.virtualNode(t).Finalizers)
				return
			}
			require.True(t, apierrors.IsForbidden(err))
			require.NotEmpty(t, r.virtualNode(t).Finalizers)
		})
	}
}

func TestLostTypeLabelIsPutBack(t *testing.T) {
	r := standing(t)
	bare := ourNode(corev1.ConditionTrue)
	bare.Labels, bare.Spec.Unschedulable = nil, true
	require.NoError(t, r.kube.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), bare, ""))
	writes, _ := r.turn(t, milan)
	require.Contains(t, writes, "patch nodes milan")
	node := kubetest.Get(t, r.kube.CoreV1().Nodes(), "milan")
	require.Equal(t, offloadingv1beta1.TypeVirtualNode, node.Labels[offloadingv1beta1.TypeLabel])
	r.finish(t)
}

func TestNothingHeldNothingRemoved(t *testing.T) {
	vn := virtualNode(deleted)
	vn.Finalizers = []string{"example.com/other"}
	r := newRig(t, objects(vn), ourNode(corev1.ConditionTrue))
	writes, again := r.turn(t, milan)
	require.False(t, again)
	require.Empty(t, writes)
}
