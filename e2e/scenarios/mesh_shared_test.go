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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/site"
)

// share asks, in a cluster, for a twin of the same name in another one, which has such a
// namespace with objects of the same names.
func share(t *testing.T, s, with *site.Site) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shared", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "baseline"},
		Annotations: map[string]string{offloadingv1beta1.AcceptTwinSharesAnnotation: "Secrets,Services"}}}
	_, err := s.Client().CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = s.Client().CoreV1().Services("shared").Create(t.Context(), service("web"), metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = s.Client().CoreV1().ConfigMaps("shared").Create(t.Context(), configMapOf("app", "from", s.Name), metav1.CreateOptions{})
	require.NoError(t, err)
	spec := offloadingv1beta1.NamespaceOffloadingSpec{NamespaceMappingStrategy: offloadingv1beta1.EnforceSameName, PodOffloadingStrategy: offloadingv1beta1.PodsRemote}
	spec.ClusterSelector.NodeSelectorTerms = []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
		Key: corev1beta1.RemoteClusterIDLabel, Operator: corev1.NodeSelectorOpIn, Values: []string{with.Name}}}}}
	_, err = s.Liqod().OffloadingV1beta1().NamespaceOffloadings("shared").Create(t.Context(), offloading("offloading", spec), metav1.CreateOptions{})
	require.NoError(t, err)
}

// accept has the owner of the namespace accept the peer that is given, as JSON.
func accept(t *testing.T, s *site.Site, peer string) {
	t.Helper()
	body := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, offloadingv1beta1.AcceptTwinAnnotation, peer)
	_, err := s.Client().CoreV1().Namespaces().Patch(t.Context(), "shared", types.MergePatchType, body, metav1.PatchOptions{})
	require.NoError(t, err)
}

// refusedSharing looks for the condition that says that a provider does not share.
func refusedSharing(s *site.Site, says string) func(context.Context) error {
	return func(ctx context.Context) error {
		nso, err := s.Liqod().OffloadingV1beta1().NamespaceOffloadings("shared").Get(ctx, "offloading", metav1.GetOptions{})
		if err != nil {
			return err
		}
		c := meta.FindStatusCondition(nso.Status.Conditions, offloadingv1beta1.RemoteNamespaceReady)
		if c == nil || c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, says) {
			return fmt.Errorf("conditions are %+v", nso.Status.Conditions)
		}
		return nil
	}
}

// testMeshShared: two clusters have a namespace of one name, and offload it to each other
// when the owners of both accept the other cluster.
func testMeshShared(t *testing.T, m mesh) {
	rome, milan := m.list[0], m.list[1]
	share(t, rome, milan)
	share(t, milan, rome)
	within(t, soon, "milan has not accepted rome", refusedSharing(rome, "liqo.io/accept-twin=rome"))
	within(t, soon, "rome has not accepted milan", refusedSharing(milan, "liqo.io/accept-twin=milan"))
	accept(t, milan, `"turin"`)
	within(t, soon, "milan accepts another cluster", refusedSharing(rome, "exists already"))
	accept(t, milan, `"rome"`)
	accept(t, rome, `"milan"`)
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	for _, s := range []*site.Site{rome, milan} {
		require.NoError(t, s.WaitOffloaded(ctx, "shared", offloadingv1beta1.PhaseReady))
	}
	sharedEndpoints(t, rome, milan)
	sharedObjects(t, m, rome, milan)
	sharedNoMore(t, rome, milan)
}

// sharedEndpoints: each of the two has a Service and two pods, one of which runs in the
// other cluster. Both know all four.
func sharedEndpoints(t *testing.T, rome, milan *site.Site) {
	t.Helper()
	var ips []string
	for _, s := range []*site.Site{rome, milan} {
		for _, in := range []*site.Site{rome, milan} {
			runsOn(t, s, "shared", s.Name+"-on-"+in.Name, in)
		}
	}
	within(t, 2*quickly, "all pods run", func(ctx context.Context) (err error) {
		// The own two, and the other cluster's one that runs there.
		if _, err = podIPs(ctx, milan, "shared", 3); err != nil {
			return err
		}
		ips, err = podIPs(ctx, rome, "shared", 3)
		return err
	})
	own, err := milan.Client().CoreV1().Pods("shared").Get(t.Context(), "milan-on-milan", metav1.GetOptions{})
	require.NoError(t, err)
	ips = append(ips, own.Status.PodIP)
	slices.Sort(ips)
	for _, s := range []*site.Site{rome, milan} {
		within(t, quickly, s.Name+" knows each endpoint once", knowsOnce(s, "shared", ips))
	}
	_, err = rome.Client().CoreV1().Services("shared").Create(t.Context(), service("web-of-rome"), metav1.CreateOptions{})
	require.NoError(t, err)
	for _, s := range []*site.Site{rome, milan} {
		within(t, quickly, s.Name+" knows each endpoint of a Service that rome alone has made", knowsOnceOf(s, "shared", "web-of-rome", ips))
	}
}

