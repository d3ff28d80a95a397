package namespace

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers"
	corefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
)

const (
	patient = time.Minute
	often   = 5 * time.Millisecond
)

// world is one cluster with the controllers of this package, in a kubetest.Bubble.
type world struct {
	t    *testing.T
	core *corefake.Clientset
	liqo *fake.Clientset

	coreInformers coreinformers.SharedInformerFactory
	liqoInformers externalversions.SharedInformerFactory
	events        *record.FakeRecorder
	offloading    *Offloading
	maps          *Maps
}

// newWorld returns a world with the given objects of any kind.
func newWorld(t *testing.T, objects ...runtime.Object) *world {
	t.Helper()
	var core, liqo []runtime.Object
	for _, o := range objects {
		switch o.(type) {
		case *corev1beta1.ForeignCluster, *offloadingv1beta1.NamespaceMap, *offloadingv1beta1.NamespaceOffloading, *offloadingv1beta1.VirtualNode, *offloadingv1beta1.Quota, *networkingv1beta1.Connection:
			liqo = append(liqo, o)
		default:
			core = append(core, o)
		}
		m, err := meta.Accessor(o)
		require.NoError(t, err)
		if m.GetUID() == "" {
			m.SetUID(types.UID("uid-" + m.GetNamespace() + "-" + m.GetName()))
		}
		if m.GetResourceVersion() == "" {
			m.SetResourceVersion("1")
		}
	}
	w := &world{t: t, core: corefake.NewClientset(core...), liqo: fake.NewSimpleClientset(liqo...), events: record.NewFakeRecorder(100)}
	w.core.PrependReactor("*", "*", kubetest.NewServer(w.core.Tracker(), clock.RealClock{}).React)
	w.liqo.PrependReactor("*", "*", kubetest.NewServer(w.liqo.Tracker(), clock.RealClock{}).React)
	kubetest.WatchFromList(w.core)
	kubetest.WatchFromList(w.liqo)
	w.coreInformers = coreinformers.NewSharedInformerFactory(w.core, 0)
	w.liqoInformers = externalversions.NewSharedInformerFactory(w.liqo, 0)
	return w
}

func (w *world) base(id string) Base {
	return Base{
		Env: loop.Env{Clock: clock.RealClock{}, Log: zaptest.NewLogger(w.t)}, ClusterID: id, OwnNamespace: "liqod", Kube: w.core, Liqo: w.liqo,
		Maps: w.liqoInformers.Offloading().V1beta1().NamespaceMaps(), Namespaces: w.coreInformers.Core().V1().Namespaces(),
	}
}

func (w *world) consumer() *world {
	w.t.Helper()
	off := w.liqoInformers.Offloading().V1beta1()
	w.offloading = NewOffloading(OffloadingConfig{
		Base: w.base("rome"), Offloadings: off.NamespaceOffloadings(), VirtualNodes: off.VirtualNodes(), Nodes: w.coreInformers.Core().V1().Nodes(),
	})
	w.start(w.offloading.Run)
	return w
}

func (w *world) provider() *world {
	w.t.Helper()
	return w.providerAs("milan", "*")
}

// providerAs lets peers choose the names of their twins that match the patterns.
func (w *world) providerAs(id string, twinNames ...string) *world {
	w.t.Helper()
	return w.providerWith(func(cfg *MapsConfig) { cfg.ClusterID, cfg.TwinNames = id, func(string) []string { return twinNames } })
}

// providerWith starts the provider milan, where peers may choose the names of their twins,
// with other settings.
func (w *world) providerWith(change func(*MapsConfig)) *world {
	w.t.Helper()
	cfg := MapsConfig{
		Base: w.base("milan"), ServiceAccount: "liqod-controller", PodSecurityLevel: "baseline", TwinNames: func(string) []string { return []string{"*"} }, NamespacesPerPeer: 200,
		Quotas:          w.liqoInformers.Offloading().V1beta1().Quotas(),
		ForeignClusters: w.liqoInformers.Core().V1beta1().ForeignClusters(),
		RoleBindings:    w.coreInformers.Rbac().V1().RoleBindings(),
		Bounds: BoundsConfig{
			Own: func() []netip.Prefix { return nil }, OwnChanged: func(func()) {}, Connections: w.liqoInformers.Networking().V1beta1().Connections(),
			ResourceQuotas: w.coreInformers.Core().V1().ResourceQuotas(), NetworkPolicies: w.coreInformers.Networking().V1().NetworkPolicies(),
		},
		Events: w.events,
	}
	change(&cfg)
	w.maps = NewMaps(cfg)
	w.start(w.maps.Run)
	return w
}

func (w *world) start(run func(context.Context, int) error) {
	w.coreInformers.Start(w.t.Context().Done())
	w.liqoInformers.Start(w.t.Context().Done())
	kubetest.Run(w.t, func(ctx context.Context) error { return run(ctx, 4) })
}

// eventually returns when f is true and the loops are idle, so that none of them writes
// between a read and a write of the test.
func (w *world) eventually(what string, f func() bool) {
	w.t.Helper()
	require.Eventually(w.t, f, patient, often, what)
	synctest.Wait()
}

// settled lets more time pass than any delay after which a loop works again by itself, waits
// until the loops are idle, and returns the number of all writes.
func (w *world) settled() int { return kubetest.Settled(keptRetry+time.Minute, w.core, w.liqo) }

// namespaceMap returns this cluster's own map for a peer.
func (w *world) namespaceMap(peer string) *offloadingv1beta1.NamespaceMap {
	return w.mapOf(peer, peer)
}

// asked returns rome's map, as replicated to milan.
func (w *world) asked() *offloadingv1beta1.NamespaceMap { return w.mapOf("rome", "milan") }

func (w *world) mapOf(peer, name string) *offloadingv1beta1.NamespaceMap {
	return kubetest.Find(w.t, w.liqo.OffloadingV1beta1().NamespaceMaps(corev1beta1.TenantNamespace(peer)), name)
}

func (w *world) desired(peer string) map[string]string {
	m := w.namespaceMap(peer)
	if m == nil {
		return nil
	}
	return m.Spec.DesiredMapping
}

func (w *world) nso(namespace string) *offloadingv1beta1.NamespaceOffloading {
	return kubetest.Find(w.t, w.liqo.OffloadingV1beta1().NamespaceOffloadings(namespace), "offloading")
}

func (w *world) namespace(name string) *corev1.Namespace {
	return kubetest.Find(w.t, w.core.CoreV1().Namespaces(), name)
}

func plainNamespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func tenantNamespace(peer string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: corev1beta1.TenantNamespace(peer),
		Labels: map[string]string{corev1beta1.TenantNamespaceLabel: "true", corev1beta1.RemoteClusterIDLabel: peer}}}
}
