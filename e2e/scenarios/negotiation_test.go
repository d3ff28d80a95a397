package scenarios

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/store"
)

// TestNegotiation makes and ends peerings, and then has a consumer ask a provider for
// capacity, and use what it is offered.
func TestNegotiation(t *testing.T) {
	w := newClusters(t, nil)
	// It leaves nothing.
	require.True(t, t.Run("Peering", func(t *testing.T) { testPeering(t, w) }))
	require.NoError(t, w.rome.Connect(t.Context(), w.milan))
	inTurn(t, w, []part[*world]{
		{"Offer", testOffer}, {"NotOffered", testNotOffered}, {"Classes", testOfferedClasses}, {"Request", testRequestChanges},
		{"Capacity", testCapacityChanges}, {"Several", testSeveralNodes}, {"Away", testProviderAwayFromNegotiation}, {"Hands", testDeletedByHand},
		{"Restart", testNegotiationAtRest}, {"Withdrawn", testWithdrawn}, {"Both", testBothNegotiate}, {"NotWanted", testNotWanted},
	})
}

func asking(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

// wants changes what a site wants of a peer.
func wants(t *testing.T, s *site.Site, peer string, enabled corev1beta1.PeeringEnabled, request corev1beta1.CapacityRequest) {
	t.Helper()
	// As JSON patch: a request that asks for less does not keep what it asked for.
	body := must(json.Marshal([]map[string]any{
		{"op": "add", "path": "/spec/outgoingPeeringEnabled", "value": enabled}, {"op": "add", "path": "/spec/request", "value": request},
	}))(t)
	kubetest.Patch(t, s.Liqod().CoreV1beta1().ForeignClusters(), peer, types.JSONPatchType, body)
}

// lets changes whether a site lets a peer use it.
func lets(t *testing.T, s *site.Site, peer string, enabled corev1beta1.PeeringEnabled) {
	t.Helper()
	body := must(json.Marshal(map[string]any{"spec": map[string]any{"incomingPeeringEnabled": enabled}}))(t)
	kubetest.Patch(t, s.Liqod().CoreV1beta1().ForeignClusters(), peer, types.MergePatchType, body)
}

// gives returns a condition: the Node of a virtual node has an amount of CPU, and so has the
// Quota in the provider.
func gives(consumer, provider *site.Site, node, cpu string) func(context.Context) error {
	return func(ctx context.Context) error {
		n, err := consumer.Client().CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		q, err := provider.Liqod().OffloadingV1beta1().Quotas(corev1beta1.TenantNamespace(consumer.Name)).Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		want := resource.MustParse(cpu)
		have, bound := n.Status.Allocatable[corev1.ResourceCPU], q.Spec.Resources[corev1.ResourceCPU]
		return lab.Wrong(nil, have.Cmp(want) != 0 || bound.Cmp(want) != 0, "node %s has %s, its quota %s, not %s", node, have.String(), bound.String(), cpu)
	}
}

// offerIs returns a condition on an offer, as the site that is named has it.
func offerIs(s *site.Site, peer, name string, is func(*sharingv1alpha1.ResourceOffer) bool) func(context.Context) error {
	return lab.Is(s.Liqod().SharingV1alpha1().ResourceOffers(corev1beta1.TenantNamespace(peer)), name, is)
}

// requestIs returns a condition on the answer to a request, as the consumer has it.
func requestIs(s *site.Site, provider string, phase sharingv1alpha1.RequestPhase, reason string) func(context.Context) error {
	return lab.Is(s.Liqod().SharingV1alpha1().ResourceRequests(corev1beta1.TenantNamespace(provider)), provider, func(r *sharingv1alpha1.ResourceRequest) bool {
		return r.Status.Phase == phase && r.Status.Reason == reason && r.Status.ObservedGeneration == r.Generation
	})
}

// peerSays returns a condition: the ForeignCluster of a peer has a condition. An empty reason stands for any.
func peerSays(s *site.Site, peer, kind string, status metav1.ConditionStatus, reason string) func(context.Context) error {
	return lab.Is(s.Liqod().CoreV1beta1().ForeignClusters(), peer, func(fc *corev1beta1.ForeignCluster) bool {
		c := meta.FindStatusCondition(fc.Status.Conditions, kind)
		return c != nil && c.Status == status && (reason == "" || c.Reason == reason)
	})
}

func testOffer(t *testing.T, w *world) {
	begin := time.Now()
	wants(t, w.rome, "milan", corev1beta1.PeeringYes, corev1beta1.CapacityRequest{Resources: asking("10", "20Gi"), Labels: map[string]string{"region": "north"}})
	within(t, quickly, "the virtual node is asked for", lab.Exists(w.rome.Liqod().OffloadingV1beta1().VirtualNodes(tenantOfMilan), "milan"))
	t.Logf("from the wish to the VirtualNode: %s", time.Since(begin).Round(time.Millisecond))
	require.NoError(t, w.rome.StartVKubelet(t.Context(), tenantOfMilan, "milan"))
	ready, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	require.NoError(t, w.rome.WaitVirtualNode(ready, "milan", corev1.ConditionTrue))
	t.Logf("from the wish to a virtual node that is Ready: %s", time.Since(begin).Round(time.Millisecond))
	within(t, quickly, "as much as asked for", gives(w.rome, w.milan, "milan", "10"))
	within(t, quickly, "answered", requestIs(w.rome, "milan", sharingv1alpha1.RequestOffered, "Offered"))
	within(t, quickly, "the provider knows", offerIs(w.milan, "rome", "milan", func(o *sharingv1alpha1.ResourceOffer) bool {
		return o.Status.Phase == sharingv1alpha1.OfferAccepted && o.Status.VirtualNode == "milan" && o.Status.ObservedGeneration == o.Generation
	}))
	node := kubetest.Get(t, w.rome.Client().CoreV1().Nodes(), "milan")
	require.Equal(t, "north", node.Labels["region"])
	within(t, quickly, "the consumer's record", peerSays(w.rome, "milan", corev1beta1.ConditionOutgoingPeering, metav1.ConditionTrue, "Accepted"))
	within(t, quickly, "the provider's record", peerSays(w.milan, "rome", corev1beta1.ConditionIncomingPeering, metav1.ConditionTrue, "Accepted"))
	w.deploy(t, "shop", 3)
	within(t, quickly, "pods run in milan", w.runningThere("shop-rome", 3))
}

// testNotOffered: with an offer of CPU and memory a consumer gets no devices, and it learns
// nothing of single nodes by asking for them.
func testNotOffered(t *testing.T, w *world) {
	node := kubetest.Get(t, w.rome.Client().CoreV1().Nodes(), "milan")
	require.NotContains(t, node.Status.Capacity, corev1.ResourceName("nvidia.com/gpu"))
	shadow := shadowPod("greedy")
	shadow.Spec.Pod.Containers[0].Resources.Limits = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}
	shadows := w.milan.Liqod().OffloadingV1beta1().ShadowPods(twinOfRome)
	within(t, quickly, "the webhook or the controller refuses devices", func(ctx context.Context) error {
		if _, err := shadows.Create(ctx, shadow, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			if !strings.Contains(err.Error(), "nvidia.com/gpu: 8 requested, and none was offered") {
				return err
			}
			return nil
		}
		have, err := shadows.Get(ctx, shadow.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		c := meta.FindStatusCondition(have.Status.Conditions, offloadingv1beta1.ShadowPodEnforced)
		return lab.Wrong(nil, c == nil || c.Reason != offloadingv1beta1.ReasonQuotaTooSmall, "conditions are %+v", have.Status.Conditions)
	})
	_, err := w.milan.Client().CoreV1().Pods(twinOfRome).Get(t.Context(), shadow.Name, metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "there must be no pod: %v", err)
	require.NoError(t, store.IgnoreNotFound(shadows.Delete(t.Context(), shadow.Name, metav1.DeleteOptions{})))

	plain := corev1beta1.CapacityRequest{Resources: asking("10", "20Gi"), Labels: map[string]string{"region": "north"}}
	for _, value := range []string{"milan-sim-1", "there-is-none"} {
		sly := plain
		sly.NodeSelector = map[string]string{corev1.LabelHostname: value}
		wants(t, w.rome, "milan", corev1beta1.PeeringYes, sly)
		within(t, quickly, "a single node is not answered for", requestIs(w.rome, "milan", sharingv1alpha1.RequestRefused, "InvalidRequest"))
		wants(t, w.rome, "milan", corev1beta1.PeeringYes, plain)
		within(t, quickly, "answered", requestIs(w.rome, "milan", sharingv1alpha1.RequestOffered, "Offered"))
	}
	within(t, quickly, "as much as asked for", gives(w.rome, w.milan, "milan", "10"))
}

// runningThere looks for as many running pods in a namespace of milan.
func (w *world) runningThere(namespace string, want int) func(context.Context) error {
	return podsAre(w.milan.Cluster, namespace, "", want, func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil })
}

