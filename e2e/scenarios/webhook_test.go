package scenarios

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

// warned collects the warnings that an API server gives with its answers.
type warned struct {
	mu   sync.Mutex
	text []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (h *warned) HandleWarningHeader(_ int, _, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.text = append(h.text, text)
}

// take returns what was heard since the last time.
func (h *warned) take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	text := h.text
	h.text = nil
	return text
}

// unruled switches the rules for what people write off in a cluster, until the test ends:
// what the controller makes of it alone is to be seen.
func unruled(t *testing.T, s *site.Site) {
	t.Helper()
	configurations := s.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations()
	exchange := func(ctx context.Context, next []admissionregistrationv1.ValidatingWebhook) (before []admissionregistrationv1.ValidatingWebhook, err error) {
		err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			have, err := configurations.Get(ctx, "liqod", metav1.GetOptions{})
			if err != nil {
				return err
			}
			before, have.Webhooks = have.Webhooks, next
			return second(configurations.Update(ctx, have, metav1.UpdateOptions{}))
		})
		return before, err
	}
	rules := must(exchange(t.Context(), nil))(t)
	within(t, soon, "the rules are off", func(ctx context.Context) error { return tryOwnID(ctx, s) })
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		require.NoError(t, second(exchange(ctx, rules)))
		require.NoError(t, lab.Eventually(ctx, func(ctx context.Context) error { return ruled(ctx, s) }))
	})
}

// tryOwnID writes, and does not keep, what the rules refuse.
func tryOwnID(ctx context.Context, s *site.Site) error {
	return second(s.Liqod().CoreV1beta1().ForeignClusters().Create(ctx, peerRecord(s.Name, s.Name), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}))
}

// ruled tells whether the rules are on.
func ruled(ctx context.Context, s *site.Site) error {
	if err := tryOwnID(ctx, s); !apierrors.IsForbidden(err) {
		return fmt.Errorf("not refused: %w", err)
	}
	return nil
}

func peerRecord(name, id string) *corev1beta1.ForeignCluster {
	return &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1beta1.ForeignClusterSpec{ClusterID: id}}
}

// author writes as a person does who reads warnings.
type author struct {
	*site.Site
	liqod versioned.Interface
	heard *warned
}

func newAuthor(t *testing.T, s *site.Site) author {
	t.Helper()
	a := author{Site: s, heard: &warned{}}
	config := s.Config()
	config.WarningHandler = a.heard
	var err error
	a.liqod, err = versioned.NewForConfig(config)
	require.NoError(t, err)
	return a
}

