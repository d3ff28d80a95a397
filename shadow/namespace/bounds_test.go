package namespace

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clienttesting "k8s.io/client-go/testing"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
)

func counts() corev1.ResourceList {
	return corev1.ResourceList{"secrets": resource.MustParse("5"), "count/ingresses.networking.k8s.io": resource.MustParse("7")}
}

// bounds starts a provider whose twins are bounded.
func (w *world) bounds(change ...func(*MapsConfig)) *world {
	w.t.Helper()
	return w.providerWith(func(cfg *MapsConfig) {
		cfg.Bounds.Limits, cfg.Bounds.NetworkPolicy, cfg.Bounds.Fabric = counts(), true, true
		for _, f := range change {
			f(cfg)
		}
	})
}

func (w *world) quota(namespace string) *corev1.ResourceQuota {
	return kubetest.Find(w.t, w.core.CoreV1().ResourceQuotas(namespace), offloadingv1beta1.TwinBounds)
}

func (w *world) requireCounts(namespace string) {
	w.t.Helper()
	require.True(w.t, equality.Semantic.DeepEqual(counts(), w.quota(namespace).Spec.Hard))
}

func (w *world) policy(namespace string) *networkingv1.NetworkPolicy {
	return kubetest.Find(w.t, w.core.NetworkingV1().NetworkPolicies(namespace), offloadingv1beta1.TwinBounds)
}

func (w *world) reaches(namespace, address string) bool {
	p := w.policy(namespace)
	return p != nil && allows(w.t, p, destination{address: address})
}

// The twin of a namespace with services Home says so to role route, also after somebody has taken the mark, and its pods
// do not reach the DNS of the provider.
func TestTwinOfHome(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		home := func(m *offloadingv1beta1.NamespaceMap) {
			m.Spec.Services = map[string]offloadingv1beta1.ServiceNetwork{"web": offloadingv1beta1.ServicesHome}
		}
		w := newWorld(t, tenantNamespace("rome"), romeCluster(romeUser), replica(map[string]string{"web": "web-rome", "shop": "shop-rome"}, home)).bounds()
		w.accepted("web", "shop")
		mark := func(twin string) string { return w.namespace(twin).Annotations[offloadingv1beta1.ServicesAnnotation] }
		require.Equal(t, "Home", mark("web-rome"))
		require.Empty(t, mark("shop-rome"))
		dns := destination{address: "10.244.0.3", namespace: "kube-system", inNamespace: map[string]string{"kubernetes.io/metadata.name": "kube-system"}, pod: map[string]string{"k8s-app": "kube-dns"}, port: 53}
		w.eventually("the DNS of the provider is closed", func() bool { return !allows(t, w.policy("web-rome"), dns) })
		require.True(t, allows(t, w.policy("shop-rome"), dns))
		for twin, forged := range map[string]string{"web-rome": "", "shop-rome": "Home"} {
			was := mark(twin)
			w.changeNamespace(twin, func(ns *corev1.Namespace) { ns.Annotations[offloadingv1beta1.ServicesAnnotation] = forged })
			w.eventually("it is as it was", func() bool { return mark(twin) == was })
		}
	})
}

func TestTwinsAreBounded(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, tenantNamespace("rome"), romeCluster(romeUser), replica(map[string]string{"web": "web-rome"})).bounds()
		w.accepted("web")
		w.requireCounts("web-rome")
		require.NotNil(t, w.policy("web-rome"))
		// The peer has no rights before its twin is bounded.
		order := []string{}
		for _, a := range w.core.Actions() {
			resource := a.GetResource().Resource // a second look may find a late cache, and try again
			if a.GetVerb() == "create" && a.GetNamespace() == "web-rome" && !slices.Contains(order, resource) {
				order = append(order, resource)
			}
		}
		require.Equal(t, []string{"resourcequotas", "networkpolicies", "rolebindings"}, order)

		w.settled()
		q := w.quota("web-rome").DeepCopy()
		q.Spec.Hard["secrets"] = resource.MustParse("5000")
		kubetest.Update(t, w.core.CoreV1().ResourceQuotas("web-rome"), q)
		require.NoError(t, w.core.NetworkingV1().NetworkPolicies("web-rome").Delete(t.Context(), offloadingv1beta1.TwinBounds, metav1.DeleteOptions{}))
		w.eventually("both are as before", func() bool {
			n := w.quota("web-rome").Spec.Hard["secrets"]
			return w.policy("web-rome") != nil && n.Value() == 5
		})

		before := w.settled()
		q = w.quota("web-rome").DeepCopy()
		q.Status.Used = corev1.ResourceList{"secrets": resource.MustParse("3")}
		kubetest.UpdateStatus(t, w.core.CoreV1().ResourceQuotas("web-rome"), q)
		require.Equal(t, before+1, w.settled(), "an object of the twin costs no write")
	})
}

