package scenarios

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

// idle is how long nothing must be written.
const idle = 10 * time.Second

// populate makes objects of every kind in an offloaded namespace, and waits until the
// last of them is in the provider.
func (w *world) populate(t *testing.T, namespace string, many int) {
	t.Helper()
	core := w.rome.Client().CoreV1()
	for _, s := range services() {
		s.Annotations = nil // node ports are given once
		for i := range s.Spec.Ports {
			s.Spec.Ports[i].NodePort = 0
		}
		kubetest.Create(t, core.Services(namespace), s)
	}
	kubetest.Create(t, w.rome.Client().NetworkingV1().Ingresses(namespace), &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: namespace + "." + w.rome.Name + ".example.com"}}}})
	kubetest.Create(t, w.rome.Client().DiscoveryV1().EndpointSlices(namespace), &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "plain-byhand", Labels: map[string]string{discoveryv1.LabelServiceName: "plain"}}, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.100.7.7"}}}, Ports: []discoveryv1.EndpointPort{{Port: ptr.To[int32](80)}},
	})
	for i := range many {
		kubetest.Create(t, core.ConfigMaps(namespace), configMapOf(fmt.Sprintf("cm-%d", i), "i", fmt.Sprint(i)))
		kubetest.Create(t, core.Secrets(namespace), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s-%d", i)}, StringData: map[string]string{"i": fmt.Sprint(i)}})
	}
	twin := namespace + "-rome"
	remote, all := w.milan.Client(), metav1.ListOptions{}
	within(t, quickly, "everything is reflected", lab.Together(
		lab.Number(remote.CoreV1().ConfigMaps(twin), all, many+2), lab.Number(remote.CoreV1().Secrets(twin), all, many), lab.Number(remote.CoreV1().Services(twin), all, len(services())),
		lab.Exists(remote.DiscoveryV1().EndpointSlices(twin), "plain-byhand"), lab.Exists(remote.NetworkingV1().Ingresses(twin), "web")))
}

// noWrites requires that the consumer writes nothing to the provider for a while.
func (w *world) noWrites(t *testing.T, begin, end time.Time, what string) {
	t.Helper()
	hold(t, time.Until(end), what, func(context.Context) error {
		all := writes(t, w.milan.Cluster, peer, begin)
		return lab.Wrong(nil, len(all) > 0, "%d writes: %v", len(all), all)
	})
}

// testReflectionIdle: what is as wanted costs no request, whatever the provider's API
// server has filled in.
func testReflectionIdle(t *testing.T, w *world) {
	w.offload(t, "still", offloadingv1beta1.NamespaceOffloadingSpec{})
	w.populate(t, "still", 20)
	begin := time.Now()
	w.noWrites(t, begin, begin.Add(idle), "idle")
}

// testReflectionRestart: a vkubelet that is started again writes nothing.
func testReflectionRestart(t *testing.T, w *world) {
	begin := time.Now()
	require.NoError(t, w.sites.Restart(w.rome.VKubelet("milan")))
	w.caughtUp(t, "still", "after-restart", 2*takeOver)
	all := writes(t, w.milan.Cluster, peer, begin)
	require.Equal(t, []string{"create configmaps still-rome/after-restart: 201"}, all)
	w.noWrites(t, time.Now(), time.Now().Add(5*time.Second), "idle")

	vk := w.rome.VKubelet("milan")
	w.kindsFixture(t, "still").missed(t, "down", 2*takeOver, func() {
		(*vk).Kill()
	}, func() { require.NoError(t, w.sites.Restart(vk)) })
}

// caughtUp makes a ConfigMap and waits until it is in the provider: whoever reflects has
// seen everything.
func (w *world) caughtUp(t *testing.T, namespace, name string, patience time.Duration) {
	t.Helper()
	kubetest.Create(t, w.rome.Client().CoreV1().ConfigMaps(namespace), configMapOf(name))
	within(t, patience, name+" is reflected", lab.Exists(w.milan.Client().CoreV1().ConfigMaps(namespace+"-rome"), name))
}

// testReflectionAway: what happens while the provider is away is caught up.
func testReflectionAway(t *testing.T, w *world) {
	s := w.kindsFixture(t, "still")
	s.missed(t, "away", promptly+quickly, w.milan.Proxied().Drop, func() {
		require.NoError(t, w.rome.WaitVirtualNode(t.Context(), "milan", corev1.ConditionFalse))
		require.NoError(t, s.shows("away-changed", 1)(t.Context()), "nothing arrives")
		w.milan.Proxied().Pass()
	})
}

