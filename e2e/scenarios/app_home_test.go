package scenarios

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

const (
	// homeNamespace is offloaded with services Home. libraryNamespace is in both clusters, and neither offloads it.
	homeNamespace, libraryNamespace = "readers", "library"
	// Of the addresses that no API server chooses by itself. Services of both clusters have the first one.
	booksOfRome, booksOfMilan = "10.96.0.77", "10.96.0.78"
)

// resident is a pod, the addresses to which it resolves names, and the answers that it gets from targets.
type resident struct {
	in             *site.Site
	namespace, pod string
	names          map[string]string
	answers        map[string]arrival
}

// storeHomeServices: pods in milan of a namespace with services Home resolve names by the DNS of rome, and
// reach its ClusterIPs, also one that a Service of milan has, and the addresses that pods have in rome. A
// pod in milan of another offloaded namespace resolves and reaches what milan has.
func storeHomeServices(t *testing.T, w storeWorld) {
	w.library(t, w.rome, map[string]string{"books": booksOfRome})
	w.library(t, w.milan, map[string]string{"books": booksOfMilan, "papers": booksOfRome})
	w.offload(t, homeNamespace, offloadingv1beta1.NamespaceOffloadingSpec{
		PodOffloadingStrategy: offloadingv1beta1.PodsLocalAndRemote, Services: offloadingv1beta1.ServicesHome,
	})
	customer := w.pod(t, "customers", "rome")
	at := w.readers(t, map[string]string{"near": customer.Spec.NodeName, "far-0": w.milan.Name, "far-1": w.milan.Name})

	residents := []resident{
		{in: w.milan, namespace: storeNamespace, pod: w.pod(t, "cart", "milan").Name,
			names:   map[string]string{"books.library.svc.cluster.local": booksOfMilan, "books.library": booksOfMilan},
			answers: map[string]arrival{"books.library": {Name: "milan"}, booksOfRome: {Name: "milan"}}},
		{in: w.rome, namespace: storeNamespace, pod: customer.Name,
			names:   map[string]string{"books.library": booksOfRome},
			answers: map[string]arrival{"far-0.readers": {Name: "far-0"}, at["far-0"]: {Name: "far-0"}, "far-1.readers": {Name: "far-1"}, at["far-1"]: {Name: "far-1"}}},
	}
	for pod, other := range map[string]string{"far-0": "far-1", "far-1": "far-0"} {
		service := kubetest.Get(t, w.rome.Client().CoreV1().Services(homeNamespace), other).Spec.ClusterIP
		far := resident{in: w.rome, namespace: homeNamespace, pod: pod,
			names: map[string]string{"books.library.svc.cluster.local": booksOfRome, "books.library": booksOfRome, other: service, other + ".readers.svc.cluster.local": service},
			answers: map[string]arrival{
				"books.library": {Name: "rome"}, booksOfRome: {Name: "rome"}, "near": {Name: "near"}, other: {Name: other},
				pod: {Name: pod}, at[other]: {Name: other, Seen: at[pod]},
			}}
		// A bridge leads addresses of the pod's own node to no router.
		there := kubetest.Get(t, w.milan.Client().CoreV1().Pods(homeNamespace+"-rome"), pod).Status.PodIP
		if !netip.PrefixFrom(netip.MustParseAddr(there), 24).Masked().Contains(netip.MustParseAddr(at["near"])) {
			far.answers[at["near"]] = arrival{Name: "near", Seen: at[pod]}
			residents = append(residents, resident{in: w.rome, namespace: homeNamespace, pod: "near", answers: map[string]arrival{at[pod]: {Name: pod, Seen: at["near"]}}})
		}
		residents = append(residents, far)
		namespace := must(w.rome.Exec(t.Context(), homeNamespace, pod, "env", "NAMESPACE"))(t)
		require.Equal(t, homeNamespace+"\n", namespace, "metadata.namespace")
		for _, path := range []string{"version", "https://kubernetes.default.svc/version"} {
			within(t, longest, pod+" reads "+path, w.readsVersion(homeNamespace, pod, path))
		}
	}
	within(t, longest, "pods see the cluster in which they live", func(ctx context.Context) error {
		var all errgroup.Group
		for _, r := range residents {
			all.Go(func() error { return r.sees(ctx) })
		}
		return all.Wait()
	})
	w.homeNodePorts(t)
}

