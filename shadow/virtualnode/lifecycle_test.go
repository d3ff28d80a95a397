package virtualnode

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/reasons"
)

func objects(objs ...runtime.Object) []runtime.Object { return objs }

func (r *rig) virtualNode(t *testing.T) *offloadingv1beta1.VirtualNode {
	t.Helper()
	return kubetest.Get(t, r.liqo.OffloadingV1beta1().VirtualNodes(milan.Namespace), milan.Name)
}

func (r *rig) condition(t *testing.T, kind string) metav1.Condition {
	t.Helper()
	c := meta.FindStatusCondition(r.virtualNode(t).Status.Conditions, kind)
	require.NotNil(t, c, kind)
	require.EqualValues(t, 3, c.ObservedGeneration)
	return *c
}

func TestCreation(t *testing.T) {
	r := newRig(t, objects(virtualNode(), namespaceMap("shop", "bank")))
	writes, again := r.turn(t, milan)
	require.False(t, again)
	require.Equal(t, []string{
		"create serviceaccounts liqo-tenant-milano/vk-milan",
		"create clusterrolebindings liqod-vkubelet-cluster:liqo-tenant-milano:milan",
		"create rolebindings liqo-tenant-milano/liqod-vkubelet-tenant:milan",
		"create rolebindings kube-system/liqod-vkubelet-authentication-reader:liqo-tenant-milano:milan",
		"create rolebindings bank/liqod-vkubelet-namespace:liqo-tenant-milano:milan",
		"create rolebindings shop/liqod-vkubelet-namespace:liqo-tenant-milano:milan",
		"create deployments liqo-tenant-milano/vk-milan",
		"create poddisruptionbudgets liqo-tenant-milano/vk-milan",
		"update virtualnodes liqo-tenant-milano/milan",
		"update virtualnodes/status liqo-tenant-milano/milan",
	}, writes)
	require.Equal(t, []string{offloadingv1beta1.VirtualNodeFinalizer}, r.virtualNode(t).Finalizers)
	require.Equal(t, offloadingv1beta1.ReasonCreating, r.condition(t, "Ready").Reason)

	r.turn(t, milan) // the Deployment is now in the cache
	require.Equal(t, reasons.NotAvailable, r.condition(t, "VirtualKubelet").Reason)
	writes, again = r.turn(t, milan)
	require.False(t, again)
	require.Empty(t, writes, "a steady state writes nothing")
}

func TestConditionsFollow(t *testing.T) {
	r := newRig(t, objects(virtualNode(held), namespaceMap()))
	r.turn(t, milan)
	d := kubetest.Get(t, r.kube.AppsV1().Deployments(milan.Namespace), "vk-milan")
	d.Status.AvailableReplicas = 1
	require.NoError(t, r.kube.Tracker().Update(appsv1.SchemeGroupVersion.WithResource("deployments"), d, d.Namespace))
	require.NoError(t, r.kube.Tracker().Add(ourNode(corev1.ConditionTrue)))
	r.turn(t, milan)
	for _, kind := range []string{"Ready", "Node"} {
		c := r.condition(t, kind)
		require.Equal(t, metav1.ConditionTrue, c.Status)
		require.Equal(t, "ProviderReady", c.Reason)
		require.Equal(t, "milano answers", c.Message)
	}
	require.Equal(t, "1 of 2 vkubelet replicas are available", r.condition(t, "VirtualKubelet").Message)

	since := r.condition(t, "VirtualKubelet").LastTransitionTime
	r.clock.SetTime(start.Add(time.Minute))
	node := ourNode(corev1.ConditionUnknown)
	require.NoError(t, r.kube.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), node, ""))
	r.turn(t, milan)
	require.Equal(t, metav1.ConditionUnknown, r.condition(t, "Ready").Status)
	require.True(t, r.condition(t, "Ready").LastTransitionTime.Time.Equal(start.Add(time.Minute)))
	require.True(t, since.Equal(ptr.To(r.condition(t, "VirtualKubelet").LastTransitionTime)))
}

