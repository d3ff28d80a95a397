package forge

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/reasons"
)

// fieldRefPlaces are the places of a PodSpec that refer to fields of the pod itself.
var fieldRefPlaces = []string{
	".Volumes.VolumeSource.DownwardAPI.Items.FieldRef",
	".Volumes.VolumeSource.Projected.Sources.DownwardAPI.Items.FieldRef",
	".InitContainers.Env.ValueFrom.FieldRef",
	".Containers.Env.ValueFrom.FieldRef",
	".EphemeralContainers.EphemeralContainerCommon.Env.ValueFrom.FieldRef",
}

// TestFieldRefsAreAll finds each place of the API's types, so that a new one is not forgotten,
// and requires that fieldRefs visits it.
func TestFieldRefsAreAll(t *testing.T) {
	t.Parallel()
	ref := reflect.TypeFor[corev1.ObjectFieldSelector]()
	var places []string
	var spec corev1.PodSpec
	var walk func(path string, v reflect.Value, above []reflect.Type)
	walk = func(path string, v reflect.Value, above []reflect.Type) {
		switch v.Kind() {
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
			walk(path, v.Elem(), above)
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			walk(path, v.Index(0), above)
		case reflect.Struct:
			if v.Type() == ref {
				v.FieldByName("FieldPath").SetString("metadata.labels['app']")
				places = append(places, path)
				return
			}
			for i := range v.NumField() {
				if f := v.Type().Field(i); f.IsExported() && v.Type().PkgPath() == ref.PkgPath() {
					walk(path+"."+f.Name, v.Field(i), append(above, v.Type()))
				}
			}
		}
	}
	walk("", reflect.ValueOf(&spec).Elem(), nil)
	require.ElementsMatch(t, fieldRefPlaces, places, "a place is new: fieldRefs has to visit it")
	var seen int
	fieldRefs(&spec, func(owner, item string, ref *corev1.ObjectFieldSelector) {
		require.Equal(t, "metadata.labels['app']", ref.FieldPath)
		seen++
	})
	require.Equal(t, len(places), seen)
}

func refersTo(path string) *corev1.ObjectFieldSelector {
	return &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}
}

