package v1beta1

// Condition types of this package's kinds.
const (
	// ConditionReady of a Configuration: the receiver has a view of every range. Of a
	// Connection: packets pass.
	ConditionReady = "Ready"
)

const (
	// ConfigurationFinalizer keeps a peer's Configuration that is deleted until its
	// Connection is gone and its Networks are deleted, in this order: no view is free while
	// packets still go there.
	ConfigurationFinalizer = "configuration.networking.liqo.io/finalizer"
	// ManagedByConfiguration is the value of liqo.io/managed-by on what the controller makes
	// by itself for the networks of two clusters: its own Configuration for a peer, and the
	// Networks and the Connection that it makes of the peer's.
	ManagedByConfiguration = "configuration"
)