// TestStorageOfAPeer: what all twins of a peer may claim together is within one limit, whatever they
// use of it in which order, and each claim of a few costs one write.
func TestStorageOfAPeer(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		const size = corev1.ResourceRequestsStorage
		desired := map[string]string{"n0": "n0-rome", "n1": "n1-rome", "n2": "n2-rome"}
		other := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "of-paris", Name: offloadingv1beta1.TwinBounds, Labels: boundLabels("paris")},
			Status: corev1.ResourceQuotaStatus{Used: corev1.ResourceList{size: resource.MustParse("90")}}}
		w := newWorld(t, tenantNamespace("rome"), romeCluster(romeUser), replica(desired), other).bounds(func(cfg *MapsConfig) {
			cfg.Bounds.Limits[size] = resource.MustParse("64")
			cfg.Bounds.Storage = 100
		})
		w.accepted("n0", "n1", "n2")
		hard := func() (all []int64) {
			w.settled()
			for _, name := range []string{"n0-rome", "n1-rome", "n2-rome"} {
				all = append(all, w.quota(name).Spec.Hard.Name(size, resource.BinarySI).Value())
			}
			return all
		}
		use := func(namespace string, n int64) {
			q := w.quota(namespace).DeepCopy()
			q.Status.Used = corev1.ResourceList{size: *resource.NewQuantity(n, resource.BinarySI)}
			kubetest.UpdateStatus(t, w.core.CoreV1().ResourceQuotas(namespace), q)
		}
		require.Equal(t, []int64{32, 32, 32}, hard())
		use("n0-rome", 1)
		require.Equal(t, []int64{33, 32, 32}, hard())
		before := w.settled()
		use("n0-rome", 2)
		require.Equal(t, []int64{34, 32, 32}, hard())
		require.Equal(t, before+2, w.settled(), "the usage, and one write")
		use("n0-rome", 34)
		require.Equal(t, []int64{50, 16, 16}, hard())
		use("n1-rome", 16)
		use("n2-rome", 16)
		require.Equal(t, []int64{42, 24, 24}, hard())
		use("n0-rome", 68) // before its quota has followed
		require.Equal(t, []int64{64, 16, 16}, hard(), "no more for anybody")
		use("n0-rome", 0)
		require.Equal(t, []int64{16, 32, 32}, hard(), "what is freed comes back")
	})
}

// TestKindsOfLiqodAreBoundedOnceCounted: before, the API server would refuse each of their
// objects.
func TestKindsOfLiqodAreBoundedOnceCounted(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		const shadows = corev1.ResourceName("count/shadowpods.offloading.liqo.io")
		own := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "liqod", Name: offloadingv1beta1.TwinBounds}}
		w := newWorld(t, tenantNamespace("rome"), romeCluster(romeUser), replica(map[string]string{"web": "web-rome"}), own).bounds(func(cfg *MapsConfig) {
			cfg.Bounds.Limits[shadows] = resource.MustParse("9")
		})
		w.accepted("web")
		w.requireCounts("web-rome")

		counted := own.DeepCopy()
		counted.Status.Used = corev1.ResourceList{shadows: resource.MustParse("0")}
		kubetest.UpdateStatus(t, w.core.CoreV1().ResourceQuotas("liqod"), counted)
		w.eventually("the ShadowPods are counted", func() bool {
			n := w.quota("web-rome").Spec.Hard[shadows]
			return n.Value() == 9
		})
	})
}