// testSkipLists: the keys that stay at home can be changed without a restart of the
// vkubelet.
func testSkipLists(t *testing.T, w *world) {
	home, remote := w.rome.Client().CoreV1().ConfigMaps("still"), w.milan.Client().CoreV1().ConfigMaps("still-rome")
	cm := configMapOf("keyed")
	cm.Labels = map[string]string{"example.com/configured": "1", "example.com/patched": "2", "example.com/carried": "3"}
	kubetest.Create(t, home, cm)
	has := func(keys ...string) func(*corev1.ConfigMap) bool {
		return func(cm *corev1.ConfigMap) bool {
			n := 0
			for _, key := range []string{"configured", "patched", "carried"} {
				if _, ok := cm.Labels["example.com/"+key]; ok {
					n++
					if !slices.Contains(keys, key) {
						return false
					}
				}
			}
			return n == len(keys)
		}
	}
	there(t, "all are carried", getter(remote, "keyed"), has("configured", "patched", "carried"))
	before := (*w.rome.VKubelet("milan")).Options
	w.rome.Controller.Options.Args = append(w.rome.Controller.Options.Args, "--reflection.skipLabels=example.com/configured")
	require.NoError(t, w.sites.Restart(&w.rome.Controller))
	within(t, 30*time.Second, "the controller's list acts", lab.Is(remote, "keyed", has("patched", "carried")))
	d := kubetest.Get(t, w.rome.Client().AppsV1().Deployments(tenantOfMilan), "vk-milan")
	require.NotContains(t, fmt.Sprint(d.Spec.Template.Spec.Containers[0].Args), "skipLabels", "no reason to roll the Deployment")
	kubetest.Patch(t, w.rome.Liqod().OffloadingV1beta1().VirtualNodes(tenantOfMilan), "milan", types.MergePatchType, []byte(`{"spec":{"offloadingPatch":{"labelsNotReflected":["example.com/patched"]}}}`))
	there(t, "the VirtualNode's list acts", getter(remote, "keyed"), has("carried"))
	require.Equal(t, before, (*w.rome.VKubelet("milan")).Options)
}

// testHandOver: of two virtual nodes of one provider one vkubelet reflects; when it ends
// the other one goes on, and writes nothing for that.
func testHandOver(t *testing.T, w *world) {
	require.NoError(t, w.rome.AddVirtualNode(t.Context(), w.milan, site.PeerOptions{Node: "milan-b"}))
	leases := w.rome.Client().CoordinationV1().Leases(tenantOfMilan)
	holder := func() string {
		l := kubetest.Get(t, leases, "reflection")
		return *l.Spec.HolderIdentity
	}
	first := holder()
	w.caughtUp(t, "still", "with-two", quickly)
	w.namedOnEach(t, "still", "with-two", "milan", "milan-b")
	begin := time.Now()
	(*w.rome.VKubelet("milan")).Kill()
	w.caughtUp(t, "still", "taken-over", 2*takeOver)
	require.NotEqual(t, first, holder())
	require.Equal(t, []string{"create configmaps still-rome/taken-over: 201"}, writes(t, w.milan.Cluster, peer, begin))
	require.NoError(t, w.sites.Restart(w.rome.VKubelet("milan")))
	require.NoError(t, w.rome.WaitVirtualNode(t.Context(), "milan", corev1.ConditionTrue))
	second := holder()
	w.noWrites(t, time.Now(), time.Now().Add(5*time.Second), "one of two reflects")
	require.Equal(t, second, holder())
}

// namedOnEach runs a pod on each of several virtual nodes that names a ConfigMap: also the vkubelet
// that does not reflect finds that the ConfigMap is in the provider.
func (w *world) namedOnEach(t *testing.T, namespace, configMap string, nodes ...string) {
	t.Helper()
	pods := w.rome.Client().CoreV1().Pods(namespace)
	for _, node := range nodes {
		pod := bare("on-"+node, corev1.RestartPolicyAlways)
		pod.Spec.NodeName, pod.Spec.Tolerations = node, anyTaint()
		pod.Spec.AutomountServiceAccountToken = new(false) // a token would be deleted later
		pod.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: configMap}, Optional: new(true)}}}
		kubetest.Create(t, pods, pod)
		untilPod(t, w.rome, quickly, namespace, pod.Name, "runs", podRunning)
		require.NoError(t, pods.Delete(t.Context(), pod.Name, metav1.DeleteOptions{}))
	}
	within(t, quickly, "the pods are gone", w.gone(namespace, namespace+"-rome"))
}

