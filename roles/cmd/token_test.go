package cmd

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/serve"
	"github.com/liqod/liqod/peering/trust"
)

// provider is a cluster whose authentication is served.
func provider(t *testing.T) *cluster {
	t.Helper()
	c := installation(t, "milan")
	data, _, err := serve.EnsureCertificates(nil, []string{"milan"}, time.Now())
	require.NoError(t, err)
	kubetest.Create(t, c.core.CoreV1().Secrets("liqod"), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "liqod-auth-certs"}, Data: data})
	return c
}

func (c *cluster) configure(t *testing.T, text string) {
	t.Helper()
	cm := kubetest.Get(t, c.core.CoreV1().ConfigMaps("liqod"), "liqod")
	cm.Data["config.yaml"] = "clusterID: milan\n" + text
	kubetest.Update(t, c.core.CoreV1().ConfigMaps("liqod"), cm)
}

func (c *cluster) record(t *testing.T, id string) trust.Record {
	t.Helper()
	secret := kubetest.Get(t, c.core.CoreV1().Secrets("liqod"), "token-"+id)
	record := must(trust.ReadSecret(secret))
	return record
}

// lastLine returns the token of what token create prints.
func lastLine(said string) string {
	lines := strings.Split(strings.TrimSpace(said), "\n")
	return lines[len(lines)-1]
}

func TestTokenCreate(t *testing.T) {
	t.Parallel()
	c := provider(t)
	said := c.ran(t, "token", "create", "--url=https://milan.example:8443")
	token := must(trust.ParseToken(lastLine(said)))
	require.Equal(t, "milan", token.ClusterID)
	require.Equal(t, "https://milan.example:8443", token.AuthURL)
	record := c.record(t, token.ID)
	require.True(t, trust.Matches(record.Hash, token.Secret))
	require.Equal(t, 1, record.Uses)
	require.WithinDuration(t, time.Now().Add(15*time.Minute), record.Expiration, 5*time.Second)
	secret := kubetest.Get(t, c.core.CoreV1().Secrets("liqod"), "token-"+token.ID)
	for key, value := range secret.Data {
		require.NotContains(t, string(value), token.Secret, key)
	}

	said = c.ran(t, "token", "create", "--url=https://milan.example:8443", "--ttl=0", "--uses=0", "--for=rome", "-o", "json")
	var view tokenView
	require.NoError(t, json.Unmarshal([]byte(said[strings.Index(said, "{"):]), &view))
	require.Equal(t, trust.Record{ID: view.ID, Hash: c.record(t, view.ID).Hash, ClusterID: "rome"}, c.record(t, view.ID))
	require.NotEmpty(t, view.Token)
}

// TestTokenTrust: the trust in a cluster that uses the token is in its Secret, and the command
// says what Organisation opens, or what is left out without it.
func TestTokenTrust(t *testing.T) {
	t.Parallel()
	c := provider(t)
	create := func(args ...string) []string {
		said := c.ran(t, append([]string{"token", "create", "--url=https://milan.example:8443"}, args...)...)
		return strings.Split(strings.TrimSpace(said), "\n")
	}
	requireTrust := func(want corev1beta1.Trust, lines []string) {
		t.Helper()
		token := must(trust.ParseToken(lines[len(lines)-1]))
		require.Equal(t, want, c.record(t, token.ID).Trust)
	}
	lines := create("--trust=Organisation")
	require.Len(t, lines, 4)
	for _, of := range []string{"hostPath", "toleration", "nodes by every label", "namespaces of every name", "ExternalName", "annotations", "connections to every pod"} {
		require.Contains(t, strings.Join(lines[:3], "\n"), of)
	}
	requireTrust(corev1beta1.TrustOrganisation, lines)
	for args, want := range map[string]corev1beta1.Trust{"--trust=Strict": corev1beta1.TrustStrict, "--ttl=1h": ""} {
		lines = create(args)
		require.Len(t, lines, 3)
		require.Contains(t, lines[0], "Left out")
		require.Contains(t, lines[0], "ExternalName")
		require.Contains(t, lines[1], "--trust=Organisation opens these")
		requireTrust(want, lines)
	}

	c.add(t, &corev1beta1.ForeignCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "rome"}, Spec: corev1beta1.ForeignClusterSpec{ClusterID: "rome", Trust: corev1beta1.TrustStrict}})
	create("--for=rome", "--trust=Strict")
	create("--for=rome")
	require.ErrorContains(t, errOf(c.run(t, "token", "create", "--url=https://milan.example:8443", "--for=rome", "--trust=Organisation")), "ForeignCluster rome has spec.trust Strict")
}

