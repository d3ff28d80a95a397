package scenarios

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

// hubWorld is rome, and the clusters that have rome as their only peer. All ranges are equal.
type hubWorld struct {
	sites *site.Sites
	rome  *site.Site
	list  []*site.Site // rome, and the peers of it that pods run in
	more  []*site.Site // that are no peers yet
}

// TestThirdCluster: with the chart's defaults, pods of one Service in three clusters reach each other by
// name and address; of the three one is the only peer of the others, until these become peers as well.
// With -all, a fourth cluster comes and goes.
func TestThirdCluster(t *testing.T) {
	w := newHubWorld(t, site.World{})
	w.share(t)
	t.Run("pods reach pods", func(t *testing.T) { w.reached(t) })
	t.Run("only what is shared", func(t *testing.T) { w.shared(t) })
	if *all {
		t.Run("a fourth comes and goes", func(t *testing.T) { w.fourth(t) })
	}
	t.Run("a tunnel of the hub is down", func(t *testing.T) { w.legDown(t) })
	t.Run("the spokes are peers", func(t *testing.T) { w.direct(t) })
	t.Run("no longer shared", func(t *testing.T) { w.parted(t) })
	t.Run("data moves from provider to provider", func(t *testing.T) { w.moved(t) })
}

// newHubWorld starts the clusters, not connected, with one node each unless of says otherwise. With -all
// and the default network there is a fourth one.
func newHubWorld(t *testing.T, of site.World) hubWorld {
	t.Helper()
	of.Clusters, of.Fabric = []string{"rome", "milan", "turin"}, site.FabricPods
	if of.RealNodes == nil {
		of.RealNodes = []int{1, 1, 1}
	}
	of.Adjust = func(o *lab.ClusterOptions) { o.Audit = false }
	if *all && of.CNI == "" {
		of.Clusters, of.RealNodes = append(of.Clusters, "paris"), append(of.RealNodes, 1)
	}
	pair, list := startNetwork(t, of)
	return hubWorld{pair.sites, list[0], list[:3], list[3:]}
}

// share makes the others providers of rome, and runs a pod of a shared namespace in each cluster.
func (w hubWorld) share(t *testing.T) {
	t.Helper()
	for _, provider := range w.list[1:] {
		w.peer(t, w.rome, provider)
	}
	w.offload(t, netNamespace, "milan", "turin")
	w.offload(t, netApart, "turin")
	kubetest.Create(t, w.rome.Client().CoreV1().Services(netNamespace), netService("all", ""))
	kubetest.Create(t, w.rome.Client().CoreV1().Services(netNamespace), netService("each", corev1.ClusterIPNone))
	for _, s := range w.list {
		w.run(t, netNamespace, s.Name)
	}
	w.run(t, netApart, "turin")
}

// moved: the data of a claim moves from one provider to the other, through rome, and is whole where it
// arrives, also if the command and the pods are killed in the middle.
func (w hubWorld) moved(t *testing.T) {
	pair := networkWorld{&fullWorld{world{sites: w.sites, rome: w.rome, milan: w.list[1]}, w.sites.Full}}
	m := &moveWorld{networkWorld: pair, list: w.list, bytes: 32 << 20}
	m.storage(t)
	w.offload(t, moveNamespace, "milan", "turin")
	m.fill(t)
	m.end(t, "first")
	begin := time.Now()
	m.move(t, "turin")
	m.killed(t, "milan", time.Since(begin)/2, 3)
	m.readBytes(t)
}

// peer makes a cluster a provider of another, as people do.
func (w hubWorld) peer(t *testing.T, consumer, provider *site.Site) {
	t.Helper()
	pair := &world{sites: w.sites, rome: consumer, milan: provider}
	pair.done(t, consumer, "peer", "--token", pair.token(t), "--cpu=200m", "--memory=256Mi", "--pods=10", "--timeout=4m")
}

