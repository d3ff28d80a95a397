package host

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/health"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/reasons"
)

func announcer(t *testing.T, kube *kubefake.Clientset, clk clock.WithTicker, name string, number int) *Announcer {
	t.Helper()
	a, err := NewAnnouncer(AnnounceConfig{
		Client: kube.CoordinationV1(), Namespace: homeNamespace, Name: name, Number: number, Duration: 15 * time.Second, RetryPeriod: 2 * time.Second,
		Clock: clk, Log: zap.NewNop(),
	})
	require.NoError(t, err)
	return a
}

func TestNumbersOfGateways(t *testing.T) {
	t.Parallel()
	kube, clk := kubefake.NewSimpleClientset(), clocktesting.NewFakeClock(noon)
	step := func(all ...*Announcer) {
		t.Helper()
		clk.Step(2 * time.Second)
		for _, a := range all {
			require.NoError(t, a.step(t.Context()))
		}
	}
	refused := func(a *Announcer, holder string) {
		t.Helper()
		require.ErrorContains(t, a.step(t.Context()), "gateway "+holder+" holds Lease liqod/liqod-gateway-1: set another gateway.number for one of the two")
		require.False(t, a.Active())
	}
	a, b := announcer(t, kube, clk, "a", 1), announcer(t, kube, clk, "b", 2)
	step(a, b)
	require.True(t, a.Active() && b.Active())

	// Restarted, it has its number at once, though its Lease has not expired.
	b = announcer(t, kube, clk, "b", 2)
	step(a, b)
	require.True(t, b.Active())

	// Another one in place of the first gets the number when the Lease has expired.
	d := announcer(t, kube, clk, "d", 1)
	refused(d, "a")
	step(a)
	refused(d, "a")
	for range 7 {
		clk.Step(2 * time.Second)
		refused(d, "a")
	}
	step(d)
	require.True(t, d.Active())

	// The first one runs again: its number is another's now, until that one releases it.
	refused(a, "d")
	require.NoError(t, d.release(t.Context()))
	step(a)
	require.True(t, a.Active())

	// While the API server is away, a gateway stays active.
	kube.PrependReactor("*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("away")
	})
	require.Error(t, a.step(t.Context()))
	require.True(t, a.Active())

	_, err := NewAnnouncer(AnnounceConfig{Name: "Not_A_Label", Number: 1})
	require.ErrorContains(t, err, "a DNS label is accepted")
}

// Gateways share numbers: each takes the lowest that is free, and keeps it over a restart. That
// of a gateway that is silent is taken when its process has ended for sure.
func TestClaim(t *testing.T) {
	t.Parallel()
	kube, clk := kubefake.NewSimpleClientset(), clocktesting.NewFakeClock(noon)
	gone := map[string]bool{}
	var unknown error
	config := func(name string) AnnounceConfig {
		return AnnounceConfig{
			Client: kube.CoordinationV1(), Namespace: homeNamespace, Name: name, Duration: 15 * time.Second, RetryPeriod: 2 * time.Second,
			Gone: func(_ context.Context, name string, _ int) (bool, error) { return gone[name], unknown }, Clock: clk, Log: zap.NewNop(),
		}
	}
	claim := func(name string) *Announcer {
		t.Helper()
		a, err := Claim(t.Context(), config(name), 2, nil)
		require.NoError(t, err)
		return a
	}
	a, b := claim("a"), claim("b")
	require.Equal(t, []int{1, 2}, []int{a.Number(), b.Number()})
	require.Equal(t, 2, claim("b").Number(), "started again")

	// A third one waits, also while another is silent that may still run.
	var all []*Announcer
	for n := range 2 {
		cfg := config("c")
		cfg.Number = n + 1
		one, err := NewAnnouncer(cfg)
		require.NoError(t, err)
		all = append(all, one)
	}
	none := func() {
		t.Helper()
		got, err := claimOne(t.Context(), all)
		require.Equal(t, unknown != nil, err != nil)
		require.Nil(t, got)
	}
	for range 9 {
		none()
		require.NoError(t, a.step(t.Context()))
		clk.Step(2 * time.Second)
	}
	unknown = errors.New("the API server is away")
	none()
	unknown, gone["b"] = nil, true
	c, err := claimOne(t.Context(), all)
	require.NoError(t, err)
	require.Equal(t, 2, c.Number())

	// One that is given back is taken at once; the gateway that has lost its number ends.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.ErrorContains(t, b.Run(ctx), "gateway c holds Lease")
	require.NoError(t, a.release(t.Context()))
	require.Equal(t, 1, claim("b").Number())

	// The number that it had cannot be read: it takes no other.
	kube.PrependReactor("get", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
		return action.(clienttesting.GetAction).GetName() == LeaseName(2), nil, errors.New("away")
	})
	require.NoError(t, c.release(context.WithoutCancel(t.Context())))
	got, err := claimOne(t.Context(), all)
	require.ErrorContains(t, err, "reading Lease liqod-gateway-2")
	require.Nil(t, got)
	ended, end := context.WithCancel(t.Context())
	end()
	got, err = Claim(ended, config("d"), 2, nil)
	require.NoError(t, err)
	require.Nil(t, got)
}