func TestBoundsEndWithTheirSettings(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		mine := boundLabels("rome")
		w := newWorld(t, tenantNamespace("rome"), romeCluster(romeUser), replica(map[string]string{"web": "web-rome", "db": "db-rome"}),
			&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "web-rome", Name: offloadingv1beta1.TwinBounds, Labels: mine}},
			&networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "web-rome", Name: offloadingv1beta1.TwinBounds, Labels: mine}},
			&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "db-rome", Name: offloadingv1beta1.TwinBounds}},
			&networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "db-rome", Name: offloadingv1beta1.TwinBounds}},
		).provider()
		w.accepted("web", "db")
		require.Nil(t, w.quota("web-rome"))
		require.Nil(t, w.policy("web-rome"))
		require.NotNil(t, w.quota("db-rome"), "somebody else's")
		require.NotNil(t, w.policy("db-rome"), "somebody else's")
	})
}

func TestBoundsOfOthersAreNotAdopted(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		theirs := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "web-rome", Name: offloadingv1beta1.TwinBounds},
			Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"pods": resource.MustParse("1")}}}
		w := newWorld(t, tenantNamespace("rome"), romeCluster(romeUser), replica(map[string]string{"web": "web-rome"}), theirs).bounds()
		w.backsOff("web", "ResourceQuota liqod-twin in namespace web-rome was not made by liqod")
		require.Contains(t, w.current("web").Message, "sharing.twinLimits")
		require.Nil(t, w.bound("web-rome", PeerTwinRole), "no rights without bounds")
		require.True(t, equality.Semantic.DeepEqual(theirs.Spec, w.quota("web-rome").Spec))
		require.NoError(t, w.core.CoreV1().ResourceQuotas("web-rome").Delete(t.Context(), theirs.Name, metav1.DeleteOptions{}))
		w.accepted("web")
		w.requireCounts("web-rome")
	})
}

func TestBoundsOfAKeptNamespace(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, tenantNamespace("rome"), romeCluster(romeUser), replica(map[string]string{"web": "web-rome"}), volumeClaim("web-rome", "pv")).bounds()
		w.accepted("web")
		w.setDesired(nil)
		w.eventually("it is kept", func() bool { return w.namespace("web-rome").Annotations[offloadingv1beta1.DataKeptAnnotation] != "" })
		require.NoError(t, w.core.CoreV1().ResourceQuotas("web-rome").Delete(t.Context(), offloadingv1beta1.TwinBounds, metav1.DeleteOptions{}))
		w.eventually("its bounds too", func() bool { return w.quota("web-rome") != nil && w.policy("web-rome") != nil })
	})
}

// TestPoliciesFollowTheNetwork: the ranges of the peer and of this cluster change while twins
// exist.
func TestPoliciesFollowTheNetwork(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		var told func()
		own := make(chan []netip.Prefix, 1)
		own <- nil
		w := newWorld(t, tenantNamespace("rome"), romeCluster(romeUser), replica(map[string]string{"web": "web-rome"})).bounds(func(cfg *MapsConfig) {
			cfg.Bounds.Own = func() []netip.Prefix { is := <-own; own <- is; return is }
			cfg.Bounds.OwnChanged = func(f func()) { told = f }
		})
		w.accepted("web")
		require.False(t, w.reaches("web-rome", "10.80.0.1"))
		require.True(t, w.reaches("web-rome", "203.0.113.9"))

		connections := w.liqo.NetworkingV1beta1().Connections("liqo-tenant-rome")
		connection := kubetest.Create(t, connections, &networkingv1beta1.Connection{ObjectMeta: metav1.ObjectMeta{Name: "rome", Namespace: "liqo-tenant-rome"},
			Spec: networkingv1beta1.ConnectionSpec{ClusterID: "rome", Remote: []networkingv1beta1.Mapping{{Own: "10.244.0.0/16", View: "10.80.0.0/16"}}}})
		w.eventually("the peer is reached where it is seen", func() bool { return w.reaches("web-rome", "10.80.0.1") && !w.reaches("web-rome", "10.244.0.1") })
		require.NoError(t, connections.Delete(t.Context(), connection.Name, metav1.DeleteOptions{}))
		w.eventually("and no longer", func() bool { return !w.reaches("web-rome", "10.80.0.1") })

		<-own
		own <- prefixesOf("203.0.113.9/32")
		told()
		w.eventually("a new node is not reached", func() bool { return !w.reaches("web-rome", "203.0.113.9") })
	})
}