// offload makes a namespace of rome that is offloaded to some providers.
func (w hubWorld) offload(t *testing.T, namespace string, providers ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	spec := offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsLocalAndRemote}
	spec.ClusterSelector.NodeSelectorTerms = offloadedTo(providers...)
	require.NoError(t, w.rome.Offload(ctx, namespace, spec))
}

// offloadedTo selects the virtual nodes of some providers.
func offloadedTo(providers ...string) []corev1.NodeSelectorTerm {
	return []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
		Key: "liqo.io/remote-cluster-id", Operator: corev1.NodeSelectorOpIn, Values: providers}}}}
}

// run makes a pod of rome that runs in a cluster, whose name it has.
func (w hubWorld) run(t *testing.T, namespace, in string) {
	t.Helper()
	pod := boundPod(in)
	pod.Labels = map[string]string{"net": "pod"}
	node, tolerations := in, pod.Spec.Tolerations
	if in == w.rome.Name {
		node = in + "-1"
	}
	pod.Spec = testSpec(1, "serve")
	pod.Spec.NodeName, pod.Spec.Tolerations = node, tolerations
	pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
		HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromInt32(8080)},
	}}
	kubetest.Create(t, w.rome.Client().CoreV1().Pods(namespace), pod)
}

// twin returns the name of a namespace of rome in a cluster.
func (w hubWorld) twin(s *site.Site, namespace string) string {
	if s == w.rome {
		return namespace
	}
	return namespace + "-rome"
}

// endpoints returns the addresses of the pods of Service all that a cluster knows as ready, by name: for
// each one of each family, IPv4 first.
func (w hubWorld) endpoints(ctx context.Context, s *site.Site) (map[string][]string, error) {
	list, err := s.Client().DiscoveryV1().EndpointSlices(w.twin(s, netNamespace)).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=all"})
	if err != nil {
		return nil, err
	}
	out := map[string][]string{}
	for _, slice := range list.Items {
		for _, e := range slice.Endpoints {
			if e.TargetRef != nil && ptr.Deref(e.Conditions.Ready, false) {
				out[e.TargetRef.Name] = append(out[e.TargetRef.Name], e.Addresses...)
			}
		}
	}
	for _, addresses := range out {
		slices.SortFunc(addresses, func(a, b string) int { return strings.Compare(family(a), family(b)) })
	}
	return out, nil
}

// pods returns the pods of Service all, each with the address that each cluster knows.
func (w hubWorld) pods(ctx context.Context) (map[string]netPod, error) {
	out := map[string]netPod{}
	for _, s := range w.list {
		out[s.Name] = netPod{name: s.Name, node: s.Name, in: s.Name, seen: map[string]string{}, second: map[string]string{}}
	}
	for _, s := range w.list {
		known, err := w.endpoints(ctx, s)
		if err != nil {
			return nil, err
		}
		if len(known) != len(w.list) {
			return nil, fmt.Errorf("%s knows %v, not one pod of each cluster", s.Name, known)
		}
		for name, addresses := range known {
			if len(addresses) != len(s.Options.PodCIDRs()) {
				return nil, fmt.Errorf("%s knows %v of the pod in %s, not one address of each family", s.Name, addresses, name)
			}
			out[name].seen[s.Name] = addresses[0]
			if len(addresses) > 1 {
				out[name].second[s.Name] = addresses[1]
			}
		}
	}
	return out, nil
}

// settled waits until each cluster knows all pods as ready, and returns them.
func (w hubWorld) settled(t *testing.T) map[string]netPod {
	t.Helper()
	return await(t, longest, "each cluster knows all pods", w.pods)
}

