package timed

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
)

const (
	anarchyNamespace = "anarchy"
	reportEvery      = "500ms"
)

// anarchyWorld is three clusters of real nodes. Rome uses milan and turin, and milan uses turin.
// Each consumer has pods at home and in each of its providers.
type anarchyWorld struct {
	sites    *site.Sites
	byName   map[string]*site.Site
	targets  targets
	reports  *reportServer
	replicas int32 // of each Deployment

	mu sync.Mutex
	// revised has the times at which each Deployment got its revisions.
	revised map[string][]time.Time
	faults  []pastFault
}

// uses are the providers of each consumer.
func uses() map[string][]string {
	return map[string][]string{"rome": {"milan", "turin"}, "milan": {"turin"}}
}

// newAnarchyWorld starts the clusters with so many nodes each, connects them and runs the pods.
func newAnarchyWorld(t *testing.T, nodes int) *anarchyWorld {
	t.Helper()
	names := []string{"rome", "milan", "turin"}
	limits := map[string]any{"sharing": map[string]any{ // turin has room for both
		"peerLimits": []string{"rome cpu=500m memory=1Gi pods=20", "milan cpu=500m memory=1Gi pods=20"},
	}}
	sites, list := site.World{
		Clusters: names, RealNodes: []int{nodes, nodes, nodes}, Fabric: site.FabricProcesses, Settings: []map[string]any{chartDefaults(), limits},
		Adjust: func(o *lab.ClusterOptions) { o.Audit, o.NodeGrace = false, anarchyGrace },
	}.Start(t)
	w := &anarchyWorld{
		sites: sites, byName: map[string]*site.Site{}, replicas: int32(nodes), revised: map[string][]time.Time{},
		targets: targets{clusters: names, nodes: nodes, consumers: slices.Sorted(maps.Keys(uses())), atOnce: nodes + 1},
	}
	for _, s := range list {
		w.byName[s.Name] = s
	}
	w.reports = newReportServer(t, sites.Full.Network().HostAddress())
	t.Cleanup(func() { site.LogPods(t, list...) })
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for _, s := range list {
		nodes, err := s.Client().CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		require.NoError(t, err)
		for _, n := range nodes.Items {
			for _, address := range n.Status.Addresses {
				w.reports.nodes[address.Address] = n.Name
			}
		}
	}
	for _, consumer := range w.targets.consumers {
		for _, provider := range uses()[consumer] {
			require.NoError(t, sites.PeerByToken(ctx, w.byName[consumer], w.byName[provider]))
		}
	}
	for _, consumer := range w.targets.consumers {
		require.NoError(t, w.deploy(ctx, w.byName[consumer]))
	}
	for _, s := range list {
		w.reports.follow(t, s, w.namespaces(s.Name)...)
	}
	require.NoError(t, lab.Eventually(ctx, w.healthy))
	return w
}

// deploy runs pods of a consumer at home and in each provider, all behind one Service.
func (w *anarchyWorld) deploy(ctx context.Context, s *site.Site) error {
	var deployments []*appsv1.Deployment
	for _, in := range append([]string{s.Name}, uses()[s.Name]...) {
		d := w.deployment(s.Name, in)
		deployments = append(deployments, d)
		w.revised[d.Name] = []time.Time{time.Now()}
	}
	return deployAll(ctx, s, anarchyNamespace, deployments...)
}

// deployment is one of a consumer whose pods run in a cluster.
func (w *anarchyWorld) deployment(consumer, in string) *appsv1.Deployment {
	remote := in
	if in == consumer {
		remote = ""
	}
	d := testDeployment(consumer+"-"+in, w.replicas, remote, "report", w.reports.url, reportEvery)
	c := &d.Spec.Template.Spec.Containers[0]
	c.Env = []corev1.EnvVar{
		{Name: revisionVariable, Value: "0"},
		{Name: "NODE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.hostIP"}}},
	}
	c.ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
		HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromInt32(servicePort)},
	}}
	return d
}

const revisionVariable = "REVISION"

// rollOut gives a Deployment another revision: all of its pods are replaced. One Deployment of a
// consumer is rolled out at a time.
func (w *anarchyWorld) rollOut(ctx context.Context, consumer, in string) error {
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

// namespaces of a cluster that have endpoints: its own and the twins of others.
func (w *anarchyWorld) namespaces(cluster string) (out []string) {
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
func (w *anarchyWorld) deployments(cluster string) (out []string) {
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
func (w *anarchyWorld) revisions() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[string]int{}
	for d, times := range w.revised {
		out[d] = len(times) - 1
	}
	return out
}

// healthy requires that each pod reports, that each cluster lists its pods as ready, that each
// endpoint that it lists answers, and that all statuses are Ready.
func (w *anarchyWorld) healthy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	running := w.reports.running(w.revisions())
	for _, consumer := range w.targets.consumers {
		for _, in := range append([]string{consumer}, uses()[consumer]...) {
			if name := consumer + "-" + in; running[name] != int(w.replicas) {
				return fmt.Errorf("%d pods of %s have reported lately, not %d", running[name], name, w.replicas)
			}
		}
	}
	for _, cluster := range w.targets.clusters {
		pods, err := w.reports.readyPods(cluster)
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
		all.Go(func() error { return statusesReady(ctx, s) })
	}
	return all.Wait()
}
