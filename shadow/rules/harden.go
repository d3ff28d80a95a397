// Package rules holds the pure decisions about one pod of another cluster, or for one: where
// a pod of an offloaded namespace may run (Offload), what this cluster forces on the pods of
// a peer (Harden), what they count against the Quotas of a consumer, and what these allow
// together (Bound).
package rules

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// Reasons of Refused.
const (
	// ReasonRuntimeClass says that the pod asks for a runtime class that peers may not use.
	ReasonRuntimeClass = "RuntimeClassRefused"
	// ReasonResourceClaims says that the pod uses dynamic resource allocation.
	ReasonResourceClaims = "ResourceClaimsRefused"
	// ReasonPodCertificate says that a volume asks for a certificate of an identity here.
	ReasonPodCertificate = "PodCertificateRefused"
)

// maxGrace, in seconds, is the longest time that a peer's pod may take to end: a pod that
// asks for years would hold its namespace, and what is taken down with it, for as long.
const maxGrace = 3600

// Refused says that a peer's pod may not run here as it is written.
type Refused struct {
	// Reason is a CamelCase word for conditions and events.
	Reason string
	// Message names the field, what is wrong and what is accepted.
	Message string
}

// Error returns reason and message.
func (r *Refused) Error() string { return r.Reason + ": " + r.Message }

// Allowed are what this cluster's administrator allows peers.
type Allowed struct {
	// RuntimeClasses are the runtime classes that a peer's pod may ask for. One that asks
	// for none is always accepted.
	RuntimeClasses []string
	// StorageClasses are those that the claim of a peer's ephemeral volume may have; "*"
	// stands for all.
	StorageClasses []string
	// DefaultStorageClass is the one of a claim that names none; empty: there is none. Nil
	// stands for the same.
	DefaultStorageClass func() string
}

// Harden changes the spec of a peer's pod into the one that may be created here: a peer is
// another organisation, and what its side leaves out of a pod is not relied on. The
// error, if any, is a *Refused, and the spec is then as it was. What happens to each
// field is listed, and checked, in fields_test.go. Host paths, host ports, privileges
// and capabilities are judged by the pod security level of the namespace. Harden
// changes nothing when it is applied again.
func Harden(spec *corev1.PodSpec, allowed Allowed) error {
	if err := accepted(spec, allowed); err != nil {
		return err
	}
	spec.NodeName = ""
	spec.SchedulerName = ""
	spec.SchedulingGates = nil
	spec.SchedulingGroup = nil
	spec.Priority = nil
	spec.PriorityClassName = ""
	spec.PreemptionPolicy = nil
	spec.Overhead = nil
	spec.HostNetwork = false
	spec.HostPID = false
	spec.HostIPC = false
	spec.ServiceAccountName = ""
	spec.DeprecatedServiceAccount = ""
	spec.AutomountServiceAccountToken = new(bool)
	spec.EphemeralContainers = nil
	if g := spec.TerminationGracePeriodSeconds; g != nil && *g > maxGrace {
		spec.TerminationGracePeriodSeconds = new(int64(maxGrace))
	}
	spec.Tolerations = tolerations(spec.Tolerations)
	placement(spec)
	for i := range spec.Volumes {
		dropTokens(&spec.Volumes[i])
	}
	return nil
}

func accepted(spec *corev1.PodSpec, allowed Allowed) error {
	if name := spec.RuntimeClassName; name != nil && !slices.Contains(allowed.RuntimeClasses, *name) {
		accepts := "none"
		if len(allowed.RuntimeClasses) > 0 {
			accepts = strings.Join(allowed.RuntimeClasses, ", ")
		}
		return &Refused{ReasonRuntimeClass, fmt.Sprintf("spec.runtimeClassName %q: this cluster accepts from peers: %s", *name, accepts)}
	}
	if len(spec.ResourceClaims) > 0 {
		return &Refused{ReasonResourceClaims, fmt.Sprintf("spec.resourceClaims has %q: this cluster accepts no resource claims from peers",
			spec.ResourceClaims[0].Name)}
	}
	for i := range spec.Volumes {
		if p := spec.Volumes[i].Projected; p != nil && slices.ContainsFunc(p.Sources, isCertificate) {
			return &Refused{ReasonPodCertificate, fmt.Sprintf("spec.volumes %q has a podCertificate source: this cluster issues no certificates to pods of peers",
				spec.Volumes[i].Name)}
		}
		if err := claimable(&spec.Volumes[i], allowed); err != nil {
			return err
		}
	}
	return nil
}

func isCertificate(p corev1.VolumeProjection) bool { return p.PodCertificate != nil }

// dropTokens removes tokens of this cluster's service accounts from a volume.
func dropTokens(v *corev1.Volume) {
	if v.Projected == nil {
		return
	}
	v.Projected.Sources = slices.DeleteFunc(v.Projected.Sources, func(p corev1.VolumeProjection) bool {
		return p.ServiceAccountToken != nil
	})
}

// tolerations returns those of a peer's tolerations that reach no node kept for this
// cluster's own use: not its control plane, not nodes that are cordoned or in
// trouble, and not its own virtual nodes, from where the pod would be reflected again.
// One that tolerates everything is narrowed to what every pod tolerates for a while.
func tolerations(in []corev1.Toleration) []corev1.Toleration {
	var out []corev1.Toleration
	for i := range in {
		t := in[i]
		switch {
		case t.Key == "":
			if noExecute(t) {
				out = addTolerations(out, narrowed(t, corev1.TaintNodeNotReady), narrowed(t, corev1.TaintNodeUnreachable))
			}
		case t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable:
			if noExecute(t) {
				t.Effect = corev1.TaintEffectNoExecute
				out = addTolerations(out, t)
			}
		case reserved(t.Key):
		default:
			out = append(out, t)
		}
	}
	return out
}

func noExecute(t corev1.Toleration) bool {
	return t.Effect == "" || t.Effect == corev1.TaintEffectNoExecute
}

func narrowed(t corev1.Toleration, key string) corev1.Toleration {
	return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists,
		Effect: corev1.TaintEffectNoExecute, TolerationSeconds: t.TolerationSeconds}
}

// addTolerations appends the tolerations that are not there yet.
func addTolerations(have []corev1.Toleration, more ...corev1.Toleration) []corev1.Toleration {
	for i := range more {
		same := func(t corev1.Toleration) bool { return t.MatchToleration(&more[i]) }
		if !slices.ContainsFunc(have, same) {
			have = append(have, more[i])
		}
	}
	return have
}

// reserved tells whether taints of that key keep nodes for this cluster's own use.
func reserved(key string) bool {
	switch key {
	case "node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/controlplane",
		"node-role.kubernetes.io/master", "node-role.kubernetes.io/etcd",
		offloadingv1beta1.VirtualNodeTaintKey:
		return true
	}
	return strings.HasPrefix(key, "node.kubernetes.io/") || strings.HasPrefix(key, "node.cloudprovider.kubernetes.io/")
}