// What a gateway has said last counts while its Lease cannot be read or is not renewed, and
// until it has given the Lease back, or lost it, for long while another lives.
func TestLastAnnouncements(t *testing.T) {
	t.Parallel()
	kube, clk := kubefake.NewSimpleClientset(), clocktesting.NewFakeClock(noon)
	l := NewLeaseGateways(informers.NewSharedInformerFactory(kube, 0).Coordination().V1().Leases(), clk, zap.NewNop())
	l.synced = func() bool { return true }
	leases, keys := kube.CoordinationV1().Leases(homeNamespace), publicKeys(t, 2)
	var all []*Announcer
	for i, name := range []string{"a", "b"} {
		say := Announcement{Addresses: []string{netip.AddrFrom4([4]byte{192, 0, 2, byte(13 + i)}).String()}}
		say.PublicKey = keys[i]
		a := announcer(t, kube, clk, name, i+1)
		a.Announce(say)
		all = append(all, a)
	}
	step := func(some ...*Announcer) {
		t.Helper()
		clk.Step(2 * time.Second)
		for _, a := range some {
			require.NoError(t, a.step(t.Context()))
			if a.Active() {
				lease := kubetest.Get(t, leases, LeaseName(a.cfg.Number))
				l.saw(lease)
			}
		}
	}
	names := func() (out []string) {
		for _, a := range l.List() {
			out = append(out, a.Name)
		}
		return out
	}
	for range 3 {
		step(all...)
	}
	require.Equal(t, []string{"a", "b"}, names())

	bad := kubetest.Get(t, leases, LeaseName(1))
	bad = bad.DeepCopy()
	bad.Annotations[GatewayKey] = "{"
	l.saw(bad)
	require.Equal(t, []string{"a", "b"}, names())
	require.True(t, l.List()[0].Alive)
	bad.Spec.HolderIdentity = nil
	l.saw(bad)
	require.False(t, l.List()[0].Alive, "nobody holds it")
	require.Equal(t, []string{"a", "b"}, names())
	step(all...)
	require.True(t, l.List()[0].Alive)

	// It loses its API server alone, and goes on carrying packets.
	silent := func() {
		for range 8 {
			step(all[1])
		}
		require.Equal(t, []string{LeaseName(1)}, l.overdue())
		l.confirm(t.Context(), leases, LeaseName(1), 4*time.Second)
		require.True(t, l.List()[0].Alive)
		clk.Step(4 * time.Second)
		l.confirm(t.Context(), leases, LeaseName(1), 4*time.Second)
		require.False(t, l.List()[0].Alive)
	}
	silent()
	clk.Step(2 * forgetAfter)
	require.Equal(t, []string{"a", "b"}, names(), "unknown is not gone")
	gave := kubetest.Get(t, leases, LeaseName(1))
	gave.Spec.HolderIdentity = nil
	l.saw(gave)
	require.Equal(t, []string{"a", "b"}, names())
	clk.Step(forgetAfter)
	require.Equal(t, []string{"b"}, names(), "it has given its number back")
	step(all...)
	require.Equal(t, []string{"a", "b"}, names())

	require.NoError(t, leases.Delete(t.Context(), LeaseName(1), metav1.DeleteOptions{}))
	silent()
	require.Equal(t, []string{"a", "b"}, names())
	clk.Step(forgetAfter)
	require.Equal(t, []string{"b"}, names())
	require.NoError(t, leases.Delete(t.Context(), LeaseName(2), metav1.DeleteOptions{}))
	step(all[1])
	require.True(t, all[1].Active(), "its Lease is created again")
	require.NoError(t, all[1].release(t.Context()))
	lease := kubetest.Get(t, leases, LeaseName(2))
	l.saw(lease)
	require.Equal(t, []string{"a", "b"}, names(), "there is no other")
}