// TestPoliciesOfTheDirectWay: pods of the peer reach those that it runs in a third cluster by this cluster's
// own tunnel there, if the third cluster admits them.
func TestPoliciesOfTheDirectWay(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, tenantNamespace("rome"), romeCluster(romeUser), replica(map[string]string{"web": "web-rome"})).bounds(func(*MapsConfig) {})
		w.accepted("web")
		connection := func(peer, view string, spec networkingv1beta1.ConnectionSpec) *networkingv1beta1.Connection {
			spec.ClusterID, spec.Remote = peer, []networkingv1beta1.Mapping{
				{Own: "10.244.0.0/16", View: networkingv1beta1.CIDR(view), Use: networkingv1beta1.RangePod}, {Own: "10.70.0.0/16", View: "10.99.0.0/16", Use: networkingv1beta1.RangeExternal},
			}
			namespace := corev1beta1.TenantNamespace(peer)
			return kubetest.Create(t, w.liqo.NetworkingV1beta1().Connections(namespace), &networkingv1beta1.Connection{ObjectMeta: metav1.ObjectMeta{Name: peer, Namespace: namespace}, Spec: spec})
		}
		third := func(cluster string) []networkingv1beta1.Third {
			return []networkingv1beta1.Third{{ClusterID: cluster, Namespaces: []string{"web"}}}
		}
		connection("rome", "10.80.0.0/16", networkingv1beta1.ConnectionSpec{Behind: third("turin")})
		w.eventually("rome is reached", func() bool { return w.reaches("web-rome", "10.80.0.1") })
		turin := connection("turin", "10.83.0.0/16", networkingv1beta1.ConnectionSpec{Admitted: third("paris")})
		w.settled()
		require.False(t, w.reaches("web-rome", "10.83.0.1"), "turin does not admit pods of rome")
		turin.Spec.Admitted = third("rome")
		turin = kubetest.Update(t, w.liqo.NetworkingV1beta1().Connections(turin.Namespace), turin)
		w.eventually("turin is reached", func() bool { return w.reaches("web-rome", "10.83.0.1") && w.reaches("web-rome", "10.80.0.1") })
		require.False(t, w.reaches("web-rome", "10.82.0.1"))
		require.NoError(t, w.liqo.NetworkingV1beta1().Connections(turin.Namespace).Delete(t.Context(), turin.Name, metav1.DeleteOptions{}))
		w.eventually("and no longer", func() bool { return !w.reaches("web-rome", "10.83.0.1") })
	})
}

