package exchange

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	coreinformers "k8s.io/client-go/informers"
	corefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/netfabric/check"
)

func standingOf(t *testing.T, gateways Gateways, off bool, factory externalversions.SharedInformerFactory, given ...string) *NetworkStatus {
	nodes := coreinformers.NewSharedInformerFactory(corefake.NewClientset(), 0).Core().V1().Nodes()
	own, err := NewRanges(RangesConfig{Given: check.Own{Pods: ranges("10.244.0.0/16"), Services: ranges(given...)}, Nodes: nodes, Log: zap.NewNop()})
	require.NoError(t, err)
	return NewNetworkStatus(NegotiationConfig{
		ClusterID: "rome", Off: off, Gateways: gateways, Own: own, Offers: factory.Sharing().V1alpha1().ResourceOffers(),
		Configurations: factory.Networking().V1beta1().Configurations(), Connections: factory.Networking().V1beta1().Connections(),
	})
}

func TestStanding(t *testing.T) {
	t.Parallel()
	offer := &sharingv1alpha1.ResourceOffer{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan"}, Status: sharingv1alpha1.ResourceOfferStatus{Phase: sharingv1alpha1.OfferAccepted}}
	ready := func(status metav1.ConditionStatus, reason string, generation int64) []metav1.Condition {
		return []metav1.Condition{{Type: "Ready", Status: status, Reason: reason, Message: "told", ObservedGeneration: generation}}
	}
	connection := func(conditions []metav1.Condition) *networkingv1beta1.Connection {
		return &networkingv1beta1.Connection{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan", Generation: 2}, Status: networkingv1beta1.ConnectionStatus{Conditions: conditions}}
	}
	said := func(by string, conditions []metav1.Condition) *networkingv1beta1.Configuration {
		name := map[string]string{"rome": "milan", "milan": "rome"}[by]
		return &networkingv1beta1.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: name}, Status: networkingv1beta1.ConfigurationStatus{Conditions: conditions}}
	}
	accepted := ready(metav1.ConditionTrue, networkingv1beta1.ReasonNetworksAllocated, 0)
	for name, tc := range map[string]struct {
		enabled  *bool
		off      bool
		gateways *fixedGateways
		services []string // without: 10.96.0.0/12
		objects  []runtime.Object
		want     metav1.ConditionStatus // empty: there is no condition
		reason   string
		says     string
	}{
		"nothing is wanted":             {},
		"off in the cluster":            {off: true, objects: []runtime.Object{offer}},
		"off, and asked for":            {off: true, enabled: ptr.To(true), want: "False", reason: "NetworkingDisabled", says: "set networking.enabled"},
		"off for the peer":              {enabled: ptr.To(false), objects: []runtime.Object{offer, connection(ready("True", "Connected", 2))}},
		"asked for":                     {enabled: ptr.To(true), objects: []runtime.Object{offer}, want: "Unknown", reason: "Negotiating", says: "rome has not published"},
		"not published":                 {objects: []runtime.Object{offer}, want: "Unknown", reason: "Negotiating", says: "rome has not published"},
		"own ranges are not known":      {services: []string{}, objects: []runtime.Object{offer}, want: "Unknown", reason: "Negotiating", says: "rome has not published its ranges and gateways for milan yet: the ranges of Services of this cluster are not known"},
		"not answered":                  {objects: []runtime.Object{offer, said("rome", nil)}, want: "Unknown", reason: "Negotiating", says: "Configuration liqo-tenant-milan/milan has no answer"},
		"refused there":                 {objects: []runtime.Object{offer, said("rome", ready("False", "Invalid", 0))}, want: "False", reason: "Invalid", says: "milan does not accept the network of this cluster: told"},
		"the peer allocates":            {objects: []runtime.Object{offer, said("rome", ready("False", "Allocating", 0))}, want: "Unknown", reason: "Negotiating", says: "told"},
		"the peer has not said":         {objects: []runtime.Object{offer, said("rome", accepted)}, want: "Unknown", reason: "Negotiating", says: "milan has not said"},
		"refused here":                  {objects: []runtime.Object{offer, said("rome", accepted), said("milan", ready("False", "NotAllocated", 0))}, want: "False", reason: "NotAllocated", says: "this cluster does not accept the network of milan: told"},
		"agreed":                        {objects: []runtime.Object{offer, said("rome", accepted), said("milan", accepted)}, want: "Unknown", reason: "Negotiating", says: "about to be made"},
		"connected":                     {objects: []runtime.Object{offer, connection(ready("True", "Connected", 2))}, want: "True", reason: "Connected", says: "told"},
		"down":                          {objects: []runtime.Object{offer, connection(ready("False", "Down", 2))}, want: "False", reason: "Down", says: "told"},
		"no word of the gateways":       {objects: []runtime.Object{offer, connection(nil)}, want: "Unknown", reason: "Connecting", says: "have not reported"},
		"of an older generation":        {objects: []runtime.Object{offer, connection(ready("True", "Connected", 1))}, want: "Unknown", reason: "Connecting", says: "latest change"},
		"no gateway runs":               {gateways: &fixedGateways{known: true}, objects: []runtime.Object{offer, connection(ready("True", "Connected", 2))}, want: "Unknown", reason: "NoGateway", says: "no gateway of cluster rome"},
		"the last offer, a moment ago":  {objects: []runtime.Object{connection(ready("True", "Connected", 2))}, want: "True", reason: "Connected"},
		"gateways are not known so far": {gateways: &fixedGateways{}, objects: []runtime.Object{connection(ready("True", "Connected", 2))}, want: "True", reason: "Connected"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.services == nil {
				tc.services = []string{"10.96.0.0/12"}
			}
			got := filledStanding(t, tc.gateways, tc.off, tc.objects, tc.services...).Condition(networkedBy(tc.enabled))
			if tc.want == "" {
				require.Nil(t, got)
				return
			}
			require.NotNil(t, got)
			require.Equal(t, tc.want, got.Status, got.Message)
			require.Equal(t, tc.reason, got.Reason)
			require.Contains(t, got.Message, tc.says)
		})
	}
}

