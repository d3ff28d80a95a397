// Package link handles what concerns a peer as a whole: its identity, the credentials for
// it, whether its API server answers and is still the cluster of the peering, and the rights
// of the peer and of this cluster's controller in the tenant namespace. In the controller,
// Directory keeps the clients for the peers, Rights the RBAC bindings, and Conditions the
// status of ForeignClusters. In a vkubelet, which has one provider, Credentials keeps the
// clients for the provider, and Check its state.
package link