func TestPoliciesWithoutTheFabric(t *testing.T) {
	t.Parallel()
	off := false
	for name, c := range map[string]struct {
		fabric bool
		change func(*corev1beta1.ForeignCluster)
		want   map[string]bool
	}{
		"ranges are known": {false, func(fc *corev1beta1.ForeignCluster) { fc.Spec.AddressRanges = []string{"10.9.0.0/16"} },
			map[string]bool{"10.9.0.1": true, "10.8.0.1": false}},
		"ranges that the peer has chosen": {false, func(fc *corev1beta1.ForeignCluster) {
			fc.Spec.AddressRanges = []string{"10.0.0.0/8", "192.168.0.0/16"}
			fc.Annotations = map[string]string{corev1beta1.EnrolledRangesAnnotation: "10.0.0.0/8,192.168.0.0/16"}
		}, map[string]bool{"10.9.0.1": false, "192.168.9.1": false, "93.184.216.34": true}},
		"ranges that people have narrowed": {false, func(fc *corev1beta1.ForeignCluster) {
			fc.Spec.AddressRanges = []string{"10.9.0.0/16"}
			fc.Annotations = map[string]string{corev1beta1.EnrolledRangesAnnotation: "10.0.0.0/8"}
		}, map[string]bool{"10.9.0.1": true, "10.8.0.1": false}},
		"ranges are not known": {false, func(*corev1beta1.ForeignCluster) {}, map[string]bool{"10.9.0.1": false, "169.254.169.254": false, "93.184.216.34": true}},
		"disabled for the peer": {true, func(fc *corev1beta1.ForeignCluster) {
			fc.Spec.NetworkingEnabled, fc.Spec.AddressRanges = &off, []string{"10.9.0.0/16"}
		}, map[string]bool{"10.9.0.1": true}},
		"ranges that do not count": {true, func(fc *corev1beta1.ForeignCluster) { fc.Spec.AddressRanges = []string{"10.9.0.0/16"} }, map[string]bool{"10.9.0.1": false}},
	} {
		t.Run(name, func(t *testing.T) {
			kubetest.Bubble(t, func(t *testing.T) {
				fc := romeCluster(romeUser)
				c.change(fc)
				w := newWorld(t, tenantNamespace("rome"), fc, replica(map[string]string{"web": "web-rome"})).bounds(func(cfg *MapsConfig) { cfg.Bounds.Fabric = c.fabric })
				w.accepted("web")
				for address, want := range c.want {
					require.Equal(t, want, w.reaches("web-rome", address), address)
				}
			})
		})
	}
}

func TestBeyond(t *testing.T) {
	t.Parallel()
	twin := &corev1.Namespace{}
	for name, c := range map[string]struct {
		desired map[string]string
		twins   []string
		most    int
		want    []string
	}{
		"there is room":                {map[string]string{"a": "a-rome", "b": "b-rome"}, nil, 2, nil},
		"the first ones":               {map[string]string{"a": "a-rome", "b": "b-rome", "c": "c-rome"}, nil, 2, []string{"c"}},
		"an existing one stays":        {map[string]string{"a": "a-rome", "b": "b-rome"}, []string{"b-rome"}, 1, []string{"a"}},
		"existing ones stay with less": {map[string]string{"a": "a-rome", "b": "b-rome"}, []string{"a-rome", "b-rome"}, 1, nil},
		"those that are removed count": {map[string]string{"a": "a-rome"}, []string{"x-rome", "y-rome"}, 2, []string{"a"}},
		"none":                         {map[string]string{"a": "a-rome"}, nil, 0, []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			twins := map[string]*corev1.Namespace{}
			for _, n := range c.twins {
				twins[n] = twin
			}
			require.Equal(t, c.want, slices.Sorted(maps.Keys(beyond(replica(c.desired), twins, c.most))))
		})
	}
}

// TestNamespacesOfAPeer: a peer asks for as many namespaces as a NamespaceMap can have.
func TestNamespacesOfAPeer(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		desired := map[string]string{}
		for i := range 2000 {
			desired[fmt.Sprintf("n%04d", i)] = fmt.Sprintf("n%04d-rome", i)
		}
		w := newWorld(t, tenantNamespace("rome"), romeCluster(romeUser), replica(desired)).providerWith(func(cfg *MapsConfig) { cfg.NamespacesPerPeer = 3 })
		w.accepted("n0000", "n0001", "n0002")
		w.backsOff("n0003", "sharing.namespacesPerPeer of milan")
		w.settled()
		// A map that is taken up again before the watch has the namespace sends the same creation
		// again, and the API server refuses it.
		made := map[string]bool{}
		for _, a := range w.core.Actions() {
			if create, ok := a.(clienttesting.CreateAction); ok && a.GetResource().Resource == "namespaces" {
				made[create.GetObject().(*corev1.Namespace).Name] = true
			}
		}
		require.Len(t, made, 3)
		for _, c := range w.asked().Status.Conditions {
			require.Less(t, len(c.Message), 32768, "the API server refuses longer ones")
		}
	})
}

