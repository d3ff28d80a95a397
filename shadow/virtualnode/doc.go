// Package virtualnode keeps virtual nodes. In the controller, Lifecycle creates the
// vkubelet of every VirtualNode (Deployment, ServiceAccount, bindings) and shows the state
// of the vkubelet and the Node in the VirtualNode's status. It removes a deleted
// VirtualNode in bounded time, even without the provider: it drains the pods first, and
// deletes the Node before the vkubelet's rights. Approver approves the serving certificates
// of these vkubelets, and no others. In the vkubelet, Keeper keeps the Node that represents the
// provider, and its heartbeat Lease; WantNode is pure and returns the wanted Node.
package virtualnode
