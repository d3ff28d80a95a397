package scenarios

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

// tunnelPackets are those of the tunnel: gateways send them to the port of the other one.
const tunnelPackets = "udp dport 51840"

// cutFor is how long a part of the network stays as it is when all has come that is to
// come: nothing more may follow.
const cutFor = 5 * time.Second

// partitionWorld is two clusters of one node with a network fabric, and a Service whose pods
// run in both.
type partitionWorld struct{ networkWorld }

// TestPartition cuts the network between two clusters in part: the tunnel alone, the API
// servers alone, one direction, again and again. In the end a gateway is gone.
func TestPartition(t *testing.T) {
	// The machine is busy with other tests: a tunnel is not to count as down for that.
	patient := map[string]any{
		"gateway": map[string]any{"probe": map[string]any{"silence": "2s"}},
		"health":  map[string]any{"unknownGrace": gatewayGrace.String()},
		"sharing": map[string]any{"trust": "Organisation"}, // TestApplication has the default
	}
	w := partitionWorld{newNetworkWorld(t, site.FabricProcesses, patient, 1, 1)}
	w.peer(t)
	w.serve(t)
	if *updateGolden { // of what dashboards and alerts are tested with, and of nothing else here
		t.Run("recorded", func(t *testing.T) { partitionRecorded(t, w) })
		return
	}
	for _, test := range []part[partitionWorld]{
		{"hostile peer", partitionHostilePeer}, {"tunnel", partitionTunnel}, {"API servers, one-way peering", partitionOneWay}, {"API servers, two-way peering", partitionTwoWay},
		{"one direction", partitionOneDirection}, {"flapping", partitionFlapping},
		{"gateway gone", partitionGatewayGone},
	} {
		require.True(t, t.Run(test.name, func(t *testing.T) { test.run(t, w) }), "what follows needs a network that is whole")
	}
}

// partitionHostilePeer: also for peers of one organisation nothing but pods of milan answers rome.
func partitionHostilePeer(t *testing.T, w partitionWorld) {
	for _, pod := range w.podsAtHome(t) {
		if runsIn(pod.Spec.NodeName) == "rome" {
			hostilePeer(t, w.fullWorld, netNamespace+"/"+pod.Name, w.rome.Fabric.Machine.Command)
			return
		}
	}
	require.Fail(t, "no pod runs in rome")
}

// serve runs one pod of the Service at home and two in the provider.
func (w partitionWorld) serve(t *testing.T) {
	t.Helper()
	w.offload(t, netNamespace, offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsLocalAndRemote})
	home := w.rome.Client()
	kubetest.Create(t, home.CoreV1().Services(netNamespace), netService("all", ""))
	for name, replicas := range map[string]int32{"here": 1, "there": 2} {
		kubetest.Create(t, home.AppsV1().Deployments(netNamespace), partitionDeployment(name, replicas))
	}
	for name, replicas := range map[string]int32{"here": 1, "there": 2} {
		within(t, longest, name+" is available", w.available(name, netNamespace, replicas))
	}
	w.whole(t)
}

func partitionDeployment(name string, replicas int32) *appsv1.Deployment {
	d := webDeployment(name, replicas)
	pod := &d.Spec.Template
	pod.Labels["net"] = "pod"
	pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, TimeoutSeconds: 5, ProbeHandler: corev1.ProbeHandler{
		HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromInt32(8080)},
	}}
	if name == "there" {
		pod.Spec.RuntimeClassName = ptr.To("liqo")
	} else {
		pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "rome-1"}
	}
	return d
}

// sight is what a cluster says of the other one.
type sight struct {
	// api and network are the conditions of the ForeignCluster.
	api, network metav1.ConditionStatus
	// endpoints says whether those of the pods over there are ready.
	endpoints bool
	// node and unavailable are the conditions of the virtual node, and pods is whether those on
	// it are Ready; "": there is no virtual node.
	node, unavailable corev1.ConditionStatus
	pods              corev1.ConditionStatus
}

const (
	yes = metav1.ConditionTrue
	no  = metav1.ConditionFalse
)

