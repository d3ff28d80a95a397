package host

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/utils/clock"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/netfabric/check"
	"github.com/liqod/liqod/netfabric/plan"
)

// podOf is a Pod of a namespace on node-1, made for the cluster origin unless that is empty.
func podOf(namespace, origin, ip string) *corev1.Pod {
	p := pod(ip, "node-1", ip)
	p.Namespace, p.Status.Phase = namespace, corev1.PodRunning
	if origin != "" {
		p.Labels = map[string]string{offloadingv1beta1.OriginLabel: origin, "app": "web"}
	}
	return p
}

// offloaded is a namespace with one condition OffloadingRequired for each cluster.
func offloaded(namespace string, to map[string]metav1.ConditionStatus) *offloadingv1beta1.NamespaceOffloading {
	o := &offloadingv1beta1.NamespaceOffloading{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: offloadingv1beta1.NamespaceOffloadingName},
		Status:     offloadingv1beta1.NamespaceOffloadingStatus{RemoteNamespaceName: namespace, RemoteNamespacesConditions: map[string][]metav1.Condition{}},
	}
	for id, status := range to {
		o.Status.RemoteNamespacesConditions[id] = []metav1.Condition{{Type: offloadingv1beta1.RemoteNamespaceOffloadingRequired, Status: status}}
	}
	return o
}

// twinOf is a namespace with the marks of a twin of a peer, made for it or accepted for it.
func twinOf(name, peer, mark string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{corev1beta1.RemoteClusterIDLabel: peer, "team": "a"}, Annotations: map[string]string{mark: corev1beta1.TenantNamespace(peer) + "/here", "note": "x"},
	}}
}

func sliceOf(namespace string, addresses ...string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "by-hand", Annotations: map[string]string{}},
		Endpoints:  []discoveryv1.Endpoint{{Addresses: addresses, NodeName: new("node-1")}},
	}
}

