package link

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/kube/serve"
)

func TestReview(t *testing.T) {
	t.Parallel()
	data, _, err := serve.EnsureCertificates(nil, []string{"milan.example"}, time.Now())
	require.NoError(t, err)
	ca := string(data[serve.BundleKey])
	turin := milan("")
	turin.Name, turin.Spec.ClusterID, turin.Spec.AddressRanges = "turin", "turin", []string{"10.43.0.0/16"}
	type change = func(*corev1beta1.ForeignCluster)
	spec := func(f func(*corev1beta1.ForeignClusterSpec)) change {
		return func(fc *corev1beta1.ForeignCluster) { f(&fc.Spec) }
	}
	ask := func(f func(*corev1beta1.CapacityRequest)) change {
		return func(fc *corev1beta1.ForeignCluster) { f(&fc.Spec.Request) }
	}
	for name, tc := range map[string]struct {
		before  change // of the existing object; nil: creation
		change  change
		others  []*corev1beta1.ForeignCluster
		refused string
		warns   []string
	}{
		"plain":          {},
		"itself":         {change: spec(func(s *corev1beta1.ForeignClusterSpec) { s.ClusterID = "rome" }), refused: "this cluster itself has the id rome"},
		"its user":       {change: spec(func(s *corev1beta1.ForeignClusterSpec) { s.UserName = "liqo.io:peer:milan:7" })},
		"another's user": {change: spec(func(s *corev1beta1.ForeignClusterSpec) { s.UserName = "liqo.io:peer:turin:7" }), refused: `"liqo.io:peer:turin:7" is not this peer's`},
		"a vkubelet": {change: spec(func(s *corev1beta1.ForeignClusterSpec) {
			s.UserName = "system:serviceaccount:liqo-tenant-milan:vk-milan"
		}), refused: "is not this peer's"},
		"a host":            {change: spec(func(s *corev1beta1.ForeignClusterSpec) { s.AuthURL = "https://milan.example:8443/base" })},
		"no host":           {change: spec(func(s *corev1beta1.ForeignClusterSpec) { s.AuthURL = "https:///x" }), refused: "spec.authUrl has no host"},
		"a secret in a URL": {change: spec(func(s *corev1beta1.ForeignClusterSpec) { s.AuthURL = "https://u:secret@milan.example" }), refused: "spec.authUrl contains a user name"},
		"a query":           {change: spec(func(s *corev1beta1.ForeignClusterSpec) { s.APIServer.URL = "https://milan.example?a=b" }), refused: "spec.apiServer.url has a query"},
		"no URL":            {change: spec(func(s *corev1beta1.ForeignClusterSpec) { s.AuthURL = "https://[" }), refused: "spec.authUrl is not a URL"},
		"a proxy":           {change: spec(func(s *corev1beta1.ForeignClusterSpec) { s.APIServer.ProxyURL = "socks5://u:p@proxy:1080" })},
		"a certificate":     {change: spec(func(s *corev1beta1.ForeignClusterSpec) { s.AuthCA = ca })},
		"two certificates":  {change: spec(func(s *corev1beta1.ForeignClusterSpec) { s.APIServer.CA = "subject=x\n" + ca + ca })},
		"no certificate":    {change: spec(func(s *corev1beta1.ForeignClusterSpec) { s.AuthCA = "milan" }), refused: "spec.authCA takes certificates as PEM"},
		"half a certificate": {change: spec(func(s *corev1beta1.ForeignClusterSpec) {
			s.APIServer.CA = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
		}), refused: "spec.apiServer.ca: certificate 1 cannot be read"},
		"text behind": {change: spec(func(s *corev1beta1.ForeignClusterSpec) { s.AuthCA = ca + "more" }), refused: "spec.authCA takes"},
		"a private key": {change: spec(func(s *corev1beta1.ForeignClusterSpec) {
			s.AuthCA = ca + "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
		}), refused: `spec.authCA holds a "PRIVATE KEY"`},
		"a server name":  {change: spec(func(s *corev1beta1.ForeignClusterSpec) { s.APIServer.ServerName = "kubernetes.default.svc" })},
		"no server name": {change: spec(func(s *corev1beta1.ForeignClusterSpec) { s.APIServer.ServerName = "a b" }), refused: "spec.apiServer.serverName takes"},
		"a negative amount": {change: ask(func(r *corev1beta1.CapacityRequest) {
			r.Resources = corev1.ResourceList{"cpu": resource.MustParse("-2")}
		}), refused: "spec.request.resources.cpu is -2"},
		"a label":           {change: ask(func(r *corev1beta1.CapacityRequest) { r.Labels = map[string]string{"tier": "gold"} })},
		"no label":          {change: ask(func(r *corev1beta1.CapacityRequest) { r.NodeSelector = map[string]string{"a b": "c d"} }), refused: `spec.request.nodeSelector, label "a b"`},
		"ranges of another": {change: spec(func(s *corev1beta1.ForeignClusterSpec) { s.AddressRanges = []string{"10.0.0.0/8"} }), others: []*corev1beta1.ForeignCluster{turin}, warns: []string{"10.0.0.0/8 overlaps 10.43.0.0/16 of ForeignCluster turin"}},
		"ranges of its own": {change: spec(func(s *corev1beta1.ForeignClusterSpec) { s.AddressRanges = []string{"10.44.0.0/16"} }), others: []*corev1beta1.ForeignCluster{turin}},
		"told before":       {before: func(*corev1beta1.ForeignCluster) {}, change: func(*corev1beta1.ForeignCluster) {}, others: []*corev1beta1.ForeignCluster{turin}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := Review{New: milan(""), Others: tc.others, ClusterID: "rome"}
			if tc.before != nil {
				tc.before(r.New)
				r.Old = r.New.DeepCopy()
			}
			if tc.change != nil {
				tc.change(r.New)
			}
			refused, warnings := r.Judge()
			require.Contains(t, refused, tc.refused)
			require.NotContains(t, refused, "secret@")
			require.Equal(t, tc.refused == "", refused == "", refused)
			require.Len(t, warnings, len(tc.warns), "%q", warnings)
			for i := range warnings {
				require.Contains(t, warnings[i], tc.warns[i])
				require.False(t, strings.ContainsAny(warnings[i], "\n\""), "kubectl shows a warning as one line")
			}
		})
	}
}
