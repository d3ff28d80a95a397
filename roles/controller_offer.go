package roles

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	corelisters "github.com/liqod/liqod/api/generated/listers/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/peering/offer"
	"github.com/liqod/liqod/roles/config"
	"github.com/liqod/liqod/shadow/rules"
)

// addOffers wires the negotiation of capacity, in both directions. It returns the consumer's side.
func (c *controller) addOffers() *offer.Consumer {
	sharing := c.liqo.Sharing().V1alpha1()
	metadata := perPeer(c.env.Config, c.liqo.Core().V1beta1().ForeignClusters().Lister(), metadataOf)
	consumer := offer.NewConsumer(offer.ConsumerConfig{
		Base: c.peeringBase(), VirtualNodes: c.liqo.Offloading().V1beta1().VirtualNodes(), Requests: sharing.ResourceRequests(), Offers: sharing.ResourceOffers(),
		Credentials: c.credentials, Outgoing: c.outgoing, Accept: offer.Mode(c.env.Config.Peering.AcceptOffers),
		LeftOut: leftOut(metadata, c.env.Config.Reflection.SharesZones),
	})
	c.directory.Subscribe(consumer.Changed)
	c.conditions.AddSource(corev1beta1.ConditionOutgoingPeering, consumer)
	provider := offer.NewProvider(offer.ProviderConfig{
		Base: c.peeringBase(), Requests: sharing.ResourceRequests(), Offers: sharing.ResourceOffers(), Quotas: c.liqo.Offloading().V1beta1().Quotas(), Nodes: c.own.Core().V1().Nodes(),
		StorageClasses: c.own.Storage().V1().StorageClasses(), IngressClasses: c.own.Networking().V1().IngressClasses(),
		Policy: sharingPolicy(c.env.Config, c.liqo.Core().V1beta1().ForeignClusters().Lister()), Incoming: c.incoming,
	})
	c.conditions.AddSource(corev1beta1.ConditionIncomingPeering, provider)
	c.addLoop("capacity-asked", consumer)
	c.leased("capacity-offered", provider.Run)
	return consumer
}

// credentials returns the name of the Secret with the credentials for a peer.
func (c *controller) credentials(clusterID string) (secret string, ok bool) {
	e, ok := c.directory.Endpoint(clusterID)
	if !ok || e.Problem != "" {
		return "", false
	}
	_, name, ok := strings.Cut(e.Secret, "/")
	return name, ok
}

func sharingPolicy(cfg *config.Effective, clusters corelisters.ForeignClusterLister) offer.Policy {
	s := cfg.Sharing
	return offer.Policy{
		Mode: offer.Mode(s.Mode), Percentage: int64(s.Percentage), Limit: config.Amounts(s.Limits), PeerLimits: config.AmountsOfPeers(s.PeerLimits),
		SelectorLabels: perPeer(cfg, clusters, func(cfg config.Config) []string { return cfg.Sharing.SelectorLabels }), Selectable: rules.SelectorAllowed,
		NodeSelector: config.Pairs(s.NodeSelector), UpdateThreshold: int64(s.UpdateThreshold), Expiration: s.Expiration, Labels: config.Pairs(s.Labels),
		StorageClasses: s.StorageClasses, IngressClasses: s.IngressClasses, LoadBalancerClasses: s.LoadBalancerClasses,
		Enforcement: offloadingv1beta1.LimitsEnforcement(s.LimitsEnforcement),
		Accepts:     perPeer(cfg, clusters, acceptsOf),
	}
}

// acceptsOf returns the settings that the offers to peers show them.
func acceptsOf(cfg config.Config) *sharingv1alpha1.Accepts {
	s := cfg.Sharing
	shown := func(list []string) []string { return list[:min(len(list), sharingv1alpha1.MostAccepted)] }
	return &sharingv1alpha1.Accepts{
		Trust: s.Trust, Annotations: shown(s.Annotations), LabelsLeftOut: shown(s.LabelsLeftOut), ServiceTypes: s.ServiceTypes, ServiceFields: s.ServiceFields,
		VolumeTypes: cfg.Controller.VolumeTypes,
	}
}

// leftOut returns a function that reports whether a provider may not give a label to its virtual
// nodes: a zone that is not shared would pass for one of this cluster.
func leftOut(metadata func(peer string) rules.Metadata, sharesZones func(peer string) bool) func(provider, key string) bool {
	return func(provider, key string) bool {
		return metadata(provider).Labels.Has(key) || key == corev1.LabelTopologyZone && !sharesZones(provider)
	}
}