// Peers reach pods that run here for them, pods of namespaces that are offloaded to them, and
// the pods that endpoints in such namespaces name.
func TestPodsThatAreShared(t *testing.T) {
	t.Parallel()
	const yes, no = metav1.ConditionTrue, metav1.ConditionFalse
	both := podOf("shop", "", "10.244.1.4")
	both.Status.PodIPs = append(both.Status.PodIPs, corev1.PodIP{IP: "fd00::4"})
	ofNode, ended := podOf("shop", "", "192.0.2.11"), podOf("shop", "", "10.244.1.5")
	ofNode.Spec.HostNetwork = true
	ended.Status.Phase = corev1.PodSucceeded
	leaving := podOf("shop", "", "10.244.1.6")
	leaving.DeletionTimestamp = new(metav1.Now())
	gone, skipped, invalid, other := offloaded("shop", map[string]metav1.ConditionStatus{"milan": yes}), sliceOf("shop", "10.244.1.9"), offloaded("shop", map[string]metav1.ConditionStatus{"milan": yes}), offloaded("shop", map[string]metav1.ConditionStatus{"milan": yes})
	gone.DeletionTimestamp = new(metav1.Now())
	skipped.Annotations[offloadingv1beta1.SkipReflectionAnnotation] = "true"
	invalid.Status.RemoteNamespacesConditions["milan"] = append(invalid.Status.RemoteNamespacesConditions["milan"], metav1.Condition{Type: offloadingv1beta1.RemoteNamespaceReady, Reason: offloadingv1beta1.ReasonInvalid})
	other.Name = "mine"

	ofRome := twinOf("apps-rome", "rome", offloadingv1beta1.ManagedByNamespaceMapAnnotation)
	ofRome.Annotations[offloadingv1beta1.OriginalNameAnnotation] = "apps"
	ofOslo := twinOf("apps-oslo", "oslo", offloadingv1beta1.ManagedByNamespaceMapAnnotation)
	ofOslo.Annotations[offloadingv1beta1.OriginalNameAnnotation] = "apps"
	admitting := []*networkingv1beta1.Connection{
		{Spec: networkingv1beta1.ConnectionSpec{ClusterID: "milan", Admits: []networkingv1beta1.Third{{ClusterID: "rome", Namespaces: []string{"apps", "more"}}}}},
		{Spec: networkingv1beta1.ConnectionSpec{ClusterID: "turin"}},
	}

	for name, tc := range map[string]struct {
		pods    []*corev1.Pod
		twins   []*corev1.Namespace
		to      []*offloadingv1beta1.NamespaceOffloading
		slices  []*discoveryv1.EndpointSlice
		reached map[string][]string
	}{
		"a pod that runs for a peer": {
			pods: []*corev1.Pod{podOf("shop-rome", "rome", "10.244.1.1")}, twins: []*corev1.Namespace{twinOf("shop-rome", "rome", offloadingv1beta1.ManagedByNamespaceMapAnnotation)},
			reached: map[string][]string{"rome": {"10.244.1.1"}},
		},
		"a pod that runs for a peer, which shares its namespace with another": {
			pods:    []*corev1.Pod{podOf("apps-rome", "rome", "10.244.1.1"), podOf("apps-rome", "", "10.244.1.2"), podOf("apps-oslo", "oslo", "10.244.1.3")},
			twins:   []*corev1.Namespace{ofRome, ofOslo},
			reached: map[string][]string{"rome": {"10.244.1.1"}, "milan": {"10.244.1.1"}, "oslo": {"10.244.1.3"}},
		},
		"a pod whose label names another peer": {
			pods: []*corev1.Pod{podOf("shop-rome", "oslo", "10.244.1.1")}, twins: []*corev1.Namespace{twinOf("shop-rome", "rome", offloadingv1beta1.ManagedByNamespaceMapAnnotation)},
		},
		"a label outside of a twin":     {pods: []*corev1.Pod{podOf("apps", "rome", "10.244.1.1")}},
		"a label of a tenant namespace": {pods: []*corev1.Pod{podOf("liqo-tenant-rome", "rome", "10.244.1.1")}, twins: []*corev1.Namespace{twinOf("liqo-tenant-rome", "rome", "note")}},
		"pods of an offloaded namespace": {
			pods: []*corev1.Pod{both, podOf("apps", "", "10.244.1.3"), ofNode, ended, leaving}, to: []*offloadingv1beta1.NamespaceOffloading{offloaded("shop", map[string]metav1.ConditionStatus{"milan": yes, "oslo": no, "turin": yes})},
			reached: map[string][]string{"milan": {"10.244.1.4", "fd00::4", "10.244.1.6"}, "turin": {"10.244.1.4", "fd00::4", "10.244.1.6"}},
		},
		"offloading that ends":           {pods: []*corev1.Pod{both}, to: []*offloadingv1beta1.NamespaceOffloading{gone}},
		"offloading that was refused":    {pods: []*corev1.Pod{both}, to: []*offloadingv1beta1.NamespaceOffloading{invalid}},
		"an offloading of another name":  {pods: []*corev1.Pod{both}, to: []*offloadingv1beta1.NamespaceOffloading{other}},
		"an address that two pods claim": {pods: []*corev1.Pod{podOf("shop", "", "10.244.1.1"), podOf("apps", "", "10.244.1.1")}, to: []*offloadingv1beta1.NamespaceOffloading{offloaded("shop", map[string]metav1.ConditionStatus{"milan": yes})}},
		"endpoints by hand": {
			pods: []*corev1.Pod{podOf("apps", "", "10.244.1.8"), podOf("apps", "", "10.244.1.9"), ofNode}, to: []*offloadingv1beta1.NamespaceOffloading{offloaded("shop", map[string]metav1.ConditionStatus{"milan": yes})},
			slices: []*discoveryv1.EndpointSlice{sliceOf("shop", "10.244.1.8", "192.0.2.11", "a.example"), skipped, sliceOf("apps", "10.244.1.9")}, reached: map[string][]string{"milan": {"10.244.1.8"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shared := Shared{Twins: trimmed(t, tc.twins), Pods: trimmed(t, tc.pods), Offloadings: tc.to, Slices: trimmed(t, tc.slices)}
			got := map[string][]string{}
			for peer, addresses := range shared.sharing(admissions(admitting)).reach {
				for _, a := range addresses {
					require.True(t, a.IsSingleIP())
					got[peer] = append(got[peer], a.Addr().String())
				}
			}
			require.Len(t, got, len(tc.reached), "%v", got)
			for peer, want := range tc.reached {
				require.Equal(t, want, got[peer])
			}
		})
	}
}

// trimmed are objects as a cache holds them.
func trimmed[T any](t *testing.T, list []T) (out []T) {
	t.Helper()
	for _, o := range list {
		short, err := TrimShared(o)
		require.NoError(t, err)
		out = append(out, short.(T))
	}
	return out
}

// The plan of a node has the pods that are shared with a peer and lie in the ranges that it was
// given; with a trust that opens all pods it has these ranges.
func TestReachOfAPeer(t *testing.T) {
	t.Parallel()
	keys := publicKeys(t, 3)
	o := Objects{
		Connections: []*networkingv1beta1.Connection{linked("milan", 1, keys[1]), linked("oslo", 2, keys[2])},
		Nodes:       []*corev1.Node{hostNode("node-1", "192.0.2.11", "10.244.1.0/24")}, Gateways: []Announcement{ownGateway(keys[0])},
		Shared: Shared{
			Pods:        []*corev1.Pod{podOf("shop", "", "10.244.1.4"), podOf("shop", "", "10.9.0.1"), podOf("shop", "", "fd00::7")},
			Offloadings: []*offloadingv1beta1.NamespaceOffloading{offloaded("shop", map[string]metav1.ConditionStatus{"milan": metav1.ConditionTrue})},
		},
	}
	set := Settings{ClusterID: "rome", Self: "node-1", Ports: plan.Ports{Overlay: 1, Tunnel: 2}, MTU: 1500, AllPods: organisation}
	all := ranges("10.244.0.0/16")
	for trusts, want := range map[[2]corev1beta1.Trust][2][]netip.Prefix{
		{"", corev1beta1.TrustStrict}:                                  {ranges("10.244.1.4/32"), nil},
		{corev1beta1.TrustStrict, corev1beta1.TrustOrganisation}:       {ranges("10.244.1.4/32"), all},
		{corev1beta1.TrustOrganisation, ""}:                            {all, nil},
		{corev1beta1.TrustOrganisation, corev1beta1.TrustOrganisation}: {all, all},
	} {
		for i, trust := range trusts {
			o.Connections[i].Spec.Trust = string(trust)
		}
		in, refused, err := BuildInput(o, set)
		require.NoError(t, err)
		require.Empty(t, refused)
		require.Equal(t, want, [2][]netip.Prefix{in.Peers[0].Reach, in.Peers[1].Reach})
		_, err = plan.Node(in)
		require.NoError(t, err)
	}
}

// organisation is AllPods with the defaults.
func organisation(trust corev1beta1.Trust) bool { return trust == corev1beta1.TrustOrganisation }

// sharingHost keeps what peers reach by the last plan.
type sharingHost struct {
	countingHost
	reach []string
}

func (h *sharingHost) Apply(_ context.Context, want plan.State) error {
	h.reach = nil
	for _, e := range want.Table.Elements {
		switch e.Set {
		case "reach4":
			h.reach = append(h.reach, e.A.String()+" "+e.B.String())
		case "ports4":
			h.reach = append(h.reach, fmt.Sprint(e.A, " ", e.B, " ", e.Service.Proto, " ", e.Service.Port))
		}
	}
	return nil
}

// A node opens a pod when it has an address and is shared, and closes it within a second after
// it is no longer shared, or gone.
func TestANodeFollowsWhatIsShared(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		ctx, host := t.Context(), &sharingHost{}
		a := apisWith(t, *hostNode("node-1", "192.0.2.11", "10.244.1.0/24"))
		kube, liqo := informers.NewSharedInformerFactory(a.kube, 0), externalversions.NewSharedInformerFactory(a.liqo, 0)
		n := NewNode(NodeConfig{
			ClusterID: "rome", Name: "node-1", Overlay: plan.OverlayPort, MTU: 1500, Host: host, Sources: a.sources, Clock: clock.RealClock{}, Log: zap.NewNop(),
			AllPods: organisation, Shares: &Shares{
				Pods: kube.Core().V1().Pods(), Twins: kube.Core().V1().Namespaces(), Slices: kube.Discovery().V1().EndpointSlices(), Offloadings: liqo.Offloading().V1beta1().NamespaceOffloadings(),
			},
		})
		a.start(ctx.Done())
		kube.Start(ctx.Done())
		liqo.Start(ctx.Done())
		go func() { _ = n.Run(ctx) }()
		settled := func(want ...string) {
			t.Helper()
			kubetest.Settled(time.Second)
			require.Equal(t, want, host.reach)
		}
		const open, other = "10.201.0.0/16 10.244.1.4/32", "10.101.0.0/16 10.244.1.4/32"

		milan := linked("milan", 1, publicKeys(t, 1)[0])
		require.NoError(t, a.connect(ctx, milan))
		pods := a.kube.CoreV1().Pods("shop")
		web := podOf("shop", "", "10.244.1.4")
		kubetest.Create(t, pods, web)
		settled()
		offloadings := a.liqo.OffloadingV1beta1().NamespaceOffloadings("shop")
		kubetest.Create(t, offloadings, offloaded("shop", map[string]metav1.ConditionStatus{"milan": metav1.ConditionTrue}))
		settled(other, open)
		kubetest.Update(t, offloadings, offloaded("shop", map[string]metav1.ConditionStatus{"milan": metav1.ConditionFalse}))
		settled()

		slices := a.kube.DiscoveryV1().EndpointSlices("exported")
		kubetest.Create(t, slices, sliceOf("exported", "10.244.1.4"))
		kubetest.Create(t, a.liqo.OffloadingV1beta1().NamespaceOffloadings("exported"), offloaded("exported", map[string]metav1.ConditionStatus{"milan": metav1.ConditionTrue}))
		settled(other, open)
		require.NoError(t, slices.Delete(ctx, "by-hand", metav1.DeleteOptions{}))
		settled()

		kubetest.Create(t, a.kube.CoreV1().Namespaces(), twinOf("shop-milan", "milan", offloadingv1beta1.ManagedByNamespaceMapAnnotation))
		lent := podOf("shop-milan", "milan", "10.244.1.4")
		require.NoError(t, pods.Delete(ctx, web.Name, metav1.DeleteOptions{}))
		kubetest.Create(t, a.kube.CoreV1().Pods("shop-milan"), lent)
		settled(other, open)
		require.NoError(t, a.kube.CoreV1().Pods("shop-milan").Delete(ctx, lent.Name, metav1.DeleteOptions{}))
		settled()

		trusts := func(trust corev1beta1.Trust) {
			milan = milan.DeepCopy()
			milan.Spec.Trust = string(trust)
			require.NoError(t, a.connect(ctx, milan))
		}
		trusts(corev1beta1.TrustOrganisation)
		settled("10.101.0.0/16 10.244.0.0/16", "10.201.0.0/16 10.244.0.0/16")
		trusts(corev1beta1.TrustStrict)
		settled()

		kubetest.Create(t, a.kube.CoreV1().Pods("liqo-tenant-milan"), podOf("liqo-tenant-milan", "", "10.244.1.8"))
		kubetest.Create(t, a.kube.CoreV1().Nodes(), virtualNodeOf("milan", "10.244.1.8", ""))
		settled()
		kubetest.Update(t, a.kube.CoreV1().Nodes(), virtualNodeOf("milan", "10.244.1.8", "30080"))
		settled("10.101.0.0/16 10.244.1.8/32 tcp 30080", "10.201.0.0/16 10.244.1.8/32 tcp 30080")
		kubetest.Update(t, a.kube.CoreV1().Nodes(), virtualNodeOf("milan", "10.244.1.8", ""))
		settled()
	})
}

