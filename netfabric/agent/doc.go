// Package agent holds the loops of the network fabric: they read API objects and probes,
// let the pure packages plan and ipam decide, and write what differs.
package agent
