package timed

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
)

const (
	anarchyNamespace = "anarchy"
	anarchyService   = "all"
	anarchyPort      = 8080
	testifyEvery     = "500ms"
)

// anarchic are three clusters of real nodes. Rome uses milan and turin, and milan uses turin;
// each of the consumers has pods in all clusters that it uses and at home.
type anarchic struct {
	sites    *site.Sites
	byName   map[string]*site.Site
	realm    realm
	seen     *bystander
	replicas int32 // of each Deployment

	mu sync.Mutex
	// revised has the times at which each Deployment got its revisions.
	revised map[string][]time.Time
	faults  []harmed
}

// uses are the providers of each consumer.
func uses() map[string][]string {
	return map[string][]string{"rome": {"milan", "turin"}, "milan": {"turin"}}
}

// newAnarchic starts the clusters with so many nodes each, connects them and runs the pods.
func newAnarchic(t *testing.T, nodes int) *anarchic {
	t.Helper()
	names := []string{"rome", "milan", "turin"}
	// Empty sections undo the settings of tests: the settings are those that are shipped.
	settings := map[string]any{"lease": map[string]any{}, "vkubelet": map[string]any{}, "sharing": map[string]any{
		// Turin has room for both.
		"peerLimits": []string{"rome cpu=500m memory=1Gi pods=20", "milan cpu=500m memory=1Gi pods=20"},
	}}
	sites, list := site.World{
		Clusters: names, RealNodes: []int{nodes, nodes, nodes}, Fabric: site.FabricProcesses, Settings: []map[string]any{settings},
		Adjust: func(o *lab.ClusterOptions) { o.Audit, o.NodeGrace = false, anarchyGrace },
	}.Start(t)
	w := &anarchic{
		sites: sites, byName: map[string]*site.Site{}, replicas: int32(nodes), revised: map[string][]time.Time{},
		realm: realm{clusters: names, nodes: nodes, consumers: slices.Sorted(maps.Keys(uses())), atOnce: nodes + 1},
	}
	for _, s := range list {
		w.byName[s.Name] = s
	}
	w.seen = newBystander(t, sites.Full.Network().HostAddress())
	t.Cleanup(func() {
		if t.Failed() {
			w.logState(t)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for _, consumer := range w.realm.consumers {
		for _, provider := range uses()[consumer] {
			require.NoError(t, w.use(ctx, w.byName[consumer], w.byName[provider]))
		}
	}
	for _, consumer := range w.realm.consumers {
		require.NoError(t, w.deploy(ctx, w.byName[consumer]))
	}
	for _, s := range list {
		w.seen.follow(t, s, w.namespaces(s.Name)...)
	}
	require.NoError(t, lab.Eventually(ctx, w.well))
	return w
}

// use lets a cluster use another by a token, as people do.
func (w *anarchic) use(ctx context.Context, consumer, provider *site.Site) error {
	out, err := w.sites.Command(ctx, "token", "create", "--kubeconfig", provider.Kubeconfig).Output()
	if err != nil {
		return fmt.Errorf("making a token of %s: %w", provider.Name, err)
	}
	for line := range strings.Lines(string(out)) {
		if token := strings.TrimSpace(line); strings.HasPrefix(token, "liqod1.") {
			peer := w.sites.Command(ctx, "peer", "--kubeconfig", consumer.Kubeconfig, "--token", token, "--timeout=3m")
			if out, err := peer.CombinedOutput(); err != nil {
				return fmt.Errorf("peering %s with %s: %w\n%s", consumer.Name, provider.Name, err, out)
			}
			return consumer.WaitVirtualNode(ctx, provider.Name, corev1.ConditionTrue)
		}
	}
	return fmt.Errorf("no token of %s is printed: %s", provider.Name, out)
}

// deploy runs pods of a consumer at home and in each provider, all behind one Service.
func (w *anarchic) deploy(ctx context.Context, s *site.Site) error {
	err := s.Offload(ctx, anarchyNamespace, offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsLocalAndRemote})
	if err != nil {
		return err
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: anarchyService}, Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": anarchyService}, Ports: []corev1.ServicePort{{Port: anarchyPort, TargetPort: intstr.FromInt32(anarchyPort)}},
	}}
	if _, err := s.Client().CoreV1().Services(anarchyNamespace).Create(ctx, service, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating a Service in %s: %w", s.Name, err)
	}
	for _, in := range append([]string{s.Name}, uses()[s.Name]...) {
		d := w.deployment(s.Name, in)
		if _, err := s.Client().AppsV1().Deployments(anarchyNamespace).Create(ctx, d, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating Deployment %s: %w", d.Name, err)
		}
		w.revised[d.Name] = []time.Time{time.Now()}
	}
	return nil
}

// deployment is one of a consumer whose pods run in a cluster.
func (w *anarchic) deployment(consumer, in string) *appsv1.Deployment {
	labels := map[string]string{"app": anarchyService, "part": in}
	spec := corev1.PodSpec{TerminationGracePeriodSeconds: ptr.To[int64](1), Containers: []corev1.Container{{
		Name: "c", Image: lab.TestImage, ImagePullPolicy: corev1.PullNever, Args: []string{"testify", w.seen.url, testifyEvery},
		Env: []corev1.EnvVar{
			{Name: revisionVariable, Value: "0"},
			{Name: "NODE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}},
		},
		ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
			HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromInt32(anarchyPort)},
		}},
	}}}
	place := corev1.NodeSelectorRequirement{Key: "liqo.io/type", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"virtual-node"}}
	if in != consumer {
		spec.RuntimeClassName = ptr.To("liqo")
		place = corev1.NodeSelectorRequirement{Key: corev1beta1.RemoteClusterIDLabel, Operator: corev1.NodeSelectorOpIn, Values: []string{in}}
	}
	spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{place}}},
	}}}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: consumer + "-" + in}, Spec: appsv1.DeploymentSpec{
		Replicas: &w.replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
	}}
}