// virtualNodeOf is the Node of the virtual node of a peer, with these node ports.
func virtualNodeOf(peer, address, ports string) *corev1.Node {
	n := hostNode(peer, address)
	n.Labels = map[string]string{offloadingv1beta1.TypeLabel: offloadingv1beta1.TypeVirtualNode}
	n.Annotations = map[string]string{offloadingv1beta1.NodePortsAnnotation: ports, "note": "x"}
	n.Spec.ProviderID = "liqo://" + peer + "/" + peer
	return n
}

// The plan of a node has the node ports of a virtual node where a vkubelet of the same peer has its address. A vkubelet
// writes its Node as it likes, but for the providerID.
func TestNodePortsOfVirtualNodes(t *testing.T) {
	t.Parallel()
	keys := publicKeys(t, 3)
	onNode := podOf("liqo-tenant-milan", "", "192.0.2.11")
	onNode.Spec.HostNetwork = true
	for name, tc := range map[string]struct {
		pods   []*corev1.Pod
		change func(*corev1.Node)
		want   []string
	}{
		"a vkubelet":              {[]*corev1.Pod{podOf("liqo-tenant-milan", "", "10.244.1.8")}, nil, []string{"10.244.1.8:30080", "10.244.1.8:30443"}},
		"on another node":         {nil, nil, nil},
		"a pod of a user":         {[]*corev1.Pod{podOf("shop", "", "10.244.1.8")}, nil, nil},
		"a vkubelet of another":   {[]*corev1.Pod{podOf("liqo-tenant-oslo", "", "10.244.1.8")}, nil, nil},
		"labelled as another's":   {[]*corev1.Pod{podOf("liqo-tenant-oslo", "", "10.244.1.8")}, func(n *corev1.Node) { n.Labels[corev1beta1.RemoteClusterIDLabel] = "oslo" }, nil},
		"an address of two pods":  {[]*corev1.Pod{podOf("liqo-tenant-milan", "", "10.244.1.8"), podOf("shop", "", "10.244.1.8")}, nil, nil},
		"the address of the node": {[]*corev1.Pod{onNode}, func(n *corev1.Node) { n.Status.Addresses[1].Address = "192.0.2.11" }, nil},
		"outside of what milan is given": {
			[]*corev1.Pod{podOf("liqo-tenant-milan", "", "10.9.0.8")}, func(n *corev1.Node) { n.Status.Addresses[1].Address = "10.9.0.8" }, nil,
		},
		"an external address": {
			[]*corev1.Pod{podOf("liqo-tenant-milan", "", "10.244.1.8")}, func(n *corev1.Node) { n.Status.Addresses[1].Type = corev1.NodeExternalIP }, nil,
		},
		"a real node": {[]*corev1.Pod{podOf("liqo-tenant-milan", "", "10.244.1.8")}, func(n *corev1.Node) { n.Labels = nil }, nil},
		"what is no port": {
			[]*corev1.Pod{podOf("liqo-tenant-milan", "", "10.244.1.8")},
			func(n *corev1.Node) {
				n.Annotations[offloadingv1beta1.NodePortsAnnotation] = "0,70000,-1,http,,30080 ,30081"
			}, []string{"10.244.1.8:30081"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtual := virtualNodeOf("milan", "10.244.1.8", "30080,30443")
			if tc.change != nil {
				tc.change(virtual)
			}
			short, err := check.TrimNode(virtual)
			require.NoError(t, err)
			in, _, err := BuildInput(Objects{
				Connections: []*networkingv1beta1.Connection{linked("milan", 1, keys[1]), linked("oslo", 2, keys[2])},
				Nodes:       []*corev1.Node{hostNode("node-1", "192.0.2.11", "10.244.1.0/24"), short.(*corev1.Node)}, Gateways: []Announcement{ownGateway(keys[0])},
				Shared: Shared{Pods: trimmed(t, tc.pods)},
			}, Settings{ClusterID: "rome", Self: "node-1", Ports: plan.Ports{Overlay: 1, Tunnel: 2}, MTU: 1500, AllPods: organisation})
			require.NoError(t, err)
			require.NoError(t, in.Check())
			var got []string
			for _, at := range in.Peers[0].Ports {
				got = append(got, at.String())
			}
			require.Equal(t, tc.want, got)
			require.Empty(t, in.Peers[1].Ports)
		})
	}
}

