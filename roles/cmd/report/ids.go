package report

// ID names a check. It is stable: scripts compare it, and it is the section of the check in
// docs/checks.md.
type ID string

// pageOfChecks has a section for each ID, in the order of this file.
const pageOfChecks = "https://github.com/liqod/liqod/blob/main/docs/checks.md"

// Docs is the address of the section about a check.
func (id ID) Docs() string { return pageOfChecks + "#" + string(id) }

// Checks of an installation.
const (
	idKubernetes   ID = "kubernetes-version"
	idUnread       ID = "objects-read"
	idRights       ID = "rights"
	idKinds        ID = "crds"
	idController   ID = "role-controller"
	idWebhook      ID = "role-webhook"
	idIPAM         ID = "role-ipam"
	idGateway      ID = "role-gateway"
	idRoute        ID = "role-route"
	idPodsWebhook  ID = "webhook-pods"
	idRulesWebhook ID = "webhook-rules"
	idVersions     ID = "versions"
	idOverlay      ID = "overlay-senders"
)

// Checks of a peering.
const (
	idForeignCluster ID = "peer-foreigncluster"
	idIdentity       ID = "peer-identity"
	idUniqueID       ID = "peer-id"
	idAPIServer      ID = "peer-api-server"
	idNetwork        ID = "peer-network"
	idOutgoing       ID = "peer-capacity-there"
	idIncoming       ID = "peer-capacity-here"
	idTenant         ID = "peer-tenant-namespace"
	idConsumerRights ID = "peer-rights"
	idQuota          ID = "peer-quota"
	idTrust          ID = "peer-trust"
	idConsumerRanges ID = "peer-address-ranges"
	idAddresses      ID = "peer-addresses"
	idRange          ID = "peer-range"
	idNamespaceMap   ID = "peer-namespaces"
	idVirtualNodes   ID = "virtual-nodes"
	idVirtualNode    ID = "virtual-node"
	idVKubelet       ID = "virtual-node-vkubelet"
	idRemoval        ID = "virtual-node-removal"
	idBudget         ID = "virtual-node-drain"
)

// Checks of offloaded namespaces, of their pods, and of DaemonSets.
const (
	idNoProvider    ID = "providers"
	idNamespace     ID = "namespace"
	idDifferences   ID = "namespace-differences"
	idRefusedObject ID = "namespace-objects"
	idPods          ID = "pods"
	idNotReady      ID = "pods-not-ready"
	idRefused       ID = "pods-refused"
	idUnschedulable ID = "pods-unschedulable"
	idWaiting       ID = "pods-waiting"
	idEarlier       ID = "pods-earlier-affinity"
	idOlder         ID = "pods-older"
	idKept          ID = "kept-data"
	idMove          ID = "data-move"
	idDaemonSets    ID = "daemonsets"
)