// well is what a cluster says when nothing is cut.
func (w partitionWorld) well(s *site.Site) sight {
	out := sight{api: yes, network: yes, endpoints: true}
	if s == w.rome {
		out.node, out.unavailable, out.pods = corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionTrue
	}
	return out
}

// sees compares what a cluster says. The endpoints of its own pods are always ready.
func (w partitionWorld) sees(s *site.Site, want sight) func(context.Context) error {
	return func(ctx context.Context) error {
		other := w.other(s).Name
		fc, err := s.Liqod().CoreV1beta1().ForeignClusters().Get(ctx, other, metav1.GetOptions{})
		if err != nil {
			return err
		}
		errs := []error{
			stands(fc.Status.Conditions, corev1beta1.ConditionAPIServer, want.api),
			stands(fc.Status.Conditions, corev1beta1.ConditionNetwork, want.network),
			w.endpoints(ctx, s, want.endpoints),
		}
		if want.node != "" {
			errs = append(errs, w.nodeStands(ctx, s, want))
		}
		if want.pods != "" {
			errs = append(errs, w.podsStand(ctx, want.pods))
		}
		if err := errors.Join(errs...); err != nil {
			return fmt.Errorf("%s says of %s: %w", s.Name, other, err)
		}
		return nil
	}
}

func stands(conditions []metav1.Condition, kind string, want metav1.ConditionStatus) error {
	c := meta.FindStatusCondition(conditions, kind)
	return lab.Wrong(nil, c == nil || c.Status != want, "%s is not %s: %+v", kind, want, c)
}

// endpoints looks at the Service's endpoints: those of pods that run in the other cluster
// are ready if away is true.
func (w partitionWorld) endpoints(ctx context.Context, s *site.Site, away bool) error {
	namespace := netNamespace
	if s == w.milan {
		namespace = netTwin
	}
	slices, err := s.Client().DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=all"})
	if err != nil {
		return err
	}
	own, others := 0, 0
	for _, slice := range slices.Items {
		for _, e := range slice.Endpoints {
			if e.TargetRef == nil || !ptr.Deref(e.Conditions.Ready, true) {
				continue
			}
			if strings.HasPrefix(e.TargetRef.Name, "there-") == (s == w.milan) {
				own++
			} else {
				others++
			}
		}
	}
	wantOwn, wantOthers := 1, 2
	if s == w.milan {
		wantOwn, wantOthers = 2, 1
	}
	if !away {
		wantOthers = 0
	}
	return lab.Wrong(nil, own != wantOwn || others != wantOthers, "%d endpoints of its own pods are ready, and %d of others: not %d and %d", own, others, wantOwn, wantOthers)
}