// shared is 90 % of the CPU that the nodes of milan have for others than its own pods.
func (w *world) shared(t *testing.T) string {
	t.Helper()
	nodes := kubetest.List(t, w.milan.Client().CoreV1().Nodes())
	pods := kubetest.List(t, w.milan.Client().CoreV1().Pods(""))
	milli := int64(0)
	for _, n := range nodes.Items {
		if n.Spec.Unschedulable || n.Labels[offloadingv1beta1.TypeLabel] != "" {
			continue
		}
		milli += n.Status.Allocatable.Cpu().MilliValue()
		for _, p := range pods.Items {
			if p.Spec.NodeName == n.Name && p.Labels[offloadingv1beta1.OriginLabel] == "" {
				for _, c := range p.Spec.Containers {
					milli -= c.Resources.Requests.Cpu().MilliValue()
				}
			}
		}
	}
	return fmt.Sprintf("%dm", milli*90/100)
}

func testRequestChanges(t *testing.T, w *world) {
	before := lives(t, w.milan.Cluster, "shop-rome")
	wants(t, w.rome, "milan", corev1beta1.PeeringYes, corev1beta1.CapacityRequest{Resources: asking("20", "20Gi")})
	within(t, quickly, "grown", gives(w.rome, w.milan, "milan", "20"))
	wants(t, w.rome, "milan", corev1beta1.PeeringYes, corev1beta1.CapacityRequest{Resources: asking("5", "20Gi")})
	within(t, quickly, "shrunk", gives(w.rome, w.milan, "milan", "5"))
	wants(t, w.rome, "milan", corev1beta1.PeeringYes, corev1beta1.CapacityRequest{Resources: asking("1000", "20Gi")})
	all := w.shared(t)
	within(t, quickly, "as much as there is", gives(w.rome, w.milan, "milan", all))
	wants(t, w.rome, "milan", corev1beta1.PeeringYes, corev1beta1.CapacityRequest{Labels: map[string]string{"node-role.kubernetes.io/control-plane": ""}})
	within(t, quickly, "a mistake is told", requestIs(w.rome, "milan", sharingv1alpha1.RequestRefused, "InvalidRequest"))
	require.NoError(t, gives(w.rome, w.milan, "milan", all)(t.Context()), "and ends nothing")
	wants(t, w.rome, "milan", corev1beta1.PeeringYes, corev1beta1.CapacityRequest{})
	within(t, quickly, "what the provider wants to give", gives(w.rome, w.milan, "milan", all))
	within(t, quickly, "answered", requestIs(w.rome, "milan", sharingv1alpha1.RequestOffered, "Offered"))
	requireLiving(t, before, lives(t, w.milan.Cluster, "shop-rome"))
}

