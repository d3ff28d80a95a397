// Package config has the typed settings of liqod. It reads them strictly from defaults,
// file, environment and flags. It starts nothing, and is independent of the roles' code.
package config

import (
	"time"

	"github.com/liqod/liqod/health"
)

// Config holds every setting. The meaning, unit and default of each stand in config.yaml
// at the root of the repository, and nowhere else.
type Config struct {
	ClusterID  string     `mapstructure:"clusterID"`
	Namespace  string     `mapstructure:"namespace"`
	Kubeconfig string     `mapstructure:"kubeconfig"`
	Log        Log        `mapstructure:"log"`
	Server     Server     `mapstructure:"server"`
	Lease      Lease      `mapstructure:"lease"`
	Probe      Probe      `mapstructure:"probe"`
	Health     Health     `mapstructure:"health"`
	Reflection Reflection `mapstructure:"reflection"`
	Discovery  Discovery  `mapstructure:"discovery"`
	Peering    Peering    `mapstructure:"peering"`
	Sharing    Sharing    `mapstructure:"sharing"`
	Controller Controller `mapstructure:"controller"`
	Storage    Storage    `mapstructure:"storage"`
	VKubelet   VKubelet   `mapstructure:"vkubelet"`
	Webhook    Webhook    `mapstructure:"webhook"`

	Authentication Authentication `mapstructure:"authentication"`
	Networking     Networking     `mapstructure:"networking"`
	IPAM           IPAM           `mapstructure:"ipam"`
	Gateway        Gateway        `mapstructure:"gateway"`
	Route          Route          `mapstructure:"route"`
}

// Storage configures the volumes of the class liqo on the nodes of this cluster.
type Storage struct {
	RealStorageClassName string `mapstructure:"realStorageClassName"`
	// StorageNamespace is empty if there are no such volumes.
	StorageNamespace string `mapstructure:"storageNamespace"`
}

// Log configures the process's log.
type Log struct {
	Level  string `mapstructure:"level"`
	Format string `mapstructure:"format"`
}

// Server configures the health and metrics server.
type Server struct {
	Address string `mapstructure:"address"`
}

// Lease configures leader election.
type Lease struct {
	Duration      time.Duration `mapstructure:"duration"`
	RenewDeadline time.Duration `mapstructure:"renewDeadline"`
	RetryPeriod   time.Duration `mapstructure:"retryPeriod"`
}

// Probe configures the probes of peers.
type Probe struct {
	Interval  time.Duration `mapstructure:"interval"`
	Timeout   time.Duration `mapstructure:"timeout"`
	Size      int           `mapstructure:"window"`
	Failures  int           `mapstructure:"failures"`
	Successes int           `mapstructure:"successes"`
}

// Window returns an empty window with these settings.
func (p Probe) Window() health.Window {
	return health.Window{Size: p.Size, Failures: p.Failures, Successes: p.Successes}
}

// Health configures the check of /livez, and how the health of peers is judged.
type Health struct {
	UnknownGrace time.Duration `mapstructure:"unknownGrace"`
	Heartbeat    time.Duration `mapstructure:"heartbeat"`
}

// Reflection configures the reflection of each kind to a peer.
type Reflection struct {
	SkipLabels      []string `mapstructure:"skipLabels"`
	SkipAnnotations []string `mapstructure:"skipAnnotations"`
	// SharedZones are the ids of peers, or the star: see SharesZones.
	SharedZones []string `mapstructure:"sharedZones"`

	Pod                   Workers `mapstructure:"pod"`
	Service               Kind    `mapstructure:"service"`
	EndpointSlice         Workers `mapstructure:"endpointslice"`
	Ingress               Kind    `mapstructure:"ingress"`
	ConfigMap             Kind    `mapstructure:"configmap"`
	Secret                Kind    `mapstructure:"secret"`
	ServiceAccount        Workers `mapstructure:"serviceaccount"`
	PersistentVolumeClaim Workers `mapstructure:"persistentvolumeclaim"`
	Event                 Kind    `mapstructure:"event"`
}

// Workers configures the reflection of a kind whose policy cannot be chosen.
type Workers struct {
	// Workers is the number of objects worked on at once; 0: the kind is not reflected.
	Workers int `mapstructure:"workers"`
}

// Kind configures the reflection of a kind.
type Kind struct {
	// Type is DenyList or AllowList.
	Type string `mapstructure:"type"`
	// Workers is the number of objects worked on at once; 0: the kind is not reflected.
	Workers int `mapstructure:"workers"`
}

// Discovery configures how other clusters are found.
type Discovery struct {
	DNS         DNS       `mapstructure:"dns"`
	Multicast   Multicast `mapstructure:"multicast"`
	MaxClusters int       `mapstructure:"maxClusters"`
}