// TestTogglingCreatesNoNamespacesWithoutEnd: a peer adds and removes entries all the time.
func TestTogglingCreatesNoNamespacesWithoutEnd(t *testing.T) {
	t.Parallel()
	c, now := loop.Pace{}, time.Now()
	made := 0
	for range 1000 {
		if c.Take("rome", fewestCreations, creationInterval, now) == 0 {
			made++
		}
	}
	require.Equal(t, fewestCreations, made)
	require.Equal(t, creationInterval, c.Take("rome", fewestCreations, creationInterval, now))
	require.Zero(t, c.Take("oslo", fewestCreations, creationInterval, now), "another peer's do not count")
	require.Zero(t, c.Take("rome", fewestCreations, creationInterval, now.Add(creationInterval)), "waiting costs nothing")
	require.NotZero(t, c.Take("rome", fewestCreations, creationInterval, now.Add(creationInterval)))
}

// TestSteadyUseIsNotSlowed: a peer that makes and deletes a namespace in each second for ten
// minutes waits for none of them, also with a bound on their number that it has long passed.
func TestSteadyUseIsNotSlowed(t *testing.T) {
	t.Parallel()
	c, now := loop.Pace{}, time.Now()
	for i := range 600 {
		require.Zero(t, c.Take("rome", fewestCreations, creationInterval, now.Add(time.Duration(i)*time.Second)), i)
	}
}

// destination is where a pod of a peer sends to: an address outside of the cluster or of a
// node, or a pod with its labels and those of its namespace.
type destination struct {
	address          string
	namespace        string
	pod, inNamespace map[string]string
	port             int32
}

// allows evaluates the egress rules of a NetworkPolicy as the API documents them: a block
// matches addresses, and also those of pods.
func allows(t *testing.T, policy *networkingv1.NetworkPolicy, to destination) bool {
	t.Helper()
	for _, rule := range policy.Spec.Egress {
		ports := len(rule.Ports) == 0
		for _, p := range rule.Ports {
			ports = ports || p.Port.IntVal == to.port
		}
		if !ports {
			continue
		}
		requireOneSet(t, rule, to.address)
		for _, peer := range rule.To {
			if matches(t, policy.Namespace, peer, to) {
				return true
			}
		}
	}
	return false
}

// requireOneSet requires that the blocks of a rule and their exceptions mean the same in one
// set, in which the longest range that has an address decides. kube-router keeps them so.
func requireOneSet(t *testing.T, rule networkingv1.NetworkPolicyEgressRule, address string) {
	t.Helper()
	addr, longest := netip.MustParseAddr(address), -1
	inSet, byBlock := false, false
	look := func(cidr string, allowed bool) {
		if p := netip.MustParsePrefix(cidr); p.Contains(addr) && p.Bits() > longest {
			longest, inSet = p.Bits(), allowed
		}
	}
	for _, peer := range rule.To {
		if peer.IPBlock == nil {
			continue
		}
		look(peer.IPBlock.CIDR, true)
		for _, e := range peer.IPBlock.Except {
			look(e, false)
		}
		byBlock = byBlock || matches(t, "", peer, destination{address: address})
	}
	require.Equal(t, byBlock, inSet, "%s in one set of %v", address, rule.To)
}

func matches(t *testing.T, own string, peer networkingv1.NetworkPolicyPeer, to destination) bool {
	t.Helper()
	if peer.IPBlock != nil {
		addr := netip.MustParseAddr(to.address)
		if !netip.MustParsePrefix(peer.IPBlock.CIDR).Contains(addr) {
			return false
		}
		for _, e := range peer.IPBlock.Except {
			if netip.MustParsePrefix(e).Contains(addr) {
				return false
			}
		}
		return true
	}
	if to.namespace == "" {
		return false
	}
	selects := func(s *metav1.LabelSelector, of map[string]string) bool {
		selector, err := metav1.LabelSelectorAsSelector(s)
		require.NoError(t, err)
		return selector.Matches(labels.Set(of))
	}
	if peer.NamespaceSelector == nil {
		return to.namespace == own && selects(peer.PodSelector, to.pod)
	}
	return selects(peer.NamespaceSelector, to.inNamespace) && (peer.PodSelector == nil || selects(peer.PodSelector, to.pod))
}