func TestRefusals(t *testing.T) {
	ofTorino := ourNode(corev1.ConditionTrue)
	ofTorino.Spec.ProviderID = "liqo://torino/milan"
	for name, tc := range map[string]struct {
		vn     *offloadingv1beta1.VirtualNode
		others []runtime.Object
		node   []runtime.Object
		reason string
		says   string
	}{
		"outside its tenant namespace": {
			vn:     virtualNode(func(vn *offloadingv1beta1.VirtualNode) { vn.Spec.ClusterID = "torino" }),
			reason: offloadingv1beta1.ReasonInvalid, says: "it must be in the tenant namespace liqo-tenant-torino",
		},
		"a Node of that name":       {vn: virtualNode(), node: objects(foreignNode()), reason: reasons.NameTaken, says: `"aws:///i-1"`},
		"a Node of another cluster": {vn: virtualNode(), node: objects(ofTorino), reason: reasons.NameTaken, says: `"liqo://torino/milan"`},
		"an older VirtualNode of that name": {
			vn: virtualNode(), others: objects(virtualNode(func(vn *offloadingv1beta1.VirtualNode) {
				vn.Namespace, vn.Spec.ClusterID, vn.CreationTimestamp = "liqo-tenant-torino", "torino", metav1.NewTime(start.Add(-2*time.Hour))
			})),
			reason: reasons.NameTaken, says: "liqo-tenant-torino/milan",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, append(tc.others, tc.vn), tc.node...)
			writes, _ := r.turn(t, milan)
			require.Equal(t, []string{"update virtualnodes/status liqo-tenant-milano/milan"}, writes)
			c := r.condition(t, "Ready")
			require.Equal(t, tc.reason, c.Reason)
			require.Contains(t, c.Message, tc.says)
			writes, _ = r.turn(t, milan)
			require.Empty(t, writes)
		})
	}
}

func foreignNode() *corev1.Node {
	node := ourNode(corev1.ConditionTrue)
	node.Spec.ProviderID = "aws:///i-1"
	return node
}

// TestANodeThatTheCacheLacks: the VirtualNode is created right after a foreign Node of its name,
// and its event comes first.
func TestANodeThatTheCacheLacks(t *testing.T) {
	r := newRig(t, objects(virtualNode(), namespaceMap()), foreignNode())
	r.settle(t)
	require.NoError(t, r.kubes.Core().V1().Nodes().Informer().GetIndexer().Replace(nil, ""))
	require.NoError(t, r.sync(t.Context(), milan))
	require.Equal(t, reasons.NameTaken, r.condition(t, "Ready").Reason)
	require.Empty(t, r.virtualNode(t).Finalizers)
	kubetest.RequireWrites(t, r.kube)
}

// TestANodeThatComesAfterTheVkubelet: a foreign Node gets the name before the vkubelet has created
// its own.
func TestANodeThatComesAfterTheVkubelet(t *testing.T) {
	r := newRig(t, objects(virtualNode(), namespaceMap()))
	r.turn(t, milan)
	r.settle(t)
	nodes := r.kubes.Core().V1().Nodes().Informer().GetIndexer()
	require.NoError(t, nodes.Add(foreignNode()))
	kubetest.TakeWrites(r.kube)
	require.NoError(t, r.sync(t.Context(), milan))
	kubetest.RequireWrites(t, r.kube) // the cache is stale: there is no such Node

	require.NoError(t, r.kube.Tracker().Add(foreignNode()))
	for _, want := range [][]string{{"delete deployments liqo-tenant-milano/vk-milan"}, nil} {
		writes, _ := r.turn(t, milan)
		require.Equal(t, want, writes)
		require.Equal(t, reasons.NameTaken, r.condition(t, "Ready").Reason)
	}
	require.NoError(t, r.kube.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("nodes"), "", "milan"))
	writes, _ := r.turn(t, milan)
	require.Contains(t, writes, "create deployments liqo-tenant-milano/vk-milan", "the name is free again")
}

