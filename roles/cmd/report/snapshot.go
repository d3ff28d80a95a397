// Package report judges a cluster by what was read of it at one moment: which parts of
// liqod are well, how the peerings are, what is offloaded, and what to do about the rest.
// It is pure.
package report

import (
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/shadow/rules"
)

// What is read of a cluster: the keys of Snapshot.Unread.
const (
	ReadKinds           = "kinds"
	ReadInstallation    = "Deployments of liqod"
	ReadConfiguration   = "the configuration"
	ReadLeases          = "Leases"
	ReadWebhooks        = "MutatingWebhookConfigurations"
	ReadRules           = "ValidatingWebhookConfigurations"
	ReadForeignClusters = "ForeignClusters"
	ReadVirtualNodes    = "VirtualNodes"
	ReadOffloadings     = "NamespaceOffloadings"
	ReadMaps            = "NamespaceMaps"
	ReadOffers          = "ResourceOffers"
	ReadQuotas          = "Quotas"
	ReadNetworks        = "Connections and Networks"
	ReadNodes           = "Nodes"
	ReadTenants         = "tenant namespaces"
	ReadPods            = "Pods"
	ReadVKubelets       = "Deployments of vkubelets"
	ReadDaemonSets      = "DaemonSets"
	ReadRolePods        = "pods of liqod"
	ReadBudgets         = "PodDisruptionBudgets"
	ReadControllers     = "ReplicaSets, StatefulSets and Jobs"
	ReadEvents          = "Events"
	ReadClaims          = "PersistentVolumeClaims and StorageClasses"
	ReadPolicies        = "NetworkPolicies"
	ReadServices        = "Services"
	ReadWorkloads       = "Deployments, StatefulSets, CronJobs and Jobs"
)

// Roles that an installation has, by their labels and the names of their Leases.
const (
	Controller = "controller"
	Webhook    = "webhook"
	Gateway    = "gateway"
)

// ComponentLabel on a Deployment of liqod names its role.
const ComponentLabel = "app.kubernetes.io/component"

// LeaseName is the name of the Lease of a role, in the namespace of the installation.
func LeaseName(role string) string { return "liqod-" + role }

// Copying is what the pods of a move show.
type Copying struct {
	// Progress says how far the copy is, or why it has Failed.
	Progress string
	Failed   bool
	// Whole is the time since which the copy is verified; zero before.
	Whole time.Time
}

// Move is the state of a claim whose data moves to another cluster.
type Move struct {
	Namespace string `json:"namespace"`
	Claim     string `json:"claim"`
	// From is the place of the data, and To the node that it moves to. To is empty if only a copy is left
	// to be deleted.
	From string `json:"from"`
	To   string `json:"to,omitempty"`
	// State says how far the move is.
	State string `json:"state"`
	// Stopped reports whether the move does not go on by itself.
	Stopped bool `json:"stopped,omitempty"`
	// Finish and Undo are the commands that go on and give up.
	Finish string `json:"finish,omitempty"`
	Undo   string `json:"undo,omitempty"`
}