// DNS configures the domain that names other clusters.
type DNS struct {
	Domain  string   `mapstructure:"domain"`
	Servers []string `mapstructure:"servers"`
}

// Multicast configures the local networks that clusters are looked for in.
type Multicast struct {
	Interfaces []string `mapstructure:"interfaces"`
	URL        string   `mapstructure:"url"`
}

// Peering configures the default policies for both directions of peerings. They apply to
// ForeignClusters with the value Auto (link.Policy).
type Peering struct {
	Outgoing         string `mapstructure:"outgoing"`
	OutgoingSelector string `mapstructure:"outgoingSelector"`
	Incoming         string `mapstructure:"incoming"`
	IncomingSelector string `mapstructure:"incomingSelector"`
	// AddressRanges and RenewAt are about the identities that this cluster has in its peers.
	AddressRanges []string `mapstructure:"addressRanges"`
	RenewAt       float64  `mapstructure:"renewAt"`
	// AcceptOffers is Automatic or Manual.
	AcceptOffers string `mapstructure:"acceptOffers"`
}

// Controller configures role controller.
type Controller struct {
	Workers          int      `mapstructure:"workers"`
	PodSecurityLevel string   `mapstructure:"podSecurityLevel"`
	RuntimeClasses   []string `mapstructure:"runtimeClasses"`
	TwinNames        []string `mapstructure:"twinNames"`
	VolumeTypes      []string `mapstructure:"volumeTypes"`
	// Tolerations are taints, which Tolerations reads.
	Tolerations      []string         `mapstructure:"tolerations"`
	AlwaysPullImages bool             `mapstructure:"alwaysPullImages"`
	DrainTimeout     time.Duration    `mapstructure:"drainTimeout"`
	DrainForceAfter  time.Duration    `mapstructure:"drainForceAfter"`
	QuotaPatience    time.Duration    `mapstructure:"quotaPatience"`
	NodeFailure      bool             `mapstructure:"enableNodeFailureController"`
	VKubelet         VKubeletTemplate `mapstructure:"vkubelet"`
}

// VKubeletTemplate has the settings from which role controller makes vkubelet Deployments.
type VKubeletTemplate struct {
	Image           string `mapstructure:"image"`
	ImagePullPolicy string `mapstructure:"imagePullPolicy"`
	// ImagePullSecrets are names of Secrets in each tenant namespace.
	ImagePullSecrets []string `mapstructure:"imagePullSecrets"`
	Replicas         int      `mapstructure:"replicas"`
	// PriorityClassName may be empty.
	PriorityClassName string `mapstructure:"priorityClassName"`
	// NodeSelector are pairs, which Pairs reads. Tolerations are taints, which Tolerations reads.
	NodeSelector []string `mapstructure:"nodeSelector"`
	Tolerations  []string `mapstructure:"tolerations"`
	// Spread are keys of labels of nodes.
	Spread      []string  `mapstructure:"spread"`
	ExtraArgs   []string  `mapstructure:"extraArgs"`
	NodeAddress string    `mapstructure:"nodeAddress"`
	Resources   Resources `mapstructure:"resources"`
}

// Resources are Kubernetes quantities; an empty one is left out.
type Resources struct {
	CPURequest    string `mapstructure:"cpuRequest"`
	MemoryRequest string `mapstructure:"memoryRequest"`
	CPULimit      string `mapstructure:"cpuLimit"`
	MemoryLimit   string `mapstructure:"memoryLimit"`
}

// VKubelet configures role vkubelet.
type VKubelet struct {
	VirtualNode   string `mapstructure:"virtualNode"`
	NodeAddress   string `mapstructure:"nodeAddress"`
	ListenAddress string `mapstructure:"listenAddress"`
	// CertificateDirectory is empty if the serving certificate is kept in memory only.
	CertificateDirectory string `mapstructure:"certificateDirectory"`
	// NodeLeaseDuration is in whole seconds.
	NodeLeaseDuration time.Duration `mapstructure:"nodeLeaseDuration"`
	// NodeTaint is whether a virtual node has its taint where its VirtualNode does not say so.
	NodeTaint bool `mapstructure:"nodeTaint"`
	// OwnZone is whether a virtual node is a zone of its own where its VirtualNode names none.
	OwnZone bool `mapstructure:"ownZone"`
	// EnableAPIServerSupport, HomeAPIServer and TokenBinding are about the tokens that
	// offloaded pods carry.
	EnableAPIServerSupport bool   `mapstructure:"enableAPIServerSupport"`
	HomeAPIServer          string `mapstructure:"homeAPIServer"`
	TokenBinding           string `mapstructure:"tokenBinding"`
	// ClusterDNS and ClusterDomain are for pods that use the Services of this cluster; empty: as in
	// resolv.conf of this process.
	ClusterDNS    []string `mapstructure:"clusterDNS"`
	ClusterDomain string   `mapstructure:"clusterDomain"`
}

