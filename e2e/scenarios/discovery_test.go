package scenarios

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/peering/trust"
)

// zone is a name server of a domain that names clusters.
type zone struct {
	address string

	mu       sync.Mutex
	clusters map[string]string // URL by id
}

func newZone(t *testing.T) *zone {
	t.Helper()
	conn := must(net.ListenPacket("udp", "127.0.0.1:0"))(t)
	z := &zone{address: conn.LocalAddr().String(), clusters: map[string]string{}}
	server := &dns.Server{PacketConn: conn, Handler: z}
	go func() { _ = server.ActivateAndServe() }()
	t.Cleanup(func() { _ = server.Shutdown() })
	return z
}

func (z *zone) set(clusters map[string]string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.clusters = clusters
}

// ServeDNS implements dns.Handler.
func (z *zone) ServeDNS(w dns.ResponseWriter, question *dns.Msg) {
	z.mu.Lock()
	defer z.mu.Unlock()
	const service = "_liqod._tcp.clusters.example."
	answer := new(dns.Msg).SetReply(question)
	q := question.Question[0]
	for id, url := range z.clusters {
		for _, line := range []string{
			fmt.Sprintf("%s 30 IN PTR %s.%s", service, id, service),
			fmt.Sprintf("%s.%s 30 IN SRV 0 0 8443 %s.example.", id, service, id),
			fmt.Sprintf("%s.%s 30 IN TXT %q %q", id, service, "id="+id, "url="+url),
		} {
			if rr, err := dns.NewRR(line); err == nil && rr.Header().Rrtype == q.Qtype && strings.EqualFold(rr.Header().Name, q.Name) {
				answer.Answer = append(answer.Answer, rr)
			}
		}
	}
	_ = w.WriteMsg(answer)
}

// testDiscovery: clusters that a domain names become ForeignClusters, with the rights of
// the chart, and go with their records unless somebody uses them.
func testDiscovery(t *testing.T, rome *site.Site, z *zone) {
	z.set(map[string]string{"milan": "https://milan.example:8443", "turin": "https://turin.example", "rome": "https://rome.example", "Not A Name": "https://x", "oslo": "http://plain"})
	clusters := rome.Liqod().CoreV1beta1().ForeignClusters()
	names := func(want ...string) func(context.Context) error {
		return lab.Those(clusters, metav1.ListOptions{}, func(list *corev1beta1.ForeignClusterList) error {
			var have []string
			for _, fc := range list.Items {
				have = append(have, fc.Name)
			}
			return lab.Wrong(nil, fmt.Sprint(have) != fmt.Sprint(want), "there are %v", have)
		})
	}
	within(t, soon, "they are found", names("milan", "turin"))
	milan := kubetest.Get(t, clusters, "milan")
	require.Equal(t, "https://milan.example:8443", milan.Spec.AuthURL)
	require.Equal(t, corev1beta1.DiscoveredByDNS, milan.Labels[corev1beta1.DiscoveredLabel])
	require.Equal(t, "milan._liqod._tcp.clusters.example", milan.Annotations[corev1beta1.DiscoveredFromAnnotation])

	kubetest.Patch(t, clusters, "turin", types.MergePatchType, []byte(`{"spec":{"clusterName":"Torino"}}`))
	z.set(nil)
	within(t, time.Minute, "what nobody uses goes with its record", names("turin"))
	audited := must(rome.Audited(func(r lab.AuditRecord) bool {
		return r.Resource() == "foreignclusters" && r.Write() && strings.HasSuffix(r.User.Username, ":liqod-controller")
	}))(t)
	require.Len(t, audited, 3, "two are made, one is removed, and nothing else is written: %+v", audited)
	require.NoError(t, clusters.Delete(t.Context(), "turin", metav1.DeleteOptions{}))
	within(t, soon, "nothing is left", names())
}

// discovers are the settings of a cluster that uses the clusters of a domain.
func discovers() map[string]any {
	return map[string]any{
		"discovery": map[string]any{"dns": map[string]any{"domain": "clusters.example"}}, "peering": map[string]any{"outgoing": "Discovered"},
	}
}

// peerByRecord connects the clusters by a record of milan in the DNS of rome, and a token of milan in a Secret of the name that the
// docs give: docs/peering.md#finding-clusters. Rome has the settings of discovers.
func (w networkWorld) peerByRecord(t *testing.T) {
	t.Helper()
	token := w.token(t)
	parsed := must(trust.ParseToken(token))(t)
	kubetest.Create(t, w.rome.Client().CoreV1().Secrets("liqod"), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "peer-milan-token"}, StringData: map[string]string{"token": token}})

	config := w.rome.Client().CoreV1().ConfigMaps(metav1.NamespaceSystem)
	dnsConfig := kubetest.Get(t, config, "coredns")
	dnsConfig.Data["Corefile"] += "clusters.example:53 {\n    errors\n    file /etc/coredns/clusters.example\n}\n"
	dnsConfig.Data["clusters.example"] = fmt.Sprintf(`$ORIGIN clusters.example.
@ 5 IN SOA ns hostmaster 1 60 60 60 5
_liqod._tcp 5 IN PTR milan._liqod._tcp
milan._liqod._tcp 5 IN SRV 0 0 8443 milan
milan._liqod._tcp 5 IN TXT "id=milan" "url=%s"
`, parsed.AuthURL)
	kubetest.Update(t, config, dnsConfig)
	kubetest.Patch(t, w.rome.Client().AppsV1().Deployments(metav1.NamespaceSystem), "coredns", types.MergePatchType,
		[]byte(`{"spec":{"template":{"metadata":{"annotations":{"zone":"clusters.example"}}}}}`))
	within(t, longest, "the DNS has the record", w.available("coredns", metav1.NamespaceSystem, 1))

	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	require.NoError(t, w.rome.WaitVirtualNode(ctx, "milan", corev1.ConditionTrue), "peered by the record")
	milan := kubetest.Get(t, w.rome.Liqod().CoreV1beta1().ForeignClusters(), "milan")
	require.Equal(t, corev1beta1.DiscoveredByDNS, milan.Labels[corev1beta1.DiscoveredLabel])
	require.Equal(t, corev1beta1.PeeringAuto, milan.Spec.OutgoingPeeringEnabled)
}
