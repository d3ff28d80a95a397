package rules

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// volumeProvisionerAnnotation names the provisioner that has made a volume, and the other two the
// provisioner that has to make the volume of a claim.
const (
	volumeProvisionerAnnotation    = "pv.kubernetes.io/provisioned-by"
	claimProvisionerAnnotation     = "volume.kubernetes.io/storage-provisioner"
	betaClaimProvisionerAnnotation = "volume.beta.kubernetes.io/storage-provisioner"
)

// ClaimClass returns the name of the class of a claim: its own, or the default of the cluster. It
// is empty for a claim that only takes a volume that is there already.
func ClaimClass(claim *corev1.PersistentVolumeClaim, classes []*storagev1.StorageClass) string {
	if class, set := claim.Annotations[corev1.BetaStorageClassAnnotation]; set {
		return class
	}
	if class := claim.Spec.StorageClassName; class != nil {
		return *class
	}
	return DefaultStorageClass(classes)
}

// OnOwnNodesOnly reports whether a claim has its volume, or gets one, on nodes of this cluster only.
// Only liqod makes volumes that may be elsewhere; the affinity of such a volume says where it is.
// classes are all of this cluster. volume is the one that the claim names, nil if it is not known.
// decided is false if only the volume can tell, because there is no such class, or somebody has
// bound the claim to a volume of their choice.
func OnOwnNodesOnly(claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume, classes []*storagev1.StorageClass) (only, decided bool) {
	ours, known := ofLiqod(claim, classes)
	switch bound := claim.Spec.VolumeName; {
	case volume != nil:
		ours = OwnVolume(volume)
	case bound != "" && ours && bound != "pvc-"+string(claim.UID), bound != "" && !ours && !known:
		return false, false
	}
	return !ours, true
}

// OwnVolume reports whether liqod has made a volume. The chart's policies let nobody of liqod write
// volumes without this annotation.
func OwnVolume(volume *corev1.PersistentVolume) bool {
	return volume.Annotations[volumeProvisionerAnnotation] == offloadingv1beta1.StorageProvisioner
}

// ofLiqod reports whether liqod makes the volume of a claim, and whether its class exists.
func ofLiqod(claim *corev1.PersistentVolumeClaim, classes []*storagev1.StorageClass) (ours, known bool) {
	const provisioner = offloadingv1beta1.StorageProvisioner
	name := ClaimClass(claim, classes)
	class := slices.IndexFunc(classes, func(c *storagev1.StorageClass) bool { return c.Name == name })
	known = class >= 0
	ours = claim.Annotations[claimProvisionerAnnotation] == provisioner || claim.Annotations[betaClaimProvisionerAnnotation] == provisioner ||
		known && classes[class].Provisioner == provisioner
	return ours, known
}

// FollowsPod reports whether liqod makes the volume of a claim on the node of the claim's next pod.
func FollowsPod(claim *corev1.PersistentVolumeClaim, classes []*storagev1.StorageClass) bool {
	ours, _ := ofLiqod(claim, classes)
	return ours && claim.Spec.VolumeName == ""
}

// WithStorage returns the pod as it is to be created if one of its claims follows it: not on virtual
// nodes on which no volume is made, in addition to what the pod itself requires. The scheduler sees
// nothing else of the storage of providers: it would choose such a node again and again. Without
// onOwnNodes the pod runs on virtual nodes only, as no volume is made on own ones. WithStorage leaves
// alone the pods that Offload leaves alone, and never changes its argument.
func WithStorage(pod *corev1.Pod, onOwnNodes bool) (*corev1.Pod, error) {
	term := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: offloadingv1beta1.NoStorageLabel, Operator: corev1.NodeSelectorOpDoesNotExist}}}
	if !onOwnNodes {
		term = and(typeTerm(corev1.NodeSelectorOpIn), term)
	}
	return onlyOn(pod, term)
}

// KeepHome returns the pod as it is to be created if one of its claims has its volume on own nodes:
// only on these, in addition to what the pod itself requires. It leaves alone the pods that Offload
// leaves alone, and never changes its argument.
func KeepHome(pod *corev1.Pod) (*corev1.Pod, error) { return onlyOn(pod, ownNodes()) }

// onlyOn returns the pod as it is to be created if its nodes have to match a term, too.
func onlyOn(pod *corev1.Pod, term corev1.NodeSelectorTerm) (*corev1.Pod, error) {
	if placed(pod) {
		return pod, nil
	}
	out := pod.DeepCopy()
	return out, restrict(&out.Spec, []corev1.NodeSelectorTerm{term})
}

// AsksForVirtualNodes reports whether a pod admits virtual nodes only, by its node selector or its
// affinity: its author knows where it is to run.
func AsksForVirtualNodes(pod *corev1.Pod) bool {
	if pod.Spec.NodeSelector[offloadingv1beta1.TypeLabel] == offloadingv1beta1.TypeVirtualNode {
		return true
	}
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return false
	}
	virtual := typeTerm(corev1.NodeSelectorOpIn)
	return !slices.ContainsFunc(a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms,
		func(t corev1.NodeSelectorTerm) bool { return !implies(t, virtual) })
}
