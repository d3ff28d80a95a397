// Package link keeps what concerns the peers as a whole: who they are to this cluster,
// which credentials reach them, whether they answer, whether they are still the clusters
// that were peered with, and which rights they and this cluster's controller have where
// their objects meet. For the controller, which meets all peers, Directory knows the ways to
// them, Rights binds, Conditions tells. For a vkubelet, which meets one provider, Credentials
// are the way and Check tells.
package link