func testCapacityChanges(t *testing.T, w *world) {
	before := lives(t, w.milan.Cluster, "shop-rome")
	all := w.shared(t)
	cordon(t, w.milan, true, w.milan.SimulatedNodeName(1))
	within(t, quickly, "a node less", gives(w.rome, w.milan, "milan", w.shared(t)))
	cordon(t, w.milan, false, w.milan.SimulatedNodeName(1))
	within(t, quickly, "it is back", gives(w.rome, w.milan, "milan", all))

	// Pods of milan's own, first few, then many.
	kubetest.Create(t, w.milan.Client().CoreV1().Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "own"}})
	own := func(name, cpu string) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: podSpec("sim/web:1")}
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
		kubetest.Create(t, w.milan.Client().CoreV1().Pods("own"), pod)
	}
	own("few", "4")
	hold(t, 4*time.Second, "a little changes nothing", gives(w.rome, w.milan, "milan", all))
	own("many", "36")
	within(t, quickly, "they are bound", w.bound(w.milan.Cluster, "own", 2, true))
	within(t, quickly, "much does", gives(w.rome, w.milan, "milan", w.shared(t)))
	require.NoError(t, w.milan.Client().CoreV1().Pods("own").DeleteCollection(t.Context(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)}, metav1.ListOptions{}))
	within(t, quickly, "they are gone", gives(w.rome, w.milan, "milan", all))
	requireLiving(t, before, lives(t, w.milan.Cluster, "shop-rome"))
}