// Those that follow the gateways hear of the first list when it counts: what it has, and that
// it has nothing.
func TestFirstListOfGatewaysIsTold(t *testing.T) {
	t.Parallel()
	for _, there := range []bool{false, true} {
		kube, clk := kubefake.NewSimpleClientset(), clocktesting.NewFakeClock(noon)
		if there {
			a := announcer(t, kube, clk, "a", 1)
			say := Announcement{Addresses: []string{"192.0.2.13"}}
			say.PublicKey = publicKeys(t, 1)[0]
			a.Announce(say)
			require.NoError(t, a.step(t.Context()))
		}
		factory := informers.NewSharedInformerFactory(kube, 0)
		l := NewLeaseGateways(factory.Coordination().V1().Leases(), clk, zap.NewNop())
		var seen atomic.Bool
		l.Subscribe(func() {
			_, known := l.Gateways()
			seen.Store(seen.Load() || known == there && l.Alive() == there)
		})
		factory.Start(t.Context().Done())
		go func() { _ = l.Judge(t.Context(), kube.CoordinationV1().Leases(homeNamespace), time.Hour) }()
		require.Eventually(t, seen.Load, time.Minute, 5*time.Millisecond)
	}
}

func TestLeaseGateways(t *testing.T) {
	t.Parallel()
	kube, clk := kubefake.NewSimpleClientset(), clocktesting.NewFakeClock(noon)
	l := NewLeaseGateways(informers.NewSharedInformerFactory(kube, 0).Coordination().V1().Leases(), clk, zap.NewNop())
	l.synced = func() bool { return true }
	told := 0
	l.Subscribe(func() { told++ })
	leases := kube.CoordinationV1().Leases(homeNamespace)
	see := func(n int) *coordinationv1.Lease {
		lease := kubetest.Get(t, leases, LeaseName(n))
		l.saw(lease)
		return lease
	}
	_, known := l.Gateways()
	require.False(t, known)

	a := announcer(t, kube, clk, "a", 1)
	require.NoError(t, a.step(t.Context()))
	see(1)
	require.Empty(t, l.List(), "nothing is announced yet")
	say := Announcement{Addresses: []string{"192.0.2.13"}, MTU: 1450}
	say.PublicKey, say.Endpoints = publicKeys(t, 1)[0], []networkingv1beta1.Endpoint{{Address: "gw.rome.example", Port: 51840}}
	a.Announce(say)
	require.NoError(t, a.step(t.Context()))
	see(1)
	list := l.List()
	require.Len(t, list, 1)
	require.True(t, list[0].Alive)
	require.Equal(t, "a", list[0].Name)
	require.Equal(t, 1, told)
	clk.Step(2 * time.Second)
	require.NoError(t, a.step(t.Context()))
	see(1)
	require.Equal(t, 1, told, "a renewal is no news")
	gateways, known := l.Gateways()
	require.True(t, known)
	require.Equal(t, say.PublicKey, gateways[0].PublicKey)

	// Its Lease seems to expire. While the API server is away it counts as alive.
	clk.Step(20 * time.Second)
	require.Equal(t, []string{LeaseName(1)}, l.overdue())
	away := true
	kube.PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		return away, nil, errors.New("away")
	})
	confirm := func() { l.confirm(t.Context(), leases, LeaseName(1), 4*time.Second) }
	confirm()
	clk.Step(4 * time.Second)
	confirm()
	require.True(t, l.Alive())
	away = false
	confirm()
	clk.Step(2 * time.Second)
	confirm()
	require.True(t, l.Alive(), "it has had no time to renew since the API server is back")
	clk.Step(2 * time.Second)
	away = true
	confirm()
	away = false
	confirm()
	require.True(t, l.Alive(), "a read that failed starts the time anew")
	clk.Step(4 * time.Second)
	confirm()
	require.False(t, l.List()[0].Alive)
	require.False(t, l.Alive())
	gateways, known = l.Gateways()
	require.True(t, known && len(gateways) == 1, "there is no other")
	require.NoError(t, a.step(t.Context()))
	see(1)
	require.True(t, l.List()[0].Alive)

	// Given back, it is what the nodes know last.
	require.NoError(t, a.release(t.Context()))
	lease := see(1)
	require.Len(t, l.List(), 1)
	require.False(t, l.List()[0].Alive)

	for name, change := range map[string]func(*coordinationv1.Lease){
		"no JSON":           func(o *coordinationv1.Lease) { o.Annotations[GatewayKey] = "{" },
		"of another number": func(o *coordinationv1.Lease) { o.Name = LeaseName(2) },
		"of no number":      func(o *coordinationv1.Lease) { o.Name = "liqod-gateway-01" },
		"a key of all": func(o *coordinationv1.Lease) {
			o.Annotations[GatewayKey] = `{"name":"a","number":1,"publicKey":"","addresses":["192.0.2.1"]}`
		},
		"more than is read":  func(o *coordinationv1.Lease) { o.Annotations[GatewayKey] = string(make([]byte, longestAnnouncement+1)) },
		"nothing of a label": func(o *coordinationv1.Lease) { delete(o.Annotations, GatewayKey) },
		"no address of nodes": func(o *coordinationv1.Lease) {
			o.Annotations[GatewayKey] = `{"name":"a","number":1,"publicKey":"` + say.PublicKey + `"}`
		},
	} {
		bad := lease.DeepCopy()
		change(bad)
		l.known = map[string]*announced{}
		l.saw(bad)
		require.Empty(t, l.List(), name)
	}
}

