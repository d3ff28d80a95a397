package endpoints

import (
	"net/netip"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	liqodfake "github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/shadow/rules"
)

const (
	testNamespace = "shop-rome"
	testName      = "web-abcde"
	origin        = "rome"
	testGrace     = 30 * time.Second
)

func testTime() time.Time { return time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC) }

func ago(d time.Duration) metav1.Time { return metav1.NewTime(testTime().Add(-d)) }

// shifted maps 10.100.x.y to 10.77.x.y. Other IPv4 addresses are unreachable.
type shifted struct{ same }

func (shifted) Remap(_ string, addr netip.Addr) (netip.Addr, bool) {
	if !addr.Is4() {
		return addr, true
	}
	b := addr.As4()
	if b[1] != 100 {
		return netip.Addr{}, false
	}
	b[1] = 77
	return netip.AddrFrom4(b), true
}

// same is the Remapper without a network fabric.
type same struct{}

func (same) Fabric(string) bool                                  { return false }
func (same) Ranges(string) ([]netip.Prefix, error)               { return nil, nil }
func (same) Remap(_ string, addr netip.Addr) (netip.Addr, bool)  { return addr, true }
func (same) Direct(_, _ string, _ netip.Addr) (netip.Addr, bool) { return netip.Addr{}, false }
func (same) Unmap(_ string, addr netip.Addr) (netip.Addr, bool)  { return addr, true }
func (same) Subscribe(func(string)) cache.InformerSynced         { return func() bool { return true } }

// fabric is the Remapper of clusters with equal ranges: rome's own 10.244.0.0/16 is
// 10.80.0.0/16 here, and milan's own 10.244.0.0/16 is 10.90.0.0/16 in rome.
type fabric struct {
	mu      sync.Mutex
	missing error        // the reason for which there is no translation
	view    netip.Prefix // of rome's pods; 10.80.0.0/16 if not set
	direct  string       // the namespace of rome whose pods under 10.244.9.0/24 are reached under 10.99.9.0/24
	changed func(peer string)
	synced  bool
	asked   bool // whether it was asked before that
}

func (f *fabric) Fabric(string) bool { return true }

func (f *fabric) Ranges(string) ([]netip.Prefix, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.missing != nil {
		return nil, f.missing
	}
	return []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}, nil
}

func (f *fabric) Remap(_ string, addr netip.Addr) (netip.Addr, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	view := f.view
	if !view.IsValid() {
		view = netip.MustParsePrefix("10.80.0.0/16")
	}
	return f.move(addr, "10.244.0.0/16", view)
}

func (f *fabric) Direct(peer, namespace string, addr netip.Addr) (netip.Addr, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if peer != origin || namespace == "" || namespace != f.direct || !netip.MustParsePrefix("10.244.9.0/24").Contains(addr) {
		return netip.Addr{}, false
	}
	return f.move(addr, "10.244.0.0/16", netip.MustParsePrefix("10.99.0.0/16"))
}

func (f *fabric) Unmap(_ string, addr netip.Addr) (netip.Addr, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.move(addr, "10.90.0.0/16", netip.MustParsePrefix("10.244.0.0/16"))
}

func (f *fabric) move(addr netip.Addr, from string, to netip.Prefix) (netip.Addr, bool) {
	if f.missing != nil || !netip.MustParsePrefix(from).Contains(addr) {
		return netip.Addr{}, false
	}
	a, b := addr.As4(), to.Addr().As4()
	return netip.AddrFrom4([4]byte{b[0], b[1], a[2], a[3]}), true
}

func (f *fabric) Subscribe(changed func(string)) cache.InformerSynced {
	f.changed = changed
	return func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.asked = f.asked || !f.synced
		return f.synced
	}
}

// set changes the fabric, and tells the subscriber.
func (f *fabric) set(change func()) {
	f.mu.Lock()
	change()
	f.mu.Unlock()
	f.changed(origin)
}

func testRules(ranges ...string) addressRules {
	if len(ranges) == 0 {
		ranges = []string{"10.100.0.0/16"}
	}
	return addressRules{
		metadata: rules.Metadata{Labels: rules.LeftOutLabels{"ovn.org/*"}},
		peer:     origin, source: "spec.addressRanges of ForeignCluster rome", remap: same{}, ranges: ipamv1alpha1.Ranges(ranges),
		node: func(a netip.Addr) bool { return a == netip.MustParseAddr("10.100.200.1") },
		zone: func(node string) string { return map[string]string{"milan-sim-2": "b"}[node] },
		pod: func(a netip.Addr) (ownPod, bool) {
			return ownPod{node: "milan-sim-2", ready: true}, a == netip.MustParseAddr("10.200.1.9")
		},
		podOf: func(uid string, family discoveryv1.AddressType) (ownPod, string) {
			if uid != "ours" || family != discoveryv1.AddressTypeIPv4 {
				return ownPod{}, ""
			}
			return ownPod{node: "milan-sim-3", ready: true}, "10.200.1.7"
		},
	}
}