// homeNodePorts: pods in milan of the namespace with services Home reach its node ports at the address of the virtual
// node, and nothing else there. A pod in rome reaches the kubelet API and the node ports of the store, too.
func (w storeWorld) homeNodePorts(t *testing.T) {
	t.Helper()
	nodePort := func(namespace string, service *corev1.Service) string {
		service.Spec.Type = corev1.ServiceTypeNodePort
		made := kubetest.Create(t, w.rome.Client().CoreV1().Services(namespace), service)
		return strconv.Itoa(int(made.Spec.Ports[0].NodePort))
	}
	door := netService("door", "")
	door.Spec.Selector = map[string]string{"reader": "near"}
	open := nodePort(homeNamespace, door)
	twin := netService("twin-door", "")
	twin.Spec.Selector = map[string]string{"app": "web"}
	closed := []string{"10250", nodePort(storeNamespace, twin)}

	node := kubetest.Get(t, w.rome.Client().CoreV1().Nodes(), w.milan.Name)
	i := slices.IndexFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Type == corev1.NodeInternalIP })
	require.GreaterOrEqual(t, i, 0)
	address := node.Status.Addresses[i].Address
	asks := func(pod, scheme, port string) func(context.Context) error {
		return func(ctx context.Context) error {
			return arrives(w.rome.Exec(ctx, homeNamespace, pod, "reach", scheme+"://"+net.JoinHostPort(address, port)+"/64"))
		}
	}
	for _, port := range append(closed, open) {
		within(t, longest, "a pod in rome connects to port "+port, asks("near", "connect", port))
	}
	asked := 0
	for _, pod := range []string{"far-0", "far-1"} {
		there := kubetest.Get(t, w.milan.Client().CoreV1().Pods(homeNamespace+"-rome"), pod).Status.PodIP
		if netip.PrefixFrom(netip.MustParseAddr(there), 24).Masked().Contains(netip.MustParseAddr(address)) {
			continue // a bridge leads addresses of the pod's own node to no router
		}
		asked++
		within(t, longest, pod+" reaches the node port", asks(pod, "tcp", open))
		for _, port := range closed {
			require.ErrorContains(t, asks(pod, "connect", port)(t.Context()), address, "%s connects to port %s", pod, port)
		}
	}
	require.Positive(t, asked)
	for namespace, service := range map[string]string{homeNamespace: door.Name, storeNamespace: twin.Name} {
		require.NoError(t, w.rome.Client().CoreV1().Services(namespace).Delete(t.Context(), service, metav1.DeleteOptions{}))
	}
}

// library runs a pod with the name of its cluster, and Services of it with these addresses.
func (w storeWorld) library(t *testing.T, s *site.Site, services map[string]string) {
	t.Helper()
	kubetest.Create(t, s.Client().CoreV1().Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: libraryNamespace}})
	d := webDeployment("books", 1)
	d.Spec.Template.Spec.Hostname = s.Name
	kubetest.Create(t, s.Client().AppsV1().Deployments(libraryNamespace), d)
	for name, address := range services {
		service := netService(name, address)
		service.Spec.Selector = d.Spec.Selector.MatchLabels
		kubetest.Create(t, s.Client().CoreV1().Services(libraryNamespace), service)
	}
}

// readers runs pods on these nodes of rome, each with a Service of its name, and returns their addresses in rome.
// Those on the virtual node run on different nodes of milan.
func (w storeWorld) readers(t *testing.T, nodes map[string]string) map[string]string {
	t.Helper()
	pods, at := w.rome.Client().CoreV1().Pods(homeNamespace), map[string]string{}
	for name, node := range nodes {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"reader": name, "set": "readers"}}, Spec: testSpec(1, "serve")}
		pod.Annotations = map[string]string{
			offloadingv1beta1.AntiAffinityPresetAnnotation: offloadingv1beta1.AntiAffinityHard, offloadingv1beta1.AntiAffinityLabelsAnnotation: "set",
		}
		pod.Spec.NodeName, pod.Spec.Tolerations = node, anyTaint()
		pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "NAMESPACE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}}}
		service := netService(name, "")
		service.Spec.Selector = map[string]string{"reader": name}
		kubetest.Create(t, w.rome.Client().CoreV1().Services(homeNamespace), service)
		kubetest.Create(t, pods, pod)
	}
	for name := range nodes {
		within(t, longest, name+" is Ready", w.podReady(homeNamespace, name))
		at[name] = kubetest.Get(t, pods, name).Status.PodIP
	}
	return at
}

// sees returns what of the names and the answers is otherwise, by TCP or by UDP.
func (r resident) sees(ctx context.Context) error {
	var errs []error
	for name, want := range r.names {
		have, err := r.in.Exec(ctx, r.namespace, r.pod, "lookup", name)
		errs = append(errs, lab.Wrong(err, strings.TrimSpace(have) != want, "%s resolves %s to %q, not %s", r.pod, name, have, want))
	}
	args, wanted := []string{"reach"}, map[string]arrival{}
	for host, want := range r.answers {
		for _, scheme := range []string{"tcp", "udp"} {
			target := scheme + "://" + host + ":8080/64"
			args, wanted[target] = append(args, target), want
		}
	}
	all, err := arrivals(r.in.Exec(ctx, r.namespace, r.pod, args...))
	for _, a := range all {
		if want := wanted[a.Target]; a.Name != want.Name || want.Seen != "" && a.Seen != want.Seen {
			err = errors.Join(err, fmt.Errorf("%s gets %+v, not %+v", r.pod, a, want))
		}
	}
	return errors.Join(append(errs, err)...)
}

