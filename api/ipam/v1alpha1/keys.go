package v1alpha1

const (
	// NotRemappedLabel, "true" on a Network, asks for the very range of spec.cidr or none. It
	// counts when the range is allocated.
	NotRemappedLabel = "ipam.liqo.io/network-not-remapped"
	// RemappedLabel, "true" on a Network, asks for a range of the pools, also where ipam.keep has
	// that of spec.cidr.
	RemappedLabel = "ipam.liqo.io/network-remapped"

	// ManagedByAPIServer is the value of liqo.io/managed-by on the IPs that the controller
	// makes for this cluster's API server, one for each VirtualNode. Its one port is that of the
	// API server at spec.ip.
	ManagedByAPIServer = "api-server"

	// ManagedByEndpoints is the value of liqo.io/managed-by on the IPs that the controller makes for endpoints that
	// are no pods. EndpointNamespaceLabel names the namespace of these endpoints.
	ManagedByEndpoints     = "endpoints"
	EndpointNamespaceLabel = "ipam.liqo.io/endpoint-namespace"

	// NetworkFinalizer and IPFinalizer keep a claim that is deleted until what it has is free
	// again.
	NetworkFinalizer = "network.ipam.liqo.io/finalizer"
	IPFinalizer      = "ip.ipam.liqo.io/finalizer"

	// PoolNetworks is the name of the AddressPool that records the ranges of Networks,
	// PoolIPs that of the one that records the addresses of IPs.
	PoolNetworks = "networks"
	PoolIPs      = "ips"
	// MaxAllocations is how many allocations one AddressPool holds at most.
	MaxAllocations = 4096
)

const (
	// ConditionReady of a Network or an IP: status has what was allocated, and it can be used.
	// Of an AddressPool: its record can be read, and no allocation overlaps a reserved range.
	ConditionReady = "Ready"

	// ReasonAllocated: a claim has what it asks for, or what stands for it.
	ReasonAllocated = "Allocated"
	// ReasonRemapped: another range of the same size stands for that of the Network.
	ReasonRemapped = "Remapped"
	// ReasonExhausted: nothing of that size is free.
	ReasonExhausted = "Exhausted"
	// ReasonOverlaps: a range or an address is reserved or allocated to another, and the claim
	// takes no other one.
	ReasonOverlaps = "Overlaps"
	// ReasonInvalid: the claim asks for what is never given, or the record cannot be read.
	ReasonInvalid = "Invalid"
	// ReasonPoolInvalid: nothing can be allocated, because the AddressPool cannot be read.
	ReasonPoolInvalid = "PoolInvalid"
	// ReasonRangesUnknown: nothing is allocated, because the ranges of the cluster are not known,
	// for the reason in the message.
	ReasonRangesUnknown = "RangesUnknown"
	// ReasonAvailable: an AddressPool is well.
	ReasonAvailable = "Available"
)