// noOffer returns a condition: neither the consumer nor the provider has the offer.
func (w *world) noOffer(name string) func(context.Context) error {
	return lab.Together(isGone(w.rome.Liqod().SharingV1alpha1().ResourceOffers(tenantOfMilan), name), isGone(w.milan.Liqod().SharingV1alpha1().ResourceOffers(tenantOfRome), name))
}

// testSeveralNodes divides the offer, and brings it together again.
func testSeveralNodes(t *testing.T, w *world) {
	wants(t, w.rome, "milan", corev1beta1.PeeringYes, corev1beta1.CapacityRequest{Resources: asking("10", "20Gi"), VirtualNodes: 2})
	require.NoError(t, w.rome.StartVKubelet(t.Context(), tenantOfMilan, "milan-2"))
	within(t, quickly, "one half", gives(w.rome, w.milan, "milan", "5"))
	within(t, quickly, "the other half", gives(w.rome, w.milan, "milan-2", "5"))
	wants(t, w.rome, "milan", corev1beta1.PeeringYes, corev1beta1.CapacityRequest{Resources: asking("10", "20Gi")})
	vkubeletGoes(t, w.rome, quickly, tenantOfMilan, "milan-2")
	within(t, quickly, "all of it", gives(w.rome, w.milan, "milan", "10"))
	within(t, quickly, "the second offer is gone on both sides", lab.Together(w.noOffer("milan-2"), isGone(w.milan.Liqod().OffloadingV1beta1().Quotas(tenantOfRome), "milan-2")))
	within(t, quickly, "the pods run", w.runningThere("shop-rome", 3))
}

// testProviderAwayFromNegotiation changes the request while the provider is away.
func testProviderAwayFromNegotiation(t *testing.T, w *world) {
	before := lives(t, w.milan.Cluster, "shop-rome")
	w.milan.Proxied().Drop()
	heal := func() { w.milan.Proxied().Pass() }
	defer heal()
	wants(t, w.rome, "milan", corev1beta1.PeeringYes, corev1beta1.CapacityRequest{Resources: asking("12", "20Gi")})
	hold(t, 20*time.Second, "nothing is given up", lab.Is(w.rome.Liqod().OffloadingV1beta1().VirtualNodes(tenantOfMilan), "milan", func(vn *offloadingv1beta1.VirtualNode) bool {
		return vn.DeletionTimestamp == nil
	}))
	heal()
	within(t, time.Minute, "caught up", gives(w.rome, w.milan, "milan", "12"))
	requireLiving(t, before, lives(t, w.milan.Cluster, "shop-rome"))
}

