package rules

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/liqod/liqod/reasons"
)

// hardened returns what Harden makes of a spec. A second time changes nothing.
func hardened(t *testing.T, spec corev1.PodSpec, allowed Allowed) corev1.PodSpec {
	t.Helper()
	require.NoError(t, Harden(&spec, allowed))
	again := *spec.DeepCopy()
	require.NoError(t, Harden(&again, allowed))
	require.Equal(t, spec, again)
	return spec
}

// requireRefused requires that Harden refuses a spec for a reason, and leaves it as it was. It returns the message.
func requireRefused(t *testing.T, spec corev1.PodSpec, allowed Allowed, reason string) string {
	t.Helper()
	before := *spec.DeepCopy()
	var refused *Refused
	require.ErrorAs(t, Harden(&spec, allowed), &refused)
	require.Equal(t, reason, refused.Reason)
	require.Equal(t, before, spec, "a refused spec is left as it was")
	return refused.Message
}

func TestTolerations(t *testing.T) {
	t.Parallel()
	seconds := func(n int64) *int64 { return &n }
	exists := func(key string, effect corev1.TaintEffect, s *int64) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect, TolerationSeconds: s}
	}
	notReady, unreachable := corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable
	cases := map[string]struct{ in, want []corev1.Toleration }{
		"none": {},
		"of nodes that the provider sets apart": {
			in: []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpEqual, Value: "pci", Effect: corev1.TaintEffectNoSchedule}, exists("dedicated", "", nil)},
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
			require.Equal(t, tc.want, hardened(t, corev1.PodSpec{Tolerations: tc.in}, Allowed{}).Tolerations)
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
		"not in the list": {class: name("nvidia"), accepts: []string{"kata", "gvisor"}, message: `spec.runtimeClassName "nvidia": this cluster accepts from peers: kata, gvisor; its administrators can allow more by the setting controller.runtimeClasses`},
		"empty list":      {class: name("liqo"), message: `spec.runtimeClassName "liqo": this cluster accepts from peers: none; its administrators can allow more by the setting controller.runtimeClasses`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec, allowed := corev1.PodSpec{RuntimeClassName: tc.class}, Allowed{RuntimeClasses: tc.accepts}
			if tc.message == "" {
				require.Equal(t, tc.class, hardened(t, spec, allowed).RuntimeClassName)
				return
			}
			require.Equal(t, tc.message, requireRefused(t, spec, allowed, reasons.RuntimeClassRefused))
		})
	}
}

// TestEveryTypeOfVolumeHasARule: a type that is not listed is refused, one that is listed
// stays as it is, but for those of other tests. Of a new type in the API the test says so.
func TestEveryTypeOfVolumeHasARule(t *testing.T) {
	t.Parallel()
	typ := reflect.TypeFor[corev1.VolumeSource]()
	for i := range typ.NumField() {
		name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		require.Contains(t, VolumeTypes(), name)
		volume := corev1.Volume{Name: "v"}
		fillValue(reflect.ValueOf(&volume.VolumeSource).Elem().Field(i), 0)
		if name == "projected" {
			volume.Projected.Sources[0] = corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{}}
		}
		spec := corev1.PodSpec{Volumes: []corev1.Volume{*volume.DeepCopy()}, NodeName: "n"}
		require.Equal(t, `spec.volumes "v" is a volume of type `+name+": cluster milan accepts from peers: none; its administrators can allow more by the setting controller.volumeTypes",
			requireRefused(t, spec, Allowed{Cluster: "milan", VolumeTypes: []string{"none"}}, reasons.VolumeTypeRefused))
		if name == "ephemeral" {
			continue
		}
		require.NoError(t, Harden(&spec, Allowed{VolumeTypes: []string{name}}), name)
		require.Equal(t, []corev1.Volume{volume}, spec.Volumes)
	}
	require.Len(t, VolumeTypes(), typ.NumField(), "a type of volumes that the API does not have")
}

// TestVolumesOfNoOneType: a volume without a source is an emptyDir. The API server refuses one with two, but is not
// relied on.
func TestVolumesOfNoOneType(t *testing.T) {
	t.Parallel()
	of := func(source corev1.VolumeSource) corev1.PodSpec {
		return corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v", VolumeSource: source}}}
	}
	empty := Allowed{VolumeTypes: []string{"emptyDir"}}
	require.Contains(t, requireRefused(t, of(corev1.VolumeSource{}), Allowed{}, reasons.VolumeTypeRefused), "type emptyDir")
	hardened(t, of(corev1.VolumeSource{}), empty)
	two := of(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}, NFS: &corev1.NFSVolumeSource{Server: "192.0.2.9", Path: "/"}})
	require.Contains(t, requireRefused(t, two, empty, reasons.VolumeTypeRefused), "type nfs")
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
	allowed := Allowed{VolumeTypes: VolumeTypes()}
	spec := hardened(t, corev1.PodSpec{Volumes: volume(token, config, secret)}, allowed)
	require.Equal(t, []corev1.VolumeProjection{config, secret}, spec.Volumes[0].Projected.Sources)

	host := []corev1.Volume{{Name: "h", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
	require.Equal(t, host, hardened(t, corev1.PodSpec{Volumes: host}, allowed).Volumes, "pod security judges host paths")

	spec = corev1.PodSpec{Volumes: volume(certificate), NodeName: "n"}
	require.ErrorContains(t, Harden(&spec, Allowed{}), "podCertificate")
	require.Equal(t, "n", spec.NodeName, "a refused spec is left as it was")
}
