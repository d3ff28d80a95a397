package scenarios

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/liqod/liqod/api/generated/clientset/versioned"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

// testMessages makes every mistake that the schema catches: the answer names the field
// and what is accepted.
func testMessages(t *testing.T, w *world) {
	w.offload(t, "messages", offloadingv1beta1.NamespaceOffloadingSpec{
		NamespaceMappingStrategy: offloadingv1beta1.SelectedName, RemoteNamespaceName: "messages-elsewhere"})
	client := w.rome.Liqod().OffloadingV1beta1()
	create := func(name string, spec offloadingv1beta1.NamespaceOffloadingSpec) func(context.Context) error {
		return lab.Creates(client.NamespaceOffloadings("default"), offloading(name, spec), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	}
	patch := func(body string) func(context.Context) error {
		return lab.Patches(client.NamespaceOffloadings("messages"), "offloading", types.MergePatchType, []byte(body))
	}
	node := func(body string) func(context.Context) error {
		return lab.Patches(client.VirtualNodes("liqo-tenant-milan"), "milan", types.MergePatchType, []byte(body))
	}
	for name, c := range map[string]struct {
		do   func(context.Context) error
		says []string
	}{
		"another name": {create("other", offloadingv1beta1.NamespaceOffloadingSpec{}), []string{"must be named offloading"}},
		"SelectedName without a name": {create("offloading", offloadingv1beta1.NamespaceOffloadingSpec{NamespaceMappingStrategy: offloadingv1beta1.SelectedName}),
			[]string{"SelectedName needs remoteNamespaceName"}},
		"a name without SelectedName": {create("offloading", offloadingv1beta1.NamespaceOffloadingSpec{RemoteNamespaceName: "x"}),
			[]string{"remoteNamespaceName is used with namespaceMappingStrategy SelectedName only"}},
		"a name that is none": {create("offloading", offloadingv1beta1.NamespaceOffloadingSpec{
			NamespaceMappingStrategy: offloadingv1beta1.SelectedName, RemoteNamespaceName: "No_Name"}), []string{"spec.remoteNamespaceName", "should match"}},
		"an unknown mapping": {create("offloading", offloadingv1beta1.NamespaceOffloadingSpec{NamespaceMappingStrategy: "Any"}),
			[]string{"spec.namespaceMappingStrategy", `"EnforceSameName", "DefaultName", "SelectedName"`}},
		"an unknown strategy": {create("offloading", offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: "Everywhere"}),
			[]string{"spec.podOffloadingStrategy", `"Local", "Remote", "LocalAndRemote"`}},
		"another mapping":     {patch(`{"spec":{"namespaceMappingStrategy":"DefaultName","remoteNamespaceName":null}}`), []string{"namespaceMappingStrategy is immutable"}},
		"other services":      {patch(`{"spec":{"services":"Home"}}`), []string{"services is immutable", "delete the NamespaceOffloading"}},
		"another remote name": {patch(`{"spec":{"remoteNamespaceName":"other"}}`), []string{"remoteNamespaceName is immutable"}},
		"another provider":    {node(`{"spec":{"clusterID":"turin"}}`), []string{"spec.clusterID", "immutable"}},
		"no node":             {node(`{"spec":{"createNode":false}}`), []string{"createNode: false is not supported"}},
		"a template":          {node(`{"spec":{"template":{"spec":{}}}}`), []string{"template is not supported", "virtualKubelet"}},
		"replicas":            {node(`{"spec":{"virtualKubelet":{"replicas":11}}}`), []string{"spec.virtualKubelet.replicas", "less than or equal to 10"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.do(t.Context())
			require.Error(t, err)
			t.Log(err)
			for _, text := range c.says {
				require.Contains(t, err.Error(), text)
			}
		})
	}
	require.NoError(t, patch(`{"spec":{"podOffloadingStrategy":"LocalAndRemote"}}`)(t.Context()), "the pod strategy may change")
}

// testReserved asks for twins of names that peers may not have. Package namespace tests all of them.
func testReserved(t *testing.T, w *world) {
	unruled(t, w.rome)
	w.ask(t, "wants-product", offloadingv1beta1.NamespaceOffloadingSpec{NamespaceMappingStrategy: offloadingv1beta1.SelectedName, RemoteNamespaceName: "cert-manager"})
	within(t, soon, "the name of a product is refused before it is installed", w.offloadingIs("wants-product", offloadingv1beta1.PhaseAllFailed, "cert-manager", "controller.twinNames of milan"))
	require.NoError(t, w.noTwin("cert-manager")(t.Context()))
	long := strings.Repeat("x", 60)
	w.ask(t, long, offloadingv1beta1.NamespaceOffloadingSpec{})
	within(t, soon, "a name too long is refused", w.offloadingIs(long, offloadingv1beta1.PhaseAllFailed, long+"-rome", "SelectedName"))
}

