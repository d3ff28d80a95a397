package roles

import (
	"context"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/clock"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned"
	"github.com/liqod/liqod/kube/lease"
	"github.com/liqod/liqod/netfabric/exchange"
	"github.com/liqod/liqod/netfabric/host"
)

// gatewayReports reads what the gateways of this cluster report of its networks. It is not safe
// for concurrent use.
type gatewayReports struct {
	leases coordinationv1client.LeaseInterface // of liqod's own namespace
	liqo   versioned.Interface
	// otherwise is the duration of a Lease that names none.
	otherwise time.Duration
	clock     clock.PassiveClock
	log       *zap.Logger

	silence map[string]lease.Silence // by name of the Lease
}

// networks returns the conditions NetworkStatus by cluster id. There is none while no gateway
// renews its Lease, and none while the API server does not answer.
func (g *gatewayReports) networks(ctx context.Context) map[string]metav1.Condition {
	if alive, err := g.alive(ctx); err != nil || !alive {
		return nil
	}
	list, err := g.liqo.NetworkingV1beta1().Connections(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		g.log.Warn("the networks of peers could not be read; will retry", zap.Error(err))
		return nil
	}
	out := map[string]metav1.Condition{}
	for i := range list.Items {
		c := &list.Items[i]
		if id := c.Spec.ClusterID; c.DeletionTimestamp == nil && c.Namespace == corev1beta1.TenantNamespace(id) && c.Name == id {
			out[id] = *exchange.Reported(c)
		}
	}
	return out
}

// alive reports whether a gateway renews its Lease. One that is seen for the first time counts
// as renewed.
func (g *gatewayReports) alive(ctx context.Context) (alive bool, err error) {
	list, err := g.leases.List(ctx, metav1.ListOptions{LabelSelector: host.GatewayKey + "=true"})
	if err != nil {
		g.log.Warn("the Leases of gateways could not be read; will retry", zap.Error(err))
		return false, err
	}
	now, seen := g.clock.Now(), map[string]lease.Silence{}
	for i := range list.Items {
		l := &list.Items[i]
		s := g.silence[l.Name]
		s.See(l, now)
		seen[l.Name] = s
		alive = alive || lease.Holder(l) != "" && s.Left(now, lease.Duration(l, g.otherwise)) > 0
	}
	g.silence = seen
	return alive, nil
}