// testDeletedByHand deletes what both sides have negotiated, one after the other.
func testDeletedByHand(t *testing.T, w *world) {
	ctx := t.Context()
	before := lives(t, w.milan.Cluster, "shop-rome")
	vn := kubetest.Get(t, w.rome.Liqod().OffloadingV1beta1().VirtualNodes(tenantOfMilan), "milan")
	for what, s := range map[string]*site.Site{"consumer": w.rome, "provider": w.milan} {
		namespace := map[*site.Site]string{w.rome: tenantOfMilan, w.milan: tenantOfRome}[s]
		require.NoError(t, s.Liqod().SharingV1alpha1().ResourceOffers(namespace).Delete(ctx, "milan", metav1.DeleteOptions{}))
		within(t, quickly, "the offer is back in the "+what, offerIs(s, map[*site.Site]string{w.rome: "milan", w.milan: "rome"}[s], "milan",
			func(o *sharingv1alpha1.ResourceOffer) bool { return o.Status.Phase == sharingv1alpha1.OfferAccepted }))
		require.NoError(t, s.Liqod().SharingV1alpha1().ResourceRequests(namespace).Delete(ctx, "milan", metav1.DeleteOptions{}))
		within(t, quickly, "the request is back in the "+what, requestIs(w.rome, "milan", sharingv1alpha1.RequestOffered, "Offered"))
	}
	require.NoError(t, w.milan.Liqod().OffloadingV1beta1().Quotas(tenantOfRome).Delete(ctx, "milan", metav1.DeleteOptions{}))
	within(t, quickly, "the quota is back", gives(w.rome, w.milan, "milan", "12"))
	hold(t, 12*time.Second, "the virtual node stays", lab.Is(w.rome.Liqod().OffloadingV1beta1().VirtualNodes(tenantOfMilan), "milan", func(have *offloadingv1beta1.VirtualNode) bool {
		return have.UID == vn.UID && have.DeletionTimestamp == nil
	}))
	requireLiving(t, before, lives(t, w.milan.Cluster, "shop-rome"))
}

// negotiated has the resource versions of what is negotiated, in both clusters.
func (w *world) negotiated(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, s := range []*site.Site{w.rome, w.milan} {
		for _, r := range kubetest.List(t, s.Liqod().SharingV1alpha1().ResourceRequests("")).Items {
			out[s.Name+" request "+r.Namespace+"/"+r.Name] = r.ResourceVersion
		}
		for _, o := range kubetest.List(t, s.Liqod().SharingV1alpha1().ResourceOffers("")).Items {
			out[s.Name+" offer "+o.Namespace+"/"+o.Name] = o.ResourceVersion
		}
		for _, q := range kubetest.List(t, s.Liqod().OffloadingV1beta1().Quotas("")).Items {
			out[s.Name+" quota "+q.Namespace+"/"+q.Name] = q.ResourceVersion
		}
		for _, n := range kubetest.List(t, s.Liqod().OffloadingV1beta1().VirtualNodes("")).Items {
			out[s.Name+" node "+n.Namespace+"/"+n.Name] = fmt.Sprint(n.Generation)
		}
	}
	return out
}

// testNegotiationAtRest restarts both controllers: what is as it should be is not written.
func testNegotiationAtRest(t *testing.T, w *world) {
	before := w.negotiated(t)
	require.NotEmpty(t, before)
	require.NoError(t, w.sites.Restart(&w.rome.Controller))
	require.NoError(t, w.sites.Restart(&w.milan.Controller))
	hold(t, 15*time.Second, "nothing is written", func(context.Context) error {
		have := w.negotiated(t)
		return lab.Wrong(nil, !maps.Equal(before, have), "%v, not %v", have, before)
	})
}

// testWithdrawn takes the offer back, while the consumer has pods there.
func testWithdrawn(t *testing.T, w *world) {
	lets(t, w.milan, "rome", corev1beta1.PeeringNo)
	within(t, quickly, "nothing more may begin", lab.Is(w.milan.Liqod().OffloadingV1beta1().Quotas(tenantOfRome), "milan", func(q *offloadingv1beta1.Quota) bool {
		return q.Spec.Resources.Cpu().IsZero()
	}))
	within(t, quickly, "the refusal shows at home", requestIs(w.rome, "milan", sharingv1alpha1.RequestRefused, "NotAllowed"))
	vkubeletGoes(t, w.rome, time.Minute, tenantOfMilan, "milan")
	within(t, quickly, "the consumer's record", peerSays(w.rome, "milan", corev1beta1.ConditionOutgoingPeering, metav1.ConditionFalse, "RequestRefused"))
	within(t, quickly, "the provider's record", peerSays(w.milan, "rome", corev1beta1.ConditionIncomingPeering, metav1.ConditionFalse, "NotAllowed"))
	within(t, quickly, "no pod is left there", w.runningThere("shop-rome", 0))
	within(t, quickly, "the offer is gone on both sides", w.noOffer("milan"))
	lets(t, w.milan, "rome", corev1beta1.PeeringYes)
	require.NoError(t, w.rome.StartVKubelet(t.Context(), tenantOfMilan, "milan"))
	within(t, quickly, "offered again", gives(w.rome, w.milan, "milan", "12"))
	within(t, time.Minute, "pods run there again", w.runningThere("shop-rome", 3))
}

