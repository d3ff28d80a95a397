package roles

// All returns every role, in the order of the documentation.
func All() []Role {
	return []Role{
		{Name: "controller", Short: "peers, namespaces, virtual nodes, and the pods of peers; one active replica", Build: buildController},
		{Name: "vkubelet", Short: "one virtual node: its Node, its pods, the kubelet API; one active replica", Build: buildVKubelet},
		{Name: "webhook", Short: "admission of pods in offloaded namespaces; every replica serves", Build: buildWebhook},
		{Name: "gateway", Short: "tunnels to the peers and address translation", Build: buildGateway},
		{Name: "route", Short: "overlay and routes between a node's pods and the gateways", Build: buildRoute},
		{Name: "ipam", Short: "allocation of networks and addresses; one active replica", Build: buildIPAM},
	}
}
