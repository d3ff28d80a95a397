package v1beta1

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Tracks reports whether a GitOps tool recognises the objects that it manages by a label or
// annotation. A tool in a provider would take a copy with it for its own, and delete the copy.
func Tracks(key string) bool {
	domain, _, divided := strings.Cut(key, "/")
	return divided && slices.Contains([]string{"argocd.argoproj.io", "kustomize.toolkit.fluxcd.io", "helm.toolkit.fluxcd.io"}, domain)
}

// Labels.
const (
	// TypeLabel is TypeVirtualNode on the Nodes that stand for a peer.
	TypeLabel       = "liqo.io/type"
	TypeVirtualNode = "virtual-node"
	// VirtualKubeletLabel is VirtualKubelet on the same Nodes: cluster-autoscaler leaves Nodes with
	// it out of its sums.
	VirtualKubeletLabel = "type"
	VirtualKubelet      = "virtual-kubelet"
	// ProviderLabel on a Node names the provider's kind, as the provider says it.
	ProviderLabel = "liqo.io/provider"
	// NoStorageLabel is "true" on virtual nodes on which no volume of the class liqo is made: the
	// provider offers no storage class, or the vkubelet does not reflect claims.
	NoStorageLabel = "offloading.liqo.io/no-storage"
	// SchedulingEnabledLabel is "true" on namespaces whose pods the webhook looks at.
	SchedulingEnabledLabel = "liqo.io/scheduling-enabled"
	// VirtualNodeLabel carries the VirtualNode's name on what the controller makes for
	// it: Deployment, its pods, ServiceAccount and bindings.
	VirtualNodeLabel = "liqo.io/virtual-node"
	// ManagedByLabel says which controller of ours made an object.
	ManagedByLabel = "liqo.io/managed-by"
	// ManagedByShadowPod is the ManagedByLabel value of pods made from a ShadowPod.
	ManagedByShadowPod = "shadowpod"
	// ManagedByToken is the ManagedByLabel value of Secrets with tokens of the consumer's
	// service accounts in the provider, and of those that they are bound to at home.
	ManagedByToken = "serviceaccount-token"
	// ManagedByShadowEndpointSlice is the value of LabelManagedBy of discovery.k8s.io on
	// EndpointSlices made from a ShadowEndpointSlice.
	ManagedByShadowEndpointSlice = "shadowendpointslice.liqo.io"
	// OriginLabel carries the id of the cluster that a reflected object comes from.
	OriginLabel = "offloading.liqo.io/origin"
	// DestinationLabel carries the id of the cluster that an object is reflected to.
	DestinationLabel = "offloading.liqo.io/destination"
	// NodeNameLabel carries the name of the virtual node that a remote pod belongs to.
	NodeNameLabel = "offloading.liqo.io/nodename"
	// LocalPodUIDLabel carries the UID of the consumer's pod, on ShadowPods and on the
	// provider's pods. Pods are matched by it, never by name alone.
	LocalPodUIDLabel = "offloading.liqo.io/local-pod-uid"
	// EphemeralVolumeLabel marks the provider's claim of an ephemeral volume of a pod: nothing is kept
	// for it when its namespace is deleted. The volume at home has it as annotation.
	EphemeralVolumeLabel = "offloading.liqo.io/ephemeral-volume"
	// LocalClaimUIDLabel carries the UID of the consumer's PersistentVolumeClaim, on the
	// provider's: data is never handed to a successor of the same name unasked.
	LocalClaimUIDLabel = "offloading.liqo.io/local-claim-uid"
	// LocalClaimAnnotation carries namespace/name of the claim of a user, on the claim of
	// another class whose volume it has on a node of this cluster.
	LocalClaimAnnotation = "offloading.liqo.io/local-claim"
	// AskedNodeAnnotation on such a claim is the node that its volume was asked for. A
	// provisioner that has no volume there removes the other annotation of the node, not this.
	AskedNodeAnnotation = "offloading.liqo.io/asked-node"
	// ServiceAccountNameLabel names the service account, on a reflected Secret that holds a
	// token of it.
	ServiceAccountNameLabel = "offloading.liqo.io/service-account-name"
	// BoundedLabel is "true" on the twin namespaces of a consumer that has a Quota.
	BoundedLabel = "offloading.liqo.io/bounded"
	// ReplicatedLabel is "true" on objects that a peer put into its tenant namespace.
	ReplicatedLabel = "liqo.io/replicated"
	// OriginIDLabel carries the id of the cluster that a replicated object comes from.
	OriginIDLabel = "liqo.io/originID"
	// ReplicationLabel is "true", and RemoteIDLabel the id of the provider, on this cluster's own
	// NamespaceMaps. Tools that were made for Liqo find them so.
	ReplicationLabel = "liqo.io/replication"
	RemoteIDLabel    = "liqo.io/remoteID"
)

