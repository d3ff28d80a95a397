package kernel

import (
	"net/netip"
	"time"

	"go.uber.org/zap"
)

// Config says which network a Kernel works on.
type Config struct {
	// Namespace is a file descriptor of a network namespace; 0 means the process's own. The
	// threads of wireguard-go run in the process's own, so another namespace supports a
	// tunnel device only with the kernel's WireGuard.
	Namespace int
	Key       Key         // private key of the tunnel device; zero for states without one, or until SetKey
	Log       *zap.Logger // errors of wireguard-go, at debug level

	// Wrote is called after each write with the kind of object: link, address, neighbour,
	// forwarding entry, peer, table, element, rule, route, sysctl. Writes without a new plan
	// mean that another program on the host reverts them. It may be nil.
	Wrote func(kind string)
}

// Mode is the implementation of WireGuard in use.
type Mode string

// The modes. A device in the process ends with the process, a device of the kernel stays.
const (
	InKernel  Mode = "kernel"
	InProcess Mode = "process"
)

// Peer is the status of a peer of the tunnel device.
type Peer struct {
	Endpoint  netip.AddrPort // not valid: none is planned, and no packet has arrived
	Handshake time.Time      // time of the latest; zero: none yet
	Received  uint64         // bytes
	Sent      uint64         // bytes
}