func TestOlder(t *testing.T) {
	early, late := metav1.NewTime(start), metav1.NewTime(start.Add(time.Second))
	at := func(namespace string, when metav1.Time) *offloadingv1beta1.VirtualNode {
		return &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "milan", CreationTimestamp: when}}
	}
	for name, tc := range map[string]struct {
		a, b *offloadingv1beta1.VirtualNode
		want bool
	}{
		"older":             {at("b", early), at("a", late), true},
		"younger":           {at("a", late), at("b", early), false},
		"of one second":     {at("a", early), at("b", early), true},
		"the other way":     {at("b", early), at("a", early), false},
		"never than itself": {at("a", early), at("a", late), false},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, older(tc.a, tc.b)) })
	}
}

func TestNamesTakenByOthers(t *testing.T) {
	r := newRig(t, objects(virtualNode(held), namespaceMap()),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: milan.Namespace, Name: "vk-milan"}})
	writes, again := r.turn(t, milan)
	require.True(t, again, "nothing tells when the name becomes free")
	require.Equal(t, []string{"update virtualnodes/status liqo-tenant-milano/milan"}, writes)
	require.Equal(t, reasons.NameTaken, r.condition(t, "Ready").Reason)
	require.Contains(t, r.condition(t, "Ready").Message, "ServiceAccount liqo-tenant-milano/vk-milan")
}

func TestBindingsFollowTheMap(t *testing.T) {
	replicated := namespaceMap("theirs")
	replicated.Name, replicated.Labels = "rome", map[string]string{offloadingv1beta1.ReplicatedLabel: "true"}
	stray := namespaceMap("theirs")
	stray.Name = "other"
	r := newRig(t, objects(virtualNode(held), namespaceMap("shop", "bank"), replicated, stray))
	r.turn(t, milan)
	update := func(m *offloadingv1beta1.NamespaceMap) {
		kubetest.Update(t, r.liqo.OffloadingV1beta1().NamespaceMaps(milan.Namespace), m)
	}
	update(namespaceMap("shop", "lab"))
	writes, _ := r.turn(t, milan)
	require.Contains(t, writes, "create rolebindings lab/liqod-vkubelet-namespace:liqo-tenant-milano:milan")
	require.Contains(t, writes, "delete rolebindings bank/liqod-vkubelet-namespace:liqo-tenant-milano:milan")
	_, err := r.kube.RbacV1().RoleBindings("theirs").Get(t.Context(), "liqod-vkubelet-namespace:liqo-tenant-milano:milan", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err))

	// A live read contradicts a cache that lacks the map.
	r.settle(t)
	require.NoError(t, r.liqos.Offloading().V1beta1().NamespaceMaps().Informer().GetIndexer().Replace(nil, ""))
	r.kube.ClearActions()
	require.NoError(t, r.sync(t.Context(), milan))
	for _, a := range r.kube.Actions() {
		require.NotEqual(t, "delete", a.GetVerb(), a.GetResource().Resource)
	}
}

func TestOffloadedNamespaces(t *testing.T) {
	replicated := namespaceMap("theirs")
	replicated.Labels = map[string]string{offloadingv1beta1.ReplicatedLabel: "true"}
	require.Empty(t, offloadedNamespaces(nil))
	require.Empty(t, offloadedNamespaces(replicated))
	require.Equal(t, []string{"bank", "shop"}, offloadedNamespaces(namespaceMap("shop", "bank")))
}

func TestNamespaceOnItsWayOut(t *testing.T) {
	r := newRig(t, objects(virtualNode(held), namespaceMap("bank", "shop")))
	r.kube.PrependReactor("create", "rolebindings", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetNamespace() != "bank" {
			return false, nil, nil
		}
		err := apierrors.NewForbidden(schema.GroupResource{Resource: "rolebindings"}, "x", nil)
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
		return true, nil, err
	})
	writes, _ := r.turn(t, milan)
	require.Contains(t, writes, "create deployments liqo-tenant-milano/vk-milan", "one namespace does not hold up the node")
}

