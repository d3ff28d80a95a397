package exchange

import (
	"github.com/liqod/liqod/api/generated/clientset/versioned"
	informers "github.com/liqod/liqod/api/generated/informers/externalversions/core/v1beta1"
	ipaminformers "github.com/liqod/liqod/api/generated/informers/externalversions/ipam/v1alpha1"
	networkinginformers "github.com/liqod/liqod/api/generated/informers/externalversions/networking/v1beta1"
	offloadinginformers "github.com/liqod/liqod/api/generated/informers/externalversions/offloading/v1beta1"
	sharinginformers "github.com/liqod/liqod/api/generated/informers/externalversions/sharing/v1alpha1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/kube/loop"
)

// Gateways reads this cluster's gateway replicas. It is safe for concurrent use.
type Gateways interface {
	// Gateways returns the replicas as peers shall see them, in an order that does not change
	// by itself. It is false while they are not known: then nothing is published that is not,
	// and what is published stays.
	Gateways() ([]networkingv1beta1.Gateway, bool)
	// Alive reports whether a replica runs, or may run: it is true while that is not known.
	Alive() bool
	// MTU is the largest packet of a pod, in bytes, that each replica takes into a tunnel; 0:
	// not known.
	MTU() int32
	// Subscribe makes f be called when the replicas may have changed. It is called before
	// anything runs. f returns at once.
	Subscribe(f func())
}

// Base is what the loops and the Remapper have in common.
type Base struct {
	loop.Env

	// Client is of this cluster.
	Client versioned.Interface
	// ForeignClusters has all of them.
	ForeignClusters informers.ForeignClusterInformer
}

// NegotiationConfig configures what negotiates networks with peers: a Publisher, an Exchange and a NetworkStatus.
type NegotiationConfig struct {
	Base

	// ClusterID is this cluster's id.
	ClusterID string
	// Off means that this cluster has no network fabric. A Publisher withdraws all that it has published, and an
	// Exchange deletes all objects that it has created, and answers no peer.
	Off bool
	// Own finds this cluster's ranges. For an Exchange, those that it has published count too.
	Own      *Ranges
	Gateways Gateways

	// The informers are of this cluster and of all namespaces, and have all objects.
	Offers         sharinginformers.ResourceOfferInformer
	Configurations networkinginformers.ConfigurationInformer
	Networks       ipaminformers.NetworkInformer
	// Connections and Offloadings say which peers packets are forwarded between.
	Connections networkinginformers.ConnectionInformer
	Offloadings offloadinginformers.NamespaceOffloadingInformer
}
