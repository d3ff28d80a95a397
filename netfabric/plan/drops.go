package plan

// The names of the counters of dropped packets, as in Match.Name.
const (
	DropFromPeer    = "from_peer"    // out of the tunnel: source and destination are not of one peer, as it was given them
	DropToPeer      = "to_peer"      // into the tunnel: the peer was not given the source, or has not the destination
	DropToGateway   = "to_gateway"   // from the fabric to the gateway itself: no probe, no ICMP, no answer
	DropToNode      = "to_node"      // from a peer to a node, by any address of the node, that no IP for this peer names
	DropToPod       = "to_pod"       // from a peer to anything else on a node, or to another peer: a pod that is not shared with this peer
	DropOverlay     = "overlay"      // VXLAN out of the fabric, or from a host that is no end of the overlay
	DropToPort      = "to_port"      // from a peer to an address that an IP names, at a port or by a protocol that it does not name
	DropToOutside   = "to_outside"   // from a peer to an address outside of the fabric that no IP for this peer names
	DropFromOutside = "from_outside" // into the fabric, from an address outside of it that no IP for the destination's peer names
	DropFromNode    = "from_node"    // from a node to the gateway: the source is a peer's, or the destination is no peer's
	DropFromGateway = "from_gateway" // from the overlay to a node: the source is not in the fabric
	DropTooMany     = "too_many"     // from a peer: the first packet of a connection, or a probe, beyond its share
	DropInvalid     = "invalid"      // connection tracking takes it for invalid, so nothing would translate it
)

// Refused begins the names of the sets with the ranges of peers, whose elements count what is dropped
// of their packets.
const Refused = "refused"
