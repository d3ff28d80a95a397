package forge

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// tokenVolumePrefix begins the name of the volume that the API server adds to every
// pod for its service account's token.
const tokenVolumePrefix = "kube-api-access-"

// podSpec returns the pod's spec as the provider is asked to run it. What happens to
// each field is listed, and checked, in fields_test.go.
func podSpec(local *corev1.Pod, o PodOptions, antiAffinity *corev1.PodAntiAffinity) corev1.PodSpec {
	spec, patch := *local.Spec.DeepCopy(), o.Patch
	dropScheduling(&spec)
	o.claimVolumes(&spec, local)
	o.carryTokens(&spec, local)
	o.leadHome(&spec, local)
	dropIdentity(&spec)
	dropHostNamespaces(&spec)
	spec.EphemeralContainers = o.ephemeralContainers(local, spec.Volumes)
	spec.ReadinessGates = nil
	spec.Overhead = nil
	spec.RuntimeClassName = runtimeClass(local, patch)
	spec.Tolerations = forgeTolerations(local.Spec.Tolerations, patch)
	if patch != nil {
		spec.NodeSelector = maps.Clone(patch.NodeSelector)
	}
	spec.Affinity = affinity(patch, antiAffinity)
	return spec
}

// EphemeralClaim returns the name of the claim that Kubernetes makes for an ephemeral
// volume of a pod.
func EphemeralClaim(pod *corev1.Pod, volume string) string { return pod.Name + "-" + volume }

// claimVolumes has ephemeral volumes use the claims that come from here: those that the
// provider does not make for its own pod it would not let the pod use as ephemeral ones.
func (o PodOptions) claimVolumes(spec *corev1.PodSpec, local *corev1.Pod) {
	for i := range spec.Volumes {
		if v := &spec.Volumes[i]; v.Ephemeral != nil && slices.Contains(o.ClaimedVolumes, v.Name) {
			v.VolumeSource = corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: EphemeralClaim(local, v.Name)}}
		}
	}
}

// dropScheduling removes what speaks of this cluster's nodes, classes and schedulers.
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

// dropIdentity removes the service account of this cluster, and the tokens that are not
// carried: the pod runs under the twin namespace's default one, and gets no token of the
// provider's.
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
		dropTokenSources(&spec.Volumes[i])
	}
	for _, containers := range [][]corev1.Container{spec.Containers, spec.InitContainers} {
		for i := range containers {
			dropMounts(&containers[i], injected)
			nameAccount(containers[i].Env, account)
		}
	}
}

// nameAccount gives the variables that name the pod's service account the name that it
// has in this cluster: in the provider it has another.
func nameAccount(env []corev1.EnvVar, account string) {
	for i := range env {
		if from := env[i].ValueFrom; from != nil && from.FieldRef != nil && from.FieldRef.FieldPath == "spec.serviceAccountName" {
			env[i].Value, env[i].ValueFrom = account, nil
		}
	}
}

// injectedToken tells whether the API server added the volume.
func injectedToken(v *corev1.Volume) bool {
	return strings.HasPrefix(v.Name, tokenVolumePrefix) && hasToken(v)
}

func hasToken(v *corev1.Volume) bool {
	return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, isToken)
}

func isToken(p corev1.VolumeProjection) bool { return p.ServiceAccountToken != nil }

func hasPodCertificate(v *corev1.Volume) bool {
	return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(p corev1.VolumeProjection) bool {
		return p.PodCertificate != nil
	})
}

// dropTokenSources keeps the volume, and its mounts, also when no source is left: a
// pod that mounts it would not start otherwise.
func dropTokenSources(v *corev1.Volume) {
	if hasToken(v) {
		v.Projected.Sources = slices.DeleteFunc(v.Projected.Sources, isToken)
	}
}

func dropMounts(c *corev1.Container, volumes []string) {
	c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
		return slices.Contains(volumes, m.Name)
	})
}

// dropHostNamespaces keeps the pod out of its node's namespaces.
func dropHostNamespaces(spec *corev1.PodSpec) {
	if spec.HostNetwork {
		// The API server has filled in a host port for every port of a pod on the host's network.
		dropHostPorts(spec.Containers)
		dropHostPorts(spec.InitContainers)
	}
	spec.HostNetwork = false
	spec.HostPID = false
	spec.HostIPC = false
}

func dropHostPorts(containers []corev1.Container) {
	for i := range containers {
		for j := range containers[i].Ports {
			containers[i].Ports[j].HostPort = 0
		}
	}
}

// runtimeClass returns the runtime class in the provider: the pod's annotation, else
// its own class unless that is the one that only sends it to a virtual node, else the
// patch's.
func runtimeClass(local *corev1.Pod, patch *offloadingv1beta1.OffloadingPatch) *string {
	if name := local.Annotations[offloadingv1beta1.RemoteRuntimeClassAnnotation]; name != "" {
		return &name
	}
	if own := local.Spec.RuntimeClassName; own != nil && *own != "" && *own != offloadingv1beta1.RuntimeClassName {
		name := *own
		return &name
	}
	if patch != nil && patch.RuntimeClassName != nil && *patch.RuntimeClassName != "" {
		name := *patch.RuntimeClassName
		return &name
	}
	return nil
}

// forgeTolerations returns the pod's tolerations without the virtual node's, and the
// patch's.
func forgeTolerations(own []corev1.Toleration, patch *offloadingv1beta1.OffloadingPatch) []corev1.Toleration {
	var out []corev1.Toleration
	for i := range own {
		if own[i].Key != offloadingv1beta1.VirtualNodeTaintKey {
			out = append(out, *own[i].DeepCopy())
		}
	}
	if patch != nil {
		out = addTolerations(out, patch.Tolerations)
	}
	return out
}

// addTolerations appends to have what of add is not in it. It may write behind have.
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
