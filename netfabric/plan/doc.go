// Package plan computes the desired state of a host of the fabric: devices, addresses,
// neighbours, routes, rules, nftables table and WireGuard peers of a node or of a gateway.
//
// It is pure: plain data in, plain data out, no clock, no kernel, no Kubernetes object. The
// executor reads the same types back from the kernel, compares them with Diff and applies
// the difference. docs/internals/packet-path.md shows the way of a packet through such states.
package plan
