package forge

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

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
	t.Parallel()
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
	t.Parallel()
	app := corev1.LocalObjectReference{Name: "app"}
	require.Equal(t, []Named{{"Secret", "app", false}, {"ConfigMap", "app", true}}, NamedBy(&corev1.PodSpec{
		ImagePullSecrets: []corev1.LocalObjectReference{app, {}},
		Containers: []corev1.Container{{EnvFrom: []corev1.EnvFromSource{
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: app}},
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: app, Optional: new(true)}},
		}}},
	}))
}