// testTwoWays: two clusters that offload namespaces to each other, of the same name: each
// object is reflected once, and nothing comes back.
func testTwoWays(t *testing.T, w *world) {
	require.NoError(t, w.milan.Peer(t.Context(), w.rome, site.PeerOptions{}))
	w.offload(t, "mesh", offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsLocalAndRemote})
	require.NoError(t, w.milan.Offload(t.Context(), "mesh", offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsLocalAndRemote}))
	pairs := []struct {
		origin, provider *site.Site
		twin             string
	}{{w.rome, w.milan, "mesh-rome"}, {w.milan, w.rome, "mesh-milan"}}
	for _, p := range pairs {
		kubetest.Create(t, p.origin.Client().CoreV1().ConfigMaps("mesh"), configMapOf("app", "from", p.origin.Name))
		kubetest.Create(t, p.origin.Client().CoreV1().Services("mesh"), service("web"))
	}
	for _, p := range pairs {
		there(t, p.twin, getter(p.provider.Client().CoreV1().ConfigMaps(p.twin), "app"), func(cm *corev1.ConfigMap) bool { return cm.Data["from"] == p.origin.Name })
		there(t, p.twin, getter(p.provider.Client().CoreV1().Services(p.twin), "web"), anyState[*corev1.Service])
		// The origin's control plane gives every new namespace this one, in its own time.
		there(t, p.twin, getter(p.provider.Client().CoreV1().ConfigMaps(p.twin), "kube-root-ca.crt."+p.origin.Name), anyState[*corev1.ConfigMap])
	}
	begin := time.Now()
	hold(t, time.Until(begin.Add(idle)), "nothing goes round", func(context.Context) error {
		all := append(writes(t, w.milan.Cluster, peer, begin), writes(t, w.rome.Cluster, "system:serviceaccount:liqo-tenant-milan:peer-1", begin)...)
		return lab.Wrong(nil, len(all) > 0, "%v", all)
	})
	for _, s := range []*site.Site{w.rome, w.milan} {
		cm := kubetest.Get(t, s.Client().CoreV1().ConfigMaps("mesh"), "app")
		require.Equal(t, s.Name, cm.Data["from"])
	}
}

// testPolicyChange: another policy acts on what exists; a kind that is switched off is
// withdrawn.
func testPolicyChange(t *testing.T, w *world) {
	w.offload(t, "policy", offloadingv1beta1.NamespaceOffloadingSpec{})
	s := w.kindsFixture(t, "policy")
	s.create(t, "allowed", 1, map[string]string{"liqo.io/allow-reflection": "true"})
	s.create(t, "plain", 1, nil)
	within(t, quickly, "reflected", s.shows("allowed", 1))
	within(t, quickly, "reflected", s.shows("plain", 1))
	rootCA := getter(w.milan.Client().CoreV1().ConfigMaps("policy-rome"), "kube-root-ca.crt.rome")

	w.reflectsWith(t, func(r row) string { return "--reflection." + r.resource + ".type=AllowList" })
	within(t, 3*takeOver, "what is not allowed is withdrawn", s.gone("plain"))
	require.NoError(t, s.shows("allowed", 1)(t.Context()), "what is allowed stays")
	there(t, "and the root CA, always", rootCA, anyState[*corev1.ConfigMap])
	s.change(t, "allowed", 2)
	within(t, quickly, "and is followed", s.shows("allowed", 2))

	w.reflectsWith(t, func(r row) string { return "--reflection." + r.resource + ".workers=0" })
	within(t, 3*takeOver, "what is off is withdrawn", s.gone("allowed"))
	away(t, "all of it", rootCA)
}

// reflectsWith starts both vkubelets again, either of which may reflect, with a flag more
// for every kind that has it.
func (w *world) reflectsWith(t *testing.T, flag func(row) string) {
	t.Helper()
	for _, node := range []string{"milan", "milan-b"} {
		vk := w.rome.VKubelet(node)
		for _, r := range rows() {
			if f := flag(r); !r.shadowed() || !strings.Contains(f, ".type=") { // they follow their Services
				(*vk).Options.Args = append((*vk).Options.Args, f)
			}
		}
		require.NoError(t, w.sites.Restart(vk))
	}
}