// Values of VKubelet.TokenBinding.
const (
	TokenBindingSecret = "secret"
	TokenBindingPod    = "pod"
)

// Webhook configures role webhook.
type Webhook struct {
	Address string   `mapstructure:"address"`
	Hosts   []string `mapstructure:"hosts"`
	// Drain is how long a terminating process still answers.
	Drain time.Duration `mapstructure:"drain"`
	// ClientCA has, as PEM, the authorities of the certificates that API servers present;
	// empty: no certificate is asked for.
	ClientCA    string   `mapstructure:"clientCA"`
	ClientNames []string `mapstructure:"clientNames"`
}

// Authentication configures the endpoint by which peers get identities.
type Authentication struct {
	Address            string        `mapstructure:"address"`
	URL                string        `mapstructure:"url"`
	Hosts              []string      `mapstructure:"hosts"`
	APIServerURL       string        `mapstructure:"apiServerURL"`
	Identity           string        `mapstructure:"identity"`
	Lifetime           time.Duration `mapstructure:"lifetime"`
	RequestsPerMinute  int           `mapstructure:"requestsPerMinute"`
	RequestsPerAddress int           `mapstructure:"requestsPerAddress"`

	Connections           int      `mapstructure:"connections"`
	ConnectionsPerAddress int      `mapstructure:"connectionsPerAddress"`
	MaxPeers              int      `mapstructure:"maxPeers"`
	AcceptRanges          []string `mapstructure:"acceptRanges"`
}

// Networking configures the network fabric of this cluster. All but Enabled, Reach and ExternalEndpoints are ranges,
// which Prefixes reads.
type Networking struct {
	Enabled         bool     `mapstructure:"enabled"`
	PodCIDRs        []string `mapstructure:"podCIDRs"`
	ServiceCIDRs    []string `mapstructure:"serviceCIDRs"`
	ExternalCIDRs   []string `mapstructure:"externalCIDRs"`
	NodeCIDRs       []string `mapstructure:"nodeCIDRs"`
	ReservedSubnets []string `mapstructure:"reservedSubnets"`
	Reach           string   `mapstructure:"reach"` // ReachShared or ReachAll
	// ExternalEndpoints gives endpoints that are no pods addresses of ExternalCIDRs.
	ExternalEndpoints bool `mapstructure:"externalEndpoints"`
}

// IPAM configures role ipam. All are ranges, which Prefixes reads.
type IPAM struct {
	Keep  []string `mapstructure:"keep"`
	Pools []string `mapstructure:"pools"`
}

// Gateway configures role gateway.
type Gateway struct {
	// KeySecret, or else a file in StateDir, has the private key of the gateway.
	KeySecret string `mapstructure:"keySecret"`
	StateDir  string `mapstructure:"stateDir"`
	// KeyAge is the age from which on the key is replaced; 0: it never is.
	KeyAge time.Duration `mapstructure:"keyAge"`
	// Number identifies the gateway among those of its cluster.
	Number int `mapstructure:"number"`
	// Replicas lets so many gateways share the numbers 1 to Replicas; 0: Number.
	Replicas    int `mapstructure:"replicas"`
	TunnelPort  int `mapstructure:"tunnelPort"`
	OverlayPort int `mapstructure:"overlayPort"`
	// AnyOverlaySender takes VXLAN from every address, not from nodes only.
	AnyOverlaySender bool `mapstructure:"anyOverlaySender"`
	// Addresses are the addresses under which nodes reach the gateway.
	Addresses []string `mapstructure:"addresses"`
	// Endpoints, or else the addresses of Service, are announced to other clusters.
	Endpoints []string `mapstructure:"endpoints"`
	Service   string   `mapstructure:"service"`
	NodeName  string   `mapstructure:"nodeName"`
	// PodAddresses has it follow Pods, beside the podCIDRs of Nodes.
	PodAddresses bool `mapstructure:"podAddresses"`
	// MTU of the underlay in bytes; 0: that of its device.
	MTU   int          `mapstructure:"mtu"`
	Probe GatewayProbe `mapstructure:"probe"`
}

// GatewayProbe configures the probes through tunnels.
type GatewayProbe struct {
	Interval time.Duration `mapstructure:"interval"`
	Silence  time.Duration `mapstructure:"silence"`
	Answers  int           `mapstructure:"answers"`
}

// Route configures role route.
type Route struct {
	NodeName    string `mapstructure:"nodeName"`
	OverlayPort int    `mapstructure:"overlayPort"`
	// AnyOverlaySender takes VXLAN from every address, not from gateways and their nodes only.
	AnyOverlaySender bool `mapstructure:"anyOverlaySender"`
	// MTU of the underlay in bytes; 0: that of its device.
	MTU int `mapstructure:"mtu"`
}
