package scenarios

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

// mesh are clusters of which each uses all others.
type mesh struct{ made }

// TestMesh: three clusters, which were connected by tokens before, offload a namespace of
// the same name to each other. Each knows every endpoint once, and nothing goes round.
func TestMesh(t *testing.T) {
	names, settings := []string{"rome", "milan", "turin"}, anyService()
	var limits []string // else the first that asks leaves nothing to the third
	for _, name := range names {
		limits = append(limits, name+" cpu=8 memory=16Gi pods=50 ephemeral-storage=50Gi")
	}
	settings["sharing"].(map[string]any)["peerLimits"] = limits
	m := mesh{newSites(t, names, func(o *lab.ClusterOptions) {
		if o.Name != "turin" {
			dualStack(o)
		}
	}, settings)}
	// It leaves nothing but the namespaces that are offloaded next.
	require.True(t, t.Run("Tokens", func(t *testing.T) { testTokenMesh(t, m) }))
	m.connect(t)
	for _, s := range m.list {
		m.offload(t, s, "mesh", offloadingv1beta1.DefaultName)
		m.populate(t, s)
	}
	inTurn(t, m, []part[mesh]{
		{"Endpoints", testMeshEndpoints}, {"Idle", testMeshIdle}, {"Change", testMeshChange}, {"Families", testMeshFamilies},
	})
	t.Run("Lost", func(t *testing.T) { testProviderLost(t, m.world(m.list[0], m.list[1]), m.list[1:]) })
}

// others are the providers of a cluster.
func (m mesh) others(s *site.Site) []*site.Site {
	return slices.DeleteFunc(slices.Clone(m.list), func(o *site.Site) bool { return o == s })
}

// connect peers every two clusters, in both directions. A pod's address is of the cluster
// that it runs in: whoever its consumer is may speak of it.
func (m mesh) connect(t *testing.T) {
	t.Helper()
	var ranges []string
	for _, s := range m.list {
		ranges = append(ranges, s.Options.PodCIDR)
		for _, o := range m.others(s) {
			require.NoError(t, s.Peer(t.Context(), o, site.PeerOptions{}))
		}
	}
	body := must(json.Marshal(map[string]any{"spec": map[string]any{"addressRanges": ranges}}))(t)
	for _, s := range m.list {
		for _, o := range m.others(s) {
			kubetest.Patch(t, s.Liqod().CoreV1beta1().ForeignClusters(), o.Name, types.MergePatchType, body)
		}
	}
}

func (m mesh) offload(t *testing.T, s *site.Site, namespace string, mapping offloadingv1beta1.NamespaceMappingStrategy) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	require.NoError(t, s.Offload(ctx, namespace, offloadingv1beta1.NamespaceOffloadingSpec{
		PodOffloadingStrategy: offloadingv1beta1.PodsLocalAndRemote, NamespaceMappingStrategy: mapping,
	}))
}

// populate makes a Service with a pod in each cluster, and a ConfigMap, all of the same
// names everywhere.
func (m mesh) populate(t *testing.T, s *site.Site) {
	t.Helper()
	core := s.Client().CoreV1()
	kubetest.Create(t, core.ConfigMaps("mesh"), configMapOf("app", "from", s.Name))
	kubetest.Create(t, core.Services("mesh"), service("web"))
	for _, node := range m.list {
		runsOn(t, s, "mesh", "on-"+node.Name, node)
	}
}

// runsOn creates a pod of s that runs in a cluster: s itself, or a provider of it.
func runsOn(t *testing.T, s *site.Site, namespace, name string, in *site.Site) {
	t.Helper()
	pod := boundPod(name)
	pod.Labels = map[string]string{"app": "web"}
	pod.Spec.NodeName = in.Name
	if in == s {
		pod.Spec.NodeName = s.SimulatedNodeName(1)
	}
	pod.Spec.Containers[0].Image = "sim/web:1"
	kubetest.Create(t, s.Client().CoreV1().Pods(namespace), pod)
}

