package forge

import (
	"maps"
	"reflect"
	"slices"
	"strings"
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

// otherNames are the fields of a PodSpec that name something else than a ConfigMap or Secret.
var otherNames = []string{
	"AzureDiskVolumeSource.DiskName", "AzureFileVolumeSource.ShareName", "ClusterTrustBundleProjection.SignerName",
	"ContainerResizePolicy.ResourceName", "EphemeralContainer.TargetContainerName", "FileKeySelector.VolumeName",
	"FlockerVolumeSource.DatasetName", "GCEPersistentDiskVolumeSource.PDName", "GlusterfsVolumeSource.EndpointsName",
	"ISCSIVolumeSource.InitiatorName", "PersistentVolumeClaimSpec.StorageClassName", "PersistentVolumeClaimSpec.VolumeAttributesClassName",
	"PersistentVolumeClaimSpec.VolumeName", "PersistentVolumeClaimVolumeSource.ClaimName", "PodCertificateProjection.SignerName",
	"PodResourceClaim.ResourceClaimName", "PodResourceClaim.ResourceClaimTemplateName", "PodSchedulingGroup.PodGroupName",
	"PodSpec.NodeName", "PodSpec.PriorityClassName", "PodSpec.RuntimeClassName",
	"PodSpec.SchedulerName", "PodSpec.ServiceAccountName", "ResourceFieldSelector.ContainerName",
	"ScaleIOVolumeSource.VolumeName", "StorageOSVolumeSource.VolumeName", "VsphereVirtualDiskVolumeSource.StoragePolicyName",
	"WindowsSecurityContextOptions.GMSACredentialSpecName", "WindowsSecurityContextOptions.RunAsUserName",
}

// TestNamedByFindsAll fills each field of a PodSpec and requires that NamedBy returns what each
// reference names. A field of the API that is new and names something fails the test.
func TestNamedByFindsAll(t *testing.T) {
	core, local := reflect.TypeFor[corev1.PodSpec]().PkgPath(), reflect.TypeFor[corev1.LocalObjectReference]()
	var want []Named
	others := map[string]bool{}
	var fill func(v reflect.Value, path string)
	inStruct := func(v reflect.Value, path string) {
		kind, optional := "Secret", v.FieldByName("Optional")
		if strings.HasPrefix(v.Type().Name(), "ConfigMap") {
			kind = "ConfigMap"
		}
		for i := range v.NumField() {
			field := v.Type().Field(i)
			switch {
			case field.Name == "SecretName", field.Name == "Name" && v.Type() == local:
				v.Field(i).SetString(path)
				want = append(want, Named{kind, path, optional.IsValid()})
			case field.Type == local && field.Anonymous:
				v.Field(i).FieldByName("Name").SetString(path)
				want = append(want, Named{kind, path, true})
			case field.Name == "Optional":
				optional.Set(reflect.ValueOf(new(true)))
			case strings.HasSuffix(field.Name, "Name") && field.Name != "Name":
				others[v.Type().Name()+"."+field.Name] = true
			default:
				fill(v.Field(i), path+"."+field.Name)
			}
		}
	}
	fill = func(v reflect.Value, path string) {
		switch {
		case v.Kind() == reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem(), path)
		case v.Type() == reflect.TypeFor[[]corev1.Volume](): // of one type each
			types := reflect.TypeFor[corev1.VolumeSource]()
			v.Set(reflect.MakeSlice(v.Type(), types.NumField(), types.NumField()))
			for i := range types.NumField() {
				fill(v.Index(i).FieldByName("VolumeSource").Field(i), path+"."+types.Field(i).Name)
			}
		case v.Kind() == reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			fill(v.Index(0), path)
		case v.Kind() == reflect.Struct && v.Type().PkgPath() == core:
			inStruct(v, path)
		}
	}
	var spec corev1.PodSpec
	fill(reflect.ValueOf(&spec).Elem(), "")
	require.Greater(t, len(want), 20)
	require.ElementsMatch(t, want, NamedBy(&spec))
	require.ElementsMatch(t, otherNames, slices.Collect(maps.Keys(others)), "a field is new: does NamedBy have to visit it?")
}

// TestNamedBy: an object that is named twice is optional if one of both may do without.
func TestNamedBy(t *testing.T) {
	app := corev1.LocalObjectReference{Name: "app"}
	require.Equal(t, []Named{{"Secret", "app", false}, {"ConfigMap", "app", true}}, NamedBy(&corev1.PodSpec{
		ImagePullSecrets: []corev1.LocalObjectReference{app, {}},
		Containers: []corev1.Container{{EnvFrom: []corev1.EnvFromSource{
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: app}},
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: app, Optional: new(true)}},
		}}},
	}))
}
