package exchange

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
)

// PeerServers computes the condition APIServerStatus of each peer without credentials here, from
// what its gateway reports through the tunnel. It is safe for concurrent use.
type PeerServers struct {
	*NetworkStatus // has the caches, and notifies of their changes
}

// NewPeerServers takes the caches of standing.
func NewPeerServers(standing *NetworkStatus) PeerServers { return PeerServers{standing} }

// Condition returns the status, reason and message of the condition for a peer; nil where
// the fabric does not connect this cluster with it, and while no gateway has passed a report
// on.
func (p PeerServers) Condition(fc *corev1beta1.ForeignCluster) *metav1.Condition {
	if p.cfg.Off || disabled(fc) {
		return nil
	}
	if !p.synced() {
		return meta.FindStatusCondition(fc.Status.Conditions, corev1beta1.ConditionAPIServer).DeepCopy()
	}
	peer := fc.Spec.ClusterID
	c := connectionOf(p.cfg.Connections, peer)
	if c == nil || c.DeletionTimestamp != nil {
		return nil
	}
	report := meta.FindStatusCondition(c.Status.Conditions, networkingv1beta1.ConditionPeerAPIServer)
	if report == nil {
		return nil
	}
	out := metav1.Condition{Type: corev1beta1.ConditionAPIServer, Status: report.Status, Reason: report.Reason, Message: report.Message}
	if !p.cfg.Gateways.Alive() {
		out.Status, out.Reason = metav1.ConditionUnknown, corev1beta1.ReasonNoGateway
		out.Message = fmt.Sprintf("no gateway of cluster %s is running, so nobody hears what %s reports: look at the pods of Deployment liqod-gateway, or at the host of a gateway outside", p.cfg.ClusterID, peer)
	}
	return &out
}
