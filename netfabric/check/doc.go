// Package check reads what Nodes, gateways and peers state about a network, and refuses what
// the fabric cannot use. Packages host and exchange both judge by it: a Connection may have
// been written before this version, and a Lease by anybody with the right to.
package check