func (a author) cluster(change func(*corev1beta1.ForeignCluster)) func(context.Context) error {
	fc := peerRecord("turin", "turin")
	change(fc)
	return lab.Creates(a.liqod.CoreV1beta1().ForeignClusters(), fc, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

func (a author) patchCluster(patch string) func(context.Context) error {
	return lab.Patches(a.liqod.CoreV1beta1().ForeignClusters(), "milan", types.MergePatchType, []byte(patch))
}

func (a author) node(namespace string, change func(*offloadingv1beta1.VirtualNode)) func(context.Context) error {
	vn := roomyNode("new")
	change(vn)
	return lab.Creates(a.liqod.OffloadingV1beta1().VirtualNodes(namespace), vn, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

func roomyNode(name string) *offloadingv1beta1.VirtualNode {
	return &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: offloadingv1beta1.VirtualNodeSpec{
		ClusterID: "milan", KubeconfigSecretRef: corev1.LocalObjectReference{Name: "milan"},
		ResourceQuota: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi"), "pods": resource.MustParse("100")}}}}
}

func (a author) offload(namespace string, spec offloadingv1beta1.NamespaceOffloadingSpec) func(context.Context) error {
	return lab.Creates(a.liqod.OffloadingV1beta1().NamespaceOffloadings(namespace), offloading("offloading", spec), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

const recordOfMilan = `
apiVersion: v1
kind: Namespace
metadata:
  name: liqo-tenant-milan
  labels: {liqo.io/remote-cluster-id: milan, liqo.io/tenant-namespace: "true"}
---
apiVersion: v1
kind: Namespace
metadata: {name: web}
---
apiVersion: v1
kind: Namespace
metadata: {name: local}
---
apiVersion: core.liqo.io/v1beta1
kind: ForeignCluster
metadata: {name: milan}
spec: {clusterID: milan, userName: "liqo.io:peer:milan:1", addressRanges: [10.200.0.0/16]}
`

// TestWebhookRules writes, as a person, what the rules refuse, warn of and accept; and then
// while the role is away.
func TestWebhookRules(t *testing.T) {
	z := newZone(t)
	all := newSites(t, []string{"rome"}, nil, map[string]any{
		"discovery": map[string]any{"dns": map[string]any{"domain": "clusters.example", "servers": []string{z.address}}},
	})
	rome := all.list[0]
	// It leaves nothing.
	require.True(t, t.Run("Discovery", func(t *testing.T) { testDiscovery(t, rome, z) }))
	require.NoError(t, rome.Apply(t.Context(), []byte(recordOfMilan)))
	within(t, time.Minute, "the rules are on", func(ctx context.Context) error { return ruled(ctx, rome) })
	a := newAuthor(t, rome)
	within(t, time.Minute, "the webhook knows the peer", func(ctx context.Context) error {
		err := a.cluster(func(c *corev1beta1.ForeignCluster) { c.Spec.AddressRanges = []string{"10.0.0.0/8"} })(ctx)
		if said := strings.Join(a.heard.take(), "\n"); !strings.Contains(said, "of ForeignCluster milan") {
			return fmt.Errorf("no warning about the ranges of milan: %q: %w", said, errors.Join(err, errors.New("unknown")))
		}
		return err
	})
	t.Run("New", func(t *testing.T) { a.judged(t, a.newObjects()) })
	kubetest.Create(t, a.liqod.OffloadingV1beta1().VirtualNodes("liqo-tenant-milan"), roomyNode("milan"))
	within(t, time.Minute, "the webhook knows the virtual node", func(ctx context.Context) error {
		if err := a.offload("web", offloadingv1beta1.NamespaceOffloadingSpec{})(ctx); err != nil {
			return err
		}
		said := a.heard.take()
		return lab.Wrong(nil, len(said) > 0, "warnings %q", said)
	})
	for _, ns := range []string{"web", "local"} {
		kubetest.Create(t, a.liqod.OffloadingV1beta1().NamespaceOffloadings(ns), offloading("offloading", offloadingv1beta1.NamespaceOffloadingSpec{}))
	}
	require.Empty(t, a.heard.take(), "there is a virtual node")
	t.Run("Edits", func(t *testing.T) { a.judged(t, a.edits()) })
	t.Run("Deleted", func(t *testing.T) {
		require.NoError(t, a.liqod.OffloadingV1beta1().NamespaceOffloadings("local").Delete(t.Context(), "offloading", metav1.DeleteOptions{}))
		within(t, soon, "an offloading goes", isGone(a.liqod.OffloadingV1beta1().NamespaceOffloadings("local"), "offloading"))
		require.Empty(t, a.heard.take())
	})
	kept := a.webPod(t)
	t.Run("PodUpdate", func(t *testing.T) {
		pod, err := a.ownTolerations(t.Context(), kept)
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"team", corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, offloadingv1beta1.VirtualNodeTaintKey}, tolerationKeys(pod))
		_, err = a.Client().CoreV1().Pods("web").Patch(t.Context(), kept, types.JSONPatchType, []byte(`[{"op":"remove","path":"/spec/tolerations"}]`), metav1.PatchOptions{})
		require.True(t, apierrors.IsInvalid(err), "what is not liqod's is not put back: %v", err)
	})
	t.Run("WithoutController", func(t *testing.T) { a.withoutController(t, all.sites) })
	t.Run("Away", func(t *testing.T) { a.away(t, kept) })
}

// webPod creates a pod in the offloaded namespace web, and returns its name.
func (a author) webPod(t *testing.T) string {
	t.Helper()
	within(t, soon, "pods are offloaded", a.offloads)
	pod := kubetest.Create(t, a.Client().CoreV1().Pods("web"), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "kept"}, Spec: podSpec("sim/web:1")})
	return pod.Name
}

// offloads returns an error unless the webhook changes a new pod of namespace web.
func (a author) offloads(ctx context.Context) error {
	pod, err := a.Client().CoreV1().Pods("web").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "dry"}, Spec: podSpec("sim/web:1")}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err == nil && !slices.Contains(tolerationKeys(pod), offloadingv1beta1.VirtualNodeTaintKey) {
		err = fmt.Errorf("tolerations %v", pod.Spec.Tolerations)
	}
	return err
}

// withoutController: a webhook that starts while no controller runs has the certificate that is
// there, and one that serves goes on without the Secret. The next controller makes another
// certificate, and the API server trusts it.
func (a author) withoutController(t *testing.T, sites *site.Sites) {
	a.Controller.Kill()
	require.NoError(t, sites.Restart(&a.Webhook))
	within(t, soon, "the webhook serves without a controller", a.offloads)
	secrets := a.Client().CoreV1().Secrets(site.Namespace)
	require.NoError(t, secrets.Delete(t.Context(), "liqod-webhook-certs", metav1.DeleteOptions{}))
	require.NoError(t, a.offloads(t.Context()))
	require.NoError(t, sites.Restart(&a.Controller))
	within(t, soon, "there is another certificate, which the API server trusts", func(ctx context.Context) error {
		secret, err := secrets.Get(ctx, "liqod-webhook-certs", metav1.GetOptions{})
		if err != nil {
			return err
		}
		configuration, err := a.Client().AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, "liqod", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !bytes.Equal(configuration.Webhooks[0].ClientConfig.CABundle, secret.Data["ca.crt"]) {
			return errors.New("the caBundle is another one")
		}
		return a.offloads(ctx)
	})
}

// ownTolerations writes the pod as a client does that keeps its own list of tolerations.
func (a author) ownTolerations(ctx context.Context, name string) (pod *corev1.Pod, err error) {
	pods := a.Client().CoreV1().Pods("web")
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		have, err := pods.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		have.Spec.Tolerations = []corev1.Toleration{{Key: "team", Operator: corev1.TolerationOpExists}}
		pod, err = pods.Update(ctx, have, metav1.UpdateOptions{})
		return err
	})
	return pod, err
}