func TestServiceEndpoints(t *testing.T) {
	t.Parallel()
	nodes := []*corev1.Node{hostNode("node-1", "192.0.2.11"), hostNode("node-2", "192.0.2.12")}
	nodes[1].Status.Addresses = append(nodes[1].Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "203.0.113.2"},
		corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "2001:db8::12"})
	service := func(kind corev1.ServiceType, change ...func(*corev1.Service)) *corev1.Service {
		s := &corev1.Service{Spec: corev1.ServiceSpec{Type: kind, ClusterIP: "10.96.0.7", IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolUDP, Port: 51840, NodePort: 31000}}}}
		for _, c := range change {
			c(s)
		}
		return s
	}
	ingress := func(ip, name string) func(*corev1.Service) {
		return func(s *corev1.Service) {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip, Hostname: name})
		}
	}
	for name, tc := range map[string]struct {
		service *corev1.Service
		want    []networkingv1beta1.Endpoint
	}{
		"ClusterIP":               {service(corev1.ServiceTypeClusterIP), nil},
		"LoadBalancer, waiting":   {service(corev1.ServiceTypeLoadBalancer), nil},
		"LoadBalancer":            {service(corev1.ServiceTypeLoadBalancer, ingress("198.51.100.5", ""), ingress("", "LB.example.")), []networkingv1beta1.Endpoint{{Address: "198.51.100.5", Port: 51840}, {Address: "lb.example", Port: 51840}}},
		"NodePort, own one first": {service(corev1.ServiceTypeNodePort), []networkingv1beta1.Endpoint{{Address: "203.0.113.2", Port: 31000}, {Address: "192.0.2.12", Port: 31000}, {Address: "192.0.2.11", Port: 31000}}},
		"NodePort, local": {service(corev1.ServiceTypeNodePort, func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal }),
			[]networkingv1beta1.Endpoint{{Address: "203.0.113.2", Port: 31000}, {Address: "192.0.2.12", Port: 31000}}},
		"NodePort, both families": {service(corev1.ServiceTypeNodePort, func(s *corev1.Service) { s.Spec.IPFamilies = append(s.Spec.IPFamilies, corev1.IPv6Protocol) }),
			[]networkingv1beta1.Endpoint{{Address: "203.0.113.2", Port: 31000}, {Address: "192.0.2.12", Port: 31000}, {Address: "2001:db8::12", Port: 31000}, {Address: "192.0.2.11", Port: 31000}}},
		"TCP": {service(corev1.ServiceTypeNodePort, func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolTCP }), nil},
	} {
		require.Equal(t, tc.want, serviceEndpoints(tc.service, nodes, "node-2"), name)
	}
	_, err := ParseEndpoints([]string{"127.0.0.1:51840"})
	require.ErrorContains(t, err, `endpoint "127.0.0.1:51840"`)
	out, err := ParseEndpoints([]string{"GW.rome.example:51840", "[2001:db8::7]:1"})
	require.NoError(t, err)
	require.Equal(t, []networkingv1beta1.Endpoint{{Address: "gw.rome.example", Port: 51840}, {Address: "2001:db8::7", Port: 1}}, out)
}