// storeHomeAway kills home's control plane in a one-way peering. Milan has no credentials for
// rome: the gateways report by the tunnel, which lives, that rome's API server is down. Endpoints of
// rome's pods leave the Services of milan, and return with the API server; milan's own stay. No pod
// is created or started again.
func storeHomeAway(t *testing.T, w storeWorld) {
	before := map[*site.Site]map[string]string{}
	for _, s := range []*site.Site{w.rome, w.milan} {
		before[s] = must(containers(t.Context(), s, storeNamespace))(t)
	}
	own := map[string]string{"cart": w.pod(t, "cart", "milan").Name, "web": w.pod(t, "web", "milan").Name, "catalog": ""}
	stopPlane(w.rome.Cluster)
	away := w.endpointsInMilan(own)
	within(t, time.Minute, "endpoints of rome's pods are gone in milan", func(ctx context.Context) error {
		return errors.Join(peerSays(w.milan, "rome", corev1beta1.ConditionAPIServer, metav1.ConditionFalse, networkingv1beta1.ReasonPeerReportsDown)(ctx),
			peerSays(w.milan, "rome", corev1beta1.ConditionNetwork, metav1.ConditionTrue, "")(ctx), away(ctx))
	})
	hold(t, 3*time.Second, "and milan's own stay", away)
	require.NoError(t, startPlane(t.Context(), w.rome.Cluster))
	storeEndpoints(t, w)
	w.requestsSucceed(t)
	within(t, longest, "the store is open", w.open)
	for s, pods := range before {
		w.same(t, s, storeNamespace, pods)
	}
}

// endpointsInMilan looks for the only ready endpoint of each Service in milan; "": it has none.
func (w storeWorld) endpointsInMilan(want map[string]string) func(context.Context) error {
	return func(ctx context.Context) error {
		for service, pod := range want {
			have, err := endpointPods(ctx, w.milan.Cluster, service)
			if err != nil {
				return err
			}
			if pod == "" && len(have) > 0 || pod != "" && !slices.Equal(have, []string{pod}) {
				return fmt.Errorf("pods %v are ready endpoints of %s, and not %q alone", have, service, pod)
			}
		}
		return nil
	}
}

// storeNear: a Service that prefers near endpoints has one in rome, in zone a, and one in milan,
// in zone b. All requests of clients in zone a of rome and in zone a of milan are answered in
// their own cluster: zone a of rome is none of milan's, as zones are not shared.
func storeNear(t *testing.T, w storeWorld) {
	zone := func(s *site.Site, node, zone string) {
		require.NoError(t, second(s.Kubectl(t.Context(), lab.KubectlOptions{}, "label", "node", node, corev1.LabelTopologyZone+"="+zone)))
	}
	inMilan := w.milan.Client().CoreV1().Pods(storeNamespace)
	web := kubetest.Get(t, inMilan, w.pod(t, "web", "milan").Name)
	nodes := kubetest.List(t, w.milan.Client().CoreV1().Nodes(), metav1.ListOptions{LabelSelector: "!" + offloadingv1beta1.TypeLabel})
	i := slices.IndexFunc(nodes.Items, func(n corev1.Node) bool { return n.Name != web.Spec.NodeName })
	zone(w.milan, web.Spec.NodeName, "b")
	zone(w.milan, nodes.Items[i].Name, "a")
	zone(w.rome, w.pod(t, "web", "rome").Spec.NodeName, "a")

	client := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "far"}, Spec: testSpec(0, "serve")}
	client.Spec.NodeName = nodes.Items[i].Name
	kubetest.Create(t, inMilan, client)
	services := w.rome.Client().CoreV1().Services(storeNamespace)
	near, prefer := kubetest.Get(t, services, "web"), corev1.ServiceTrafficDistributionPreferSameZone
	for _, s := range []*site.Site{w.rome, w.milan} {
		if s.KubernetesVersion() < "v1.34" {
			prefer = corev1.ServiceTrafficDistributionPreferClose // the name before 1.34
		}
	}
	kubetest.Create(t, services, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "near"}, Spec: corev1.ServiceSpec{
		Selector: near.Spec.Selector, Ports: near.Spec.Ports, TrafficDistribution: &prefer,
	}})
	for s, from := range map[*site.Site]string{w.rome: w.pod(t, "customers", "rome").Name, w.milan: client.Name} {
		within(t, time.Minute, "requests of "+s.Name+" are answered there", func(ctx context.Context) error {
			for range 20 {
				if who, err := parsed[answer](s.Exec(ctx, storeNamespace, from, "get", "http://near/")); err != nil || runsIn(who.Node) != s.Name {
					return fmt.Errorf("an answer comes from %q: %w", who.Node, err)
				}
			}
			return nil
		})
	}
	require.NoError(t, services.Delete(t.Context(), "near", metav1.DeleteOptions{}))
	require.NoError(t, inMilan.Delete(t.Context(), client.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
}
