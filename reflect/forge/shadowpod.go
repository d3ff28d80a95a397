package forge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/reasons"
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
	ObjectOptions

	// NodeName is the name of the virtual node that the pod is bound to.
	NodeName string
	// ClaimedVolumes names the ephemeral volumes whose claims are reflected from this
	// cluster. The provider creates no claims for them.
	ClaimedVolumes []string
	// API configures how the pod reaches this cluster's API server.
	API APIAccess
	// Home: the pod uses the Services of this cluster, by DNS.
	Home bool
	DNS  DNS
}

// ShadowPod returns the ShadowPod for a local pod. An error is always a *Refused.
func ShadowPod(local *corev1.Pod, o PodOptions) (*offloadingv1beta1.ShadowPod, error) {
	if err := supported(local); err != nil {
		return nil, err
	}
	copies, err := o.copies(local)
	if err != nil {
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
			Annotations: o.annotations(local, copies),
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
		return &Refused{reasons.AlreadyReflected, fmt.Sprintf("label %s=%s: the pod stands for a pod of another cluster, and reflected pods are not reflected again",
			offloadingv1beta1.ManagedByLabel, offloadingv1beta1.ManagedByShadowPod)}
	}
	if err := knownSupport(local); err != nil {
		return err
	}
	if n := len(local.Spec.ResourceClaims); n > 0 {
		return &Refused{reasons.ResourceClaimsNotSupported, fmt.Sprintf("spec.resourceClaims has %q: resource claims name devices of this cluster; offloaded pods must have none",
			local.Spec.ResourceClaims[0].Name)}
	}
	for i := range local.Spec.Volumes {
		if projects(&local.Spec.Volumes[i], func(p corev1.VolumeProjection) bool { return p.PodCertificate != nil }) {
			return &Refused{reasons.PodCertificateNotSupported, fmt.Sprintf("spec.volumes %q has a podCertificate source: the provider would issue it for an identity of the provider; offloaded pods must have none",
				local.Spec.Volumes[i].Name)}
		}
	}
	return nil
}

// labels returns the labels of the ShadowPod: those of the pod, overridden by those of
// liqod.
func (o PodOptions) labels(local *corev1.Pod) map[string]string {
	out := o.reflected(&local.ObjectMeta, "labels")
	out[offloadingv1beta1.NodeNameLabel] = o.NodeName
	out[offloadingv1beta1.LocalPodUIDLabel] = string(local.UID)
	return out
}

func (o PodOptions) annotations(local *corev1.Pod, copies map[string]string) map[string]string {
	out := o.reflected(&local.ObjectMeta, "annotations")
	delete(out, offloadingv1beta1.OnProviderLossAnnotation) // about the virtual node
	maps.Copy(out, copies)
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

// tokenVolumePrefix is the prefix of the volume with the service account token that the
// API server adds to every pod.
const tokenVolumePrefix = "kube-api-access-"

// podSpec returns the spec of the remote pod. A table in fields_test.go has the rule for
// each field, and docs/pods.md#what-of-a-pod-crosses-the-border describes the rules for users.
func podSpec(local *corev1.Pod, o PodOptions, antiAffinity *corev1.PodAntiAffinity) corev1.PodSpec {
	spec, patch := *local.Spec.DeepCopy(), o.Patch
	dropScheduling(&spec)
	o.claimVolumes(&spec, local)
	o.carryTokens(&spec, local)
	o.leadHome(&spec, local)
	o.resolveAtHome(&spec, local)
	dropIdentity(&spec)
	dropHostNamespaces(&spec)
	spec.EphemeralContainers = o.ephemeralContainers(local, spec.Volumes)
	o.leadToCopies(&spec)
	spec.ReadinessGates = nil
	spec.Overhead = nil
	spec.RuntimeClassName = runtimeClass(local, patch)
	spec.Tolerations = forgeTolerations(local, patch)
	if patch != nil {
		spec.NodeSelector = maps.Clone(patch.NodeSelector)
	}
	spec.Affinity = affinity(patch, antiAffinity)
	return spec
}

// EphemeralClaim returns the name of the claim that Kubernetes creates for an ephemeral
// volume of a pod.
func EphemeralClaim(pod *corev1.Pod, volume string) string { return pod.Name + "-" + volume }

// claimVolumes replaces ephemeral volumes by the claims that are reflected from this
// cluster. As an ephemeral volume the provider would reject such a claim, because its own
// pod does not own it.
func (o PodOptions) claimVolumes(spec *corev1.PodSpec, local *corev1.Pod) {
	for i := range spec.Volumes {
		if v := &spec.Volumes[i]; v.Ephemeral != nil && slices.Contains(o.ClaimedVolumes, v.Name) {
			v.VolumeSource = corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: EphemeralClaim(local, v.Name)}}
		}
	}
}

// dropScheduling removes fields that refer to nodes, priority classes or schedulers of
// this cluster.
func dropScheduling(spec *corev1.PodSpec) {
	spec.NodeName = ""
	spec.NodeSelector = nil
	spec.Affinity = nil
	spec.TopologySpreadConstraints = nil
	spec.SchedulerName = ""
	spec.SchedulingGates = nil
	spec.SchedulingGroup = nil
	spec.Priority = nil
	spec.PriorityClassName = ""
	spec.PreemptionPolicy = nil
}

