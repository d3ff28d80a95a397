package rules

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// ReasonNotShared says that a pod uses something of its namespace that the owner of the
// namespace does not share with the pod's cluster.
const ReasonNotShared = "NotShared"

// Lent judges the objects that a peer's pod uses by name. In a namespace that liqod made for
// the peer it may use all. In one that accepts the peer, a name that is the peer's today may be
// the owner's tomorrow. So the peer may use what the owner shares, and nothing else, whoever
// made it. The error, if any, is a *Refused.
func Lent(spec *corev1.PodSpec, ns metav1.Object) error {
	if !offloadingv1beta1.IsAccepted(ns) {
		return nil
	}
	for _, used := range []struct {
		what string
		by   string
	}{
		{offloadingv1beta1.ShareSecrets, secretUser(spec)}, {offloadingv1beta1.ShareClaims, claimUser(spec)},
	} {
		if used.by != "" && !offloadingv1beta1.Shares(ns, used.what) {
			return &Refused{ReasonNotShared, fmt.Sprintf("%s: %s", used.by, offloadingv1beta1.NotShared(ns, used.what))}
		}
	}
	return nil
}

// claimUser returns the first field of a pod by which it uses a claim, or clones one; empty:
// none. The claim of an ephemeral volume belongs to its pod.
func claimUser(spec *corev1.PodSpec) string {
	i := slices.IndexFunc(spec.Volumes, func(v corev1.Volume) bool {
		if e := v.Ephemeral; e != nil && e.VolumeClaimTemplate != nil {
			return e.VolumeClaimTemplate.Spec.DataSource != nil || e.VolumeClaimTemplate.Spec.DataSourceRef != nil
		}
		return v.PersistentVolumeClaim != nil
	})
	if i < 0 {
		return ""
	}
	return fmt.Sprintf("spec.volumes %q", spec.Volumes[i].Name)
}

// secretUser returns the first field of a pod by which it uses a Secret; empty: none.
func secretUser(spec *corev1.PodSpec) string {
	if len(spec.ImagePullSecrets) > 0 {
		return "spec.imagePullSecrets"
	}
	if i := slices.IndexFunc(spec.Volumes, readsSecret); i >= 0 {
		return fmt.Sprintf("spec.volumes %q", spec.Volumes[i].Name)
	}
	all := slices.Concat(spec.InitContainers, spec.Containers)
	for i := range spec.EphemeralContainers {
		all = append(all, corev1.Container(spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	for i := range all {
		if takesSecret(&all[i]) {
			return fmt.Sprintf("the variables of container %q", all[i].Name)
		}
	}
	return ""
}

func takesSecret(c *corev1.Container) bool {
	return slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil }) ||
		slices.ContainsFunc(c.EnvFrom, func(e corev1.EnvFromSource) bool { return e.SecretRef != nil })
}

// readsSecret reports whether a volume is a Secret, or is mounted with one.
func readsSecret(v corev1.Volume) bool {
	return v.Secret != nil || v.AzureFile != nil || v.ScaleIO != nil ||
		(v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(p corev1.VolumeProjection) bool { return p.Secret != nil })) ||
		(v.CSI != nil && v.CSI.NodePublishSecretRef != nil) || (v.FlexVolume != nil && v.FlexVolume.SecretRef != nil) ||
		(v.CephFS != nil && v.CephFS.SecretRef != nil) || (v.RBD != nil && v.RBD.SecretRef != nil) || (v.ISCSI != nil && v.ISCSI.SecretRef != nil) ||
		(v.Cinder != nil && v.Cinder.SecretRef != nil) || (v.StorageOS != nil && v.StorageOS.SecretRef != nil)
}