func TestResolver(t *testing.T) {
	t.Parallel()
	clk := clocktesting.NewFakeClock(noon)
	answer, failure := []netip.Addr{netip.MustParseAddr("198.51.100.2"), netip.MustParseAddr("10.96.0.1")}, error(nil)
	changes := 0
	r := NewResolver(func(context.Context, string) ([]netip.Addr, error) { return answer, failure }, clk, zap.NewNop(), func() { changes++ })
	g := networkingv1beta1.Gateway{PublicKey: "k", Endpoints: []networkingv1beta1.Endpoint{{Address: "gw.milan.example", Port: 7}, {Address: "203.0.113.1", Port: 8}}}
	accept := func(a netip.Addr) error {
		if a == netip.MustParseAddr("10.96.0.1") {
			return errors.New("a Service range")
		}
		return nil
	}
	require.Equal(t, "203.0.113.1:8", r.Endpoint("milan", g, accept).String(), "nobody waits for an answer")
	require.Equal(t, map[string][]string{"milan": {"gw.milan.example"}}, r.due())
	require.Empty(t, r.due(), "it is being looked up")
	r.askAll(t.Context(), "milan", []string{"gw.milan.example"})
	require.Equal(t, 1, changes)
	require.Equal(t, "198.51.100.2:7", r.Endpoint("milan", g, accept).String(), "what it resolves to is checked")
	all, at := r.Endpoints("k")
	require.Equal(t, []netip.AddrPort{netip.MustParseAddrPort("198.51.100.2:7"), netip.MustParseAddrPort("203.0.113.1:8")}, all)
	require.Zero(t, at)
	r.Use("k", all[1])
	require.Equal(t, "203.0.113.1:8", r.Endpoint("milan", g, accept).String())
	next := g
	next.PublicKey, next.NextPublicKey = "k", "l"
	require.Equal(t, "203.0.113.1:8", r.Endpoint("milan", next, accept).String(), "it stays")
	r.Use("l", all[0])
	require.Equal(t, "198.51.100.2:7", r.Endpoint("milan", g, accept).String(), "both keys are of one gateway")
	require.Empty(t, r.due())
	r.Again("k")
	require.Empty(t, r.due(), "it has just been looked up")
	clk.Step(resolveAgain)
	require.Empty(t, r.due(), "it is not the time yet")
	r.Again("k")
	require.Len(t, r.due(), 1)
	answer = []netip.Addr{netip.MustParseAddr("198.51.100.9"), netip.MustParseAddr("198.51.100.2")}
	r.askAll(t.Context(), "milan", []string{"gw.milan.example"})
	require.Equal(t, 2, changes)
	require.Equal(t, "198.51.100.9:7", r.Endpoint("milan", g, accept).String(), "a new address comes first")
	answer = answer[:1]
	clk.Step(resolveEvery)
	require.Len(t, r.due(), 1)
	failure = errors.New("no answer")
	r.askAll(t.Context(), "milan", []string{"gw.milan.example"})
	require.Equal(t, 2, changes)
	require.Equal(t, "198.51.100.9:7", r.Endpoint("milan", g, accept).String(), "the last answer stays")
	clk.Step(forgetNames + time.Second)
	require.Empty(t, r.due(), "nobody asks for it any more")
	require.Empty(t, r.peers)
	require.Empty(t, r.turns)
	bad := networkingv1beta1.Gateway{Endpoints: []networkingv1beta1.Endpoint{{Address: "kubernetes.default.svc", Port: 7}}}
	require.False(t, r.Endpoint("milan", bad, accept).IsValid())
	require.Empty(t, r.due(), "it is not even looked up")
}