// TestNamespaceWithoutAnOffloading: the admission policy refuses the binding in one namespace. The
// other namespaces and the node are not held up, and the loop tries again.
func TestNamespaceWithoutAnOffloading(t *testing.T) {
	r := newRig(t, objects(virtualNode(held), namespaceMap("bank", "shop")))
	r.kube.PrependReactor("create", "rolebindings", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return a.GetNamespace() == "bank", nil, apierrors.NewForbidden(schema.GroupResource{Resource: "rolebindings"}, "x", nil)
	})
	writes, _, err := r.try(t, milan)
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	require.Contains(t, writes, "create rolebindings shop/liqod-vkubelet-namespace:liqo-tenant-milano:milan")
	require.Contains(t, writes, "create deployments liqo-tenant-milano/vk-milan")
}

// setDefaults sets what the API server sets in a Deployment that does not have it.
func setDefaults(d *appsv1.Deployment) {
	d.Annotations["deployment.kubernetes.io/revision"] = "1"
	d.Spec.RevisionHistoryLimit, d.Spec.ProgressDeadlineSeconds = ptr.To[int32](10), ptr.To[int32](600)
	d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{
		MaxUnavailable: ptr.To(intstr.FromString("25%")), MaxSurge: ptr.To(intstr.FromString("25%"))}}
	pod := &d.Spec.Template.Spec
	pod.RestartPolicy, pod.DNSPolicy, pod.SchedulerName = corev1.RestartPolicyAlways, corev1.DNSClusterFirst, corev1.DefaultSchedulerName
	pod.DeprecatedServiceAccount = pod.ServiceAccountName
	c := &pod.Containers[0]
	c.TerminationMessagePath, c.TerminationMessagePolicy = corev1.TerminationMessagePathDefault, corev1.TerminationMessageReadFile
	c.LivenessProbe.SuccessThreshold, c.ReadinessProbe.SuccessThreshold = 1, 1
}

func TestDriftIsMended(t *testing.T) {
	for name, tc := range map[string]struct {
		drift func(t *testing.T, r *rig)
		want  []string
	}{
		"another image": {func(t *testing.T, r *rig) {
			d := kubetest.Get(t, r.kube.AppsV1().Deployments(milan.Namespace), "vk-milan")
			d.Spec.Template.Spec.Containers[0].Image = "other"
			kubetest.Update(t, r.kube.AppsV1().Deployments(milan.Namespace), d)
		}, []string{"update deployments liqo-tenant-milano/vk-milan"}},
		"defaults of the API server": {func(t *testing.T, r *rig) {
			d := kubetest.Get(t, r.kube.AppsV1().Deployments(milan.Namespace), "vk-milan")
			setDefaults(d)
			kubetest.Update(t, r.kube.AppsV1().Deployments(milan.Namespace), d)
		}, nil},
		"another subject": {func(t *testing.T, r *rig) {
			b := kubetest.Get(t, r.kube.RbacV1().ClusterRoleBindings(), "liqod-vkubelet-cluster:liqo-tenant-milano:milan")
			b.Subjects = append(b.Subjects, rbacv1.Subject{Kind: "User", Name: "mallory"})
			kubetest.Update(t, r.kube.RbacV1().ClusterRoleBindings(), b)
		}, []string{"update clusterrolebindings liqod-vkubelet-cluster:liqo-tenant-milano:milan"}},
		"another role": {func(t *testing.T, r *rig) {
			b := kubetest.Get(t, r.kube.RbacV1().RoleBindings("shop"), "liqod-vkubelet-namespace:liqo-tenant-milano:milan")
			b.RoleRef.Name = "admin"
			kubetest.Update(t, r.kube.RbacV1().RoleBindings("shop"), b)
		}, []string{
			"delete rolebindings shop/liqod-vkubelet-namespace:liqo-tenant-milano:milan",
			"create rolebindings shop/liqod-vkubelet-namespace:liqo-tenant-milano:milan",
		}},
		"a binding of an earlier version": {func(t *testing.T, r *rig) {
			b := kubetest.Get(t, r.kube.RbacV1().RoleBindings("shop"), "liqod-vkubelet-namespace:liqo-tenant-milano:milan")
			b.Labels["offloading.liqo.io/needs-namespaceoffloading"] = "true"
			kubetest.Update(t, r.kube.RbacV1().RoleBindings("shop"), b)
		}, nil},
		"more extra arguments": {func(t *testing.T, r *rig) {
			vn := r.virtualNode(t)
			vn.Spec.VirtualKubelet.ExtraArgs = []string{"--log.level=debug"}
			kubetest.Update(t, r.liqo.OffloadingV1beta1().VirtualNodes(vn.Namespace), vn)
		}, []string{"update deployments liqo-tenant-milano/vk-milan"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, objects(virtualNode(held), namespaceMap("shop")))
			for range 2 {
				r.turn(t, milan)
			}
			tc.drift(t, r)
			writes, _ := r.turn(t, milan)
			require.Equal(t, tc.want, writes)
			writes, _ = r.turn(t, milan)
			require.Empty(t, writes)
		})
	}
}