// sharedObjects: what one of them has alone is in both, and what both have is each one's own.
func sharedObjects(t *testing.T, m mesh, rome, milan *site.Site) {
	t.Helper()
	for _, s := range []*site.Site{rome, milan} {
		_, err := s.Client().CoreV1().ConfigMaps("shared").Create(t.Context(), configMapOf("only-"+s.Name, "from", s.Name), metav1.CreateOptions{})
		require.NoError(t, err)
	}
	for s, o := range map[*site.Site]*site.Site{rome: milan, milan: rome} {
		there(t, "reflected", getter(s.Client().CoreV1().ConfigMaps("shared"), "only-"+o.Name), func(cm *corev1.ConfigMap) bool { return cm.Data["from"] == o.Name })
		there(t, "reflected", getter(s.Client().CoreV1().ConfigMaps("shared"), "kube-root-ca.crt."+o.Name), anyState[*corev1.ConfigMap])
	}
	inShared := func(line string) bool { return strings.Contains(line, " shared/") }
	m.atRest(t, []*site.Site{rome, milan}, inShared)
	begin := time.Now()
	holds(t, begin.Add(idle), "nothing goes round", func(ctx context.Context) error {
		for _, s := range []*site.Site{rome, milan} {
			if all := slices.DeleteFunc(m.writes(t, s, begin), func(line string) bool { return !inShared(line) }); len(all) > 0 {
				return fmt.Errorf("%s: %v", s.Name, all)
			}
			for _, name := range []string{"app", "only-" + s.Name} {
				cm, err := s.Client().CoreV1().ConfigMaps("shared").Get(ctx, name, metav1.GetOptions{})
				if err != nil || cm.Data["from"] != s.Name {
					return fmt.Errorf("%s of %s is from %v: %w", name, s.Name, cm.Data, err)
				}
			}
		}
		return nil
	})
}

// sharedNoMore: what rome has in milan's namespace goes when milan no longer accepts it,
// and nothing else.
func sharedNoMore(t *testing.T, rome, milan *site.Site) {
	t.Helper()
	before, err := milan.Client().CoreV1().Namespaces().Get(t.Context(), "shared", metav1.GetOptions{})
	require.NoError(t, err)
	accept(t, milan, "null")
	core := milan.Client().CoreV1()
	away(t, "rome's ConfigMap", getter(core.ConfigMaps("shared"), "only-rome"))
	within(t, soon, "rome's pod", func(ctx context.Context) error {
		return absent(core.Pods("shared").Get(ctx, "rome-on-milan", metav1.GetOptions{}))
	})
	within(t, soon, "rome is told", refusedSharing(rome, "liqo.io/accept-twin=rome"))
	there(t, "milan's own", getter(core.ConfigMaps("shared"), "app"), func(cm *corev1.ConfigMap) bool { return cm.Data["from"] == "milan" })
	there(t, "what milan has there is in rome", getter(rome.Client().CoreV1().ConfigMaps("shared"), "only-milan"), anyState[*corev1.ConfigMap])
	own := there(t, "milan's own", getter(core.Pods("shared"), "milan-on-milan"), func(p *corev1.Pod) bool { return p.DeletionTimestamp == nil })
	within(t, quickly, "milan's endpoints", func(ctx context.Context) error {
		have, err := addresses(ctx, milan.Client().DiscoveryV1().EndpointSlices("shared"), "web")
		if err == nil && (len(have) != 2 || !slices.Contains(have, own.Status.PodIP)) {
			err = fmt.Errorf("milan knows %v", have)
		}
		return err
	})
	bindings, err := milan.Client().RbacV1().RoleBindings("shared").List(t.Context(), metav1.ListOptions{LabelSelector: "liqo.io/managed-by=namespacemap"})
	require.NoError(t, err)
	require.Empty(t, bindings.Items)
	now, err := core.Namespaces().Get(t.Context(), "shared", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, before.UID, now.UID)
	require.NotContains(t, now.Labels, corev1beta1.RemoteClusterIDLabel)
}
