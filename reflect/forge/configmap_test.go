package forge

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqod/liqod/reasons"
)

// configMapFields has a rule for each field of a reflected ConfigMap.
var configMapFields = map[string]rule{
	"TypeMeta":   {apart, "nobody's"},
	"ObjectMeta": {apart, "see metaFields"},
	"Immutable":  {defaulted, "nobody makes one mutable again, who does not make it anew"},
	"Data":       {kept, ""},
	"BinaryData": {kept, ""},
}

func configMap() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "shop"}}
}

func TestEveryFieldOfAConfigMapHasARule(t *testing.T) {
	requireRules(t, configMapFields, kind[corev1.ConfigMap, corev1.ConfigMap]{
		local: configMap,
		forge: func(c *corev1.ConfigMap) (*corev1.ConfigMap, error) { return ConfigMap(c, objectOptions()) },
		merge: MergeConfigMap,
	})
}

func TestConfigMapName(t *testing.T) {
	for name, tc := range map[string]struct {
		name, id string
		want     string // "" is refused
	}{
		"root CA":               {"kube-root-ca.crt", "rome-1234", "kube-root-ca.crt.rome"},
		"root CA, long id":      {"kube-root-ca.crt", "roma1234", "kube-root-ca.crt.roma1"},
		"root CA, short id":     {"kube-root-ca.crt", "r", "kube-root-ca.crt.r"},
		"the root CA's there":   {"kube-root-ca.crt.rome", "rome", ""},
		"begins like a root CA": {"kube-root-ca.crt.rome2", "rome", "kube-root-ca.crt.rome2"},
	} {
		t.Run(name, func(t *testing.T) {
			o := objectOptions()
			o.OriginClusterID = tc.id
			local := configMap()
			local.Name = tc.name
			got, err := ConfigMap(local, o)
			if tc.want == "" {
				require.ErrorContains(t, err, reasons.NameTaken+": ConfigMap kube-root-ca.crt.rome: ")
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, got.Name)
			require.Equal(t, tc.name, LocalConfigMapName(got.Name, tc.id))
		})
	}
}

// TestReplacesImmutable: what is immutable in the provider is replaced if its content is another.
func TestReplacesImmutable(t *testing.T) {
	text := func(s string, immutable *bool) *corev1.ConfigMap {
		return &corev1.ConfigMap{Data: map[string]string{"k": s}, Immutable: immutable}
	}
	bytes := func(s string, immutable *bool) *corev1.ConfigMap {
		return &corev1.ConfigMap{BinaryData: map[string][]byte{"k": []byte(s)}, Immutable: immutable}
	}
	of := func(s string, immutable *bool) *corev1.Secret {
		return &corev1.Secret{Data: map[string][]byte{"k": []byte(s)}, Immutable: immutable}
	}
	for name, tc := range map[string]struct {
		was, is  *bool
		content  string // "a" so far
		replaces bool
	}{
		"mutable":              {nil, nil, "b", false},
		"becomes immutable":    {nil, new(true), "b", false},
		"immutable, other":     {new(true), new(true), "b", true},
		"immutable there only": {new(true), nil, "a", false},
		"and is said not to":   {new(true), new(false), "a", false},
		"and other content":    {new(true), nil, "b", true},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.replaces, ReplacesConfigMap(text("a", tc.was), text(tc.content, tc.is)), "text")
			require.Equal(t, tc.replaces, ReplacesConfigMap(bytes("a", tc.was), bytes(tc.content, tc.is)), "bytes")
			require.Equal(t, tc.replaces, ReplacesSecret(of("a", tc.was), of(tc.content, tc.is)), "Secret")
		})
	}
	require.True(t, ReplacesSecret(&corev1.Secret{Type: "Opaque"}, &corev1.Secret{Type: "kubernetes.io/tls"}), "another type")
}

// TestMergeConfigMapLeavesImmutable covers an object that is immutable in the provider
// and already has the wanted content. It must not be replaced, because the field cannot
// be reset.
func TestMergeConfigMapLeavesImmutable(t *testing.T) {
	for name, tc := range map[string]struct{ have, want, merged *bool }{
		"not said to be mutable": {new(false), nil, nil},
		"though said to be not":  {new(true), new(false), new(true)},
	} {
		t.Run(name, func(t *testing.T) {
			want := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "1"}}, Immutable: tc.want}
			got := MergeConfigMap(&corev1.ConfigMap{Immutable: tc.have}, want)
			require.Equal(t, tc.merged, got.Immutable)
			require.Equal(t, want.Labels, got.Labels, "these can be changed all the same")
			secret := MergeSecret(&corev1.Secret{Immutable: tc.have}, &corev1.Secret{Immutable: tc.want})
			require.Equal(t, tc.merged, secret.Immutable)
		})
	}
}

// secretFields has a rule for each field of a reflected Secret.
var secretFields = map[string]rule{
	"TypeMeta":   {apart, "nobody's"},
	"ObjectMeta": {apart, "see metaFields"},
	"Immutable":  {defaulted, "nobody makes one mutable again, who does not make it anew"},
	"Data":       {kept, ""},
	"StringData": {removed, "only written; the API server has put it into Data"},
	"Type":       {apart, "kept, but that of tokens of service accounts; cannot be changed"},
}

func secret(typ corev1.SecretType) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "shop"}, Type: typ}
}

func TestEveryFieldOfASecretHasARule(t *testing.T) {
	requireRules(t, secretFields, kind[corev1.Secret, corev1.Secret]{
		local: func() *corev1.Secret { return secret(corev1.SecretTypeOpaque) },
		forge: func(s *corev1.Secret) (*corev1.Secret, error) { return Secret(s, objectOptions()) },
		merge: MergeSecret,
	})
}

func TestSecretTypes(t *testing.T) {
	for typ, want := range map[corev1.SecretType]corev1.SecretType{
		"":                   corev1.SecretTypeOpaque, // as the API server has it
		corev1.SecretTypeTLS: corev1.SecretTypeTLS, corev1.SecretTypeBootstrapToken: corev1.SecretTypeBootstrapToken, "helm.sh/release.v1": "helm.sh/release.v1",
	} {
		got, err := Secret(secret(typ), objectOptions())
		require.NoError(t, err)
		require.Equal(t, want, got.Type)
	}
}

func TestServiceAccountToken(t *testing.T) {
	_, err := Secret(secret(corev1.SecretTypeServiceAccountToken), objectOptions())
	require.EqualError(t, err, "ReflectionDisabled: Secret s has type kubernetes.io/service-account-token: "+
		"tokens of service accounts stay in this cluster; a copy of other type is reflected")
}

// TestMergeSecretKeepsWhatIsEqual requires that equal values share memory. A generic
// comparison of a few megabytes byte by byte takes a second.
func TestMergeSecretKeepsWhatIsEqual(t *testing.T) {
	have := &corev1.Secret{Data: map[string][]byte{"same": []byte("1"), "other": []byte("2"), "gone": []byte("3")}}
	want := &corev1.Secret{Data: map[string][]byte{"same": []byte("1"), "other": []byte("0"), "new": []byte("4")}}
	got := MergeSecret(have, want)
	require.Equal(t, want.Data, got.Data)
	require.Same(t, &have.Data["same"][0], &got.Data["same"][0])
	require.Nil(t, MergeSecret(have, &corev1.Secret{}).Data)
}