// TestResolverOfManyNames: a peer has more names and addresses than are looked up.
func TestResolverOfManyNames(t *testing.T) {
	t.Parallel()
	clk := clocktesting.NewFakeClock(noon)
	r := NewResolver(func(context.Context, string) (out []netip.Addr, err error) {
		for i := range 5 {
			out = append(out, netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}))
		}
		return out, nil
	}, clk, zap.NewNop(), func() {})
	ask := func(prefix string) {
		for i := range 2 * maxNames {
			g := networkingv1beta1.Gateway{PublicKey: fmt.Sprint("k", i), Endpoints: []networkingv1beta1.Endpoint{{Address: fmt.Sprintf("%s%d.milan.example", prefix, i), Port: 7}}}
			r.Endpoint("milan", g, func(netip.Addr) error { return nil })
		}
	}
	ask("a")
	due := r.due()
	require.Len(t, due["milan"], maxNames)
	r.askAll(t.Context(), "milan", due["milan"])
	total := 0
	for _, a := range r.peers["milan"] {
		total += len(a.addrs)
	}
	require.Equal(t, maxAddresses, total)
	ask("b")
	require.Empty(t, r.due(), "those that are looked up stay")
	clk.Step(replaceNames + time.Second)
	ask("b")
	due = r.due()
	require.Len(t, due["milan"], maxNames)
	require.Contains(t, due["milan"], "b0.milan.example", "names that nobody asks for make room")
}

// TestResolverOfAHangingPeer: names of one peer are not answered at all.
func TestResolverOfAHangingPeer(t *testing.T) {
	t.Parallel()
	changed := make(chan struct{}, 10)
	r := NewResolver(func(ctx context.Context, host string) ([]netip.Addr, error) {
		if strings.HasSuffix(host, ".milan.example") {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return []netip.Addr{netip.MustParseAddr("198.51.100.2")}, nil
	}, clocktesting.NewFakeClock(noon), zap.NewNop(), func() { changed <- struct{}{} })
	endpoint := func(peer, host string) netip.AddrPort {
		g := networkingv1beta1.Gateway{PublicKey: peer, Endpoints: []networkingv1beta1.Endpoint{{Address: host, Port: 7}}}
		return r.Endpoint(peer, g, func(netip.Addr) error { return nil })
	}
	for i := range maxNames {
		endpoint("milan", fmt.Sprintf("gw%d.milan.example", i))
	}
	stop := kubetest.Run(t, r.Run)
	require.Eventually(t, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.busy["milan"]
	}, time.Minute, time.Millisecond)
	endpoint("oslo", "gw.oslo.example")
	select {
	case <-changed:
	case <-time.After(time.Minute):
		require.Fail(t, "nothing is known of oslo")
	}
	require.Equal(t, "198.51.100.2:7", endpoint("oslo", "gw.oslo.example").String())
	require.False(t, endpoint("milan", "gw0.milan.example").IsValid())
	stop()
}

