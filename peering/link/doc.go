// Package link keeps what concerns the peers as a whole: who they are to this cluster,
// which credentials reach them, whether they answer, and which rights they and this
// cluster's controller have where their objects meet. Directory knows the ways to the
// peers, Rights binds, Conditions tells.
package link
