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

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
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

// Level says how well something is.
type Level string

// Levels, from the best to the worst.
const (
	OK      Level = "ok"
	Warning Level = "warning"
	Unknown Level = "unknown"
	Problem Level = "problem"
)

// Rank orders levels: the worse one has the higher rank.
func (l Level) Rank() int {
	return max(0, slices.Index([]Level{OK, Warning, Unknown, Problem}, l))
}

// Worse returns the worse of two levels.
func Worse(a, b Level) Level {
	if b.Rank() > a.Rank() {
		return b
	}
	return a
}

// Finding is what was found out about one thing.
type Finding struct {
	// ID names the check, and Docs is the address of its description.
	ID   ID     `json:"id"`
	Docs string `json:"docs"`
	// Section that the finding belongs to, as the text prints it.
	Section string `json:"section"`
	// Peer is the cluster id of the peer that it concerns, if it is one.
	Peer string `json:"peer,omitempty"`
	// Level says how well it is.
	Level Level `json:"level"`
	// Reason is the cause in one word, if the cluster reports one.
	Reason string `json:"reason,omitempty"`
	// Because names the finding of which this one is a consequence, as Finding.Name does.
	Because string `json:"because,omitempty"`
	// Subject is what was looked at.
	Subject string `json:"subject"`
	// Message is what was found.
	Message string `json:"message"`
	// Fix says what to do.
	Fix string `json:"fix,omitempty"`
}

// Name identifies a finding among those of a cluster.
func (f Finding) Name() string {
	if f.Peer == "" {
		return f.Subject
	}
	return f.Peer + ", " + f.Subject
}

// Worst returns the worst level of findings.
func Worst(findings []Finding) Level {
	level := OK
	for _, f := range findings {
		level = Worse(level, f.Level)
	}
	return level
}

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
