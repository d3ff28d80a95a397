// Package host brings the network of one host, a node or a gateway, to its plan. Its loops
// read API objects and probes, package plan decides, and package kernel writes what differs.
// A gateway also announces itself to its cluster, and writes the status of Connections.
package host
