package forge

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// Reasons of Refused for pods.
const (
	// ReasonAntiAffinityInvalid is the reason for invalid anti-affinity annotations.
	ReasonAntiAffinityInvalid = "AntiAffinityInvalid"
	// ReasonResourceClaims is the reason for pods that use dynamic resource allocation.
	ReasonResourceClaims = "ResourceClaimsNotSupported"
	// ReasonPodCertificate is the reason for pods with a podCertificate volume source.
	ReasonPodCertificate = "PodCertificateNotSupported"
	// ReasonReflected is the reason for pods that were themselves reflected from another
	// cluster.
	ReasonReflected = "AlreadyReflected"
)

// Refused is the error for an object that cannot be reflected as it is. A retry cannot
// succeed before the object changes, so callers show the error to the user and return no
// error.
type Refused struct {
	// Reason is a CamelCase word for conditions and events.
	Reason string
	// Message names the field, the error and the accepted values.
	Message string
}

// Error implements error.
func (r *Refused) Error() string { return r.Reason + ": " + r.Message }

// PodOptions are the parameters for reflecting a pod.
type PodOptions struct {
	// OriginClusterID is the id of this cluster.
	OriginClusterID string
	// DestinationClusterID is the id of the provider.
	DestinationClusterID string
	// NodeName is the name of the virtual node that the pod is bound to.
	NodeName string
	// RemoteNamespace is the twin namespace.
	RemoteNamespace string
	// Patch is spec.offloadingPatch of the VirtualNode; nil for none.
	Patch *offloadingv1beta1.OffloadingPatch
	// SkipLabels and SkipAnnotations are keys that are not reflected, in addition to those
	// of Patch.
	SkipLabels      []string
	SkipAnnotations []string
	// ClaimedVolumes names the ephemeral volumes whose claims are reflected from this
	// cluster. The provider creates no claims for them.
	ClaimedVolumes []string
	// API configures how the pod reaches this cluster's API server.
	API APIAccess
}

// ShadowPod returns the ShadowPod for a local pod. An error is always a *Refused.
func ShadowPod(local *corev1.Pod, o PodOptions) (*offloadingv1beta1.ShadowPod, error) {
	if err := supported(local); err != nil {
		return nil, err
	}
	labels := o.labels(local)
	antiAffinity, err := podAntiAffinity(local, labels)
	if err != nil {
		return nil, err
	}
	return &offloadingv1beta1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{
			Name:        local.Name,
			Namespace:   o.RemoteNamespace,
			Labels:      labels,
			Annotations: o.annotations(local),
		},
		Spec: offloadingv1beta1.ShadowPodSpec{
			Pod:             podSpec(local, o, antiAffinity),
			LocalGeneration: local.Generation,

			LocalResourceVersion: local.ResourceVersion,
		},
	}, nil
}

// supported refuses pods that the provider could only run in a different way than
// specified.
func supported(local *corev1.Pod) error {
	if local.Labels[offloadingv1beta1.ManagedByLabel] == offloadingv1beta1.ManagedByShadowPod {
		return &Refused{ReasonReflected, fmt.Sprintf("label %s=%s: the pod stands for a pod of another cluster, and reflected pods are not reflected again",
			offloadingv1beta1.ManagedByLabel, offloadingv1beta1.ManagedByShadowPod)}
	}
	if err := knownSupport(local); err != nil {
		return err
	}
	if n := len(local.Spec.ResourceClaims); n > 0 {
		return &Refused{ReasonResourceClaims, fmt.Sprintf("spec.resourceClaims has %q: resource claims name devices of this cluster; offloaded pods must have none",
			local.Spec.ResourceClaims[0].Name)}
	}
	for i := range local.Spec.Volumes {
		if hasPodCertificate(&local.Spec.Volumes[i]) {
			return &Refused{ReasonPodCertificate, fmt.Sprintf("spec.volumes %q has a podCertificate source: the provider would issue it for an identity of the provider; offloaded pods must have none",
				local.Spec.Volumes[i].Name)}
		}
	}
	return nil
}

// labels returns the labels of the ShadowPod: those of the pod, overridden by those of
// liqod.
func (o PodOptions) labels(local *corev1.Pod) map[string]string {
	skip := o.SkipLabels
	if o.Patch != nil {
		skip = slices.Concat(skip, o.Patch.LabelsNotReflected)
	}
	out := without(local.Labels, skip)
	out[offloadingv1beta1.OriginLabel] = o.OriginClusterID
	out[offloadingv1beta1.DestinationLabel] = o.DestinationClusterID
	out[offloadingv1beta1.NodeNameLabel] = o.NodeName
	out[offloadingv1beta1.LocalPodUIDLabel] = string(local.UID)
	return out
}

func (o PodOptions) annotations(local *corev1.Pod) map[string]string {
	skip := o.SkipAnnotations
	if o.Patch != nil {
		skip = slices.Concat(skip, o.Patch.AnnotationsNotReflected)
	}
	out := without(local.Annotations, skip)
	delete(out, offloadingv1beta1.OnProviderLossAnnotation) // about the virtual node
	if len(out) == 0 {
		return nil
	}
	return out
}

// without returns a copy of m without the keys in skip. The result is never nil.
func without(m map[string]string, skip []string) map[string]string {
	out := make(map[string]string, len(m)+4)
	maps.Copy(out, m)
	for _, key := range skip {
		delete(out, key)
	}
	return out
}
