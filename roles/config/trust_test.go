package config

import (
	"bytes"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
)

func TestTrust(t *testing.T) {
	settings := schema(t)
	strict := loaded(t, nil)
	require.Equal(t, corev1beta1.TrustStrict, strict.Sharing.Trust)
	open := loaded(t, []string{"LIQOD_SHARING_TRUST=Organisation"})
	require.Equal(t, []string{"*"}, open.Controller.TwinNames)
	require.Subset(t, open.Controller.VolumeTypes, append([]string{"nfs", "csi", "iscsi", "cephfs", "rbd"}, strict.Controller.VolumeTypes...))
	require.NotContains(t, open.Controller.VolumeTypes, "hostPath")
	require.Equal(t, []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, Tolerations(open.Controller.Tolerations))
	require.Equal(t, []string{"*"}, open.Sharing.SelectorLabels)
	require.Equal(t, append(strict.Sharing.ServiceTypes, "ExternalName"), open.Sharing.ServiceTypes)
	require.Equal(t, []string{"nodePort"}, open.Sharing.ServiceFields)
	require.Equal(t, []string{"*"}, open.Sharing.Annotations)
	require.Equal(t, "baseline", open.Controller.PodSecurityLevel)
	require.Empty(t, strict.IPAM.Keep)
	require.Contains(t, open.IPAM.Keep, "10.0.0.0/8")
	require.Equal(t, []string{ReachShared, ReachAll}, []string{strict.Networking.Reach, open.Networking.Reach})
	for _, s := range following() {
		key := s.key
		require.NotEqual(t, strict.value(key), open.value(key), "%s: trust changes nothing", key)
		require.Contains(t, settingOf(settings, "sharing.trust").Help, key, "its help names every setting")
		_, ok := rules[key].parse(s.open)
		require.True(t, ok, key)
		// The peers of one cluster are trusted apart, whatever the setting says.
		for _, e := range []*Effective{strict, open} {
			closed, wide := e.Under(corev1beta1.TrustStrict), e.Under(corev1beta1.TrustOrganisation)
			require.Equal(t, strict.value(key), reflect.ValueOf(s.field(&closed)).Elem().Interface(), key)
			require.Equal(t, open.value(key), reflect.ValueOf(s.field(&wide)).Elem().Interface(), key)
		}
	}

	var out bytes.Buffer
	require.NoError(t, open.Print(&out))
	require.Contains(t, out.String(), "  twinNames: # sharing.trust Organisation\n    - \"*\"\n")
}

// TestTrustGivesWayToSettings: each setting that is given counts, also with its default.
func TestTrustGivesWayToSettings(t *testing.T) {
	settings := schema(t)
	e, err := Load(Sources{
		Settings: settings, Env: []string{"LIQOD_CONTROLLER_TWINNAMES="},
		Flags: parse(t, settings, "--sharing.trust=Organisation", "--sharing.serviceTypes=ClusterIP", "--sharing.annotations=example.com/*,a.example.com/b", "--networking.reach=Shared"),
	})
	require.NoError(t, err)
	require.Empty(t, e.Controller.TwinNames)
	require.Equal(t, []string{"ClusterIP"}, e.Sharing.ServiceTypes)
	require.Equal(t, []string{"example.com/*", "a.example.com/b"}, e.Sharing.Annotations)
	require.Equal(t, []string{"*"}, e.Sharing.SelectorLabels)
	for _, trust := range []corev1beta1.Trust{corev1beta1.TrustStrict, corev1beta1.TrustOrganisation} {
		under := e.Under(trust)
		require.Empty(t, under.Controller.TwinNames, trust)
		require.Equal(t, []string{"ClusterIP"}, under.Sharing.ServiceTypes, trust)
		require.Equal(t, ReachShared, under.Networking.Reach, trust)
	}
	for _, bad := range []string{
		"--sharing.trust=organisation", "--sharing.trust=", "--sharing.annotations=exa mple.com/a", "--sharing.annotations=example.com/", "--sharing.annotations=Example.com/*", "--sharing.annotations=a*",
		"--controller.tolerations=*:NoSchedule", "--sharing.selectorLabels=example.com/*",
	} {
		_, err := Load(Sources{Settings: settings, Flags: parse(t, settings, bad)})
		require.Error(t, err, bad)
	}
}

func settingOf(settings []Setting, key string) (found Setting) {
	for _, s := range settings {
		if s.Key == key {
			found = s
		}
	}
	return found
}

// TestChartHasTheSameLists: the chart's admission policies and webhooks are made from the
// lists of config.yaml. Where these follow the trust in a peer, the webhook is called for what
// a Strict peer may not write, and judges by the peer.
func TestChartHasTheSameLists(t *testing.T) {
	text, err := os.ReadFile("../../charts/liqod/templates/_helpers.tpl")
	require.NoError(t, err)
	_, helper, found := strings.Cut(string(text), `{{- define "liqod.sharing.list" -}}`)
	require.True(t, found)
	helper, _, _ = strings.Cut(helper, "{{- define")
	e := loaded(t, nil)
	lists := regexp.MustCompile(`"(\w+)" (?:\(list (.*?)\)|list\b)`).FindAllStringSubmatch(helper, -1)
	require.NotEmpty(t, lists)
	for _, m := range lists {
		want := []string{}
		for _, quoted := range strings.Fields(m[2]) {
			want = append(want, strings.Trim(quoted, `"`))
		}
		require.Equal(t, want, e.value("sharing."+m[1]), "sharing.%s", m[1])
	}
	for _, key := range []string{"serviceTypes", "annotations", "labelsLeftOut"} {
		require.Regexp(t, `"`+key+`" \(list`, helper)
	}
}