func (w partitionWorld) nodeStands(ctx context.Context, s *site.Site, want sight) error {
	node, err := s.Client().CoreV1().Nodes().Get(ctx, w.other(s).Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	unavailable := cmp.Or(nodeCondition(node, corev1.NodeNetworkUnavailable).Status, corev1.ConditionFalse)
	ready := readyOf(node).Status
	return lab.Wrong(nil, ready != want.node || unavailable != want.unavailable, "node %s is Ready=%s and NetworkUnavailable=%s", node.Name, ready, unavailable)
}

// podsStand looks at the pods that run in the provider, as home shows them.
func (w partitionWorld) podsStand(ctx context.Context, ready corev1.ConditionStatus) error {
	pods, err := w.rome.Client().CoreV1().Pods(netNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app=there"})
	if err != nil {
		return err
	}
	if len(pods.Items) != 2 {
		return fmt.Errorf("there are %d pods, not 2", len(pods.Items))
	}
	for _, p := range pods.Items {
		if p.DeletionTimestamp != nil || podReady(&p) != ready {
			return fmt.Errorf("pod %s is Ready=%s, deleted %v", p.Name, podReady(&p), p.DeletionTimestamp)
		}
	}
	return nil
}

// both waits until both clusters say what they are to say, and requires that it stays so.
func (w partitionWorld) both(t *testing.T, what string, rome, milan sight) {
	t.Helper()
	look := func(ctx context.Context) error {
		return errors.Join(w.sees(w.rome, rome)(ctx), w.sees(w.milan, milan)(ctx))
	}
	within(t, longest, what, look)
	hold(t, cutFor, what+", and that stays", look)
}

// whole waits until all is well, and packets pass both ways.
func (w partitionWorld) whole(t *testing.T) {
	t.Helper()
	within(t, longest, "all is well", func(ctx context.Context) error {
		return errors.Join(w.sees(w.rome, w.well(w.rome))(ctx), w.sees(w.milan, w.well(w.milan))(ctx))
	})
	for _, s := range []*site.Site{w.rome, w.milan} {
		within(t, longest, "a pod in "+s.Name+" reaches all pods", func(ctx context.Context) error { return w.reaches(ctx, s) })
	}
}

// reaches has a pod of a cluster ask each pod by the address that its cluster shows.
func (w partitionWorld) reaches(ctx context.Context, s *site.Site) error {
	namespace, app := netNamespace, "here-"
	if s == w.milan {
		namespace, app = netTwin, "there-"
	}
	slices, err := s.Client().DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=all"})
	if err != nil {
		return err
	}
	from, args := "", []string{"reach"}
	for _, slice := range slices.Items {
		for _, e := range slice.Endpoints {
			args = append(args, fmt.Sprintf("tcp://%s:8080/0", e.Addresses[0]))
			if strings.HasPrefix(e.TargetRef.Name, app) {
				from = e.TargetRef.Name
			}
		}
	}
	said, err := s.Exec(ctx, namespace, from, args...)
	if err != nil {
		return err
	}
	if len(args) != 4 || strings.Contains(said, "Problem") {
		return fmt.Errorf("pod %s asks %v: %s", from, args[1:], said)
	}
	return nil
}

// undisturbed runs something and requires that no pod was made or started again by it, once
// all is well.
func (w partitionWorld) undisturbed(t *testing.T, f func()) {
	t.Helper()
	here, there := lives(t, w.rome.Cluster, netNamespace), lives(t, w.milan.Cluster, netTwin)
	require.Len(t, here, 3)
	require.Len(t, there, 2)
	f()
	w.whole(t)
	require.Equal(t, here, lives(t, w.rome.Cluster, netNamespace), "pods at home")
	require.Equal(t, there, lives(t, w.milan.Cluster, netTwin), "pods in the provider")
}

// drop has a machine drop packets, until pass.
func (w partitionWorld) drop(t *testing.T, m *lab.Machine, packets ...string) {
	t.Helper()
	require.NoError(t, m.Drop(t.Context(), "partition", lab.Drops{Arriving: packets}))
}

func (w partitionWorld) pass(t *testing.T) {
	t.Helper()
	for _, m := range w.machines() {
		require.NoError(t, m.Pass(t.Context(), "partition"))
	}
}

// execs runs a command in a pod that runs in the provider, by way of home.
func (w partitionWorld) execs(ctx context.Context) error {
	pods, err := w.rome.Client().CoreV1().Pods(netNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app=there"})
	if err != nil {
		return err
	}
	for _, p := range pods.Items {
		out, err := w.rome.Exec(ctx, netNamespace, p.Name, "hostname")
		if err != nil || strings.TrimSpace(out) != p.Name {
			return fmt.Errorf("exec in pod %s: %w: %s", p.Name, err, out)
		}
	}
	return nil
}

// partitionTunnel: the tunnel is cut, and the API servers answer each other.
func partitionTunnel(t *testing.T, w partitionWorld) {
	w.undisturbed(t, func() {
		for _, s := range []*site.Site{w.rome, w.milan} {
			w.drop(t, s.Fabric.Machine, tunnelPackets)
		}
		rome := sight{api: yes, network: no, node: corev1.ConditionTrue, unavailable: corev1.ConditionTrue, pods: corev1.ConditionFalse}
		// Milan has no credentials: what it knows of the API server comes through the tunnel.
		w.both(t, "only the network counts as down", rome, sight{api: metav1.ConditionUnknown, network: no})
		within(t, longest, "exec works", w.execs)
		w.pass(t)
	})
}

// apiPackets are those that machines of the other cluster send to a cluster's API server.
func (w partitionWorld) apiPackets(t *testing.T, s *site.Site) string {
	t.Helper()
	server := must(url.Parse(s.APIServer))(t)
	from := w.full.Nodes(w.other(s).Cluster)[0].Machine.Address
	return fmt.Sprintf("ip saddr %s tcp dport %s", from, server.Port())
}

// cutAPIServers cuts each API server from the machines of the other cluster.
func (w partitionWorld) cutAPIServers(t *testing.T) {
	t.Helper()
	for _, s := range []*site.Site{w.rome, w.milan} {
		w.drop(t, w.full.Nodes(s.Cluster)[0].Machine, w.apiPackets(t, s))
	}
}

// lost is what a consumer says of a provider whose API server it does not reach.
func lost(network metav1.ConditionStatus) sight {
	out := sight{api: no, network: network, node: corev1.ConditionFalse, pods: corev1.ConditionFalse, unavailable: corev1.ConditionFalse}
	if network == no {
		out.unavailable = corev1.ConditionTrue
	}
	return out
}

// partitionOneWay: the API servers are cut from each other, and the provider, which has no
// credentials, learns by the tunnel that home is well.
func partitionOneWay(t *testing.T, w partitionWorld) {
	w.undisturbed(t, func() {
		counted := w.countWrites(t)
		w.cutAPIServers(t)
		w.both(t, "only home loses the other", lost(yes), w.well(w.milan))
		for what, n := range counted() {
			t.Logf("%s: %d writes", what, n)
			if !strings.HasSuffix(what, ", by kube-kubelet") { // it has reasons of its own
				require.NotContains(t, what, " in milan", "nothing changes there")
			}
		}
		w.pass(t)
	})
}

// partitionTwoWay: the same with credentials on both sides, so that both lose the other.
func partitionTwoWay(t *testing.T, w partitionWorld) {
	w.done(t, w.milan, "peer", "--token", tokenOf(t, w.sites, w.rome), "--timeout=2m")
	w.undisturbed(t, func() {
		w.cutAPIServers(t)
		milan := lost(yes)
		milan.pods = "" // it has offloaded none
		w.both(t, "each loses the other", lost(yes), milan)
		w.newPods(t)
		w.pass(t)
	})
}

// newPods: pods that may run in both clusters run on the node of home while the provider is lost.
func (w partitionWorld) newPods(t *testing.T) {
	t.Helper()
	kubetest.Create(t, w.rome.Client().AppsV1().Deployments(netNamespace), webDeployment("new", 2))
	within(t, longest, "new pods run", w.available("new", netNamespace, 2))
	require.Equal(t, map[string]int{"rome-1": 3, "milan": 2}, must(w.nodesOf(t.Context(), netNamespace))(t))
	require.NoError(t, w.rome.Client().AppsV1().Deployments(netNamespace).Delete(t.Context(), "new", metav1.DeleteOptions{}))
	within(t, longest, "they are gone", lab.Those(w.rome.Client().CoreV1().Pods(netNamespace), metav1.ListOptions{LabelSelector: "app=new"}, func(list *corev1.PodList) error {
		return lab.Wrong(nil, len(list.Items) > 0, "%d pods", len(list.Items))
	}))
}

// partitionOneDirection: what milan sends does not arrive in rome. No answer arrives in
// either direction.
func partitionOneDirection(t *testing.T, w partitionWorld) {
	w.undisturbed(t, func() {
		w.cutFrom(t, w.milan)
		milan := lost(no)
		milan.pods = ""
		w.both(t, "each loses the other", lost(no), milan)
		w.pass(t)
	})
}

// cutFrom drops all packets that a cluster's machines send to those of the other one.
func (w partitionWorld) cutFrom(t *testing.T, s *site.Site) {
	t.Helper()
	other := w.other(s)
	theirs := fmt.Sprintf("ip saddr { %s, %s }", w.full.Nodes(s.Cluster)[0].Machine.Address, s.Fabric.Machine.Address)
	w.drop(t, other.Fabric.Machine, theirs)
	w.drop(t, w.full.Nodes(other.Cluster)[0].Machine, theirs)
}

const (
	flapEvery = 5 * time.Second
	flaps     = 4
)

// partitionFlapping: the clusters are cut from each other every few seconds.
func partitionFlapping(t *testing.T, w partitionWorld) {
	w.undisturbed(t, func() {
		counted := w.countWrites(t)
		here, there := lives(t, w.rome.Cluster, netNamespace), lives(t, w.milan.Cluster, netTwin)
		asBefore := func(ctx context.Context) error {
			return errors.Join(w.living(ctx, w.rome, netNamespace, here), w.living(ctx, w.milan, netTwin, there))
		}
		for range flaps {
			w.cutFrom(t, w.milan)
			w.cutFrom(t, w.rome)
			hold(t, flapEvery, "pods live on while the clusters are cut from each other", asBefore)
			w.pass(t)
			hold(t, flapEvery, "pods live on while they are not", asBefore)
		}
		w.whole(t)
		for what, n := range counted() {
			t.Logf("%s: %d writes", what, n)
			require.Less(t, n, writesPerFlap*flaps, what)
		}
	})
}

// living requires that the pods of a namespace are those of before, none of them being deleted.
func (w partitionWorld) living(ctx context.Context, s *site.Site, namespace string, before map[string]life) error {
	pods, err := s.Client().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(pods.Items) != len(before) {
		return fmt.Errorf("%d pods in %s, not %d", len(pods.Items), s.Name, len(before))
	}
	for _, p := range pods.Items {
		if p.UID != before[p.Name].UID || p.DeletionTimestamp != nil {
			return fmt.Errorf("pod %s in %s has UID %s and is deleted at %v", p.Name, s.Name, p.UID, p.DeletionTimestamp)
		}
	}
	return nil
}

// writesPerFlap is how often an object may be written in one flap by one writer: liqod, or
// Kubernetes itself, which puts taints on nodes and marks their pods. It is more than twice of
// what a quiet machine needs for nodes, which need most.
const writesPerFlap = 25

// countWrites counts, by watches, how often each pod, virtual node, ForeignCluster and
// EndpointSlice is written in each cluster, and by whom, until the returned function is called.
func (w partitionWorld) countWrites(t *testing.T) func() map[string]int {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	var mu sync.Mutex
	var counting sync.WaitGroup
	counts := map[string]int{}
	count := func(s *site.Site, kind string, stream watch.Interface, err error) {
		require.NoError(t, err)
		counting.Go(func() {
			for event := range stream.ResultChan() {
				object, err := meta.Accessor(event.Object)
				if err != nil || event.Type == watch.Added {
					continue
				}
				mu.Lock()
				counts[fmt.Sprintf("%s %s in %s, by %s", kind, object.GetName(), s.Name, lastWriter(object))]++
				mu.Unlock()
			}
		})
	}
	all := metav1.ListOptions{TimeoutSeconds: ptr.To[int64](600)}
	for s, namespace := range map[*site.Site]string{w.rome: netNamespace, w.milan: netTwin} {
		named := all
		named.FieldSelector = "metadata.name=" + w.other(s).Name
		stream, err := s.Client().CoreV1().Pods(namespace).Watch(ctx, all)
		count(s, "pod", stream, err)
		stream, err = s.Client().DiscoveryV1().EndpointSlices(namespace).Watch(ctx, all)
		count(s, "EndpointSlice", stream, err)
		stream, err = s.Client().CoreV1().Nodes().Watch(ctx, named)
		count(s, "node", stream, err)
		stream, err = s.Liqod().CoreV1beta1().ForeignClusters().Watch(ctx, named)
		count(s, "ForeignCluster", stream, err)
		stream, err = s.Liqod().OffloadingV1beta1().ShadowPods(namespace).Watch(ctx, all)
		count(s, "ShadowPod", stream, err)
	}
	return func() map[string]int {
		cancel()
		counting.Wait()
		return counts
	}
}

// lastWriter is the field manager that has written an object last.
func lastWriter(object metav1.Object) (name string) {
	var at metav1.Time
	for _, m := range object.GetManagedFields() {
		if m.Time != nil && !m.Time.Before(&at) {
			name, at = m.Manager, *m.Time
		}
	}
	return name
}