// dropIdentity removes the service account of this cluster and the tokens that are not
// carried. The remote pod runs under the default service account of the twin namespace,
// and no token of the provider is mounted.
func dropIdentity(spec *corev1.PodSpec) {
	account := spec.ServiceAccountName
	spec.ServiceAccountName = ""
	spec.DeprecatedServiceAccount = ""
	spec.AutomountServiceAccountToken = new(bool)

	var injected []string
	spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v corev1.Volume) bool {
		if !injectedToken(&v) {
			return false
		}
		injected = append(injected, v.Name)
		return true
	})
	for i := range spec.Volumes {
		// The volume itself and its mounts stay even without any source: a pod with a mount of a
		// missing volume would not start.
		if p := spec.Volumes[i].Projected; p != nil {
			p.Sources = slices.DeleteFunc(p.Sources, isToken)
		}
	}
	for _, c := range containersOf(spec) {
		dropMounts(c, injected)
		nameAccount(c.Env, account)
	}
}

// nameAccount replaces environment variables with the pod's service account by its name
// in this cluster, because the remote pod has another service account.
func nameAccount(env []corev1.EnvVar, account string) {
	for i := range env {
		if from := env[i].ValueFrom; from != nil && from.FieldRef != nil && from.FieldRef.FieldPath == "spec.serviceAccountName" {
			env[i].Value, env[i].ValueFrom = account, nil
		}
	}
}

// injectedToken reports whether the API server added the volume.
func injectedToken(v *corev1.Volume) bool {
	return strings.HasPrefix(v.Name, tokenVolumePrefix) && hasToken(v)
}

func hasToken(v *corev1.Volume) bool { return projects(v, isToken) }

func isToken(p corev1.VolumeProjection) bool { return p.ServiceAccountToken != nil }

// projects reports whether a volume has such a source.
func projects(v *corev1.Volume, is func(corev1.VolumeProjection) bool) bool {
	return slices.ContainsFunc(value(v.Projected).Sources, is)
}

func dropMounts(c *corev1.Container, volumes []string) {
	c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
		return slices.Contains(volumes, m.Name)
	})
}

// HostNamespaces returns the fields by which a pod would use namespaces of its node. A remote pod
// has namespaces of its own.
func HostNamespaces(spec *corev1.PodSpec) (fields []string) {
	for _, f := range []struct {
		name string
		set  bool
	}{{"hostNetwork", spec.HostNetwork}, {"hostPID", spec.HostPID}, {"hostIPC", spec.HostIPC}} {
		if f.set {
			fields = append(fields, f.name)
		}
	}
	return fields
}

// dropHostNamespaces disables the use of the node's namespaces.
func dropHostNamespaces(spec *corev1.PodSpec) {
	if spec.HostNetwork {
		// The API server has defaulted the host port of each port, because the pod uses the
		// host network.
		for _, c := range containersOf(spec) {
			for i := range c.Ports {
				c.Ports[i].HostPort = 0
			}
		}
	}
	spec.HostNetwork = false
	spec.HostPID = false
	spec.HostIPC = false
}

// runtimeClass returns the runtime class in the provider: that of the pod's annotation,
// else the pod's own class, else that of the patch. The pod's own class is ignored if it
// only serves to select virtual nodes.
func runtimeClass(local *corev1.Pod, patch *offloadingv1beta1.OffloadingPatch) *string {
	own := value(local.Spec.RuntimeClassName)
	if own == offloadingv1beta1.RuntimeClassName {
		own = ""
	}
	return named(cmp.Or(local.Annotations[offloadingv1beta1.RemoteRuntimeClassAnnotation], own, value(value(patch).RuntimeClassName)))
}

// forgeTolerations returns the pod's tolerations without that of the virtual node and those
// that keep it there while the provider is lost, and the tolerations of the patch. The
// nodes of the provider are others than the virtual node: from a lost one of them, the
// pod's own tolerations evict it.
func forgeTolerations(local *corev1.Pod, patch *offloadingv1beta1.OffloadingPatch) []corev1.Toleration {
	_, own := splitTolerations(local)
	var out []corev1.Toleration
	for _, t := range own {
		if t.Key != offloadingv1beta1.VirtualNodeTaintKey {
			out = append(out, *t.DeepCopy())
		}
	}
	if patch != nil {
		out = addTolerations(out, patch.Tolerations)
	}
	return out
}

// addTolerations appends the elements of add that have lacks. It may overwrite the spare
// capacity of have.
func addTolerations(have, add []corev1.Toleration) []corev1.Toleration {
	for i := range add {
		same := func(t corev1.Toleration) bool { return t.MatchToleration(&add[i]) }
		if !slices.ContainsFunc(have, same) {
			have = append(have, *add[i].DeepCopy())
		}
	}
	return have
}

func affinity(patch *offloadingv1beta1.OffloadingPatch, anti *corev1.PodAntiAffinity) *corev1.Affinity {
	var node *corev1.NodeAffinity
	if patch != nil && patch.Affinity != nil {
		node = patch.Affinity.NodeAffinity.DeepCopy()
	}
	if node == nil && anti == nil {
		return nil
	}
	return &corev1.Affinity{NodeAffinity: node, PodAntiAffinity: anti}
}