// Snapshot is what was read of a cluster at one moment.
type Snapshot struct {
	// Taken is when, by the cluster's own clock.
	Taken time.Time
	// Program is what people type before the name of a command.
	Program string
	// Command is the version of this program.
	Command string
	// Namespace that liqod is installed in.
	Namespace string
	// Only is the namespace that alone was read, with what places its pods. It is empty for a whole cluster.
	Only string
	// Labels are those of the namespace Only.
	Labels map[string]string
	// Applications are those of the namespaces that Leaving returns. It is nil if nothing was read.
	Applications map[string]*Application
	// ClusterID is this cluster's id; empty if it could not be found.
	ClusterID string
	// OpenOverlays are the roles, sorted, whose setting anyOverlaySender is true.
	OpenOverlays []string
	// Trust is the setting sharing.trust of this cluster; empty if it could not be found.
	Trust corev1beta1.Trust
	// Kubernetes is the version of the API server.
	Kubernetes string
	// Kinds are the plural names of liqod's kinds that the API server has.
	Kinds []string
	// Roles are the Deployments of liqod's roles, Leases are theirs.
	Roles  []appsv1.Deployment
	Leases []coordinationv1.Lease
	// Webhooks are those of liqod; Rules are those that only refuse and warn.
	Webhooks []admissionregistrationv1.MutatingWebhookConfiguration
	Rules    []admissionregistrationv1.ValidatingWebhookConfiguration

	ForeignClusters []corev1beta1.ForeignCluster
	VirtualNodes    []offloadingv1beta1.VirtualNode
	Offloadings     []offloadingv1beta1.NamespaceOffloading
	Maps            []offloadingv1beta1.NamespaceMap
	Offers          []sharingv1alpha1.ResourceOffer
	Quotas          []offloadingv1beta1.Quota
	Connections     []networkingv1beta1.Connection
	Networks        []ipamv1alpha1.Network
	// VKubelets are the Deployments of the virtual nodes, Nodes are theirs, Tenants the
	// tenant namespaces of the peers.
	VKubelets []appsv1.Deployment
	Nodes     []corev1.Node
	Tenants   []corev1.Namespace
	// Pods are those on virtual nodes, those without a node that may get a virtual one, and
	// those that peers run here.
	Pods []corev1.Pod
	// RolePods are those of liqod's roles and of vkubelets.
	RolePods []corev1.Pod
	// Whole has the offloaded namespaces of which all pods were asked for, and the errors of the
	// reads that failed. It is nil if a reader needs only the pods that providers run.
	Whole      map[string]error
	DaemonSets []appsv1.DaemonSet

	// Templates are those of the controllers of waiting pods, by the UID of the controller.
	Templates map[types.UID]corev1.PodTemplateSpec
	// Budgets are read while a virtual node is being removed.
	Budgets []policyv1.PodDisruptionBudget
	// Claims are those of Only, or of the cluster; nil if they were not read. Classes are all of the cluster, if
	// Claiming returns some.
	Claims  []corev1.PersistentVolumeClaim
	Classes []*storagev1.StorageClass
	// Namespaces are all of the cluster. Only storage list reads them.
	Namespaces []corev1.Namespace
	// Volumes are the PersistentVolumes of the cluster.
	Volumes []corev1.PersistentVolume
	// Copies are what the pods of moves show, by the UID of the claim. It is nil if it was not read.
	Copies map[types.UID]Copying
	// Events are warnings about pods in the namespaces that Unexplained returns, about Claims, and about objects of
	// Only that a provider refuses, if Nodes cannot be read.
	Events []corev1.Event
	// Refusals are events about Connections: packets of peers that the network fabric has dropped.
	Refusals []corev1.Event

	// Unread says of what could not be read why.
	Unread map[string]error
}

// first returns the first of some items that a function selects, or nil.
func first[T any](items []T, is func(*T) bool) *T {
	for i := range items {
		if is(&items[i]) {
			return &items[i]
		}
	}
	return nil
}

// where returns the items that a function selects.
func where[T any](items []T, is func(*T) bool) (out []*T) {
	for i := range items {
		if is(&items[i]) {
			out = append(out, &items[i])
		}
	}
	return out
}

