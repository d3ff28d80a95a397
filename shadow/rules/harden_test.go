package rules

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestTolerations(t *testing.T) {
	t.Parallel()
	seconds := func(n int64) *int64 { return &n }
	exists := func(key string, effect corev1.TaintEffect, s *int64) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect, TolerationSeconds: s}
	}
	notReady, unreachable := corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable
	cases := map[string]struct{ in, want []corev1.Toleration }{
		"none": {},
		"of nodes the provider sets apart for peers": {
			in:   []corev1.Toleration{{Key: "team", Operator: corev1.TolerationOpEqual, Value: "x", Effect: corev1.TaintEffectNoSchedule}},
			want: []corev1.Toleration{{Key: "team", Operator: corev1.TolerationOpEqual, Value: "x", Effect: corev1.TaintEffectNoSchedule}},
		},
		"the default ones": {
			in:   []corev1.Toleration{exists(notReady, corev1.TaintEffectNoExecute, seconds(300)), exists(unreachable, corev1.TaintEffectNoExecute, seconds(300))},
			want: []corev1.Toleration{exists(notReady, corev1.TaintEffectNoExecute, seconds(300)), exists(unreachable, corev1.TaintEffectNoExecute, seconds(300))},
		},
		"not ready, every effect":      {in: []corev1.Toleration{exists(notReady, "", nil)}, want: []corev1.Toleration{exists(notReady, corev1.TaintEffectNoExecute, nil)}},
		"not ready, scheduling":        {in: []corev1.Toleration{exists(notReady, corev1.TaintEffectNoSchedule, nil)}},
		"control plane":                {in: []corev1.Toleration{exists("node-role.kubernetes.io/control-plane", "", nil)}},
		"control plane, older name":    {in: []corev1.Toleration{exists("node-role.kubernetes.io/master", corev1.TaintEffectNoSchedule, nil)}},
		"cordoned nodes":               {in: []corev1.Toleration{exists(corev1.TaintNodeUnschedulable, "", nil)}},
		"uninitialised nodes":          {in: []corev1.Toleration{exists("node.cloudprovider.kubernetes.io/uninitialized", "", nil)}},
		"virtual nodes":                {in: []corev1.Toleration{exists("virtual-node.liqo.io/not-allowed", "", nil)}},
		"everything, scheduling":       {in: []corev1.Toleration{exists("", corev1.TaintEffectNoSchedule, nil)}},
		"everything, at all":           {in: []corev1.Toleration{exists("", "", nil)}, want: []corev1.Toleration{exists(notReady, corev1.TaintEffectNoExecute, nil), exists(unreachable, corev1.TaintEffectNoExecute, nil)}},
		"everything, for a while":      {in: []corev1.Toleration{exists("", corev1.TaintEffectNoExecute, seconds(9))}, want: []corev1.Toleration{exists(notReady, corev1.TaintEffectNoExecute, seconds(9)), exists(unreachable, corev1.TaintEffectNoExecute, seconds(9))}},
		"everything, and default ones": {in: []corev1.Toleration{exists(notReady, corev1.TaintEffectNoExecute, seconds(5)), exists("", "", nil)}, want: []corev1.Toleration{exists(notReady, corev1.TaintEffectNoExecute, seconds(5)), exists(unreachable, corev1.TaintEffectNoExecute, nil)}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := corev1.PodSpec{Tolerations: tc.in}
			require.NoError(t, Harden(&spec, Allowed{}))
			require.Equal(t, tc.want, spec.Tolerations)
			again := *spec.DeepCopy()
			require.NoError(t, Harden(&again, Allowed{}))
			require.Equal(t, spec, again)
		})
	}
}

func TestRuntimeClasses(t *testing.T) {
	t.Parallel()
	name := func(s string) *string { return &s }
	cases := map[string]struct {
		class   *string
		accepts []string
		message string
	}{
		"none":            {},
		"accepted":        {class: name("gvisor"), accepts: []string{"kata", "gvisor"}},
		"not in the list": {class: name("nvidia"), accepts: []string{"kata", "gvisor"}, message: `spec.runtimeClassName "nvidia": this cluster accepts from peers: kata, gvisor`},
		"empty list":      {class: name("liqo"), message: `spec.runtimeClassName "liqo": this cluster accepts from peers: none`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := corev1.PodSpec{RuntimeClassName: tc.class}
			err := Harden(&spec, Allowed{RuntimeClasses: tc.accepts})
			if tc.message == "" {
				require.NoError(t, err)
				require.Equal(t, tc.class, spec.RuntimeClassName)
				return
			}
			var refused *Refused
			require.ErrorAs(t, err, &refused)
			require.Equal(t, ReasonRuntimeClass, refused.Reason)
			require.Equal(t, tc.message, refused.Message)
		})
	}
}

// TestEveryKindOfVolumeIsTheAuthors: pod security and the nodes judge them, but for those of
// other tests.
func TestEveryKindOfVolumeIsTheAuthors(t *testing.T) {
	t.Parallel()
	typ := reflect.TypeFor[corev1.VolumeSource]()
	for i := range typ.NumField() {
		if name := typ.Field(i).Name; name == "Projected" || name == "Ephemeral" {
			continue
		}
		volume := corev1.Volume{Name: "v"}
		fillValue(reflect.ValueOf(&volume.VolumeSource).Elem().Field(i), 0)
		spec := corev1.PodSpec{Volumes: []corev1.Volume{*volume.DeepCopy()}}
		require.NoError(t, Harden(&spec, Allowed{}), typ.Field(i).Name)
		require.Equal(t, []corev1.Volume{volume}, spec.Volumes)
	}
}

func TestVolumes(t *testing.T) {
	t.Parallel()
	token := corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}
	config := corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{}}
	certificate := corev1.VolumeProjection{PodCertificate: &corev1.PodCertificateProjection{SignerName: "x/y"}}
	volume := func(sources ...corev1.VolumeProjection) []corev1.Volume {
		return []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: sources}}}}
	}
	// The peer's own tokens come in Secrets of its twin namespace.
	secret := corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "token-cashier-1"},
		Items: []corev1.KeyToPath{{Key: "token", Path: "token"}}}}
	spec := corev1.PodSpec{Volumes: volume(token, config, secret)}
	require.NoError(t, Harden(&spec, Allowed{}))
	require.Equal(t, []corev1.VolumeProjection{config, secret}, spec.Volumes[0].Projected.Sources)

	host := []corev1.Volume{{Name: "h", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
	spec = corev1.PodSpec{Volumes: host}
	require.NoError(t, Harden(&spec, Allowed{}))
	require.Equal(t, "/", spec.Volumes[0].HostPath.Path, "pod security judges host paths")

	spec = corev1.PodSpec{Volumes: volume(certificate), NodeName: "n"}
	require.ErrorContains(t, Harden(&spec, Allowed{}), "podCertificate")
	require.Equal(t, "n", spec.NodeName, "a refused spec is left as it was")
}