// Annotations.
const (
	// AntiAffinityPresetAnnotation on a pod asks for anti-affinity in the provider:
	// propagate, soft or hard. It acts when the pod is created (seed 004).
	AntiAffinityPresetAnnotation = "liqo.io/anti-affinity-preset"
	AntiAffinityPropagate        = "propagate"
	AntiAffinitySoft             = "soft"
	AntiAffinityHard             = "hard"
	// AntiAffinityLabelsAnnotation lists the label keys, comma separated, that the soft
	// and hard presets select by; all but the template hashes when absent.
	AntiAffinityLabelsAnnotation = "liqo.io/anti-affinity-labels"
	// RemoteRuntimeClassAnnotation on a pod names its runtime class in the provider.
	RemoteRuntimeClassAnnotation = "liqo.io/remote-runtime-class-name"
	// SkipReflectionAnnotation, with any value but "false", keeps an object from being
	// reflected under the policy DenyList. It wins over AllowReflectionAnnotation.
	SkipReflectionAnnotation = "liqo.io/skip-reflection"
	// AllowReflectionAnnotation, with any value but "false", has an object reflected under
	// the policy AllowList.
	AllowReflectionAnnotation = "liqo.io/allow-reflection"
	// ReflectOnlyToAnnotation on a ConfigMap or Secret is the id of the only cluster that it is reflected to.
	ReflectOnlyToAnnotation = "offloading.liqo.io/reflect-only-to"
	// ForceRemoteNodePortAnnotation, "true" on a Service, carries its node ports too.
	ForceRemoteNodePortAnnotation = "liqo.io/force-remote-node-port"
	// RemoteStorageClassAnnotation on a PersistentVolumeClaim names its class in the provider.
	RemoteStorageClassAnnotation = "liqo.io/remote-storage-class"
	// RemoteAccessModesAnnotation on a PersistentVolumeClaim lists its access modes in the
	// provider, comma separated: RWO, ROX, RWX or RWOP.
	RemoteAccessModesAnnotation = "liqo.io/remote-access-modes"
	// AdoptRemoteVolumeAnnotation, "true" on a PersistentVolumeClaim, lets it take over the
	// data that the provider has kept of an earlier claim of its name.
	AdoptRemoteVolumeAnnotation = "liqo.io/adopt-remote-volume"
	// MoveToAnnotation on a bound PersistentVolumeClaim is the node that its data is copied to. The
	// provisioner of the node makes a second volume for the claim, and the webhook refuses pods
	// that mount the claim. Once the annotation of the selected node is the same, the claim gets
	// the second volume as soon as its PersistentVolume is deleted.
	MoveToAnnotation = "offloading.liqo.io/move-to"
	// CauseMoving is the type of the cause with which the webhook refuses these pods.
	CauseMoving = "VolumeMoving"
	// MoveLabel has the UID of the claim, on the pods and Secrets of its move. Each pod is owned by
	// the Secret of its name, which has its key.
	MoveLabel = "offloading.liqo.io/move"
	// DiscardCopyAnnotation on a PersistentVolumeClaim is the virtual node whose provider, or
	// CopyHere for the cluster itself, has a second volume for the claim. The provisioner there deletes it and removes
	// the annotation, once the claim is bound to a volume elsewhere.
	DiscardCopyAnnotation = "offloading.liqo.io/discard-copy"
	// CopyHere is no valid name of a node.
	CopyHere = "(this cluster)"
	// MoveFieldManager is the field manager of the writes of a move. Its entry in the claim has the
	// time of the last one.
	MoveFieldManager = "liqod-move"
	// DeleteVolumesAnnotation on a twin namespace that is kept for its volumes asks for their
	// deletion. Its value is the namespace's name.
	DeleteVolumesAnnotation = "liqo.io/delete-volumes"
	// EndPodsInAnnotation on a NamespaceOffloading lists, with commas, the ids of the clusters that
	// a change of its selector may leave, although pods of the namespace run there.
	EndPodsInAnnotation = "liqo.io/end-pods-in"
	// DataKeptAnnotation says why data is kept: on a twin namespace that is no longer asked for,
	// and on the consumer's PersistentVolume whose claim is no more.
	DataKeptAnnotation = "offloading.liqo.io/data-kept"
	// NoVolumeAnnotation, "true" on a consumer's PersistentVolume, says that the provider's claim has
	// no volume yet, as far as this cluster has seen.
	NoVolumeAnnotation = "offloading.liqo.io/no-volume-yet"
	// NamespaceUIDAnnotation on a consumer's PersistentVolume is the UID of its claim's
	// namespace: it tells the deletion of a claim from that of the whole namespace.
	NamespaceUIDAnnotation = "offloading.liqo.io/namespace-uid"
	// APIServerSupportAnnotation, "disabled" on a pod, keeps tokens of its service account
	// at home; "enabled" is the same as no annotation.
	APIServerSupportAnnotation = "liqo.io/api-server-support"
	APIServerSupportDisabled   = "disabled"
	APIServerSupportEnabled    = "enabled"
	// RemoteServiceAccountAnnotation on a pod is refused: pods run with no service account of
	// the provider.
	RemoteServiceAccountAnnotation = "liqo.io/remote-service-account-name"
	// OnProviderLossAnnotation on a namespace is OnProviderLossKeep or OnProviderLossEvict:
	// what becomes of its pods while the virtual node that they are on is not Ready. On a
	// pod it says that LossTolerations were added to it, by the webhook or the vkubelet: with
	// OnProviderLossEvict they were taken back, and are as long as those of the pod's own.
	OnProviderLossAnnotation = "offloading.liqo.io/on-provider-loss"
	// TokenAnnotation on a Secret with a token of the consumer records, as JSON, whose it
	// is and how long it lives.
	TokenAnnotation = "offloading.liqo.io/token"
	// ReflectedAnnotation on a reflected object records, as JSON, which of its labels and
	// annotations came from the consumer: what others add in the provider stays.
	ReflectedAnnotation = "offloading.liqo.io/reflected"
	// RemoteEventAnnotation on an Event says which one of the provider it stands for:
	// <provider's id>/<twin namespace>/<name>.
	RemoteEventAnnotation = "offloading.liqo.io/remote-event"
	// ManagedByNamespaceMapAnnotation on a twin namespace names the NamespaceMap that it
	// was made for, as namespace/name.
	ManagedByNamespaceMapAnnotation = "liqo.io/managed-by-namespace-map"
	// ConsumerUIDAnnotation on a twin namespace says which cluster it was made for: the
	// cluster's id, a slash, and the UID of its kube-system namespace. Where this cluster does not
	// know that UID, "peering-" and the UID of the ForeignCluster stand for it. Another cluster
	// of the same id does not get the namespace. Administrators change it to hand the namespace over.
	ConsumerUIDAnnotation = "offloading.liqo.io/consumer-uid"
	// OriginalNameAnnotation on a twin namespace is the name of the consumer's namespace.
	OriginalNameAnnotation = "liqo.io/original-name"
	// NodePortsAnnotation on a virtual Node lists, with commas, the node ports that its vkubelet answers
	// for pods which live in this cluster: those of Services in namespaces with ServicesHome. The
	// provider reaches them at the address of the vkubelet.
	NodePortsAnnotation = "offloading.liqo.io/node-ports"
	// ServicesAnnotation on a twin namespace is Home where the pods use the Services of the consumer.
	ServicesAnnotation = "offloading.liqo.io/services"
	// ShadowPodUIDAnnotation on a provider's pod is the UID of the ShadowPod that it was made
	// for. With the label ManagedByLabel it says that also of a pod whose owner reference was
	// removed.
	ShadowPodUIDAnnotation = "offloading.liqo.io/shadowpod-uid"
	// KeptAnnotation on a ShadowPod, and on a reflected object, says since when its vkubelet
	// keeps it although the consumer does not know its pod, or the object: the consumer's
	// state went back. Who knows better deletes it in the provider.
	KeptAnnotation = "offloading.liqo.io/kept-since"
	// LeftOutAnnotation on a provider's pod says that the provider does not accept all labels and
	// annotations of its ShadowPod. Its value is the MarksSum of that version of the ShadowPod. It
	// names no key: software that looks for a key would find it in the provider.
	LeftOutAnnotation = "offloading.liqo.io/left-out-of"
	// KeptNamespacesAnnotation on a NamespaceMap in a provider lists, with commas, the
	// namespaces of the consumer that it asks twins for although the consumer does not know
	// of them: its state went back. Who knows better takes them from the list.
	KeptNamespacesAnnotation = "offloading.liqo.io/kept-namespaces"
)