// testBothNegotiate has milan use rome, too.
func testBothNegotiate(t *testing.T, w *world) {
	require.NoError(t, w.milan.Connect(t.Context(), w.rome))
	wants(t, w.milan, "rome", corev1beta1.PeeringYes, corev1beta1.CapacityRequest{Resources: asking("7", "20Gi")})
	require.NoError(t, w.milan.StartVKubelet(t.Context(), tenantOfRome, "rome"))
	within(t, quickly, "milan uses rome", gives(w.milan, w.rome, "rome", "7"))
	require.NoError(t, gives(w.rome, w.milan, "milan", "12")(t.Context()), "rome uses milan")
	names := slices.Sorted(maps.Keys(w.negotiated(t)))
	require.Equal(t, []string{
		"milan node liqo-tenant-rome/rome", "milan offer liqo-tenant-rome/milan", "milan offer liqo-tenant-rome/rome", "milan quota liqo-tenant-rome/milan",
		"milan request liqo-tenant-rome/milan", "milan request liqo-tenant-rome/rome",
		"rome node liqo-tenant-milan/milan", "rome offer liqo-tenant-milan/milan", "rome offer liqo-tenant-milan/rome", "rome quota liqo-tenant-milan/rome",
		"rome request liqo-tenant-milan/milan", "rome request liqo-tenant-milan/rome",
	}, names)
	wants(t, w.milan, "rome", corev1beta1.PeeringNo, corev1beta1.CapacityRequest{})
	vkubeletGoes(t, w.milan, quickly, tenantOfRome, "rome")
	within(t, quickly, "what milan has asked for is gone", func(ctx context.Context) error {
		left := slices.DeleteFunc(slices.Collect(maps.Keys(w.negotiated(t))), func(name string) bool {
			return slices.Contains([]string{
				"milan offer liqo-tenant-rome/milan", "milan quota liqo-tenant-rome/milan", "milan request liqo-tenant-rome/milan",
				"rome node liqo-tenant-milan/milan", "rome offer liqo-tenant-milan/milan", "rome quota liqo-tenant-milan/rome", "rome request liqo-tenant-milan/milan",
			}, name)
		})
		return lab.Wrong(nil, len(left) > 0, "left: %v", left)
	})
	require.NoError(t, gives(w.rome, w.milan, "milan", "12")(t.Context()), "rome goes on using milan")
}

// testNotWanted ends the use by the consumer's own wish. A virtual node that was made by
// hand stays, and keeps its name from an offer.
func testNotWanted(t *testing.T, w *world) {
	wants(t, w.rome, "milan", corev1beta1.PeeringNo, corev1beta1.CapacityRequest{})
	vkubeletGoes(t, w.rome, time.Minute, tenantOfMilan, "milan")
	within(t, quickly, "all but a quota of nothing is gone", func(ctx context.Context) error {
		left := slices.Sorted(maps.Keys(w.negotiated(t)))
		return lab.Wrong(nil, !slices.Equal(left, []string{"milan quota liqo-tenant-rome/milan", "rome quota liqo-tenant-milan/rome"}), "left: %v", left)
	})

	hand := &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: tenantOfMilan, Name: "milan"}, Spec: offloadingv1beta1.VirtualNodeSpec{
		ClusterID: "milan", KubeconfigSecretRef: corev1.LocalObjectReference{Name: "milan"}, ResourceQuota: corev1.ResourceQuotaSpec{Hard: asking("3", "3Gi")}}}
	kubetest.Create(t, w.rome.Liqod().OffloadingV1beta1().VirtualNodes(tenantOfMilan), hand)
	wants(t, w.rome, "milan", corev1beta1.PeeringYes, corev1beta1.CapacityRequest{Resources: asking("10", "20Gi")})
	within(t, quickly, "the provider is told that the name is taken", offerIs(w.milan, "rome", "milan", func(o *sharingv1alpha1.ResourceOffer) bool {
		return o.Status.Phase == sharingv1alpha1.OfferManualActionRequired && o.Status.Reason == "NameTaken"
	}))
	have := kubetest.Get(t, w.rome.Liqod().OffloadingV1beta1().VirtualNodes(tenantOfMilan), "milan")
	require.Equal(t, "3", have.Spec.ResourceQuota.Hard.Cpu().String())
}