func TestStatusOfConnections(t *testing.T) {
	t.Parallel()
	c := linked("milan", 1, publicKeys(t, 1)[0])
	c.Status.Gateways = []networkingv1beta1.GatewayStatus{{Name: "gone", Value: networkingv1beta1.Connected}, {Name: "gw-b", Value: networkingv1beta1.Connecting}}
	up := EchoState{Verdict: health.Up, RTT: 12 * time.Millisecond, Reason: reasons.ProbesAnswered, Message: "it answers"}
	base := tunnelFacts{
		gateway: "gw-a", wireGuard: networkingv1beta1.WireGuardKernel, peer: &c.Spec.Gateways[0], endpoint: "203.0.113.7:51840",
		living: []string{"gw-a", "gw-b"}, now: metav1.NewTime(noon), echo: up,
	}
	status := base.status(c)
	require.Equal(t, networkingv1beta1.Connected, status.Value)
	require.Equal(t, "12ms", status.Latency.Value)
	require.Equal(t, metav1.ConditionTrue, status.Conditions[0].Status)
	require.Len(t, status.Gateways, 2, "one is gone")
	require.Equal(t, networkingv1beta1.GatewayStatus{
		Name: "gw-a", Value: networkingv1beta1.Connected, PeerGateway: "gw", Endpoint: "203.0.113.7:51840", WireGuard: networkingv1beta1.WireGuardKernel,
		Since: &base.now, Latency: &networkingv1beta1.Latency{Value: "12ms", Timestamp: base.now},
	}, status.Gateways[0])

	// Nothing is written while only time passes, and for a while after the latency changed.
	c.Status = status
	later := base
	later.now, later.echo.RTT = metav1.NewTime(noon.Add(time.Second)), 50*time.Millisecond
	require.Equal(t, status, later.status(c))
	later.now = metav1.NewTime(noon.Add(time.Hour))
	require.Equal(t, "50ms", later.status(c).Latency.Value)
	later.echo.RTT = 14 * time.Millisecond
	require.Equal(t, status, later.status(c))

	for name, tc := range map[string]struct {
		change func(*tunnelFacts)
		value  networkingv1beta1.ConnectionValue
		ready  metav1.ConditionStatus
		reason string
		says   string
	}{
		"refused":                          {func(f *tunnelFacts) { f.refused = "it overlaps" }, networkingv1beta1.ConnectionError, metav1.ConditionFalse, networkingv1beta1.ReasonInvalid, "it overlaps"},
		"not applied":                      {func(f *tunnelFacts) { f.echo.Verdict, f.applied = health.Unknown, errors.New("no device") }, networkingv1beta1.ConnectionError, metav1.ConditionFalse, networkingv1beta1.ReasonNotApplied, "no device"},
		"works, though not all is applied": {func(f *tunnelFacts) { f.applied = errors.New("no device") }, networkingv1beta1.Connected, metav1.ConditionTrue, reasons.ProbesAnswered, "answers"},
		"no gateway":                       {func(f *tunnelFacts) { f.peer, f.echo = nil, EchoState{} }, networkingv1beta1.Connecting, metav1.ConditionFalse, networkingv1beta1.ReasonNoGateway, "announced no gateway"},
		"silent": {func(f *tunnelFacts) {
			f.echo = EchoState{Verdict: health.Down, Reason: reasons.TunnelSilent, Message: "nothing comes"}
		}, networkingv1beta1.Connecting, metav1.ConditionFalse, reasons.TunnelSilent, "nothing comes"},
		"new":       {func(f *tunnelFacts) { f.echo = EchoState{Reason: reasons.ProbesNotAnswered, Message: "not yet"} }, networkingv1beta1.Connecting, metav1.ConditionUnknown, reasons.ProbesNotAnswered, "not yet"},
		"no probes": {func(f *tunnelFacts) { f.echo = EchoState{} }, networkingv1beta1.Connecting, metav1.ConditionUnknown, reasons.ProbesNotAnswered, "not begun"},
	} {
		f := base
		tc.change(&f)
		out := f.status(c)
		require.Equal(t, tc.value, out.Value, name)
		require.Equal(t, tc.ready, out.Conditions[0].Status, name)
		require.Equal(t, tc.reason, out.Conditions[0].Reason, name)
		require.Contains(t, out.Conditions[0].Message, tc.says, name)
	}

	// Another gateway of this cluster still reaches the peer.
	c.Status.Gateways[1].Value = networkingv1beta1.Connected
	f := base
	f.echo = EchoState{Verdict: health.Down, Reason: reasons.TunnelSilent, Message: "nothing comes"}
	out := f.status(c)
	require.Equal(t, networkingv1beta1.Connected, out.Value)
	require.Contains(t, out.Conditions[0].Message, "gateway gw-b reaches the peer; gateway gw-a does not: nothing comes")
}

// The text in a Lease is that of 0.1.0: during an upgrade, nodes and gateways of two versions read it.
func TestAnnouncementOfReleases(t *testing.T) {
	t.Parallel()
	keys := publicKeys(t, 2)
	text := fmt.Sprintf(`{"name":"gw-a","number":1,"publicKey":%q,"nextPublicKey":%q,"proofs":["a","b"],"endpoints":[{"address":"203.0.113.7","port":31000}],`+
		`"wireGuard":"Kernel","addresses":["192.0.2.13"],"nodeName":"node-1","mtu":1450,"waits":["milan/gw-b"]}`, keys[0], keys[1])
	have := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: LeaseName(1), Annotations: map[string]string{GatewayKey: text}}}
	say, err := readAnnouncement(have)
	require.NoError(t, err)
	a := announcer(t, kubefake.NewSimpleClientset(), clocktesting.NewFakeClock(noon), "gw-a", 1)
	a.Announce(say)
	next, err := a.lease(&coordinationv1.Lease{})
	require.NoError(t, err)
	require.JSONEq(t, text, next.Annotations[GatewayKey])
}