// Names and keys that Kubernetes objects carry.
const (
	// VirtualNodeTaintKey is the key of the taint (value "true", effect NoExecute) that
	// keeps from virtual nodes the pods that do not ask for them.
	VirtualNodeTaintKey   = "virtual-node.liqo.io/not-allowed"
	VirtualNodeTaintValue = "true"
	// ClosedTaintKey is the key of the taint (effect NoSchedule) of virtual nodes that take no
	// further pods, because reflection.pod.workers is 0.
	ClosedTaintKey = "virtual-node.liqo.io/closed"
	// RuntimeClassName is the runtime class that forces a pod to a virtual node.
	RuntimeClassName = "liqo"
	// StorageProvisioner is the provisioner of the class whose volumes may lie in a provider.
	StorageProvisioner = "liqo.io/storage"
	// NamespaceOffloadingName is the only name that a NamespaceOffloading may have.
	NamespaceOffloadingName = "offloading"
	// RemotePodFinalizer keeps a provider's pod whose restart policy is not Always until
	// its end is recorded in the ShadowPod.
	RemotePodFinalizer = "offloading.liqo.io/record-end"
	// ReflectionLease is the name of the Lease, in the tenant namespace of a provider, by
	// which the active vkubelets of its virtual nodes agree who reflects what they share.
	ReflectionLease = "reflection"
	// VirtualNodeFinalizer keeps a VirtualNode until its node is drained and removed.
	VirtualNodeFinalizer = "virtualnode-controller.liqo.io/finalizer"
	// NamespaceOffloadingFinalizer keeps a NamespaceOffloading until the NamespaceMaps no
	// longer ask for twins of its namespace. It never waits for a peer.
	NamespaceOffloadingFinalizer = "namespaceoffloading-controller.liqo.io/finalizer"
	// TwinBounds is the name of the ResourceQuota and of the NetworkPolicy that the
	// controller writes into each twin namespace.
	TwinBounds = "liqod-twin"
	// NamespaceMapFinalizer keeps a NamespaceMap in a provider until its twins are gone.
	NamespaceMapFinalizer = "namespacemap-controller.liqo.io/finalizer"
)

// Reasons that show on the consumer's pods.
const (
	// ReasonControllerSilent is the reason of a Pending pod on a virtual node whose provider
	// runs no controller that could create it, and the type of a condition of that Node.
	ReasonControllerSilent = "ProviderControllerSilent"
	// ReasonOffloadingBackOff is the reason of a Pending pod on a virtual node whose
	// namespace is not offloaded to that provider.
	ReasonOffloadingBackOff = "OffloadingBackOff"
	// ReasonRemotePodLost is the reason of a pod that was lost in the provider and may
	// not be run again under its restart policy.
	ReasonRemotePodLost = "RemotePodLost"
	// ReasonRemotePodKept is the reason of an event on a VirtualNode, and of a pod that has
	// to wait: a pod in the provider has a local pod that this cluster does not know, because
	// its state went back.
	ReasonRemotePodKept = "RemotePodKept"
)

// TwinOf returns the NamespaceMap, as namespace/name, that a namespace was made for; it is
// empty for a namespace that is no twin.
func TwinOf(namespace metav1.Object) string {
	return namespace.GetAnnotations()[ManagedByNamespaceMapAnnotation]
}