// Names returns the names of items, sorted and each once. An item with an empty name is left out.
func Names[T any](items []T, name func(*T) string) (names []string) {
	for i := range items {
		if n := name(&items[i]); n != "" {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Application is what a namespace has that may be different in providers.
type Application struct {
	// Policies, Budgets and DaemonSets are names.
	Policies, Budgets, DaemonSets []string
	// Workloads are the objects with a template of pods, but for DaemonSets.
	Workloads []Workload
	Services  []corev1.Service
	// More is true if a kind has more objects than were read.
	More bool
	// Unread says of what could not be read why. Of the namespace that alone was read, Snapshot.Unread says it.
	Unread map[string]error
}

// Workload is an object with a template of pods. Name has its kind, too.
type Workload struct {
	Name string
	// Meta and Pod are those of the template.
	Meta metav1.ObjectMeta
	Pod  corev1.PodSpec
}

// Levels, from the best to the worst.
const (
	OK      Level = "ok"
	Warning Level = "warning"
	Unknown Level = "unknown"
	Problem Level = "problem"
)

// Each calls do with each item, most of them at a time, and waits for all.
func Each[T any](items []T, most int, do func(T)) {
	var group errgroup.Group
	group.SetLimit(most)
	for _, item := range items {
		group.Go(func() error {
			do(item)
			return nil
		})
	}
	_ = group.Wait() // do keeps the errors
}

// Installation is liqod in a cluster.
type Installation struct {
	// Cluster is this cluster's id; empty if it could not be found.
	Cluster string `json:"cluster,omitempty"`
	// Version and Namespace of the installation.
	Version   string `json:"version,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	// Kubernetes is the version of the API server.
	Kubernetes string `json:"kubernetes,omitempty"`
	// Roles of liqod in this cluster.
	Roles []Role `json:"roles"`
}

// Status is how a cluster and its peerings are.
type Status struct {
	Installation
	// Only is the namespace that alone was read. Roles and peers are unknown then.
	Only string `json:"only,omitempty"`
	// Health of everything that is in here.
	Health Level `json:"health"`
	// Problems are the findings that are problems, or that could not be found out; the
	// worst first.
	Problems []Finding `json:"problems"`
	// Warnings are the findings about peers, offloaded namespaces, pods and volumes that may become
	// problems.
	Warnings []Finding `json:"warnings,omitempty"`
	// Unread names what could not be read. The state of it is unknown.
	Unread []string `json:"unread,omitempty"`
	// Differences say what of Only does not follow its pods into providers.
	Differences []string `json:"differences,omitempty"`
	// Peers, by cluster id.
	Peers []Peer `json:"peers"`
	// Namespaces that are offloaded.
	Namespaces []Namespace `json:"namespaces"`
	// Left counts the pods of Only that are on virtual nodes although it is not offloaded. It is empty without such pods.
	Left string `json:"left,omitempty"`
	// Kept says how much data is kept without a claim.
	Kept string `json:"kept,omitempty"`
	// Moves are those of data to another cluster.
	Moves []Move `json:"moves,omitempty"`
}

// Role is a Deployment or DaemonSet of a role of liqod.
type Role struct {
	Name string `json:"name"`
	// Object is its namespace and name.
	Object string `json:"object"`
	Level  Level  `json:"level"`
	// Message says how well it runs.
	Message string `json:"message"`
	Ready   int32  `json:"ready"`
	Want    int32  `json:"want"`
	// Leader is the replica that leads, empty if there is none.
	Leader  string `json:"leader,omitempty"`
	Version string `json:"version,omitempty"`
	Image   string `json:"image"`
	// Restarts of the containers of its pods.
	Restarts int32 `json:"restarts"`

	fix string
}

// Peer is how a peering is.
type Peer struct {
	ClusterID string               `json:"clusterID"`
	Role      corev1beta1.RoleType `json:"role"`
	Health    Level                `json:"health"`
	// Message of the peer's ForeignCluster.
	Message string `json:"message,omitempty"`
	// APIServer is the address of the peer's API server, if it is asked.
	APIServer string `json:"apiServer,omitempty"`
	// Trust in the peer, if it is not that of the setting sharing.trust.
	Trust corev1beta1.Trust `json:"trust,omitempty"`
	// Refused are packets of the peer that the network fabric of this cluster has dropped lately.
	Refused Refused `json:"refused,omitzero"`
	// Version of liqod in the peer, as it has said.
	Version string `json:"version,omitempty"`
	// Conditions of the peer's ForeignCluster, but for Ready, in the order in which they
	// explain each other.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Offers of capacity, in both directions.
	Offers []Offer `json:"offers,omitempty"`
	// VirtualNodes that stand for the peer, and what runs on them.
	VirtualNodes []VirtualNode `json:"virtualNodes"`
	// Given is what the Quotas of this cluster give the peer, and what its pods here ask for. Limit
	// says in words what bounds it.
	Given Room   `json:"given,omitzero"`
	Limit string `json:"limit,omitempty"`
	// Hosted is what the peer runs here.
	Hosted Hosted `json:"hosted"`
}

// Refused counts packets that the hosts of this cluster have dropped. Each host records its number
// when it has doubled, so there may be more of them.
type Refused struct {
	Packets int64 `json:"packets"`
	Hosts   int   `json:"hosts"`
}

// String writes r as a part of a sentence, and nothing without packets.
func (r Refused) String() string {
	if r == (Refused{}) {
		return ""
	}
	return fmt.Sprintf("at least %s, on %s", Count(int(r.Packets), "packet"), Count(r.Hosts, "host"))
}

// Offer is capacity that one cluster offers the other.
type Offer struct {
	Name string `json:"name"`
	// Incoming is capacity of the peer for this cluster; else it is the reverse.
	Incoming bool                       `json:"incoming"`
	Approved bool                       `json:"approved"`
	Phase    sharingv1alpha1.OfferPhase `json:"phase,omitempty"`
	Message  string                     `json:"message,omitempty"`
	Capacity corev1.ResourceList        `json:"capacity"`
}

// VirtualNode is how a virtual node is, and how much of it is used.
type VirtualNode struct {
	Name    string `json:"name"`
	Health  Level  `json:"health"`
	Message string `json:"message,omitempty"`
	Room
	Pods int `json:"pods"`
	// Ready is the number of pods that are ready.
	Ready int `json:"ready"`
	// Removing says that the virtual node is being removed.
	Removing bool `json:"removing,omitempty"`
}

// Room is how much of a capacity is used.
type Room struct {
	// Capacity is what pods may ask for, Used is what they ask for.
	Capacity corev1.ResourceList `json:"capacity"`
	Used     corev1.ResourceList `json:"used"`
}

func (r *Room) use(pod *corev1.Pod) {
	rules.AddResources(r.Used, resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}))
	rules.AddResources(r.Used, corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(1, resource.DecimalSI)})
}

// Hosted counts what a peer runs in this cluster.
type Hosted struct {
	Namespaces int `json:"namespaces"`
	Pods       int `json:"pods"`
}

// Namespace is an offloaded namespace.
type Namespace struct {
	Name     string                                  `json:"name"`
	Strategy offloadingv1beta1.PodOffloadingStrategy `json:"strategy"`
	Phase    offloadingv1beta1.OffloadingPhase       `json:"phase"`
	Message  string                                  `json:"message,omitempty"`
	// RemoteName is the name of its twins.
	RemoteName string `json:"remoteName,omitempty"`
	// Peers that are selected, and whether each has the twin.
	Peers []NamespacePeer `json:"peers"`
	// NoNode are the pods that wait for a node of this cluster, of which some are virtual.
	NoNode PodCounts `json:"noNode,omitzero"`
}

// NamespacePeer is an offloaded namespace in one peer.
type NamespacePeer struct {
	ClusterID string `json:"clusterID"`
	Ready     bool   `json:"ready"`
	Message   string `json:"message,omitempty"`
	// Pods of the namespace that are on virtual nodes of the peer, and have not ended.
	Pods int `json:"pods"`
	// PodCounts has these pods by state.
	PodCounts PodCounts `json:"podCounts"`
}

// Twin is a namespace of this cluster in which a peer runs pods.
type Twin struct {
	Peer      string `json:"peer"`
	Namespace string `json:"namespace"`
	Original  string `json:"original"`
}

// Key changes when the status changes in more than its messages and how far moves of data are: these change while only
// time passes.
func (s *Status) Key() string {
	out, finding := *s, func(f *Finding) { f.Message, f.Fix = "", "" }
	out.Kept, out.Problems, out.Warnings = "", textless(s.Problems, finding), textless(s.Warnings, finding)
	out.Roles = textless(s.Roles, func(r *Role) { r.Message = "" })
	out.Moves = textless(s.Moves, func(m *Move) { m.State = "" })
	out.Peers = textless(s.Peers, func(p *Peer) {
		p.Message, p.Conditions = "", textless(p.Conditions, func(c *metav1.Condition) { c.Message = "" })
		p.Offers = textless(p.Offers, func(o *Offer) { o.Message = "" })
		p.VirtualNodes = textless(p.VirtualNodes, func(n *VirtualNode) { n.Message = "" })
	})
	out.Namespaces = textless(s.Namespaces, func(n *Namespace) {
		n.Message, n.NoNode.Cause = "", ""
		n.Peers = textless(n.Peers, func(p *NamespacePeer) { p.Message, p.PodCounts.Cause = "", "" })
	})
	text, _ := json.Marshal(out) // of texts and numbers
	return string(text)
}

// stale says that nothing can be believed that the controller has written about a state.
func (s *Snapshot) stale() bool {
	if s.Unread[ReadLeases] != nil {
		return false // said elsewhere, and no reason to doubt the rest
	}
	_, trouble := s.leading(Controller)
	return trouble != ""
}

// PodCounts has the pods of a namespace that have not ended, by state.
type PodCounts struct {
	// Pods is the number of all of them.
	Pods int `json:"pods"`
	// Ready pods serve.
	Ready int `json:"ready"`
	// NotReady pods start, fail or end.
	NotReady int `json:"notReady"`
	// Refused pods are not accepted by the provider, or cannot be offloaded.
	Refused int `json:"refused"`
	// Unschedulable pods fit no node of the provider.
	Unschedulable int `json:"unschedulable"`
	// Waiting pods wait for a node of this cluster, or for room in the provider.
	Waiting int `json:"waiting"`
	// Cause is the first cause of those that are not ready, in the words of the cluster that
	// reports it.
	Cause string `json:"cause,omitempty"`
}

// String is "3 pods" if all are ready, else it has the number of each state.
func (c PodCounts) String() string {
	if c.Ready == c.Pods {
		return Count(c.Pods, "pod")
	}
	var parts []string
	for _, part := range []struct {
		n     int
		state podState
	}{{c.NotReady, podNotReady}, {c.Refused, podRefused}, {c.Unschedulable, podUnschedulable}, {c.Waiting, podWaiting}} {
		if part.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.n, part.state))
		}
	}
	return fmt.Sprintf("%d of %s ready (%s)", c.Ready, Count(c.Pods, "pod"), strings.Join(parts, ", "))
}

// textless returns a copy of items, each without the texts that drop clears.
func textless[T any](items []T, drop func(*T)) []T {
	out := slices.Clone(items)
	for i := range out {
		drop(&out[i])
	}
	return out
}
