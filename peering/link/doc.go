// Package link handles what concerns a peer as a whole: its identity, the credentials for
// it, whether its API server answers, and the rights of the peer and of this cluster's
// controller in the tenant namespace. Directory keeps the clients for the peers, Rights the
// RBAC bindings, and Conditions the status of ForeignClusters.
package link