// filledStanding is a NetworkStatus with filled caches. If no gateways are named, there is one.
func filledStanding(t *testing.T, gateways *fixedGateways, off bool, objects []runtime.Object, given ...string) *NetworkStatus {
	t.Helper()
	if gateways == nil {
		gateways = &fixedGateways{known: true, list: []networkingv1beta1.Gateway{{Name: "gw"}}}
	}
	factory := externalversions.NewSharedInformerFactory(fake.NewSimpleClientset(objects...), 0)
	s := standingOf(t, gateways, off, factory, given...)
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	return s
}

func networkedBy(enabled *bool) *corev1beta1.ForeignCluster {
	return &corev1beta1.ForeignCluster{Spec: corev1beta1.ForeignClusterSpec{ClusterID: "milan", NetworkingEnabled: enabled}}
}

// TestStandingBefore: before the caches are filled, what was told stands, of the network and of the peer's API server. Then
// a Connection that changes is told of, and gateways that come and go.
func TestStandingBefore(t *testing.T) {
	t.Parallel()
	for _, old := range []metav1.Condition{
		{Type: corev1beta1.ConditionNetwork, Status: metav1.ConditionTrue, Reason: "Connected"},
		{Type: corev1beta1.ConditionAPIServer, Status: metav1.ConditionFalse, Reason: "PeerReportsDown"},
	} {
		liqo, gateways := fake.NewSimpleClientset(), &fixedGateways{}
		factory := externalversions.NewSharedInformerFactory(liqo, 0)
		status := standingOf(t, gateways, false, factory, "10.96.0.0/12")
		condition, subscribe := status.Condition, status.Subscribe
		if old.Type == corev1beta1.ConditionAPIServer {
			condition, subscribe = PeerServers{status}.Condition, PeerServers{status}.Subscribe
		}
		fc := networkedBy(nil)
		require.Nil(t, condition(fc))
		fc.Status.Conditions = []metav1.Condition{old}
		require.Equal(t, old, *condition(fc))

		var told atomic.Int32
		subscribe(func(id string) {
			if id == "milan" {
				told.Add(1)
			}
		})
		factory.Start(t.Context().Done())
		factory.WaitForCacheSync(t.Context().Done())
		require.Nil(t, condition(fc))
		kubetest.Create(t, liqo.NetworkingV1beta1().Connections(tenant), &networkingv1beta1.Connection{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "milan"}})
		require.Eventually(t, func() bool { return told.Load() > 0 }, time.Minute, 5*time.Millisecond)
		before := told.Load()
		for _, f := range gateways.told {
			f()
		}
		require.Greater(t, told.Load(), before)
	}
}

// TestOff: where the fabric is switched off, what was made goes, and nothing new comes.
func TestOff(t *testing.T) {
	b, _ := connected(t)
	require.NotNil(t, b.mine("milan"))
	require.NotNil(t, b.connection("milan"))
	off := b.replica()
	off.publish.cfg.Off, off.exchange.cfg.Off = true, true
	off.settle("milan")
	require.Nil(t, b.mine("milan"))
	wanted, err := off.publish.Wanted(t.Context(), "milan")
	require.NoError(t, err)
	require.False(t, wanted)
	networks := kubetest.List(t, b.others.IPAMV1alpha1().Networks(""))
	require.Empty(t, networks.Items)
	connections := kubetest.List(t, b.others.NetworkingV1beta1().Connections(""))
	require.Empty(t, connections.Items)
	all := kubetest.List(t, b.others.NetworkingV1beta1().Configurations(""))
	for _, c := range all.Items {
		require.NotContains(t, c.Finalizers, networkingv1beta1.ConfigurationFinalizer)
	}
}

// TestOffWithoutIPAM: a Network that is being deleted loses the finalizer of role ipam where the
// fabric is switched off, and keeps it where role ipam runs.
func TestOffWithoutIPAM(t *testing.T) {
	t.Parallel()
	for name, off := range map[string]bool{"off": true, "on": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			now := metav1.Now()
			kubetest.Create(t, b.others.IPAMV1alpha1().Networks("liqo-tenant-milan"), &ipamv1alpha1.Network{ObjectMeta: metav1.ObjectMeta{
				Namespace: "liqo-tenant-milan", Name: "rome-pod", Labels: made("milan"), DeletionTimestamp: &now,
				Finalizers: []string{ipamv1alpha1.NetworkFinalizer, "example.com/other"},
			}})
			r := b.replica()
			r.exchange.cfg.Off = off
			require.NoError(t, r.exchange.sync(t.Context(), loop.Key{Name: "milan"}))
			n := kubetest.Get(t, b.others.IPAMV1alpha1().Networks("liqo-tenant-milan"), "rome-pod")
			require.Equal(t, !off, store.HasFinalizer(n, ipamv1alpha1.NetworkFinalizer))
			require.True(t, store.HasFinalizer(n, "example.com/other"))
		})
	}
}