// twinIn is the name of the namespace, in a cluster, of what is offloaded from origin.
func twinIn(in, origin *site.Site) string {
	if in == origin {
		return "mesh"
	}
	return "mesh-" + origin.Name
}

// podIPs returns the addresses of the pods of a namespace, once all of them are Ready.
func podIPs(ctx context.Context, s *site.Site, namespace string, want int) ([]string, error) {
	pods, err := s.Client().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var ips []string
	for i := range pods.Items {
		if podReady(&pods.Items[i]) == corev1.ConditionTrue {
			ips = append(ips, pods.Items[i].Status.PodIP)
		}
	}
	if len(ips) != want {
		return nil, fmt.Errorf("%d of %d pods of %s are ready in %s", len(ips), want, namespace, s.Name)
	}
	slices.Sort(ips)
	return ips, nil
}

// knowsOnce looks for every address once among the ready endpoints of Service web.
func knowsOnce(s *site.Site, namespace string, want []string) func(context.Context) error {
	return knowsOnceOf(s, namespace, "web", want)
}

func knowsOnceOf(s *site.Site, namespace, service string, want []string) func(context.Context) error {
	return func(ctx context.Context) error {
		have, err := addresses(ctx, s.Client().DiscoveryV1().EndpointSlices(namespace), service)
		slices.Sort(have)
		return lab.Wrong(err, !slices.Equal(have, want), "%s knows %v of %s/%s, not %v", s.Name, have, namespace, service, want)
	}
}

// testMeshEndpoints: the pods of a consumer run in three clusters; all of these know all.
func testMeshEndpoints(t *testing.T, m mesh) {
	for _, origin := range m.list {
		ips := await(t, 2*quickly, "the pods of "+origin.Name+" run", func(ctx context.Context) ([]string, error) { return podIPs(ctx, origin, "mesh", len(m.list)) })
		for _, s := range m.list {
			within(t, quickly, s.Name+" knows each endpoint of "+origin.Name, knowsOnce(s, twinIn(s, origin), ips))
		}
	}
}

// testMeshIdle: when all is as wanted nothing is written, and everything is its owner's.
func testMeshIdle(t *testing.T, m mesh) {
	for _, s := range m.list {
		for _, o := range m.others(s) { // the last that arrives in a new namespace
			there(t, "the root CA", getter(s.Client().CoreV1().ConfigMaps(twinIn(s, o)), "kube-root-ca.crt."+o.Name), anyState[*corev1.ConfigMap])
		}
	}
	m.atRest(t, m.list, func(string) bool { return true })
	begin := time.Now()
	hold(t, time.Until(begin.Add(idle)), "nothing goes round", func(context.Context) error {
		for _, s := range m.list {
			if all := m.writes(t, s, begin); len(all) > 0 {
				return fmt.Errorf("%s: %v", s.Name, all)
			}
		}
		return nil
	})
	for _, s := range m.list {
		var found []string
		for _, ns := range kubetest.List(t, s.Client().CoreV1().Namespaces()).Items {
			if strings.HasPrefix(ns.Name, "mesh") {
				found = append(found, ns.Name)
			}
		}
		want := []string{}
		for _, origin := range m.list {
			want = append(want, twinIn(s, origin))
			m.onlyOf(t, s, origin)
		}
		require.ElementsMatch(t, want, found)
	}
}

// onlyOf requires that a namespace, in a cluster, has what is its origin's and no more.
func (m mesh) onlyOf(t *testing.T, s, origin *site.Site) {
	t.Helper()
	var names []string
	for _, cm := range kubetest.List(t, s.Client().CoreV1().ConfigMaps(twinIn(s, origin))).Items {
		names = append(names, cm.Name)
		if cm.Name == "app" {
			require.Equal(t, origin.Name, cm.Data["from"])
		}
	}
	want := []string{"app", "kube-root-ca.crt"}
	if s != origin {
		want = append(want, "kube-root-ca.crt."+origin.Name)
	}
	require.ElementsMatch(t, want, names)
	services := kubetest.List(t, s.Client().CoreV1().Services(twinIn(s, origin)))
	require.Len(t, services.Items, 1)
}