// kept returns the namespaces of milan with what says that they were written.
func kept(t *testing.T, w *world, names ...string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, name := range names {
		ns := kubetest.Get(t, w.milan.Client().CoreV1().Namespaces(), name)
		bindings := kubetest.List(t, w.milan.Client().RbacV1().RoleBindings(name))
		out[name] = fmt.Sprint(ns.UID, ns.ResourceVersion, ns.DeletionTimestamp)
		for _, b := range bindings.Items {
			out[name] += fmt.Sprint(b.Name, b.ResourceVersion)
		}
	}
	return out
}

// testHostileMap writes the NamespaceMap with the peer's own credentials, while the
// consumer's controller is away and does not put it right.
func testHostileMap(t *testing.T, w *world) {
	peer := w.peerClient(t, "rome")
	paris := w.parisAsks(t, "secret")
	w.offload(t, "honest", offloadingv1beta1.NamespaceOffloadingSpec{})
	kubetest.Create(t, w.milan.Client().CoreV1().Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "precious"}})

	w.rome.Controller.Kill()
	restarted := false
	restart := func() {
		if !restarted {
			restarted = true
			require.NoError(t, w.sites.Restart(&w.rome.Controller))
		}
	}
	defer restart()
	names := []string{"default", "kube-system", "liqod", "liqo-tenant-paris", "secret", "precious", "honest-rome"}
	before := kept(t, w, names...)
	maps := peer.OffloadingV1beta1().NamespaceMaps("liqo-tenant-rome")
	kubetest.Patch(t, maps, "milan", types.MergePatchType, []byte(`{"spec":{"desiredMapping":{"a":"kube-system","b":"default","c":"secret","d":"liqod",
		"e":"liqo-tenant-paris","f":"precious","g":"No_Name","h":"honest-rome","i":"../x","j":"kube-mine"}}}`))
	within(t, soon, "every hostile entry is refused, the honest one stands", lab.That(maps, "milan", func(m *offloadingv1beta1.NamespaceMap) error {
		if m.Status.ObservedGeneration != m.Generation {
			return fmt.Errorf("not answered yet")
		}
		for _, original := range strings.Split("abcdefghij", "") {
			if got := m.Status.CurrentMapping[original]; got.Phase != offloadingv1beta1.MappingCreationLoopBackOff || got.Message == "" {
				return fmt.Errorf("entry %s: %+v", original, got)
			}
		}
		got := m.Status.CurrentMapping["honest"]
		return lab.Wrong(nil, got.Phase != offloadingv1beta1.MappingAccepted, "the honest entry: %+v", got)
	}))
	m := kubetest.Get(t, maps, "milan")
	for original, answer := range m.Status.CurrentMapping {
		t.Logf("%s: %s %s", original, answer.Phase, answer.Message)
	}
	require.Equal(t, before, kept(t, w, names...), "nothing was written")
	require.NoError(t, w.noTwin("kube-mine")(t.Context()))

	w.hostileObjects(t, peer)
	require.Equal(t, before, kept(t, w, names...), "nothing was written")

	restart()
	within(t, soon, "the consumer's controller puts its wish right", lab.Is(maps, "milan", func(m *offloadingv1beta1.NamespaceMap) bool {
		return m.Spec.DesiredMapping["a"] == ""
	}))
	within(t, soon, "the honest namespace stands", w.offloadingIs("honest", offloadingv1beta1.PhaseReady))
	require.Equal(t, before, kept(t, w, names...), "nothing was written")
	require.NoError(t, paris.OffloadingV1beta1().NamespaceMaps("liqo-tenant-paris").Delete(t.Context(), "milan", metav1.DeleteOptions{}))
	within(t, soon, "the twin of paris goes with its map", w.noTwin("secret"))
}

