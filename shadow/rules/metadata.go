package rules

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/reasons"
)

// LabelsSetting is the setting that has the LeftOutLabels of this cluster.
const LabelsSetting = "sharing.labelsLeftOut"

// selectedNodeAnnotation has the volume of a claim provisioned at one node, and so its pods
// scheduled there.
const selectedNodeAnnotation = "volume.kubernetes.io/selected-node"

// LeftOutLabels are keys of labels that command controllers of this cluster, such as those
// that inject containers or copy objects. A key that ends in /* stands for every key of that
// domain, and of the domains below it. All other labels are accepted: the Services and policies of an
// application select its pods by labels of any domain. A key without a dot also stands for the annotation.
type LeftOutLabels []string

// Has reports whether a peer's objects may not have a label.
func (l LeftOutLabels) Has(key string) bool {
	domain, _, divided := strings.Cut(key, "/")
	return !below(domain, "liqo.io") && slices.ContainsFunc(l, func(s string) bool {
		of, whole := strings.CutSuffix(s, "/*")
		return s == key || whole && divided && below(domain, of)
	})
}

// Metadata is the rule for the labels and annotations of everything that a peer writes.
type Metadata struct {
	Annotations Annotations
	Labels      LeftOutLabels
}

// Marks are the labels and annotations of an object.
type Marks struct{ Labels, Annotations map[string]string }

// kindRule has the annotations of a kind to which Annotations does not apply.
type kindRule struct {
	never   []string // no setting accepts them
	refused []string // another rule refuses the object
}

// kinds are the kinds that peers write, and those that this cluster creates for what they
// write. Objects of other kinds keep no metadata of a peer.
var kinds = map[string]kindRule{
	"ConfigMap":             {},
	"Secret":                {refused: []string{corev1.ServiceAccountNameKey}},
	"Service":               {},
	"Ingress":               {},
	"PersistentVolumeClaim": {never: []string{selectedNodeAnnotation}, refused: []string{corev1.BetaStorageClassAnnotation}},
	"Pod":                   {},
	"EndpointSlice":         {},
	// No controller but liqod's acts on them. Their metadata is judged in the Pod and in the
	// EndpointSlice.
	"ShadowPod":           {},
	"ShadowEndpointSlice": {},
}

// Keep returns the labels and annotations that an object of a kind may have, and for people
// the sorted names of those that it may not. old are those that the object has already: these
// stay, and with their values.
func (m Metadata) Keep(kind string, given, old Marks) (kept Marks, leftOut []string) {
	rule, known := kinds[kind]
	annotations, without := keep(given.Annotations, old.Annotations, func(key, value string) bool {
		return known && !offloadingv1beta1.Tracks(key) && !slices.Contains(rule.never, key) && (strings.Contains(key, ".") || !m.Labels.Has(key)) && (slices.Contains(rule.refused, key) || m.Annotations.Allows(key, value))
	})
	labels, unlabelled := keep(given.Labels, old.Labels, func(key, _ string) bool { return known && !offloadingv1beta1.Tracks(key) && !m.Labels.Has(key) })
	for _, key := range unlabelled {
		without = append(without, "label "+key)
	}
	return Marks{Labels: labels, Annotations: annotations}, without
}

// ClaimTemplates removes from the ephemeral volumes of a pod what the rule leaves out of
// claims, and returns names of it for people.
func (m Metadata) ClaimTemplates(spec *corev1.PodSpec) (leftOut []string) {
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		if v.Ephemeral == nil || v.Ephemeral.VolumeClaimTemplate == nil {
			continue
		}
		template := v.Ephemeral.VolumeClaimTemplate
		kept, without := m.Keep("PersistentVolumeClaim", Marks{template.Labels, template.Annotations}, Marks{})
		for _, name := range without {
			leftOut = append(leftOut, fmt.Sprintf("%s of volume %s", name, v.Name))
		}
		if len(without) > 0 {
			template.Labels, template.Annotations = kept.Labels, kept.Annotations
		}
	}
	return leftOut
}

func keep(given, old map[string]string, allowed func(key, value string) bool) (kept map[string]string, leftOut []string) {
	kept = map[string]string{}
	for key, value := range given {
		before, had := old[key]
		switch {
		case had && before == value, allowed(key, value):
			kept[key] = value
			continue
		case had:
			kept[key] = before
		}
		leftOut = append(leftOut, key)
	}
	slices.Sort(leftOut)
	return kept, leftOut
}

// mostNamed is the number of keys that a message names.
const mostNamed = 10

// NamedKeys returns a list of keys for people.
func NamedKeys(keys []string) string {
	if len(keys) <= mostNamed {
		return strings.Join(keys, ", ")
	}
	return fmt.Sprintf("%s, … (%d)", strings.Join(keys[:mostNamed], ", "), len(keys))
}

// Misplaced returns why a shadow is not enforced in its namespace, or nothing if it is; kind is the
// plural of its kind. ns is nil if it does not exist. The check rests on the namespace's labels: only
// the provider writes those, and the shadow's author writes the shadow's.
func Misplaced(ns *corev1.Namespace, shadow metav1.Object, kind string) (reason, message string) {
	if ns == nil || ns.Labels[corev1beta1.RemoteClusterIDLabel] == "" || offloadingv1beta1.TwinOf(ns) == "" {
		return reasons.NotTwinNamespace, fmt.Sprintf(
			"namespace %s is not the twin of a consumer's namespace; %s are enforced only in namespaces made by a NamespaceMap", shadow.GetNamespace(), kind)
	}
	want, have := ns.Labels[corev1beta1.RemoteClusterIDLabel], shadow.GetLabels()[offloadingv1beta1.OriginLabel]
	if have != want {
		return reasons.ForeignOrigin, fmt.Sprintf("label %s is %q; namespace %s belongs to cluster %q, and only that is accepted",
			offloadingv1beta1.OriginLabel, have, ns.Name, want)
	}
	return "", ""
}