// requireValid checks what the API server refuses: an exception that is no strict part of its
// block.
func requireValid(t *testing.T, policy *networkingv1.NetworkPolicy) {
	t.Helper()
	for _, rule := range policy.Spec.Egress {
		require.NotEmpty(t, rule.To, "an empty list allows everything")
		for _, peer := range rule.To {
			if peer.IPBlock == nil {
				continue
			}
			block := netip.MustParsePrefix(peer.IPBlock.CIDR)
			require.Equal(t, block.Masked(), block)
			for _, e := range peer.IPBlock.Except {
				p := netip.MustParsePrefix(e)
				require.Equal(t, p.Masked(), p)
				require.True(t, block.Contains(p.Addr()) && p.Bits() > block.Bits(), "%s in %s", e, block)
			}
		}
	}
}

// TestReachOfAPeersPods: without the policy a pod of a peer reaches metadata services, nodes,
// and whatever else the network of the provider has.
func TestReachOfAPeersPods(t *testing.T) {
	t.Parallel()
	own := prefixesOf("10.244.0.0/24", "10.96.0.0/16", "192.168.7.11/32", "203.0.113.9/32", "2001:db8:1::11/128", "198.51.100.0/24")
	fabric := reach{own: own, peer: prefixesOf("10.80.0.0/16", "fd6c:6971:6f00::/64")}
	twin := map[string]string{"kubernetes.io/metadata.name": "shop-rome", "liqo.io/remote-cluster-id": "rome"}
	peersPod := map[string]string{"liqo.io/managed-by": "shadowpod"}
	for name, c := range map[string]struct {
		reach reach
		to    destination
		want  bool
	}{
		"the internet":                    {fabric, destination{address: "93.184.216.34"}, true},
		"the internet, IPv6":              {fabric, destination{address: "2606:2800:220:1::1"}, true},
		"the peer":                        {fabric, destination{address: "10.80.3.4"}, true},
		"the peer, IPv6":                  {fabric, destination{address: "fd6c:6971:6f00::1"}, true},
		"the ranges of another peer":      {fabric, destination{address: "10.81.3.4"}, false},
		"metadata":                        {fabric, destination{address: "169.254.169.254", port: 80}, false},
		"metadata, asked for DNS":         {fabric, destination{address: "169.254.169.254", port: 53}, false},
		"metadata, IPv6":                  {fabric, destination{address: "fd00:ec2::254"}, false},
		"metadata by NAT64":               {fabric, destination{address: "64:ff9b::a9fe:a9fe"}, false},
		"the DNS cache of the node":       {fabric, destination{address: "169.254.20.10", port: 53}, true},
		"its other ports":                 {fabric, destination{address: "169.254.20.10", port: 9253}, false},
		"a node":                          {fabric, destination{address: "192.168.7.11", port: 10250}, false},
		"a node with a public address":    {fabric, destination{address: "203.0.113.9", port: 22}, false},
		"beside it":                       {fabric, destination{address: "203.0.113.10"}, true},
		"a node, IPv6":                    {fabric, destination{address: "2001:db8:1::11"}, false},
		"a reserved public range":         {fabric, destination{address: "198.51.100.3"}, false},
		"a private host of the site":      {fabric, destination{address: "172.20.1.1"}, false},
		"a Service":                       {fabric, destination{address: "10.96.0.1", port: 443}, false},
		"DNS":                             {fabric, destination{address: "10.244.0.3", namespace: "kube-system", inNamespace: map[string]string{"kubernetes.io/metadata.name": "kube-system"}, pod: map[string]string{"k8s-app": "kube-dns"}, port: 53}, true},
		"other ports of the DNS servers":  {fabric, destination{address: "10.244.0.3", namespace: "kube-system", inNamespace: map[string]string{"kubernetes.io/metadata.name": "kube-system"}, pod: map[string]string{"k8s-app": "kube-dns"}, port: 9153}, false},
		"a server that calls itself DNS":  {fabric, destination{address: "10.244.0.4", namespace: "vault", inNamespace: map[string]string{"kubernetes.io/metadata.name": "vault"}, pod: map[string]string{"k8s-app": "kube-dns"}, port: 53}, false},
		"a pod of the provider":           {fabric, destination{address: "10.244.0.5", namespace: "vault", inNamespace: map[string]string{"kubernetes.io/metadata.name": "vault"}}, false},
		"a pod of the own namespace":      {fabric, destination{address: "10.244.0.6", namespace: "shop-rome", inNamespace: twin, pod: peersPod}, true},
		"the peer's pod in another twin":  {fabric, destination{address: "10.244.0.7", namespace: "bank-rome", inNamespace: map[string]string{"liqo.io/remote-cluster-id": "rome"}, pod: peersPod}, true},
		"an owner's pod in an accepted":   {fabric, destination{address: "10.244.0.8", namespace: "accepting", inNamespace: map[string]string{"liqo.io/remote-cluster-id": "rome"}, pod: map[string]string{"app": "db"}}, false},
		"a pod of another peer":           {fabric, destination{address: "10.244.0.9", namespace: "shop-oslo", inNamespace: map[string]string{"liqo.io/remote-cluster-id": "oslo"}, pod: peersPod}, false},
		"a vkubelet of the tenant":        {fabric, destination{address: "10.244.0.10", namespace: "liqo-tenant-rome", inNamespace: map[string]string{"liqo.io/remote-cluster-id": "rome", "liqo.io/tenant-namespace": "true"}, pod: peersPod, port: 10250}, false},
		"no Connection yet":               {reach{own: own}, destination{address: "10.80.3.4"}, false},
		"no range is known":               {reach{}, destination{address: "169.254.169.254"}, false},
		"no range is known, the internet": {reach{}, destination{address: "93.184.216.34"}, true},
		"ranges that hold nodes":          {reach{own: own, peer: prefixesOf("192.168.0.0/16")}, destination{address: "192.168.7.11"}, false},
		"beside the nodes":                {reach{own: own, peer: prefixesOf("192.168.0.0/16")}, destination{address: "192.168.8.1"}, true},
		"ranges within own ones":          {reach{own: own, peer: prefixesOf("10.96.3.0/24")}, destination{address: "10.96.3.1"}, false},
		"a reachable range":               {reach{own: own, reachable: prefixesOf("172.20.0.0/16")}, destination{address: "172.20.1.1"}, true},
		"a reachable node":                {reach{own: own, reachable: prefixesOf("192.168.7.0/24")}, destination{address: "192.168.7.11"}, true},
		"a reachable public node":         {reach{own: own, reachable: prefixesOf("203.0.113.0/24")}, destination{address: "203.0.113.9"}, true},
		"never metadata":                  {reach{own: own, reachable: prefixesOf("0.0.0.0/0")}, destination{address: "169.254.169.254"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			policy := twinPolicy("rome", "shop-rome", false, toBlocks(c.reach))
			requireValid(t, policy)
			require.Equal(t, c.want, allows(t, policy, c.to))
		})
	}
}

