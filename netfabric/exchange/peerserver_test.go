package exchange

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
)

func TestPeerServers(t *testing.T) {
	t.Parallel()
	report := func(status metav1.ConditionStatus, reason string) *networkingv1beta1.Connection {
		return &networkingv1beta1.Connection{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan"}, Status: networkingv1beta1.ConnectionStatus{
			Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue}, {Type: "PeerAPIServer", Status: status, Reason: reason, Message: "told"}},
		}}
	}
	silent := report("True", "PeerReportsUp")
	silent.Status.Conditions = silent.Status.Conditions[:1]
	going := report("True", "PeerReportsUp")
	going.DeletionTimestamp, going.Finalizers = &metav1.Time{Time: time.Unix(1000, 0)}, []string{"test/hold"}
	for name, tc := range map[string]struct {
		off      bool
		enabled  *bool
		gateways *fixedGateways
		objects  []runtime.Object
		want     string // empty: there is no condition
	}{
		"no Connection":                 {},
		"nobody has passed one on":      {objects: []runtime.Object{silent}},
		"a Connection that goes":        {objects: []runtime.Object{going}},
		"up":                            {objects: []runtime.Object{report("True", "PeerReportsUp")}, want: "True PeerReportsUp told"},
		"down":                          {objects: []runtime.Object{report("False", "PeerReportsDown")}, want: "False PeerReportsDown told"},
		"the tunnel is down":            {objects: []runtime.Object{report("Unknown", "TunnelDown")}, want: "Unknown TunnelDown told"},
		"off in the cluster":            {off: true, objects: []runtime.Object{report("True", "PeerReportsUp")}},
		"off, and asked for":            {off: true, enabled: ptr.To(true), objects: []runtime.Object{report("True", "PeerReportsUp")}},
		"off for the peer":              {enabled: ptr.To(false), objects: []runtime.Object{report("True", "PeerReportsUp")}},
		"the reporter is dead":          {gateways: &fixedGateways{known: true}, objects: []runtime.Object{report("True", "PeerReportsUp")}, want: "Unknown NoGateway"},
		"the reporter of a bad is dead": {gateways: &fixedGateways{known: true}, objects: []runtime.Object{report("False", "PeerReportsDown")}, want: "Unknown NoGateway"},
		"gateways are not known so far": {gateways: &fixedGateways{}, objects: []runtime.Object{report("True", "PeerReportsUp")}, want: "True PeerReportsUp told"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.gateways == nil {
				tc.gateways = &fixedGateways{known: true, list: []networkingv1beta1.Gateway{{Name: "gw"}}}
			}
			factory := externalversions.NewSharedInformerFactory(fake.NewSimpleClientset(tc.objects...), 0)
			servers := PeerServers{standingOf(t, tc.gateways, tc.off, factory)}
			factory.Start(t.Context().Done())
			factory.WaitForCacheSync(t.Context().Done())
			got := servers.Condition(&corev1beta1.ForeignCluster{Spec: corev1beta1.ForeignClusterSpec{ClusterID: "milan", NetworkingEnabled: tc.enabled}})
			if tc.want == "" {
				require.Nil(t, got)
				return
			}
			require.NotNil(t, got)
			require.Contains(t, string(got.Status)+" "+got.Reason+" "+got.Message, tc.want)
		})
	}
}

// TestPeerServersBefore: before the caches are filled, what was told stands; then a report
// that changes is told of.
func TestPeerServersBefore(t *testing.T) {
	t.Parallel()
	liqo := fake.NewSimpleClientset()
	factory := externalversions.NewSharedInformerFactory(liqo, 0)
	servers := PeerServers{standingOf(t, &fixedGateways{}, false, factory)}
	fc := &corev1beta1.ForeignCluster{Spec: corev1beta1.ForeignClusterSpec{ClusterID: "milan"}}
	require.Nil(t, servers.Condition(fc))
	fc.Status.Conditions = []metav1.Condition{{Type: corev1beta1.ConditionAPIServer, Status: metav1.ConditionFalse, Reason: "PeerReportsDown"}}
	require.Equal(t, fc.Status.Conditions[0], *servers.Condition(fc))

	var told atomic.Bool
	servers.Subscribe(func(id string) {
		if id == "milan" {
			told.Store(true)
		}
	})
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	require.Nil(t, servers.Condition(fc))
	kubetest.Create(t, liqo.NetworkingV1beta1().Connections("liqo-tenant-milan"), &networkingv1beta1.Connection{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan"}})
	require.Eventually(t, told.Load, time.Minute, 5*time.Millisecond)
}
