package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/liqod/liqod/reasons"
)

const moreClasses = "; its administrators can allow more by the setting sharing.storageClasses"

// claimable judges the claim that Kubernetes makes of an ephemeral volume, in this cluster's
// own name: no policy about peers sees it. What a peer's own claims may not say, it may not
// either.
func claimable(v *corev1.Volume, allowed Allowed) error {
	if v.Ephemeral == nil || v.Ephemeral.VolumeClaimTemplate == nil {
		return nil
	}
	template := v.Ephemeral.VolumeClaimTemplate
	refuse := func(field, accepted string) error {
		return &Refused{reasons.VolumeClaimRefused, fmt.Sprintf("spec.volumes %q: ephemeral.volumeClaimTemplate.%s: %s accepts from peers %s", v.Name, field, allowed.cluster(), accepted)}
	}
	source := template.Spec.DataSourceRef
	switch _, byAnnotation := template.Annotations[corev1.BetaStorageClassAnnotation]; {
	case byAnnotation:
		return refuse("metadata.annotations "+corev1.BetaStorageClassAnnotation, "spec.storageClassName")
	case template.Spec.VolumeName != "":
		return refuse("spec.volumeName", "none: it may be a volume of another user")
	case template.Spec.Selector != nil:
		return refuse("spec.selector", "none: it may select a volume of another user")
	case source != nil && source.Namespace != nil && *source.Namespace != "":
		return refuse("spec.dataSourceRef.namespace", "none")
	}
	class, all := allowed.classOf(template.Spec.StorageClassName), slices.Contains(allowed.StorageClasses, "*")
	switch {
	case class != "" && slices.Contains(allowed.StorageClasses, class):
		return nil
	case class != "" && all && allowed.ProvisionedClass != nil && allowed.ProvisionedClass(class):
		return nil
	case class != "" && all:
		return refuse("spec.storageClassName", provisionedOnly(class))
	case all:
		return refuse("spec.storageClassName", "any, and there is no default one; without a class it would get a volume that is there already")
	default:
		return refuse("spec.storageClassName", cmp.Or(strings.Join(allowed.StorageClasses, ", "), "none")+moreClasses)
	}
}

// provisionedOnly says what "*" in sharing.storageClasses accepts instead of a class.
func provisionedOnly(class string) string {
	return fmt.Sprintf("any class that exists and has a provisioner; %q would get a volume that is there already, perhaps of others, and is accepted if the setting sharing.storageClasses lists it by name", class)
}

// RefuseClaim returns the reason for which a peer may not create a claim, or "". It judges what policies cannot:
// whether the class exists. It accepts classes that StorageClasses does not have: the policy liqod-peer refuses those.
func (r Allowed) RefuseClaim(claim *corev1.PersistentVolumeClaim) string {
	class := ptr.Deref(claim.Spec.StorageClassName, "")
	if class == "" || slices.Contains(r.StorageClasses, class) || !slices.Contains(r.StorageClasses, "*") || r.ProvisionedClass(class) {
		return ""
	}
	return "spec.storageClassName: this cluster accepts from peers " + provisionedOnly(class)
}

// classOf returns the class of a claim that names one, or leaves it to this cluster.
func (r Allowed) classOf(named *string) string {
	switch {
	case named != nil:
		return *named
	case r.DefaultStorageClass != nil:
		return r.DefaultStorageClass()
	default:
		return ""
	}
}