func TestPolicyRestrictsNoIngress(t *testing.T) {
	t.Parallel()
	policy := twinPolicy("rome", "shop-rome", false, toBlocks(reach{}))
	require.Equal(t, []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}, policy.Spec.PolicyTypes)
	require.Empty(t, policy.Spec.PodSelector, "all pods of the twin")
	for _, p := range policy.Spec.Egress[0].Ports {
		require.Contains(t, []corev1.Protocol{corev1.ProtocolUDP, corev1.ProtocolTCP}, *p.Protocol)
	}
}

// TestPolicyOfAManyNodedCluster: a policy stays small, and denies more rather than less.
func TestPolicyOfAManyNodedCluster(t *testing.T) {
	t.Parallel()
	var own []netip.Prefix
	for i := range 5000 {
		own = append(own, netip.MustParsePrefix(fmt.Sprintf("198.51.%d.%d/32", i/250, i%250)))
	}
	policy := twinPolicy("rome", "shop-rome", false, toBlocks(reach{own: own}))
	requireValid(t, policy)
	for _, peer := range policy.Spec.Egress[len(policy.Spec.Egress)-1].To {
		require.LessOrEqual(t, len(peer.IPBlock.Except), mostExcepted)
	}
	for _, p := range own {
		require.False(t, allows(t, policy, destination{address: p.Addr().String()}))
	}
	require.True(t, allows(t, policy, destination{address: "198.52.0.1"}))
}
