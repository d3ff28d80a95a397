package forge

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// ReasonReferenceStaysHome is the reason for pods with a downward API reference to a label or
// annotation of their own that a setting keeps in this cluster.
const ReasonReferenceStaysHome = "ReferenceStaysHome"

// A provider may leave out labels and annotations of a pod. A copy in an annotation with a key
// in one of these domains always arrives, and the references of the pod lead to the copy.
const (
	labelCopies      = "labels.liqo.io"
	annotationCopies = "annotations.liqo.io"
	allCopies        = "offloading.liqo.io/all-"
)

// fieldRefs calls visit for each reference of spec to a field of the pod itself. owner names the
// container or volume, and item the variable or file. A test compares the places with the types
// of the API.
func fieldRefs(spec *corev1.PodSpec, visit func(owner, item string, ref *corev1.ObjectFieldSelector)) {
	env := func(container string, vars []corev1.EnvVar) {
		for i := range vars {
			if from := vars[i].ValueFrom; from != nil && from.FieldRef != nil {
				visit(container, vars[i].Name, from.FieldRef)
			}
		}
	}
	for i := range spec.InitContainers {
		env(spec.InitContainers[i].Name, spec.InitContainers[i].Env)
	}
	for i := range spec.Containers {
		env(spec.Containers[i].Name, spec.Containers[i].Env)
	}
	for i := range spec.EphemeralContainers {
		env(spec.EphemeralContainers[i].Name, spec.EphemeralContainers[i].Env)
	}
	files := func(volume string, items []corev1.DownwardAPIVolumeFile) {
		for i := range items {
			if items[i].FieldRef != nil {
				visit(volume, items[i].Path, items[i].FieldRef)
			}
		}
	}
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		if v.DownwardAPI != nil {
			files(v.Name, v.DownwardAPI.Items)
		}
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			if s.DownwardAPI != nil {
				files(v.Name, s.DownwardAPI.Items)
			}
		}
	}
}

// reference is what a path of the downward API names of the labels or annotations of a pod.
type reference struct {
	of   string // labels or annotations
	key  string // empty: all of them
	copy string // key of the annotation with the copy
}

// parse returns the reference that a path stands for. It returns false for paths that lead to
// other fields, or to a copy.
func parse(path string) (reference, bool) {
	field, ok := strings.CutPrefix(path, "metadata.")
	of, subscript, single := strings.Cut(field, "['")
	if !ok || of != "labels" && of != "annotations" {
		return reference{}, false
	}
	if !single {
		return reference{of: of, copy: allCopies + of}, true
	}
	key := strings.TrimSuffix(subscript, "']")
	domain, name, divided := strings.Cut(key, "/")
	copies := labelCopies
	if of == "annotations" {
		copies = annotationCopies
	}
	switch {
	case !divided:
		return reference{of, key, copies + "/" + key}, true
	case domain == labelCopies || domain == annotationCopies || strings.HasSuffix(domain, "."+labelCopies) || strings.HasSuffix(domain, "."+annotationCopies):
		return reference{}, false
	default:
		return reference{of, key, domain + "." + copies + "/" + name}, true
	}
}

// copies returns, for the references of a local pod to its own labels and annotations, the
// annotations with their values. A reference to a key that the pod does not have needs no copy:
// the provider may set it.
func (o PodOptions) copies(local *corev1.Pod) map[string]string {
	out := map[string]string{}
	fieldRefs(&local.Spec, func(_, _ string, ref *corev1.ObjectFieldSelector) {
		r, ok := parse(ref.FieldPath)
		if !ok {
			return
		}
		values := without(o.marks(local, r.of))
		if r.key == "" {
			out[r.copy] = listed(values)
		} else if value, has := values[r.key]; has {
			out[r.copy] = value
		}
	})
	return out
}

// leadToCopies changes the references of spec for which the provider gets a copy.
func leadToCopies(spec *corev1.PodSpec, copies map[string]string) {
	fieldRefs(spec, func(_, _ string, ref *corev1.ObjectFieldSelector) {
		if r, ok := parse(ref.FieldPath); ok {
			if _, copied := copies[r.copy]; copied {
				ref.FieldPath = fmt.Sprintf("metadata.annotations['%s']", r.copy)
			}
		}
	})
}

// referencesArrive refuses a pod with a reference to a label or annotation that stays home.
func (o PodOptions) referencesArrive(local *corev1.Pod) error {
	var refused error
	fieldRefs(&local.Spec, func(owner, item string, ref *corev1.ObjectFieldSelector) {
		r, ok := parse(ref.FieldPath)
		if !ok || r.key == "" || refused != nil {
			return
		}
		have, skip := o.marks(local, r.of)
		if _, has := have[r.key]; has && slices.Contains(skip, r.key) {
			refused = &Refused{ReasonReferenceStaysHome, fmt.Sprintf("%s of %s refers to %s, and this cluster keeps %s: remove the reference from the pod, or the key from offloading.reflection.skip and from spec.offloadingPatch of the VirtualNode",
				item, owner, ref.FieldPath, r.key)}
		}
	})
	return refused
}

// listed returns labels or annotations as the kubelet writes them into a file.
// https://kubernetes.io/docs/concepts/workloads/pods/downward-api/
func listed(m map[string]string) string {
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		lines = append(lines, fmt.Sprintf("%s=%q", key, m[key]))
	}
	return strings.Join(lines, "\n")
}