func tolerationKeys(pod *corev1.Pod) (keys []string) {
	for _, t := range pod.Spec.Tolerations {
		keys = append(keys, t.Key)
	}
	return keys
}

// judgement is what is said of a write: why it is refused, or what its author is warned of.
type judgement struct {
	try     func(context.Context) error
	refused string
	warned  string
}

func (a author) judged(t *testing.T, cases []judgement) {
	for i, c := range cases {
		name := c.refused + c.warned
		if name == "" {
			name = fmt.Sprintf("accepted %d", i)
		}
		t.Run(name, func(t *testing.T) {
			err := c.try(t.Context())
			said := strings.Join(a.heard.take(), "\n")
			t.Logf("error %v, warnings %q", err, said)
			if c.refused == "" {
				require.NoError(t, err)
				require.Contains(t, said, c.warned)
				require.Equal(t, c.warned == "", said == "")
				return
			}
			require.True(t, apierrors.IsForbidden(err) || apierrors.IsInvalid(err), "%v", err)
			require.Contains(t, err.Error(), c.refused)
		})
	}
}

func (a author) newObjects() []judgement {
	type (
		fc  = corev1beta1.ForeignCluster
		vn  = offloadingv1beta1.VirtualNode
		nso = offloadingv1beta1.NamespaceOffloadingSpec
	)
	long := corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "a", Operator: "Like"}}}}}
	return []judgement{
		{a.cluster(func(*fc) {}), "", ""},
		{a.cluster(func(c *fc) { c.Name, c.Spec.ClusterID = "rome", "rome" }), "a cluster cannot be a peer of itself", ""},
		{a.cluster(func(c *fc) { c.Spec.ClusterID = "milan" }), "metadata.name and spec.clusterID must be equal", ""},
		{a.cluster(func(c *fc) { c.Spec.AddressRanges = []string{"10.0.0.0/8"} }), "", "overlaps 10.200.0.0/16 of ForeignCluster milan"},

		{a.node("liqo-tenant-milan", func(*vn) {}), "", ""},
		{a.node("web", func(*vn) {}), "must be in the tenant namespace liqo-tenant-milan", ""},
		{a.node("liqo-tenant-milan", func(n *vn) { n.Name = a.SimulatedNodeName(1) }), "exists that does not belong to this virtual node", ""},

		{a.offload("web", nso{}), "", ""},
		{a.offload("web", nso{ClusterSelector: long}), "spec.clusterSelector", ""},
		{a.offload("kube-system", nso{}), "belongs to Kubernetes", ""},
	}
}