func TestBudgetFollowsReplicas(t *testing.T) {
	r := newRig(t, objects(virtualNode(held), namespaceMap()))
	for _, tc := range []struct {
		replicas *int32
		want     []string
	}{
		{nil, []string{"create poddisruptionbudgets liqo-tenant-milano/vk-milan"}},
		{ptr.To[int32](3), nil},
		{ptr.To[int32](1), []string{"delete poddisruptionbudgets liqo-tenant-milano/vk-milan"}},
		{ptr.To[int32](0), nil},
		{ptr.To[int32](2), []string{"create poddisruptionbudgets liqo-tenant-milano/vk-milan"}},
	} {
		vn := r.virtualNode(t)
		vn.Spec.VirtualKubelet.Replicas = tc.replicas
		kubetest.Update(t, r.liqo.OffloadingV1beta1().VirtualNodes(vn.Namespace), vn)
		writes, _ := r.turn(t, milan)
		var have []string
		for _, write := range writes {
			if strings.Contains(write, "poddisruptionbudgets") {
				have = append(have, write)
			}
		}
		require.Equal(t, tc.want, have)
	}
	budget := kubetest.Get(t, r.kube.PolicyV1().PodDisruptionBudgets(milan.Namespace), "vk-milan")
	d := kubetest.Get(t, r.kube.AppsV1().Deployments(milan.Namespace), "vk-milan")
	require.Equal(t, d.Spec.Selector, budget.Spec.Selector)
	require.Equal(t, 1, budget.Spec.MaxUnavailable.IntValue())
}

