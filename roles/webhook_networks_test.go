package roles

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	"github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/netfabric/host"
)

// TestGatewayReports: the report of a gateway counts while one renews its Lease, also one that
// has just been seen for the first time.
func TestGatewayReports(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		up := metav1.Condition{Type: networkingv1beta1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Connected"}
		connection := func(namespace, id string, conditions ...metav1.Condition) *networkingv1beta1.Connection {
			return &networkingv1beta1.Connection{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: id},
				Spec: networkingv1beta1.ConnectionSpec{ClusterID: id}, Status: networkingv1beta1.ConnectionStatus{Conditions: conditions}}
		}
		leases := corefake.NewClientset().CoordinationV1().Leases("liqod")
		g := &gatewayReports{leases: leases, otherwise: 15 * time.Second, clock: clock.RealClock{}, log: zaptest.NewLogger(t), liqo: fake.NewSimpleClientset(
			connection("liqo-tenant-milan", "milan", up), connection("liqo-tenant-turin", "turin"), connection("elsewhere", "oslo", up))}
		require.Empty(t, g.networks(t.Context()), "no gateway")

		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "liqod-gateway-1", Labels: map[string]string{host.GatewayKey: "true"}},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: new("gw"), LeaseDurationSeconds: new(int32(10))}}
		kubetest.Create(t, leases, lease)
		got := g.networks(t.Context())
		require.Len(t, got, 2)
		require.Equal(t, "True Connected", string(got["milan"].Status)+" "+got["milan"].Reason)
		require.Equal(t, metav1.ConditionUnknown, got["turin"].Status)
		time.Sleep(9 * time.Second)
		require.Len(t, g.networks(t.Context()), 2)
		time.Sleep(2 * time.Second)
		require.Empty(t, g.networks(t.Context()), "it renews its Lease no longer")
		lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
		kubetest.Update(t, leases, lease)
		require.Len(t, g.networks(t.Context()), 2)
	})
}
