package forge

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/reasons"
)

// A provider may leave out labels and annotations of a pod. A copy in an annotation with a key
// in one of these domains always arrives, and the references of the pod lead to the copy.
const (
	labelCopies      = "labels.liqo.io"
	annotationCopies = "annotations.liqo.io"
	allCopies        = "offloading.liqo.io/all-"

	// homeNamespace is the annotation with the namespace of a pod that uses the Services of this cluster.
	homeNamespace = annotationCopies + "/home-namespace"
)

// fieldRefs calls visit for each reference of spec to a field of the pod itself. owner names the
// container or volume, and item the variable or file.
func fieldRefs(spec *corev1.PodSpec, visit func(owner, item string, ref *corev1.ObjectFieldSelector)) {
	eachSource(spec, func(owner, item string, from any) {
		var files []corev1.DownwardAPIVolumeFile
		switch s := from.(type) {
		case *corev1.EnvVarSource:
			if s.FieldRef != nil {
				visit(owner, item, s.FieldRef)
			}
		case *corev1.VolumeSource:
			files = value(s.DownwardAPI).Items
		case *corev1.VolumeProjection:
			files = value(s.DownwardAPI).Items
		}
		for i := range files {
			if files[i].FieldRef != nil {
				visit(owner, files[i].Path, files[i].FieldRef)
			}
		}
	})
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
	copies := map[string]string{"labels": labelCopies, "annotations": annotationCopies}[of]
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
// annotations with their values. A key that the pod does not have has no copy until it is added,
// and reads as empty, as at home. The error is a *Refused for a reference to a key that stays home.
func (o PodOptions) copies(local *corev1.Pod) (copies map[string]string, err error) {
	copies = map[string]string{}
	if o.Home {
		copies[homeNamespace] = local.Namespace
	}
	fieldRefs(&local.Spec, func(owner, item string, ref *corev1.ObjectFieldSelector) {
		r, ok := parse(ref.FieldPath)
		if !ok {
			return
		}
		have, skip := o.marks(&local.ObjectMeta, r.of)
		value, has := have[r.key]
		switch {
		case r.key == "":
			copies[r.copy] = listed(without(have, skip))
		case has && !slices.Contains(skip, r.key):
			copies[r.copy] = value
		case has && err == nil:
			err = &Refused{reasons.ReferenceStaysHome, fmt.Sprintf("%s of %s refers to %s, and this cluster keeps %s: remove the reference from the pod, or the key from offloading.reflection.skip and from spec.offloadingPatch of the VirtualNode",
				item, owner, ref.FieldPath, r.key)}
		}
	})
	return copies, err
}

// leadToCopies changes the references of spec to what only this cluster knows of the pod.
func (o PodOptions) leadToCopies(spec *corev1.PodSpec) {
	fieldRefs(spec, func(_, _ string, ref *corev1.ObjectFieldSelector) {
		switch r, ok := parse(ref.FieldPath); {
		case ok:
			ref.FieldPath = fmt.Sprintf("metadata.annotations['%s']", r.copy)
		case o.Home && ref.FieldPath == "metadata.namespace":
			ref.FieldPath = fmt.Sprintf("metadata.annotations['%s']", homeNamespace)
		case ref.FieldPath == "metadata.uid":
			ref.FieldPath = fmt.Sprintf("metadata.labels['%s']", offloadingv1beta1.LocalPodUIDLabel)
		case ref.FieldPath == "spec.nodeName":
			ref.FieldPath = fmt.Sprintf("metadata.labels['%s']", offloadingv1beta1.NodeNameLabel)
		}
	})
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