// Made for both ways, the other cluster is to be used as soon as it gives an identity.
func TestTokenBothWays(t *testing.T) {
	t.Parallel()
	c := provider(t)
	c.ran(t, "token", "create", "--url=https://milan.example:8443", "--for=rome", "--both-ways")
	fc := kubetest.Get(t, c.liqod.CoreV1beta1().ForeignClusters(), "rome")
	require.Equal(t, corev1beta1.ForeignClusterSpec{ClusterID: "rome", OutgoingPeeringEnabled: corev1beta1.PeeringYes}, fc.Spec)
}

func TestTokenURL(t *testing.T) {
	t.Parallel()
	c := provider(t)
	require.ErrorContains(t, errOf(c.run(t, "token", "create")), "--url")

	kubetest.Create(t, c.core.CoreV1().Services("liqod"), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "liqod-auth"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443}}},
		Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "2001:db8::1"}}}},
	})
	for _, want := range []struct{ config, url string }{
		{"", "https://[2001:db8::1]:443"},
		{"authentication: {url: \"https://auth.milan.example\"}", "https://auth.milan.example"},
	} {
		c.configure(t, want.config)
		said := c.ran(t, "token", "create")
		token := must(trust.ParseToken(lastLine(said)))
		require.Equal(t, want.url, token.AuthURL)
	}
	c.configure(t, "authentication: {address: \"\"}")
	require.ErrorContains(t, errOf(c.run(t, "token", "create")), "authentication.enabled")
}

func TestTokenListAndRevoke(t *testing.T) {
	t.Parallel()
	c := provider(t)
	said := c.ran(t, "token", "list")
	require.Equal(t, "no tokens\n", said)
	put := func(r trust.Record, uses ...trust.Redemption) {
		r.Hash = trust.Hash("x")
		secret := must(trust.WithRedemptions(trust.NewSecret("liqod", r), uses))
		kubetest.Create(t, c.core.CoreV1().Secrets("liqod"), secret)
	}
	now := time.Now()
	put(trust.Record{ID: "a", Uses: 1, Expiration: now.Add(10*time.Minute + 30*time.Second)})
	put(trust.Record{ID: "b"}, trust.Redemption{ClusterID: "paris"})
	put(trust.Record{ID: "c", Uses: 1, ClusterID: "rome", Trust: corev1beta1.TrustOrganisation}, trust.Redemption{ClusterID: "rome"})
	put(trust.Record{ID: "d", Uses: 2, Expiration: now.Add(-time.Hour - time.Minute)})
	put(trust.Record{ID: "e", Uses: 2, Expiration: now.Add(-48 * time.Hour)})
	put(trust.Record{ID: "f", Uses: 500})
	said = c.ran(t, "token", "list")
	lines := strings.Split(said, "\n")
	require.Equal(t, strings.Fields("ID FOR TRUST USES EXPIRES STATE USED BY"), strings.Fields(lines[0]))
	require.Equal(t, strings.Fields("a any - 1 in 10m good"), strings.Fields(lines[1]))
	require.Equal(t, strings.Fields("b any - any never good paris"), strings.Fields(lines[2]))
	require.Equal(t, strings.Fields("c rome Organisation 1 never used rome"), strings.Fields(lines[3]))
	require.Equal(t, "expired", strings.Fields(lines[4])[6])
	require.Contains(t, lines[6], "wrong: ")
	said = c.ran(t, "token", "list", "-o", "yaml")
	require.Contains(t, said, "usedBy:\n  - paris\n")

	said = c.ran(t, "token", "create", "--url=https://milan.example")
	text := lastLine(said)
	require.Error(t, errOf(c.core.CoreV1().Secrets("liqod").Get(t.Context(), "token-e", metav1.GetOptions{})), "what ended long ago is tidied up")
	kubetest.Get(t, c.core.CoreV1().Secrets("liqod"), "token-d")
	said = c.ran(t, "token", "revoke", "a", text)
	require.Contains(t, said, "token a is revoked\n")
	token := must(trust.ParseToken(text))
	for _, id := range []string{"a", token.ID} {
		require.Error(t, errOf(c.core.CoreV1().Secrets("liqod").Get(t.Context(), "token-"+id, metav1.GetOptions{})))
	}
	require.ErrorContains(t, errOf(c.run(t, "token", "revoke", "a")), `no token "a"`)
}