// writes returns what liqod, of any of the clusters, has written in s.
func (m mesh) writes(t *testing.T, s *site.Site, begin time.Time) []string {
	t.Helper()
	all := writes(t, s.Cluster, controllerUser, begin)
	for _, o := range m.others(s) {
		all = append(all, writes(t, s.Cluster, "system:serviceaccount:liqo-tenant-"+o.Name+":peer-1", begin)...)
		all = append(all, writes(t, s.Cluster, "system:serviceaccount:liqo-tenant-"+o.Name+":vk-"+o.Name, begin)...)
	}
	return all
}

// settledFor is how long nothing is written when all has arrived, events of pods last.
const settledFor = 3 * time.Second

// atRest waits until liqod has written nothing for a while of what counts.
func (m mesh) atRest(t *testing.T, list []*site.Site, counts func(line string) bool) {
	t.Helper()
	within(t, longest, "all has arrived", func(context.Context) error {
		since := time.Now().Add(-settledFor)
		for _, s := range list {
			if all := m.writes(t, s, since); slices.ContainsFunc(all, counts) {
				return fmt.Errorf("%s: %v", s.Name, all)
			}
		}
		return nil
	})
}

// testMeshChange: a change reaches each of the other clusters by one write, and an
// endpoint that goes is gone everywhere.
func testMeshChange(t *testing.T, m mesh) {
	rome := m.list[0]
	begin := time.Now()
	kubetest.Patch(t, rome.Client().CoreV1().ConfigMaps("mesh"), "app", types.MergePatchType, []byte(`{"data":{"n":"2"}}`))
	for _, s := range m.others(rome) {
		there(t, "changed in "+s.Name, getter(s.Client().CoreV1().ConfigMaps("mesh-rome"), "app"), func(cm *corev1.ConfigMap) bool { return cm.Data["n"] == "2" })
		require.Equal(t, []string{"update configmaps mesh-rome/app: 200"}, m.writes(t, s, begin))
	}
	require.NoError(t, rome.Client().CoreV1().Pods("mesh").Delete(t.Context(), "on-milan", metav1.DeleteOptions{}))
	ips := await(t, quickly, "a pod less", func(ctx context.Context) ([]string, error) { return podIPs(ctx, rome, "mesh", len(m.list)-1) })
	for _, s := range m.list {
		within(t, quickly, s.Name+" knows the others", knowsOnce(s, twinIn(s, rome), ips))
	}
}

// testMeshFamilies: of two providers one has Services of IPv4 only. What prefers both
// families has the one there; what requires both is refused there, and somebody is told.
func testMeshFamilies(t *testing.T, m mesh) {
	const v4, v6 = corev1.IPv4Protocol, corev1.IPv6Protocol
	turin := m.list[2]
	w := &world{sites: m.sites, rome: m.list[0], milan: m.list[1]}
	s := w.servicePair(t, "families")
	other := servicePair{w, s.home, turin.Client().CoreV1().Services("families-rome")}
	for _, service := range []*corev1.Service{familiesOf("prefer", corev1.IPFamilyPolicyPreferDualStack), familiesOf("require", corev1.IPFamilyPolicyRequireDualStack)} {
		local := s.create(t, service)
		s.until(t, local.Name, local.Name+" of both families in milan", ofFamilies(w.milan, v4, v6))
		if local.Name == "require" {
			w.eventAbout(t, local, "FailedReflection", "cluster turin refuses it")
		}
	}
	other.until(t, "prefer", "of the family that turin has", ofFamilies(turin, v4))
	away(t, "not of fewer families than are required", getter(other.remote, "require"))
	s.patch(t, "require", `{"spec":{"ipFamilyPolicy":"PreferDualStack"}}`)
	other.until(t, "require", "no longer refused", ofFamilies(turin, v4))
	begin := time.Now()
	hold(t, time.Until(begin.Add(2*time.Second)), "what turin lacks is not asked for again", func(context.Context) error {
		all := m.writes(t, turin, begin)
		return lab.Wrong(nil, len(all) > 0, "%v", all)
	})
}
