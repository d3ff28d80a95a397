// Package kernel brings the network of a host to a plan.State. It is the only package that
// uses netlink, nftables and WireGuard. It makes no decision: Kernel reads the state of the
// host, compares it with the plan, and writes the difference.
//
// The host is the only memory. No call depends on an earlier one, except that the process
// holds the WireGuard device if the kernel has no WireGuard.
//
// Kernel changes and deletes only things of ours: devices with plan.DevicePrefix and
// everything on them; routes with plan.RouteProtocol in our tables; rules with
// plan.RouteProtocol at our priorities; the nftables table plan.TableName; connection
// tracking entries that our table has translated.
package kernel
