package plan

import "time"

// Every number and name that could collide with another program on the host stands in this
// file, and in the tables of docs/internals/packet-path.md. A test compares the two.

// Devices. A name has at most 15 bytes. All names of ours begin with DevicePrefix: the
// executor deletes every other device with that prefix.
const (
	DevicePrefix    = "liqod-"
	OverlayDevice   = "liqod-vx" // VXLAN, on every node and gateway
	TunnelDevice    = "liqod-wg" // WireGuard, on gateways
	AllDevices      = DevicePrefix + "*"
	OutsideDevices  = "!" + AllDevices
	OverlayID       = 6091   // VXLAN network identifier
	TunnelMark      = 0x6c71 // fwmark of the encrypted packets of TunnelDevice
	TunnelKeepalive = 25 * time.Second
)

// UDP ports. OverlayPort and TunnelPort can be set otherwise, see Ports.
const (
	OverlayPort = 6091  // VXLAN, between nodes and gateways of one cluster
	TunnelPort  = 51840 // WireGuard, between gateways of different clusters
	ProbePort   = 6092  // probes, on the addresses of gateways inside the fabric
)

// Routing. Our routes carry RouteProtocol and stand in our tables only. The
// priorities lie before those of the usual CNIs (AWS begins at 512, Cilium moves the local
// table to 100).
const (
	RouteProtocol = 108
	PeersTable    = 6171 // routes to peers, for every packet
	InsideTable   = 6172 // routes from a gateway to nodes, for packets out of the tunnel

	SkipPriority   = 90 // packets that carry the fabric itself go on at EndPriority
	PeersPriority  = 91 // look in PeersTable
	InsidePriority = 92 // look in InsideTable
	EndPriority    = 93 // does nothing; the target of SkipPriority
)

// The nftables table, of family inet, and the priorities of its chains.
const (
	TableName = "liqod"

	RawPriority       = -300 // before connection tracking
	ManglePriority    = -150
	HomeInPriority    = -101 // ahead of kube-proxy, to which the addresses of another cluster may be its own
	DNATPriority      = -100
	FilterPriority    = 0
	HomeOutPriority   = 98
	SNATPriority      = 99 // ahead of the masquerade of CNIs at 100
	LastGuardPriority = 300
)

// Addresses of an external range that belong to gateways, counted from the range's own
// first address: GatewayOffset is the address that all replicas share, replica n has
// GatewayOffset+n. Nothing else is allocated below ReservedAddresses.
const (
	GatewayOffset     = 1
	MaxReplicas       = 14
	ReservedAddresses = 16
)