func (a author) edits() []judgement {
	patchNode := func(patch string) func(context.Context) error {
		return lab.Patches(a.liqod.OffloadingV1beta1().VirtualNodes("liqo-tenant-milan"), "milan", types.MergePatchType, []byte(patch))
	}
	patchOffloading := func(patch string) func(context.Context) error {
		return lab.Patches(a.liqod.OffloadingV1beta1().NamespaceOffloadings("web"), "offloading", types.MergePatchType, []byte(patch))
	}
	return []judgement{
		{patchOffloading(`{"metadata":{"labels":{"team":"a"}}}`), "", ""},
		{patchOffloading(`{"spec":{"podOffloadingStrategy":"Remote"}}`), "", "applies to pods that are created from now on"},
		{patchOffloading(`{"spec":{"clusterSelector":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"region","operator":"In","values":["mars"]}]}]}}}`), "no longer selected: milan (running pods: 0), and no virtual node is selected any more", ""},
		{patchOffloading(`{"metadata":{"annotations":{"liqo.io/end-pods-in":"milan"}},"spec":{"clusterSelector":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"region","operator":"In","values":["mars"]}]}]}}}`), "", ""},
		{patchNode(`{"spec":{"resourceQuota":{"hard":{"cpu":"3"}}}}`), "", ""},
		{patchNode(`{"spec":{"kubeconfigSecretRef":{"name":""}}}`), "kubeconfigSecretRef.name is empty", ""},
		{a.patchCluster(`{"spec":{"clusterName":"Milano"}}`), "", ""},
		{a.patchCluster(`{"spec":{"userName":"liqo.io:peer:milan:2","incomingPeeringEnabled":"No"}}`), "", ""},
	}
}

// away: the rules hold nothing up, and the controller says what is wrong. New pods of offloaded
// namespaces wait. kept is one that exists.
func (a author) away(t *testing.T, kept string) {
	ctx := t.Context()
	a.Webhook.Kill()
	clusters, nodes := a.liqod.CoreV1beta1().ForeignClusters(), a.liqod.OffloadingV1beta1().VirtualNodes("liqo-tenant-milan")
	kubetest.Create(t, clusters, peerRecord("rome", "rome"))
	_, err := clusters.Create(ctx, peerRecord("again", "milan"), metav1.CreateOptions{})
	require.True(t, apierrors.IsInvalid(err), "the schema refuses a second record of one peer: %v", err)
	taken := a.SimulatedNodeName(1)
	kubetest.Create(t, nodes, roomyNode(taken))
	kubetest.Create(t, a.liqod.OffloadingV1beta1().NamespaceOffloadings("kube-system"), offloading("offloading", offloadingv1beta1.NamespaceOffloadingSpec{}))

	within(t, soon, "rome is not a peer of itself", peerSays(a.Site, "rome", corev1beta1.ConditionReady, metav1.ConditionFalse, corev1beta1.ReasonSelfPeering))
	w := &world{rome: a.Site}
	within(t, soon, "the name is taken", w.virtualNode("liqo-tenant-milan", taken, "NameTaken"))
	within(t, soon, "a namespace is refused", w.offloadingIs("kube-system", offloadingv1beta1.PhaseAllFailed, "belongs to Kubernetes"))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: podSpec("sim/web:1")}
	for _, node := range []string{"", taken} {
		pod.Spec.NodeName = node
		_, err = a.Client().CoreV1().Pods("web").Create(ctx, pod, metav1.CreateOptions{})
		require.True(t, apierrors.IsInternalError(err), "%v", err)
		require.ErrorContains(t, err, "pod.mutate.liqo.io")
	}
	pod.Spec.Tolerations = []corev1.Toleration{{Key: offloadingv1beta1.VirtualNodeTaintKey, Operator: corev1.TolerationOpExists}}
	_, err = a.Client().CoreV1().Pods("web").Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	require.NoError(t, err, "nobody is asked about a pod on a node that it tolerates")
	for _, subresource := range []string{"", "status"} {
		_, err = a.Client().CoreV1().Pods("web").Patch(ctx, kept, types.MergePatchType, []byte(`{"metadata":{"labels":{"written":"yes"}},"status":{"message":"written"}}`), metav1.PatchOptions{}, subresource)
		require.NoError(t, err, "a pod that exists is not held up")
	}
	_, err = a.ownTolerations(ctx, kept)
	require.True(t, apierrors.IsInvalid(err), "Kubernetes refuses this by itself: %v", err)
	_, err = a.Client().CoreV1().Pods("default").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: podSpec("sim/web:1")}, metav1.CreateOptions{})
	require.NoError(t, err, "what is not ours is not held up")
	kubetest.Create(t, a.Client().CoreV1().ConfigMaps("web"), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "web"}})

	// All of it can be mended.
	require.NoError(t, clusters.Delete(ctx, "rome", metav1.DeleteOptions{}))
	require.NoError(t, nodes.Delete(ctx, taken, metav1.DeleteOptions{}))
}
