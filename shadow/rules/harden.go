// Package rules holds the pure decisions about one pod of another cluster, or for one: where
// a pod of an offloaded namespace may run (Offload), what this cluster forces on the pods of
// a peer (Harden), what they count against the Quotas of a consumer, and what these allow
// together (Bound).
package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/liqod/liqod/reasons"
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
	// Cluster is this cluster's id, for messages; it may be empty.
	Cluster string
	// RuntimeClasses are the runtime classes that a peer's pod may ask for. One that asks
	// for none is always accepted.
	RuntimeClasses []string
	// StorageClasses are those that the claim of a peer's ephemeral volume may have; "*"
	// stands for all that ProvisionedClass accepts.
	StorageClasses []string
	// ProvisionedClass reports whether a class exists and its volumes are made for the claims.
	// Nil: there is no such class.
	ProvisionedClass func(name string) bool
	// DefaultStorageClass is the one of a claim that names none; empty: there is none. Nil
	// stands for the same.
	DefaultStorageClass func() string
	// VolumeTypes are the types that a volume may have, by VolumeTypes.
	VolumeTypes []string
	// SelectorLabels are the labels of nodes that a pod may select its node by, as
	// SelectorAllowed reads them.
	SelectorLabels []string
	// Tolerations are the widest that a pod may have, beside those that every pod has.
	Tolerations []corev1.Toleration
	// AlwaysPull has the nodes check the pull credentials of every container: without it, a
	// pod may run any image that a node has.
	AlwaysPull bool
}

func (r Allowed) cluster() string {
	if r.Cluster == "" {
		return "this cluster"
	}
	return "cluster " + r.Cluster
}

// accepts names what is accepted, and the setting that could allow more.
func (r Allowed) accepts(list []string, setting string) string {
	return fmt.Sprintf("%s accepts from peers: %s; its administrators can allow more by the setting %s",
		r.cluster(), cmp.Or(strings.Join(list, ", "), "none"), setting)
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
	spec.Tolerations = tolerations(spec.Tolerations, allowed.Tolerations)
	placement(spec)
	for i := range spec.Volumes {
		dropTokens(&spec.Volumes[i])
	}
	if allowed.AlwaysPull {
		alwaysPull(spec)
	}
	return nil
}

func accepted(spec *corev1.PodSpec, allowed Allowed) error {
	if name := spec.RuntimeClassName; name != nil && !slices.Contains(allowed.RuntimeClasses, *name) {
		return &Refused{reasons.RuntimeClassRefused, fmt.Sprintf("spec.runtimeClassName %q: %s", *name, allowed.accepts(allowed.RuntimeClasses, "controller.runtimeClasses"))}
	}
	if len(spec.ResourceClaims) > 0 {
		return &Refused{reasons.ResourceClaimsRefused, fmt.Sprintf("spec.resourceClaims has %q: %s accepts no resource claims from peers",
			spec.ResourceClaims[0].Name, allowed.cluster())}
	}
	if err := cmp.Or(selectable(spec, allowed), probed(spec, allowed)); err != nil {
		return err
	}
	for i := range spec.Volumes {
		if p := spec.Volumes[i].Projected; p != nil && slices.ContainsFunc(p.Sources, func(p corev1.VolumeProjection) bool { return p.PodCertificate != nil }) {
			return &Refused{reasons.PodCertificateRefused, fmt.Sprintf("spec.volumes %q has a podCertificate source: %s issues no certificates to pods of peers",
				spec.Volumes[i].Name, allowed.cluster())}
		}
		if err := cmp.Or(mountable(&spec.Volumes[i], allowed), claimable(&spec.Volumes[i], allowed)); err != nil {
			return err
		}
	}
	return nil
}

func probed(spec *corev1.PodSpec, allowed Allowed) error {
	for i := range spec.InitContainers {
		if err := probesItself("spec.initContainers", &spec.InitContainers[i], allowed); err != nil {
			return err
		}
	}
	for i := range spec.Containers {
		if err := probesItself("spec.containers", &spec.Containers[i], allowed); err != nil {
			return err
		}
	}
	return nil
}

// alwaysPull has the nodes pull every image of a pod, so that its author needs the right to.
func alwaysPull(spec *corev1.PodSpec) {
	eachContainer(spec, func(c *corev1.Container) { c.ImagePullPolicy = corev1.PullAlways })
	for i := range spec.Volumes {
		if image := spec.Volumes[i].Image; image != nil {
			image.PullPolicy = corev1.PullAlways
		}
	}
}

// dropTokens removes tokens of this cluster's service accounts from a volume.
func dropTokens(v *corev1.Volume) {
	if v.Projected == nil {
		return
	}
	v.Projected.Sources = slices.DeleteFunc(v.Projected.Sources, func(p corev1.VolumeProjection) bool {
		return p.ServiceAccountToken != nil
	})
}