// The selector leaves out what Kubernetes and liqod make, and has what people make.
func TestSelectorOfSlices(t *testing.T) {
	t.Parallel()
	selector, err := labels.Parse(SliceSelector)
	require.NoError(t, err)
	for by, want := range map[string]bool{
		"": true, "me": true, "endpointslicemirroring-controller.k8s.io": true,
		"endpointslice-controller.k8s.io": false, offloadingv1beta1.ManagedByShadowEndpointSlice: false,
	} {
		set := labels.Set{discoveryv1.LabelManagedBy: by}
		if by == "" {
			set = nil
		}
		require.Equal(t, want, selector.Matches(set), by)
	}
}

// Pods in twins whose mark says so live in the address space of their peer. On the other side they are
// those of the namespaces with services Home that run in the peer.
func TestPodsThatLiveAtHome(t *testing.T) {
	t.Parallel()
	home, twin := twinOf("apps-rome", "rome", offloadingv1beta1.ManagedByNamespaceMapAnnotation), twinOf("tools-rome", "rome", offloadingv1beta1.ManagedByNamespaceMapAnnotation)
	home.Annotations[offloadingv1beta1.ServicesAnnotation] = string(offloadingv1beta1.ServicesHome)
	forged := twinOf("own", "rome", "note")
	forged.Annotations[offloadingv1beta1.ServicesAnnotation] = string(offloadingv1beta1.ServicesHome)
	shop := offloaded("shop", map[string]metav1.ConditionStatus{"milan": metav1.ConditionTrue})
	shop.Spec.Services = offloadingv1beta1.ServicesHome
	got := Shared{
		Twins:       []*corev1.Namespace{home, twin, forged},
		Offloadings: []*offloadingv1beta1.NamespaceOffloading{shop, offloaded("tools", map[string]metav1.ConditionStatus{"milan": metav1.ConditionTrue})},
		Pods: []*corev1.Pod{
			podOf("apps-rome", "rome", "10.244.1.1"), podOf("apps-rome", "", "10.244.1.2"), podOf("tools-rome", "rome", "10.244.1.3"),
			podOf("own", "rome", "10.244.1.4"), podOf("shop", "", "10.200.1.5"), podOf("tools", "", "10.200.1.6"),
		},
	}.sharing(nil)
	require.Equal(t, map[string][]netip.Prefix{"rome": ranges("10.244.1.1/32")}, got.home)
	require.Equal(t, map[string][]netip.Prefix{"milan": ranges("10.200.1.5/32")}, got.served)
}