const revisionVariable = "REVISION"

// roll gives a Deployment another revision: all of its pods are replaced. One of a consumer is
// rolled out at a time.
func (w *anarchic) roll(ctx context.Context, consumer, in string) error {
	name := consumer + "-" + in
	patch := fmt.Appendf(nil, `{"spec":{"template":{"spec":{"containers":[{"name":"c","env":[{"name":%q,"value":"%d"}]}]}}}}`, revisionVariable, w.revisions()[name]+1)
	begin := time.Now()
	err := lab.Eventually(ctx, func(ctx context.Context) error { // its API server may be down
		ctx, cancel := context.WithTimeout(ctx, answerWithin)
		defer cancel()
		_, err := w.byName[consumer].Client().AppsV1().Deployments(anarchyNamespace).Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
		return err
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.revised[name] = append(w.revised[name], begin)
	return err
}

// namespaces are those of a cluster that have endpoints: its own and the twins of others.
func (w *anarchic) namespaces(cluster string) (out []string) {
	for consumer, providers := range uses() {
		if consumer == cluster {
			out = append(out, anarchyNamespace)
		}
		if slices.Contains(providers, cluster) {
			out = append(out, anarchyNamespace+"-"+consumer)
		}
	}
	return out
}

// deployments are the Deployments whose pods a cluster has to list: all of its own; and, of each
// consumer that uses it, those with pods at the consumer's home or in this cluster. Pods of a
// consumer in another provider are not required.
func (w *anarchic) deployments(cluster string) (out []string) {
	for consumer, providers := range uses() {
		for _, in := range append([]string{consumer}, providers...) {
			if cluster == consumer || slices.Contains(providers, cluster) && (in == consumer || in == cluster) {
				out = append(out, consumer+"-"+in)
			}
		}
	}
	return out
}

// revisions are the last ones.
func (w *anarchic) revisions() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[string]int{}
	for d, times := range w.revised {
		out[d] = len(times) - 1
	}
	return out
}

// well says whether everything is Ready, and truly so: every pod is heard, every cluster lists
// the pods that it has to, and every endpoint that it lists answers.
func (w *anarchic) well(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	running := w.seen.running(w.revisions())
	for _, consumer := range w.realm.consumers {
		for _, in := range append([]string{consumer}, uses()[consumer]...) {
			if name := consumer + "-" + in; running[name] != int(w.replicas) {
				return fmt.Errorf("%d pods of %s were heard lately, not %d", running[name], name, w.replicas)
			}
		}
	}
	for _, cluster := range w.realm.clusters {
		pods, err := w.seen.listed(cluster)
		if err != nil {
			return err
		}
		have := map[string]int{}
		for _, pod := range pods {
			have[deploymentOf(pod)]++
		}
		for _, d := range w.deployments(cluster) {
			if have[d] != int(w.replicas) {
				return fmt.Errorf("%s lists %d pods of %s as ready, not %d: %v", cluster, have[d], d, w.replicas, pods)
			}
		}
	}
	var all errgroup.Group
	for _, s := range w.byName {
		all.Go(func() error { return w.says(ctx, s) })
	}
	return all.Wait()
}

// says whether a cluster says that all is well.
func (w *anarchic) says(ctx context.Context, s *site.Site) error {
	peers, err := s.Liqod().CoreV1beta1().ForeignClusters().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, fc := range peers.Items {
		if !meta.IsStatusConditionTrue(fc.Status.Conditions, corev1beta1.ConditionReady) {
			return fmt.Errorf("in %s ForeignCluster %s is not Ready: %+v", s.Name, fc.Name, fc.Status.Conditions)
		}
	}
	nodes, err := s.Client().CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, n := range nodes.Items {
		if !slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}) {
			return fmt.Errorf("in %s node %s is not Ready", s.Name, n.Name)
		}
	}
	list, err := s.Client().AppsV1().Deployments(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, d := range list.Items {
		want := ptr.Deref(d.Spec.Replicas, 1)
		if st := d.Status; st.ObservedGeneration != d.Generation || st.AvailableReplicas != want || st.UpdatedReplicas != want || st.Replicas != want {
			return fmt.Errorf("in %s Deployment %s has %d pods, %d available and %d of the last revision, not %d", s.Name, d.Name, st.Replicas, st.AvailableReplicas, st.UpdatedReplicas, want)
		}
	}
	return nil
}

// logState prints the pods of all clusters, and the logs of those of liqod.
func (w *anarchic) logState(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 20*time.Second)
	defer cancel()
	for _, s := range w.byName {
		pods, err := s.Client().CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Logf("%s: %v", s.Name, err)
			continue
		}
		for _, p := range pods.Items {
			t.Logf("%s: %s/%s on %s: %s %s, deleted %v, %v", s.Name, p.Namespace, p.Name, p.Spec.NodeName, p.Status.Phase, p.Status.Reason, p.DeletionTimestamp, p.Status.Conditions)
			if p.Namespace == site.Namespace || strings.HasPrefix(p.Name, "vk-") {
				out, err := s.Logs(ctx, p.Namespace, p.Name)
				t.Logf("log of %s of %s (%v):\n%s", p.Name, s.Name, err, out[max(0, len(out)-4000):])
			}
		}
	}
}
