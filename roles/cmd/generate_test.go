package cmd

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/peering/trust"
)

func generated(t *testing.T, in string, args ...string) (string, error) {
	t.Helper()
	cmd := (&commands{program: "liqod"}).generate()
	var out bytes.Buffer
	cmd.SetArgs(args)
	cmd.SetIn(strings.NewReader(in))
	cmd.SetOut(&out)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.Execute()
	return out.String(), err
}

func TestGeneratePeering(t *testing.T) {
	t.Parallel()
	token := must(trust.NewToken("https://milan.example:8443", "milan", strings.Repeat("ab", 32)))
	out := must(generated(t, "", "peering", "--token="+token.String(), "--name=Milano", "--cpu=8", "--pod-cidr=10.42.0.0/16"))
	for _, line := range []string{"kind: Secret\n", "  name: peer-milan-token\n", "  namespace: liqod\n", "  token: " + token.String() + "\n",
		"kind: ForeignCluster\n", "  clusterID: milan\n", "  clusterName: Milano\n", "    name: peer-milan-token\n", "  outgoingPeeringEnabled: \"Yes\"\n", "      cpu: \"8\"\n"} {
		require.Contains(t, out, line)
	}
	require.NotContains(t, out, "status:")
	again := must(generated(t, token.String()+"\n", "peering", "--token=-", "-n", "elsewhere"))
	require.Contains(t, again, "  namespace: elsewhere\n")

	for _, args := range [][]string{{"peering"}, {"peering", "--token=nonsense"}, {"peering", "--token=" + token.String(), "--cpu=much"}, {"other"}} {
		_, err := generated(t, "", args...)
		require.Error(t, err, args)
		require.NotContains(t, err.Error(), token.Secret)
	}
}

// TestGenerateCounterpart: what the provider keeps lets the cluster in that has the token, and
// tells nobody the token.
func TestGenerateCounterpart(t *testing.T) {
	t.Parallel()
	token := must(trust.NewToken("https://milan.example:8443", "milan", strings.Repeat("ab", 32)))
	out := must(generated(t, token.String(), "peering", "--token=-", "--for=rome", "--name=Roma", "--pod-cidr=10.42.0.0/16"))
	require.NotContains(t, out, token.Secret)
	parts := strings.Split(strings.TrimPrefix(out, "---\n"), "---\n")
	require.Len(t, parts, 2)
	var secret corev1.Secret
	require.NoError(t, yaml.UnmarshalStrict([]byte(parts[0]), &secret))
	secret.Data = map[string][]byte{}
	for key, value := range secret.StringData { // as an API server does
		secret.Data[key] = []byte(value)
	}
	record := must(trust.ReadSecret(&secret))
	require.Equal(t, trust.Record{ID: token.ID, Hash: trust.Hash(token.Secret), ClusterID: "rome"}, record)
	require.True(t, trust.Matches(record.Hash, token.Secret))
	var fc corev1beta1.ForeignCluster
	require.NoError(t, yaml.UnmarshalStrict([]byte(parts[1]), &fc))
	require.Equal(t, "rome", fc.Name)
	require.Equal(t, corev1beta1.ForeignClusterSpec{ClusterID: "rome", ClusterName: "Roma", IncomingPeeringEnabled: corev1beta1.PeeringYes, AddressRanges: []string{"10.42.0.0/16"}}, fc.Spec)

	for _, id := range []string{"", "milan", "Rome"} {
		require.Error(t, errOf(generated(t, token.String(), "peering", "--token=-", "--for="+id)), id)
	}
	require.ErrorContains(t, errOf(generated(t, token.String(), "peering", "--token=-", "--for=rome", "--cpu=8")), "of no use with --for")
}