func TestForgeDeployment(t *testing.T) {
	limits := corev1.ResourceRequirements{Limits: corev1.ResourceList{"memory": resource.MustParse("1Gi")}}
	vn := virtualNode(func(vn *offloadingv1beta1.VirtualNode) {
		vn.Spec.VirtualKubelet = offloadingv1beta1.VirtualKubeletSpec{
			Replicas: ptr.To[int32](3), Image: "liqod:v2", Resources: &limits, NodeAddress: "203.0.113.7", ExtraArgs: []string{"--extra"}}
	})
	defaults := VirtualKubeletDefaults{Image: "liqod:v1", Replicas: 1, PriorityClassName: "high", Args: []string{"--clusterID=rome", "--vkubelet.nodeAddress=203.0.113.1"},
		NodeSelector: map[string]string{"pool": "infra"}, Tolerations: []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}},
		Spread: []string{corev1.LabelHostname, corev1.LabelTopologyZone}}
	d, err := forgeDeployment(vn, defaults)
	require.NoError(t, err)
	require.EqualValues(t, 3, *d.Spec.Replicas)
	require.Equal(t, "milan", d.Spec.Template.Labels[offloadingv1beta1.VirtualNodeLabel])
	require.False(t, *d.Spec.Template.Spec.EnableServiceLinks)
	require.Equal(t, "high", d.Spec.Template.Spec.PriorityClassName)
	for i, key := range defaults.Spread {
		require.Equal(t, corev1.TopologySpreadConstraint{
			MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: d.Spec.Selector, MatchLabelKeys: []string{"pod-template-hash"},
		}, d.Spec.Template.Spec.TopologySpreadConstraints[i])
	}
	require.Equal(t, defaults.NodeSelector, d.Spec.Template.Spec.NodeSelector)
	require.Equal(t, append(lostNode(), defaults.Tolerations...), d.Spec.Template.Spec.Tolerations)
	require.NotNil(t, d.Spec.Template.Spec.Affinity.NodeAffinity, "not on a virtual node")
	c := d.Spec.Template.Spec.Containers[0]
	require.Equal(t, "liqod:v2", c.Image)
	require.Equal(t, []string{"--role=vkubelet", "--vkubelet.virtualNode=liqo-tenant-milano/milan", "--vkubelet.certificateDirectory=/var/lib/liqod/pki", "--clusterID=rome",
		"--vkubelet.nodeAddress=203.0.113.1", "--vkubelet.nodeAddress=203.0.113.7", "--extra"}, c.Args)
	require.Greater(t, *d.Spec.Template.Spec.TerminationGracePeriodSeconds, int64(30), "a vkubelet has 30 seconds to end")
	require.Equal(t, limits, c.Resources)
	require.True(t, *c.SecurityContext.ReadOnlyRootFilesystem)
	again, err := forgeDeployment(vn, defaults)
	require.NoError(t, err)
	require.Equal(t, d, again)

	plain, err := forgeDeployment(virtualNode(), defaults)
	require.NoError(t, err)
	require.EqualValues(t, 1, *plain.Spec.Replicas)
	require.Equal(t, "liqod:v1", plain.Spec.Template.Spec.Containers[0].Image)
	require.NotEqual(t, d.Annotations[hashAnnotation], plain.Annotations[hashAnnotation])
}

func TestKeys(t *testing.T) {
	twin := virtualNode(func(vn *offloadingv1beta1.VirtualNode) {
		vn.Namespace, vn.Spec.ClusterID = "liqo-tenant-torino", "torino"
	})
	r := newRig(t, objects(virtualNode(), twin))
	r.settle(t)
	other := loop.Key{Namespace: "liqo-tenant-torino", Name: "milan"}
	require.ElementsMatch(t, []loop.Key{milan, other}, r.namesakeKeys(twin))
	require.ElementsMatch(t, []loop.Key{milan, other}, r.namesakeKeys(ourNode(corev1.ConditionTrue)))
	require.Empty(t, r.namesakeKeys(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}}))
	require.Equal(t, []loop.Key{milan}, r.tenantKeys(namespaceMap()))
	require.Equal(t, []loop.Key{milan}, ownerKeys(forgeServiceAccount(virtualNode())))
	require.Empty(t, ownerKeys(&corev1.ServiceAccount{}))
}

func TestNoImage(t *testing.T) {
	_, err := NewLifecycle(Config{})
	require.ErrorIs(t, err, errNoImage)
}

func TestRunStopAndRunAgain(t *testing.T) {
	r := newRig(t, objects(virtualNode(), namespaceMap("shop")))
	all, end := context.WithCancel(t.Context())
	defer func() { end(); r.kubes.Shutdown(); r.liqos.Shutdown() }()
	r.kubes.Start(all.Done())
	r.liqos.Start(all.Done())
	deployments := r.kube.AppsV1().Deployments(milan.Namespace)
	for range 2 { // several terms of leadership
		stop := kubetest.Run(t, func(ctx context.Context) error { return r.Run(ctx, 2) })
		require.Eventually(t, func() bool {
			_, err := deployments.Get(t.Context(), "vk-milan", metav1.GetOptions{})
			return err == nil
		}, time.Minute, 5*time.Millisecond)
		stop()
		require.NoError(t, deployments.Delete(t.Context(), "vk-milan", metav1.DeleteOptions{}))
	}
}