// TestNegotiationByHand has people approve and accept.
func TestNegotiationByHand(t *testing.T) {
	w := newClusters(t, nil, map[string]any{
		"sharing": map[string]any{"mode": "Manual", "peerLimits": []string{"rome cpu=8"}}, "peering": map[string]any{"acceptOffers": "Manual"},
	})
	ctx := t.Context()
	require.NoError(t, w.rome.Connect(ctx, w.milan))
	wants(t, w.rome, "milan", corev1beta1.PeeringYes, corev1beta1.CapacityRequest{Resources: asking("10", "20Gi")})
	within(t, quickly, "the provider's people are asked", requestIs(w.rome, "milan", sharingv1alpha1.RequestManualActionRequired, "ApprovalRequired"))
	within(t, quickly, "listed there", w.says(w.milan, []string{"offer", "list"}, 0, "rome", "milan", "8", "liqod offer approve milan -n liqo-tenant-rome"))
	require.Error(t, offerIs(w.rome, "milan", "milan", func(*sharingv1alpha1.ResourceOffer) bool { return true })(ctx), "what is not approved is not given")
	w.mends(t, faultCase{
		name: "NotApproved", at: w.milan, cause: []string{"capacity used here: ", "(ApprovalRequired; "}, only: "approve",
		runbook: "LiqodOfferWaiting", command: "liqod offer approve NAME -n TENANT",
	})
	within(t, quickly, "the consumer's people are asked", offerIs(w.rome, "milan", "milan", func(o *sharingv1alpha1.ResourceOffer) bool {
		return o.Status.Phase == sharingv1alpha1.OfferManualActionRequired && o.Status.Reason == "AcceptanceRequired"
	}))
	require.True(t, apierrors.IsNotFound(func() error {
		return second(w.rome.Liqod().OffloadingV1beta1().VirtualNodes(tenantOfMilan).Get(ctx, "milan", metav1.GetOptions{}))
	}()))
	w.mendsPeering(t, faultCase{
		name: "NotAccepted", cause: []string{"capacity used there: milan: ", "(OfferNotUsed; "}, only: "approve",
		runbook: "LiqodOfferWaiting", command: "liqod offer approve NAME -n TENANT",
	})
	within(t, quickly, "no more than the limit", gives(w.rome, w.milan, "milan", "8"))
	w.mendsOffer(t)
	require.NoError(t, w.says(w.milan, []string{"offer", "revoke", "milan", "-n", tenantOfRome}, 0, "taken back")(ctx))
	vkubeletGoes(t, w.rome, time.Minute, tenantOfMilan, "milan")
	within(t, quickly, "the offer waits for approval again", offerIs(w.milan, "rome", "milan", func(o *sharingv1alpha1.ResourceOffer) bool {
		return !o.Spec.Approved && o.Spec.WithdrawalTimestamp == nil && o.Status.VirtualNode == ""
	}))
	within(t, quickly, "the consumer has it no more", isGone(w.rome.Liqod().SharingV1alpha1().ResourceOffers(tenantOfMilan), "milan"))
}