func twin(mods ...func(*corev1.Namespace)) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name:        testNamespace,
		Labels:      map[string]string{corev1beta1.RemoteClusterIDLabel: origin},
		Annotations: map[string]string{offloadingv1beta1.ManagedByNamespaceMapAnnotation: "liqo-tenant-rome/rome"},
	}}
	for _, mod := range mods {
		mod(ns)
	}
	return ns
}

type clusterMod = func(*corev1beta1.ForeignCluster)

func peer(mods ...clusterMod) *corev1beta1.ForeignCluster {
	fc := &corev1beta1.ForeignCluster{
		ObjectMeta: metav1.ObjectMeta{Name: origin},
		Spec:       corev1beta1.ForeignClusterSpec{ClusterID: origin, AddressRanges: []string{"10.100.0.0/16"}},
	}
	for _, mod := range mods {
		mod(fc)
	}
	return fc
}

func check(kind string, status metav1.ConditionStatus, since metav1.Time) clusterMod {
	return func(fc *corev1beta1.ForeignCluster) {
		fc.Status.Conditions = append(fc.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: "X", LastTransitionTime: since})
	}
}

type shadowMod = func(*offloadingv1beta1.ShadowEndpointSlice)

func newShadow(mods ...shadowMod) *offloadingv1beta1.ShadowEndpointSlice {
	s := &offloadingv1beta1.ShadowEndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: testName, Namespace: testNamespace, UID: "shadow-1", Generation: 1, CreationTimestamp: ago(time.Hour),
			Labels: map[string]string{
				discoveryv1.LabelServiceName: "web", offloadingv1beta1.OriginLabel: origin, offloadingv1beta1.DestinationLabel: "milan",
			},
			Annotations: map[string]string{"note": "a"},
		},
		Spec: offloadingv1beta1.ShadowEndpointSliceSpec{Template: offloadingv1beta1.EndpointSliceTemplate{
			AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.100.1.5"}}},
			Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080))}},
		}},
	}
	for _, mod := range mods {
		mod(s)
	}
	return s
}

func endpointsOf(list ...discoveryv1.Endpoint) shadowMod {
	return func(s *offloadingv1beta1.ShadowEndpointSlice) { s.Spec.Template.Endpoints = list }
}

func at(addresses ...string) discoveryv1.Endpoint { return discoveryv1.Endpoint{Addresses: addresses} }

// ownedBy is an endpoint on a virtual node of the consumer.
func ownedBy(node, address string) discoveryv1.Endpoint {
	e := at(address)
	e.NodeName = &node
	return e
}

func labelled(key, value string) shadowMod {
	return func(s *offloadingv1beta1.ShadowEndpointSlice) { s.Labels[key] = value }
}

type sliceMod = func(*discoveryv1.EndpointSlice)

// sliceOf returns the EndpointSlice of a shadow as the API server has it.
func sliceOf(s *offloadingv1beta1.ShadowEndpointSlice, mods ...sliceMod) *discoveryv1.EndpointSlice {
	slice, _ := forge(s, testRules(), true)
	slice.UID, slice.ResourceVersion = "slice-1", "1"
	for _, mod := range mods {
		mod(slice)
	}
	return slice
}

func deleting(s *discoveryv1.EndpointSlice) { s.DeletionTimestamp = new(ago(0)) }

// foreign turns a slice into one of the provider's own endpointslice controller.
func foreign(s *discoveryv1.EndpointSlice) {
	s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: "web", UID: "service-1", Controller: new(true)}}
	s.Labels = map[string]string{discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"}
	s.Annotations = nil
}

func predecessors(s *discoveryv1.EndpointSlice) {
	done := readApplied(s)
	done.Shadow = "shadow-0"
	s.Annotations[AppliedAnnotation] = store.Record(done)
}

// config is that of an Enforcer with informers of the factories; selected is of the EndpointSlices that Kubernetes
// makes of selectors.
func config(core *fake.Clientset, liqod *liqodfake.Clientset, own externalversions.SharedInformerFactory, shared, selected informers.SharedInformerFactory) Config {
	return Config{
		Kube: core, Liqo: liqod, Remap: same{}, Grace: testGrace, Recorder: record.NewFakeRecorder(100), Env: loop.Env{Clock: clock.RealClock{}, Log: zap.NewNop()},
		Metadata: func(string) rules.Metadata { return rules.Metadata{} }, Names: func(string) bool { return false }, SharesZones: func(string) bool { return false },
		Shadows: own.Offloading().V1beta1().ShadowEndpointSlices().Informer(), ForeignClusters: own.Core().V1beta1().ForeignClusters().Informer(),
		Slices: shared.Discovery().V1().EndpointSlices().Informer(), Own: selected.Discovery().V1().EndpointSlices().Informer(),
		Namespaces: shared.Core().V1().Namespaces().Informer(), Nodes: shared.Core().V1().Nodes().Informer(), Pods: shared.Core().V1().Pods().Informer(),
	}
}
