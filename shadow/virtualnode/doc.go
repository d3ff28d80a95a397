// Package virtualnode is the controller's side of a virtual node. Lifecycle gives
// every VirtualNode its vkubelet (Deployment, ServiceAccount, bindings), shows in its
// status how that and the Node are, and takes all of it down again: pods drained
// first, the Node before the rights, in bounded time even with the provider gone.
// Approver approves the serving certificates that those vkubelets ask for, and no
// others. The Node itself is the vkubelet's.
package virtualnode