// TestReferencesLeadToCopies: what a pod refers to of its own labels and annotations is in
// annotations that every provider accepts.
func TestReferencesLeadToCopies(t *testing.T) {
	t.Parallel()
	const index, copied = "jobset.sigs.k8s.io/job-index", "jobset.sigs.k8s.io.annotations.liqo.io/job-index"
	local := localPod()
	local.Annotations[index], local.Labels["tier"] = "3", "gold"
	local.Spec.Containers[0].Env = []corev1.EnvVar{
		{Name: "INDEX", ValueFrom: &corev1.EnvVarSource{FieldRef: refersTo("metadata.annotations['" + index + "']")}},
		{Name: "ABSENT", ValueFrom: &corev1.EnvVarSource{FieldRef: refersTo("metadata.annotations['example.org/absent']")}},
		{Name: "NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: refersTo("metadata.name")}},
		{Name: "UID", ValueFrom: &corev1.EnvVarSource{FieldRef: refersTo("metadata.uid")}},
		{Name: "NODE", ValueFrom: &corev1.EnvVarSource{FieldRef: refersTo("spec.nodeName")}},
		{Name: "HOST", ValueFrom: &corev1.EnvVarSource{FieldRef: refersTo("status.hostIP")}},
	}
	local.Spec.Volumes = []corev1.Volume{
		{Name: "facts", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{
			{Path: "ready", FieldRef: refersTo("metadata.annotations['tekton.dev/ready']")},
			{Path: "tier", FieldRef: refersTo("metadata.labels['tier']")}, {Path: "labels", FieldRef: refersTo("metadata.labels")},
		}}}},
		projected("more", corev1.VolumeProjection{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
			{Path: "annotations", FieldRef: refersTo("metadata.annotations")}}}}),
	}
	before := local.DeepCopy()
	shadow, err := ShadowPod(local, options())
	require.NoError(t, err)
	require.Equal(t, before, local, "the argument is not changed")
	all := "jobset.sigs.k8s.io/job-index=\"3\"\nnote=\"x\""
	require.Equal(t, map[string]string{
		"note": "x", index: "3", copied: "3", "labels.liqo.io/tier": "gold",
		"offloading.liqo.io/all-labels":      "app=\"web\"\npod-template-hash=\"55c\"\ntier=\"gold\"",
		"offloading.liqo.io/all-annotations": all,
	}, shadow.Annotations)
	var paths []string
	fieldRefs(&shadow.Spec.Pod, func(_, _ string, ref *corev1.ObjectFieldSelector) { paths = append(paths, ref.FieldPath) })
	require.Equal(t, []string{
		"metadata.annotations['" + copied + "']", "metadata.annotations['example.org.annotations.liqo.io/absent']", "metadata.name", "metadata.labels['offloading.liqo.io/local-pod-uid']",
		"metadata.labels['offloading.liqo.io/nodename']", "status.hostIP", "metadata.annotations['tekton.dev.annotations.liqo.io/ready']",
		"metadata.annotations['labels.liqo.io/tier']", "metadata.annotations['offloading.liqo.io/all-labels']", "metadata.annotations['offloading.liqo.io/all-annotations']",
	}, paths)

	same, changed := UpdateShadowPod(shadow, local, options())
	require.False(t, changed)
	require.Same(t, shadow, same)

	// Later changes follow, and a later container.
	local.Annotations[index], local.Labels["tier"], local.Annotations["tekton.dev/ready"] = "4", "silver", "READY"
	local.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Env: local.Spec.Containers[0].Env}}}
	now, changed := UpdateShadowPod(shadow, local, options())
	require.True(t, changed)
	require.Equal(t, "4", now.Annotations[copied])
	require.Equal(t, "silver", now.Annotations["labels.liqo.io/tier"])
	require.Equal(t, "READY", now.Annotations["tekton.dev.annotations.liqo.io/ready"], "a key that the pod had not when it was created")
	require.Contains(t, now.Annotations["offloading.liqo.io/all-labels"], `tier="silver"`)
	require.Equal(t, "metadata.annotations['"+copied+"']", now.Spec.Pod.EphemeralContainers[0].Env[0].ValueFrom.FieldRef.FieldPath)
	_, changed = UpdateShadowPod(now, local, options())
	require.False(t, changed)
}

// TestReferencesThatStayHome: a pod that refers to a key which a setting keeps here is refused,
// and a list of all keys does not have it.
func TestReferencesThatStayHome(t *testing.T) {
	t.Parallel()
	o := options()
	o.SkipAnnotations = []string{"corp.example/owner"}
	o.Patch = &offloadingv1beta1.OffloadingPatch{LabelsNotReflected: []string{"site"}}
	for of, path := range map[string]string{"annotation": "metadata.annotations['corp.example/owner']", "label": "metadata.labels['site']"} {
		local := localPod()
		local.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "WHAT", ValueFrom: &corev1.EnvVarSource{FieldRef: refersTo(path)}}}
		_, err := ShadowPod(local, o)
		require.NoError(t, err, "the pod has no such %s", of)
		local.Annotations["corp.example/owner"], local.Labels["site"] = "me", "s1"
		_, err = ShadowPod(local, o)
		var refused *Refused
		require.ErrorAs(t, err, &refused, of)
		require.Equal(t, reasons.ReferenceStaysHome, refused.Reason)
		require.Contains(t, refused.Message, "WHAT of web refers to "+path)
	}
	local := localPod()
	local.Annotations["corp.example/owner"] = "me"
	local.Spec.Volumes = append(local.Spec.Volumes, corev1.Volume{Name: "facts", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
		Items: []corev1.DownwardAPIVolumeFile{{Path: "all", FieldRef: refersTo("metadata.annotations")}}}}})
	shadow, err := ShadowPod(local, o)
	require.NoError(t, err)
	require.Equal(t, `note="x"`, shadow.Annotations["offloading.liqo.io/all-annotations"])
}
