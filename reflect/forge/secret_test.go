package forge

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
	t.Parallel()
	requireRules(t, secretFields, kind[corev1.Secret, corev1.Secret]{
		local: func() *corev1.Secret { return secret(corev1.SecretTypeOpaque) },
		forge: func(s *corev1.Secret) (*corev1.Secret, error) { return Secret(s, objectOptions()) },
		merge: MergeSecret,
	})
}

func TestSecretTypes(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
	_, err := Secret(secret(corev1.SecretTypeServiceAccountToken), objectOptions())
	require.EqualError(t, err, "ReflectionDisabled: Secret s has type kubernetes.io/service-account-token: "+
		"tokens of service accounts stay in this cluster; a copy of other type is reflected")
}

// TestMergeSecretKeepsWhatIsEqual requires that equal values share memory. A generic
// comparison of a few megabytes byte by byte takes a second.
func TestMergeSecretKeepsWhatIsEqual(t *testing.T) {
	t.Parallel()
	have := &corev1.Secret{Data: map[string][]byte{"same": []byte("1"), "other": []byte("2"), "gone": []byte("3")}}
	want := &corev1.Secret{Data: map[string][]byte{"same": []byte("1"), "other": []byte("0"), "new": []byte("4")}}
	got := MergeSecret(have, want)
	require.Equal(t, want.Data, got.Data)
	require.Same(t, &have.Data["same"][0], &got.Data["same"][0])
	require.Nil(t, MergeSecret(have, &corev1.Secret{}).Data)
}