// A Connection with ranges of Services tells nodes and gateways what the addresses mean to these pods.
func TestRangesOfServices(t *testing.T) {
	t.Parallel()
	c := linked("milan", 1, publicKeys(t, 1)[0])
	service := func(own, view networkingv1beta1.CIDR) networkingv1beta1.Mapping {
		return networkingv1beta1.Mapping{Own: own, View: view, Use: networkingv1beta1.RangeService}
	}
	c.Spec.Local, c.Spec.Remote = append(c.Spec.Local, service("10.96.0.0/16", "10.77.0.0/16")), append(c.Spec.Remote, service("10.96.0.0/16", "10.78.0.0/16"))
	home := twinOf("apps-milan", "milan", offloadingv1beta1.ManagedByNamespaceMapAnnotation)
	home.Annotations[offloadingv1beta1.ServicesAnnotation] = string(offloadingv1beta1.ServicesHome)
	o := Objects{Connections: []*networkingv1beta1.Connection{c}, Nodes: []*corev1.Node{hostNode("node-1", "192.0.2.11", "10.244.1.0/24")}, Shared: Shared{Twins: []*corev1.Namespace{home}, Pods: []*corev1.Pod{podOf("apps-milan", "milan", "10.244.1.1")}}}
	in, refused, err := BuildInput(o, Settings{ClusterID: "rome", Self: "node-1", Ports: plan.Ports{Overlay: 1, Tunnel: 2}, MTU: 1500})
	require.NoError(t, err)
	require.Empty(t, refused)
	require.Equal(t, ranges("10.96.0.0/16"), in.Services)
	require.Equal(t, ranges("10.78.0.0/16"), in.Peers[0].Theirs.Services)
	require.Equal(t, ranges("10.244.1.1/32"), in.Peers[0].Home)
	require.Contains(t, in.Peers[0].Meant, plan.Map{Own: netip.MustParsePrefix("10.96.0.0/16"), View: netip.MustParsePrefix("10.78.0.0/16")}, "a Service of milan")
	require.Contains(t, in.Peers[0].Meant, plan.Map{Own: netip.MustParsePrefix("10.77.0.0/16"), View: netip.MustParsePrefix("10.96.0.0/16")}, "a Service of this cluster, as milan sees it")
}
