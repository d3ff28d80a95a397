package rules

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// TestLent: in a namespace of the provider's own, a peer's pod uses no Secret and no claim of
// it, by whatever field, unless the owner shares them.
func TestLent(t *testing.T) {
	t.Parallel()
	ref := &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}}
	named := &corev1.LocalObjectReference{Name: "s"}
	in := func(c corev1.Container) corev1.PodSpec { return corev1.PodSpec{Containers: []corev1.Container{c}} }
	volume := func(s corev1.VolumeSource) corev1.PodSpec {
		return corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v", VolumeSource: s}}}
	}
	variable := corev1.Container{Name: "c", Env: []corev1.EnvVar{{Name: "P", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: ref}}}}
	all := corev1.Container{Name: "c", EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: *named}}}}
	template := func(s corev1.PersistentVolumeClaimSpec) corev1.VolumeSource {
		return corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: s}}}
	}
	secrets, claims := offloadingv1beta1.ShareSecrets, offloadingv1beta1.ShareClaims
	for name, tc := range map[string]struct {
		spec corev1.PodSpec
		uses string
	}{
		"nothing":                {volume(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}), ""},
		"a ConfigMap":            {in(corev1.Container{EnvFrom: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{}}}}), ""},
		"a variable":             {in(variable), secrets},
		"all variables":          {in(all), secrets},
		"of an init container":   {corev1.PodSpec{InitContainers: []corev1.Container{variable}}, secrets},
		"of a debug container":   {corev1.PodSpec{EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon(variable)}}}, secrets},
		"a volume":               {volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s", Optional: new(true)}}), secrets},
		"a projected volume":     {volume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{Secret: &corev1.SecretProjection{}}}}}), secrets},
		"a driver's":             {volume(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{NodePublishSecretRef: named}}), secrets},
		"a mount's":              {volume(corev1.VolumeSource{CephFS: &corev1.CephFSVolumeSource{SecretRef: named}}), secrets},
		"pull secrets":           {corev1.PodSpec{ImagePullSecrets: []corev1.LocalObjectReference{*named}}, secrets},
		"a claim":                {volume(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-db-0"}}), claims},
		"a clone":                {volume(template(corev1.PersistentVolumeClaimSpec{DataSource: &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "data-db-0"}})), claims},
		"a clone by reference":   {volume(template(corev1.PersistentVolumeClaimSpec{DataSourceRef: &corev1.TypedObjectReference{Kind: "VolumeSnapshot", Name: "s"}})), claims},
		"an ephemeral volume":    {volume(template(corev1.PersistentVolumeClaimSpec{})), ""},
		"a volume for certainty": {volume(corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{}}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			judge := func(annotations map[string]string) error {
				return Lent(&tc.spec, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Annotations: annotations}})
			}
			require.NoError(t, judge(map[string]string{offloadingv1beta1.ManagedByNamespaceMapAnnotation: "liqo-tenant-rome/milan"}), "a namespace of its own")
			lent := map[string]string{offloadingv1beta1.AcceptedForAnnotation: "liqo-tenant-rome/milan"}
			if tc.uses == "" {
				require.NoError(t, judge(lent))
				return
			}
			var refused *Refused
			require.ErrorAs(t, judge(lent), &refused)
			require.Equal(t, ReasonNotShared, refused.Reason)
			require.Contains(t, refused.Message, "adding "+tc.uses+" to the annotation liqo.io/accept-twin-shares")
			for _, share := range offloadingv1beta1.AllShares() {
				lent[offloadingv1beta1.AcceptTwinSharesAnnotation] = share
				require.Equal(t, share == tc.uses, judge(lent) == nil, share)
			}
		})
	}
}
