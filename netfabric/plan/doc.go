// Package plan computes what a host of the fabric has to look like: the devices, addresses,
// neighbours, routes, rules, nftables table and WireGuard peers of a node or of a gateway.
//
// It is pure: plain data in, plain data out, no clock, no kernel, no Kubernetes object. The
// executor reads the same types back from the kernel, compares them with Diff, and does the
// rest. docs/packet-path.md shows the way of a packet through what is planned here.
package plan