// hostileObjects writes further maps, each wrong in one way.
func (w *world) hostileObjects(t *testing.T, peer versioned.Interface) {
	t.Helper()
	replica := func(name, origin string, mapping map[string]string) *offloadingv1beta1.NamespaceMap {
		return &offloadingv1beta1.NamespaceMap{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"liqo.io/replicated": "true", "liqo.io/originID": origin}},
			Spec:       offloadingv1beta1.NamespaceMapSpec{DesiredMapping: mapping},
		}
	}
	maps := peer.OffloadingV1beta1().NamespaceMaps("liqo-tenant-rome")
	for name, m := range map[string]*offloadingv1beta1.NamespaceMap{
		"another map":     replica("second", "rome", map[string]string{"a": "stolen-1"}),
		"a map for paris": replica("paris", "paris", map[string]string{"secret": "secret"}),
	} {
		_, err := maps.Create(t.Context(), m, metav1.CreateOptions{})
		require.ErrorContains(t, err, "named as this cluster", name)
	}
	origin := func(id string) {
		t.Helper()
		kubetest.Patch(t, maps, "milan", types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"liqo.io/originID":%q}}}`, id))
	}
	origin("paris")
	within(t, soon, "a map that speaks for paris is refused", lab.Is(maps, "milan", func(m *offloadingv1beta1.NamespaceMap) bool {
		c := meta.FindStatusCondition(m.Status.Conditions, "Ready")
		return c != nil && c.Reason == offloadingv1beta1.ReasonInvalid
	}))
	origin("rome")
	require.NoError(t, w.noTwin("stolen-1")(t.Context()))
	many := map[string]string{}
	for i := range 2001 {
		many[fmt.Sprintf("n%d", i)] = fmt.Sprintf("stolen-%d", i)
	}
	_, err := maps.Create(t.Context(), replica("milan", "rome", many), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	require.ErrorContains(t, err, "2000")
	_, err = peer.OffloadingV1beta1().NamespaceMaps("liqo-tenant-paris").Create(t.Context(), replica("milan", "paris", nil), metav1.CreateOptions{})
	require.ErrorContains(t, err, "forbidden")
}

// peerClient has the credentials that a peer was given in milan.
func (w *world) peerClient(t *testing.T, id string) versioned.Interface {
	t.Helper()
	_, client := clients(t, holder{in: w.milan, namespace: "liqo-tenant-" + id, account: "peer-1"}.config(t))
	return client
}

// parisAsks makes a second peer of milan, with one twin.
func (w *world) parisAsks(t *testing.T, twin string) versioned.Interface {
	t.Helper()
	require.NoError(t, w.milan.Apply(t.Context(), []byte(anotherPeer("secret", twin))))
	paris := w.peerClient(t, "paris")
	within(t, soon, "paris has a twin in milan", lab.Is(paris.OffloadingV1beta1().NamespaceMaps("liqo-tenant-paris"), "milan", func(m *offloadingv1beta1.NamespaceMap) bool {
		return m.Status.CurrentMapping["secret"].Phase == offloadingv1beta1.MappingAccepted
	}))
	return paris
}

// ingressesPerTwin is the count of sharing.twinLimits in the world of TestNamespaces.
const ingressesPerTwin = 2

// testBounds fills a twin with more objects than the provider allows, and removes what
// bounds the twin.
func testBounds(t *testing.T, w *world) {
	ctx, client, patience := t.Context(), w.milan.Client(), 3*time.Minute
	w.offload(t, "bounded", offloadingv1beta1.NamespaceOffloadingSpec{})
	const twin = "bounded-rome"
	quotas, policies := client.CoreV1().ResourceQuotas(twin), client.NetworkingV1().NetworkPolicies(twin)
	within(t, patience, "the provider counts", lab.Is(quotas, offloadingv1beta1.TwinBounds, func(quota *corev1.ResourceQuota) bool {
		_, ok := quota.Status.Used["count/ingresses.networking.k8s.io"]
		return ok
	}))
	policy, err := policies.Get(ctx, offloadingv1beta1.TwinBounds, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}, policy.Spec.PolicyTypes)

	var last *networkingv1.Ingress
	for i := range ingressesPerTwin + 2 {
		name := fmt.Sprintf("many-%d", i)
		last = kubetest.Create(t, w.rome.Client().NetworkingV1().Ingresses("bounded"), &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: name + ".bounded.example"}}}})
		within(t, patience, name+" is reflected or refused", lab.Are(client.NetworkingV1().Ingresses(twin), metav1.ListOptions{}, func(list *networkingv1.IngressList) bool {
			return len(list.Items) >= min(i+1, ingressesPerTwin)
		}))
	}
	w.eventAbout(t, last, "FailedReflection", "sharing.twinLimits")
	list := kubetest.List(t, client.NetworkingV1().Ingresses(twin))
	require.Len(t, list.Items, ingressesPerTwin)

	quota := kubetest.Get(t, quotas, offloadingv1beta1.TwinBounds)
	quota.Spec.Hard["count/ingresses.networking.k8s.io"] = resource.MustParse("100")
	if _, err = quotas.Update(ctx, quota, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		require.NoError(t, err)
	}
	require.NoError(t, policies.Delete(ctx, offloadingv1beta1.TwinBounds, metav1.DeleteOptions{}))
	within(t, patience, "both are put right", func(ctx context.Context) error {
		quota, err := quotas.Get(ctx, offloadingv1beta1.TwinBounds, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if n := quota.Spec.Hard["count/ingresses.networking.k8s.io"]; n.Value() != ingressesPerTwin {
			return fmt.Errorf("the ResourceQuota allows %s", n.String())
		}
		return second(policies.Get(ctx, offloadingv1beta1.TwinBounds, metav1.GetOptions{}))
	})
}
