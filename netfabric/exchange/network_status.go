package exchange

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/kube/store"
)

// NetworkStatus computes the condition NetworkStatus of each ForeignCluster. It is safe for
// concurrent use.
type NetworkStatus struct{ cfg NegotiationConfig }

// NewNetworkStatus makes sure that the informers run with their factories.
func NewNetworkStatus(cfg NegotiationConfig) *NetworkStatus {
	s := &NetworkStatus{cfg: cfg}
	s.informers()
	return s
}

func (s *NetworkStatus) informers() []cache.SharedIndexInformer {
	return []cache.SharedIndexInformer{s.cfg.Offers.Informer(), s.cfg.Configurations.Informer(), s.cfg.Connections.Informer()}
}

// Subscribe makes f be called with the id of a peer whose condition may have changed. It is
// called before anything runs.
func (s *NetworkStatus) Subscribe(f func(clusterID string)) {
	tell := func(obj any) { tellPeer(obj, f) }
	for _, i := range s.informers() {
		// Fails for an informer that has stopped only.
		_, _ = i.AddEventHandler(store.Each(tell))
	}
	s.cfg.Own.Subscribe(func() { // what keeps a Configuration from being published may be another
		for _, obj := range s.cfg.Offers.Informer().GetStore().List() {
			tell(obj)
		}
	})
	s.cfg.Gateways.Subscribe(func() {
		for _, obj := range s.cfg.Connections.Informer().GetStore().List() {
			tell(obj)
		}
	})
}

// Condition returns the status, reason and message of the condition for a peer; nil where
// the fabric is off for it, and while no offer between the two is in use.
func (s *NetworkStatus) Condition(fc *corev1beta1.ForeignCluster) *metav1.Condition {
	asked := fc.Spec.NetworkingEnabled
	switch {
	case asked != nil && !*asked, s.cfg.Off && asked == nil:
		return nil
	case s.cfg.Off:
		return networkCondition(metav1.ConditionFalse, corev1beta1.ReasonNetworkingDisabled, fmt.Sprintf(
			"spec.networkingEnabled is true, but cluster %s has no network fabric: set networking.enabled in its configuration (in the chart: networking.enabled), or leave the field out", s.cfg.ClusterID))
	}
	if !s.synced() {
		return meta.FindStatusCondition(fc.Status.Conditions, corev1beta1.ConditionNetwork).DeepCopy()
	}
	return s.of(fc)
}

func (s *NetworkStatus) synced() bool {
	return !slices.ContainsFunc(s.informers(), func(i cache.SharedIndexInformer) bool { return !i.HasSynced() })
}

func networkCondition(status metav1.ConditionStatus, reason, message string) *metav1.Condition {
	return &metav1.Condition{Type: corev1beta1.ConditionNetwork, Status: status, Reason: reason, Message: message}
}

// of is Condition where the fabric is on, with caches that have synced.
func (s *NetworkStatus) of(fc *corev1beta1.ForeignCluster) *metav1.Condition {
	peer := fc.Spec.ClusterID
	if c := connectionOf(s.cfg.Connections, peer); c != nil && c.DeletionTimestamp == nil {
		return s.connected(c)
	}
	if !wanted(fc, store.AllIn[*sharingv1alpha1.ResourceOffer](s.cfg.Offers.Informer().GetStore(), corev1beta1.TenantNamespace(peer))) {
		return nil
	}
	return s.negotiating(peer)
}

// connected returns the condition that follows from a Connection.
func (s *NetworkStatus) connected(c *networkingv1beta1.Connection) *metav1.Condition {
	if !s.cfg.Gateways.Alive() { // only gateways write the status of a Connection
		return networkCondition(metav1.ConditionUnknown, corev1beta1.ReasonNoGateway, fmt.Sprintf(
			"no gateway of cluster %s is running, so nobody sees whether packets pass: look at the pods of Deployment liqod-gateway, or at the host of a gateway outside", s.cfg.ClusterID))
	}
	return Reported(c)
}

// Reported returns the condition NetworkStatus of a peer as the gateways report it in the
// status of its Connection. It holds while one of them runs.
func Reported(c *networkingv1beta1.Connection) *metav1.Condition {
	ready := meta.FindStatusCondition(c.Status.Conditions, networkingv1beta1.ConditionReady)
	switch {
	case ready == nil:
		return networkCondition(metav1.ConditionUnknown, corev1beta1.ReasonConnecting, fmt.Sprintf(
			"the gateways have not reported on Connection %s/%s yet", c.Namespace, c.Name))
	case ready.ObservedGeneration != 0 && ready.ObservedGeneration < c.Generation && ready.Status == metav1.ConditionTrue:
		return networkCondition(metav1.ConditionUnknown, corev1beta1.ReasonConnecting, fmt.Sprintf(
			"the gateways have not applied the latest change of Connection %s/%s yet", c.Namespace, c.Name))
	}
	return networkCondition(ready.Status, ready.Reason, ready.Message)
}

// negotiating returns the condition of a peer without a Connection, from the Configurations.
func (s *NetworkStatus) negotiating(peer string) *metav1.Condition {
	namespace := corev1beta1.TenantNamespace(peer)
	keeps := "the log of role controller says what keeps it, if it lasts"
	if _, err := s.cfg.Own.Own(); err != nil {
		keeps = store.OneLine(err)
	}
	for _, side := range []struct{ name, missing, refused string }{
		{peer, fmt.Sprintf("cluster %s has not published its ranges and gateways for %s yet: %s", s.cfg.ClusterID, peer, keeps), peer + " does not accept the network of this cluster"},
		{s.cfg.ClusterID, fmt.Sprintf("cluster %s has not said its ranges and gateways yet", peer), "this cluster does not accept the network of " + peer},
	} {
		c, err := s.cfg.Configurations.Lister().Configurations(namespace).Get(side.name)
		if err != nil {
			return networkCondition(metav1.ConditionUnknown, corev1beta1.ReasonNegotiating, side.missing)
		}
		ready := meta.FindStatusCondition(c.Status.Conditions, networkingv1beta1.ConditionReady)
		switch {
		case ready == nil:
			return networkCondition(metav1.ConditionUnknown, corev1beta1.ReasonNegotiating, fmt.Sprintf("Configuration %s/%s has no answer yet", namespace, side.name))
		case ready.Status == metav1.ConditionTrue:
		case ready.Reason == networkingv1beta1.ReasonAllocating:
			return networkCondition(metav1.ConditionUnknown, corev1beta1.ReasonNegotiating, ready.Message)
		default:
			return networkCondition(metav1.ConditionFalse, ready.Reason, side.refused+": "+ready.Message)
		}
	}
	return networkCondition(metav1.ConditionUnknown, corev1beta1.ReasonNegotiating, "the Connection is about to be made")
}

// PeerServers computes the condition APIServerStatus of each peer without credentials here, from
// what its gateway reports through the tunnel. It is safe for concurrent use.
type PeerServers struct {
	*NetworkStatus // has the caches, and notifies of their changes
}

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
