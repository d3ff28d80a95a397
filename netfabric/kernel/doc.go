// Package kernel makes the network of a host look like a plan.State. It is the only package
// that speaks netlink, nftables and WireGuard, and it decides nothing: the plan says what
// there is, and Kernel reads back what the host has and writes the difference.
//
// The host is the only memory. Nothing is remembered from one Apply to the next, but for
// the WireGuard device that runs in this process where the kernel has none.
//
// Kernel reads, changes and deletes only what is ours: devices with plan.DevicePrefix and
// what is on them, routes and rules that carry plan.RouteProtocol and stand in our tables or
// at our priorities, the nftables table plan.TableName, and connection tracking entries that
// a translation of ours has made.
package kernel