// testOfferedClasses: an offer follows the storage classes of the provider, and the default one comes
// first. A claim gets the class and the access modes that its annotations name. A class that the provider
// does not share is refused, and the event names the setting.
func testOfferedClasses(t *testing.T, w *world) {
	within(t, quickly, "the scheduler sees that there is no storage", w.offersClasses())
	for name, provisioner := range map[string]string{"tape": diskProvisioner, "quick": diskProvisioner, "shelf": "kubernetes.io/no-provisioner"} {
		class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner}
		if name != "tape" {
			class.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
		}
		kubetest.Create(t, w.milan.Client().StorageV1().StorageClasses(), class)
	}
	within(t, 30*time.Second, "the offer has the classes, and the scheduler sees that there is storage", w.offersClasses("quick", "tape"))
	w.offload(t, "classes", offloadingv1beta1.NamespaceOffloadingSpec{})
	claims, there := w.rome.Client().CoreV1().PersistentVolumeClaims("classes"), w.milan.Client().CoreV1().PersistentVolumeClaims("classes-rome")
	made := map[string]*corev1.PersistentVolumeClaim{}
	for name, notes := range map[string]map[string]string{
		"plain":   {},
		"named":   {"liqo.io/remote-storage-class": "tape", "liqo.io/remote-access-modes": "RWX, ROX"},
		"refused": {"liqo.io/remote-storage-class": "shelf"},
	} {
		claim := statefulSet("x", 1).Spec.VolumeClaimTemplates[0]
		claim.Name, claim.Annotations = name, notes
		made[name] = kubetest.Create(t, claims, &claim)
		kubetest.Patch(t, claims, name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"volume.kubernetes.io/selected-node":"milan"}}}`))
	}
	template := statefulSet("x", 1).Spec.VolumeClaimTemplates[0]
	template.Annotations = map[string]string{"liqo.io/remote-storage-class": "tape"}
	kubetest.Create(t, w.rome.Client().CoreV1().Pods("classes"), onVirtualNodes("scratch", corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
		VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{ObjectMeta: metav1.ObjectMeta{Annotations: template.Annotations}, Spec: template.Spec},
	}}))

	w.eventAbout(t, made["refused"], "ProvisioningFailed", "sharing.storageClasses")
	type modes = []corev1.PersistentVolumeAccessMode
	for name, want := range map[string]struct {
		class string
		modes modes
	}{
		"plain": {"quick", modes{corev1.ReadWriteOnce}}, "named": {"tape", modes{corev1.ReadWriteMany, corev1.ReadOnlyMany}},
		"scratch-data": {"tape", modes{corev1.ReadWriteOnce}},
	} {
		within(t, 30*time.Second, name+" is there", lab.Exists(there, name))
		have := kubetest.Get(t, there, name)
		require.Equal(t, want.class, *have.Spec.StorageClassName, name)
		require.Equal(t, want.modes, have.Spec.AccessModes, name)
	}
	require.NoError(t, absent(there.Get(t.Context(), "refused", metav1.GetOptions{})))
	require.NoError(t, w.rome.Client().CoreV1().Namespaces().Delete(t.Context(), "classes", metav1.DeleteOptions{}))
}

// offersClasses looks for the storage classes of an offer in the virtual node. Its Node says whether
// there are any.
func (w *world) offersClasses(want ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		vn, err := w.rome.Liqod().OffloadingV1beta1().VirtualNodes(tenantOfMilan).Get(ctx, "milan", metav1.GetOptions{})
		if err != nil {
			return err
		}
		var have []string
		for i, c := range vn.Spec.StorageClasses {
			have = append(have, c.StorageClassName)
			if c.Default != (i == 0) {
				return fmt.Errorf("the default is not the first: %+v", vn.Spec.StorageClasses)
			}
		}
		node, err := w.rome.Client().CoreV1().Nodes().Get(ctx, "milan", metav1.GetOptions{})
		return lab.Wrong(err, fmt.Sprint(have) != fmt.Sprint(want) || (node.Labels[offloadingv1beta1.NoStorageLabel] == "true") != (len(want) == 0),
			"the classes are %v, the labels %v", have, node.Labels)
	}
}