// reached: each pod reaches each by the names of Services and by the addresses that its cluster shows.
func (w hubWorld) reached(t *testing.T) {
	within(t, longest, "every pod reaches every pod", func(ctx context.Context) error {
		pods, err := w.pods(ctx)
		if err != nil {
			return err
		}
		var all errgroup.Group
		for _, s := range w.list {
			all.Go(func() error { return asksAll(ctx, s, w.twin(s, netNamespace), pods, pods[s.Name]) })
		}
		if err = all.Wait(); err != nil {
			t.Logf("not yet: %.600s", err)
		}
		return err
	})
	for _, p := range w.settled(t) {
		own := p.addresses(p.in)
		for _, s := range w.list {
			for i, address := range p.addresses(s.Name) {
				require.True(t, s.Name == p.in || address != own[i], "the ranges are equal: %s has another address for the pod in %s", s.Name, p.in)
			}
		}
	}
}

// asks has a pod of net in a cluster, which has the name of the cluster, ask the server at an address.
func (w hubWorld) asks(ctx context.Context, s *site.Site, address string) error {
	return arrives(s.Exec(ctx, w.twin(s, netNamespace), s.Name, "reach", "tcp://"+inURL(address)+":8080/0"))
}

// shared: milan does not reach a pod in turin of a namespace that milan has no part of.
func (w hubWorld) shared(t *testing.T) {
	milan, turin := w.list[1], w.list[2]
	pods := w.settled(t)
	own := untilPod(t, turin, longest, w.twin(turin, netApart), "turin", "of another namespace runs", podRunning).Status.PodIPs
	here := kubetest.Get(t, w.rome.Client().CoreV1().Pods(netApart), "turin")
	require.Len(t, here.Status.PodIPs, len(own))
	for i, seen := range pods["turin"].addresses("milan") {
		view := beside(seen, own[i].IP)
		require.NoError(t, w.asks(t.Context(), milan, seen))
		require.ErrorContains(t, w.asks(t.Context(), milan, view), view)
		require.NoError(t, w.asks(t.Context(), w.rome, here.Status.PodIPs[i].IP), "rome itself reaches it")
	}
}

// only changes the providers of the namespace.
func (w hubWorld) only(t *testing.T, providers ...string) {
	t.Helper()
	offloadings := w.rome.Liqod().OffloadingV1beta1().NamespaceOffloadings(netNamespace)
	o := kubetest.Get(t, offloadings, offloadingv1beta1.NamespaceOffloadingName)
	o.Spec.ClusterSelector.NodeSelectorTerms = offloadedTo(providers...)
	kubetest.Update(t, offloadings, o)
}

// ends deletes the pod that runs in a provider, and offloads the namespace to others only.
func (w hubWorld) ends(t *testing.T, in string, providers ...string) {
	t.Helper()
	require.NoError(t, w.rome.Client().CoreV1().Pods(netNamespace).Delete(t.Context(), in, metav1.DeleteOptions{}))
	w.only(t, providers...)
}

// given waits until milan sees as many ranges of each family, of rome and of what is behind it.
func (w hubWorld) given(t *testing.T, ranges int) {
	t.Helper()
	ranges *= len(w.rome.Options.PodCIDRs())
	within(t, longest, fmt.Sprintf("milan sees %d ranges", ranges), func(ctx context.Context) error {
		c, err := w.list[1].Liqod().NetworkingV1beta1().Connections("liqo-tenant-rome").Get(ctx, "rome", metav1.GetOptions{})
		return lab.Wrong(err, len(c.Spec.Remote) != ranges, "milan sees %v", c.Spec.Remote)
	})
}

// parted: when the namespace is no longer offloaded to turin, milan loses the way there, and rome stays.
func (w hubWorld) parted(t *testing.T) {
	before := w.settled(t)
	w.ends(t, "turin", "milan")
	w.given(t, 2)
	milan := w.list[1]
	within(t, longest, "milan no longer knows the pod in turin", func(ctx context.Context) error {
		known, err := w.endpoints(ctx, milan)
		return lab.Wrong(err, known["turin"] != nil, "milan knows %v", known)
	})
	for _, address := range before["rome"].addresses("milan") {
		within(t, longest, "milan reaches rome", func(ctx context.Context) error { return w.asks(ctx, milan, address) })
	}
}
