package scenarios

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

const vkMilan = "system:serviceaccount:liqo-tenant-milan:vk-milan"

// as returns a client of rome with the token of a service account, and the token.
func (w *world) as(t *testing.T, namespace, account string) (kubernetes.Interface, string) {
	t.Helper()
	data := must(w.rome.KubeconfigData(t.Context(), lab.Access{Namespace: namespace, ServiceAccount: account}))(t)
	config := must(clientcmd.RESTConfigFromKubeConfig(data))(t)
	client := must(kubernetes.NewForConfig(config))(t)
	return client, config.BearerToken
}

func serving(t *testing.T, name, common string, organizations, hosts []string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	request := &x509.CertificateRequest{Subject: pkix.Name{CommonName: common, Organization: organizations}}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			request.IPAddresses = append(request.IPAddresses, ip)
		} else {
			request.DNSNames = append(request.DNSNames, host)
		}
	}
	der := must(x509.CreateCertificateRequest(rand.Reader, request, key))(t)
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: certificatesv1.KubeletServingSignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
		},
	}
}

// testCertificates looks at the vkubelet's own request, and makes others in its name.
func testCertificates(t *testing.T, w *world) {
	requests := w.rome.Client().CertificatesV1().CertificateSigningRequests()
	all := kubetest.List(t, requests)
	issued := 0
	for _, r := range all.Items {
		if r.Spec.Username == vkMilan && len(r.Status.Certificate) > 0 {
			issued++
		}
	}
	require.Equal(t, 1, issued, "the vkubelet has one certificate")

	vk, _ := w.as(t, tenant, "vk-milan")
	nodes := []string{"system:nodes"}
	forged := map[string]*certificatesv1.CertificateSigningRequest{
		"another node":         serving(t, "forged-node", "system:node:rome-sim-1", nodes, []string{"rome-sim-1"}),
		"another node's name":  serving(t, "forged-name", "system:node:milan", nodes, []string{"rome-sim-1"}),
		"an address elsewhere": serving(t, "forged-address", "system:node:milan", nodes, []string{"milan", "10.9.8.7"}),
	}
	for name, r := range forged {
		kubetest.Create(t, vk.CertificatesV1().CertificateSigningRequests(), r)
		within(t, soon, name+" is refused with an event", w.eventSays(tenant, "CertificateSigningRequest "+r.Name+" is not approved"))
	}
	nobody := kubetest.Create(t, w.rome.Client().CoreV1().ServiceAccounts(tenant), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "nobody"}})
	foreign := serving(t, "forged-by-another", "system:node:milan", nodes, []string{"milan"})
	other, _ := w.as(t, tenant, nobody.Name)
	_, err := other.CertificatesV1().CertificateSigningRequests().Create(t.Context(), foreign, metav1.CreateOptions{})
	require.ErrorContains(t, err, "forbidden")
	right := serving(t, "right", "system:node:milan", nodes, []string{"milan", "127.0.0.1"})
	kubetest.Create(t, vk.CertificatesV1().CertificateSigningRequests(), right)
	within(t, soon, "its own is approved", lab.Is(requests, right.Name, func(r *certificatesv1.CertificateSigningRequest) bool {
		return len(r.Status.Certificate) > 0
	}))
	for name, r := range forged {
		r := kubetest.Get(t, requests, r.Name)
		require.Empty(t, r.Status.Conditions, name)
		require.Empty(t, r.Status.Certificate, name)
	}
}

// eventSays returns a condition: an event of a namespace says a text.
func (w *world) eventSays(namespace, text string) func(context.Context) error {
	return lab.Some(w.rome.Client().CoreV1().Events(namespace), metav1.ListOptions{}, func(e *corev1.Event) bool { return strings.Contains(e.Message, text) })
}

// testKubeletAPI asks the vkubelet of milan itself, past the API server.
func testKubeletAPI(t *testing.T, w *world) {
	node := kubetest.Get(t, w.rome.Client().CoreV1().Nodes(), "milan")
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(w.rome.CA))
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
	base := "https://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(int(node.Status.DaemonEndpoints.KubeletEndpoint.Port)))
	powerless, reader := w.holder(t, "powerless", nil), w.holder(t, "reader", only(right{"get", "proxy"}))
	pods, err := w.podsAt(t.Context(), "milan", "web")
	require.NoError(t, err)
	// The API server does not proxy to loopback addresses, but asks there for logs. It
	// verifies the certificate; the simulated node behind the vkubelet has no logs.
	_, err = w.rome.Client().CoreV1().Pods("nodes").GetLogs(pods[0].Name, &corev1.PodLogOptions{}).DoRaw(t.Context())
	require.NotContains(t, fmt.Sprintf("%+v", err), "x509")
	require.ErrorContains(t, err, "on the server")
	execPath := "/exec/nodes/" + pods[0].Name + "/c?command=id&output=1"
	logsPath := "/containerLogs/nodes/" + pods[0].Name + "/c"
	for name, c := range map[string]struct {
		token, path string
		upgrade     string
		want        int
	}{
		"no credential":               {"", "/healthz", "", http.StatusUnauthorized},
		"no credential, pods":         {"", "/pods", "", http.StatusUnauthorized},
		"no credential, exec":         {"", execPath, "websocket", http.StatusUnauthorized},
		"unknown token":               {"not-a-token", "/healthz", "", http.StatusUnauthorized},
		"user without rights":         {powerless, "/healthz", "", http.StatusForbidden},
		"user without rights, pods":   {powerless, "/pods", "", http.StatusForbidden},
		"user without rights, logs":   {powerless, logsPath, "", http.StatusForbidden},
		"reader":                      {reader, "/healthz", "", http.StatusOK},
		"reader, pods":                {reader, "/pods", "", http.StatusOK},
		"reader, exec by WebSocket":   {reader, execPath, "websocket", http.StatusForbidden},
		"reader, exec by SPDY":        {reader, execPath, "SPDY/3.1", http.StatusForbidden},
		"reader, port-forward":        {reader, "/portForward/nodes/" + pods[0].Name, "websocket", http.StatusForbidden},
		"reader, exec in disguise":    {reader, "//exec/nodes/" + pods[0].Name + "/c", "websocket", http.StatusNotFound},
		"reader, something unknown":   {reader, "/run/nodes/" + pods[0].Name + "/c", "", http.StatusForbidden},
		"reader, pods of other nodes": {reader, "/containerLogs/kube-system/none/c", "", http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			request := must(http.NewRequestWithContext(t.Context(), http.MethodGet, base+c.path, nil))(t)
			if c.token != "" {
				request.Header.Set("Authorization", "Bearer "+c.token)
			}
			if c.upgrade != "" {
				request.Header.Set("Connection", "Upgrade")
				request.Header.Set("Upgrade", c.upgrade)
				request.Header.Set("Sec-WebSocket-Version", "13")
				request.Header.Set("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
			}
			response := must(client.Do(request))(t)
			defer func() { _ = response.Body.Close() }()
			text := must(io.ReadAll(io.LimitReader(response.Body, 1000)))(t)
			require.Equal(t, c.want, response.StatusCode, string(text))
		})
	}
}

// right is one to a subresource of nodes.
type right struct{ verb, subresource string }

// routeRow is a line of the table in docs/kubelet-api.md, which a test beside the server
// keeps equal to what it serves and asks.
type routeRow struct {
	method, path string
	rights       []right // one of them suffices
}

func routeRows(t *testing.T) []routeRow {
	t.Helper()
	data := must(os.ReadFile("../../docs/kubelet-api.md"))(t)
	var rows []routeRow
	for _, m := range regexp.MustCompile("(?m)^\\| `([A-Z]+) (/[^`]*)` \\| ([^|]*) \\|").FindAllStringSubmatch(string(data), -1) {
		row := routeRow{method: m[1], path: m[2]}
		for _, r := range regexp.MustCompile("`(\\w+) nodes/(\\w+)`").FindAllStringSubmatch(m[3], -1) {
			row.rights = append(row.rights, right{r[1], r[2]})
		}
		require.NotEmpty(t, row.rights, m[0])
		rows = append(rows, row)
	}
	require.NotEmpty(t, rows)
	return rows
}

var nodeSubresources = []string{"proxy", "pods", "healthz", "configz", "stats", "metrics", "log", "checkpoint", "statusz", "spec"}

// allBut returns every right but those, of which it has all other verbs.
func allBut(rights []right) []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for _, subresource := range nodeSubresources {
		verbs := []string{"get", "list", "watch", "create", "update", "patch", "delete"}
		for _, r := range rights {
			if r.subresource == subresource {
				verbs = slices.DeleteFunc(verbs, func(v string) bool { return v == r.verb })
			}
		}
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes/" + subresource}, Verbs: verbs})
	}
	return rules
}

func only(r right) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes/" + r.subresource}, Verbs: []string{r.verb}}}
}

// holder makes an account with some rights to nodes, or none, which the API server knows of
// when it returns, and returns its token.
func (w *world) holder(t *testing.T, name string, rules []rbacv1.PolicyRule) (token string) {
	t.Helper()
	kubetest.Create(t, w.rome.Client().CoreV1().ServiceAccounts("default"), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}})
	if len(rules) > 0 {
		w.entitle(t, name, rules)
	}
	_, token = w.as(t, "default", name)
	return token
}

// entitle gives an account in default rights, and waits until the API server knows of them.
func (w *world) entitle(t *testing.T, name string, rules []rbacv1.PolicyRule) {
	t.Helper()
	ctx, c := t.Context(), w.rome.Client()
	kubetest.Create(t, c.RbacV1().ClusterRoles(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules})
	kubetest.Create(t, c.RbacV1().ClusterRoleBindings(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: name}}})
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "system:serviceaccount:default:" + name,
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: rules[0].Verbs[0], Version: "v1", Resource: "nodes",
			Subresource: strings.TrimPrefix(rules[0].Resources[0], "nodes/"), Name: "milan"}}}
	require.NoError(t, lab.Eventually(ctx, func(ctx context.Context) error {
		answer, err := c.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		return lab.Wrong(err, !answer.Status.Allowed, "%s is not bound yet", name)
	}))
}

// kubelet is the vkubelet of a node, asked past the API server.
type kubelet struct {
	base  string
	roots *x509.CertPool
	pod   *corev1.Pod
}

func (k kubelet) client(t *testing.T, certificates ...tls.Certificate) *http.Client {
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: k.roots, MinVersion: tls.VersionTLS12, Certificates: certificates}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Timeout: 10 * time.Second, Transport: transport}
}

// ask sends the request of a row and returns the code of the answer.
func (k kubelet) ask(t *testing.T, client *http.Client, row routeRow, token string) (int, string) {
	t.Helper()
	path := strings.NewReplacer("{namespace}", k.pod.Namespace, "{pod}", k.pod.Name, "{uid}", string(k.pod.UID), "{container}", "c").Replace(row.path)
	require.NotContains(t, path, "{", "the test does not know what to put there")
	request := must(http.NewRequestWithContext(t.Context(), row.method, k.base+path+"?command=id&output=1&port=80", nil))(t)
	if slices.Contains(row.rights, right{"create", "proxy"}) {
		request.Header.Set("Connection", "Upgrade")
		if row.method == http.MethodPost {
			request.Header.Set("Upgrade", "SPDY/3.1")
			request.Header.Set("X-Stream-Protocol-Version", "v4.channel.k8s.io")
			request.Header.Add("X-Stream-Protocol-Version", "portforward.k8s.io")
		} else {
			request.Header.Set("Upgrade", "websocket")
			request.Header.Set("Sec-WebSocket-Version", "13")
			request.Header.Set("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
			request.Header.Set("Sec-WebSocket-Protocol", "v4.channel.k8s.io")
		}
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response := must(client.Do(request))(t)
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode == http.StatusSwitchingProtocols {
		return response.StatusCode, ""
	}
	text := must(io.ReadAll(io.LimitReader(response.Body, 1000)))(t)
	return response.StatusCode, string(text)
}

// success is what a row answers to one who may.
func (row routeRow) success() int {
	switch {
	case slices.Contains(row.rights, right{"create", "proxy"}):
		return http.StatusSwitchingProtocols
	case strings.HasPrefix(row.path, "/containerLogs/"):
		return http.StatusInternalServerError // the simulated node behind it has no logs, and its API server says so
	default:
		return http.StatusOK
	}
}

// testKubeletRoutes asks every route with every kind of credential.
func testKubeletRoutes(t *testing.T, w *world) {
	k := kubelet{roots: x509.NewCertPool()}
	require.True(t, k.roots.AppendCertsFromPEM(w.rome.CA))
	node := kubetest.Get(t, w.rome.Client().CoreV1().Nodes(), "milan")
	k.base = "https://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(int(node.Status.DaemonEndpoints.KubeletEndpoint.Port)))
	pods := must(w.podsAt(t.Context(), "milan", "web"))(t)
	k.pod = &pods[0]

	certificate := func(authority *lab.Authority) tls.Certificate {
		cert, key, err := authority.Issue(lab.CertificateRequest{CommonName: "kube-apiserver-kubelet-client", Organizations: []string{"system:masters"}})
		require.NoError(t, err)
		return must(tls.X509KeyPair(cert, key))(t)
	}
	nobody, foreign, masters := k.client(t), k.client(t, certificate(w.milan.Authority())), k.client(t, certificate(w.rome.Authority()))
	everything := w.holder(t, "everything", allBut(nil))
	answer := must(w.rome.Client().CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "everything", &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: []string{"vault"}}}, metav1.CreateOptions{}))(t)
	elsewhere := answer.Status.Token
	tokens := map[string]string{} // by name of the account
	token := func(name string, rules []rbacv1.PolicyRule) string {
		if tokens[name] == "" {
			tokens[name] = w.holder(t, name, rules)
		}
		return tokens[name]
	}
	for _, row := range routeRows(t) {
		t.Run(row.method+" "+row.path, func(t *testing.T) {
			check := func(who string, client *http.Client, token string, want int) {
				code, text := k.ask(t, client, row, token)
				require.Equal(t, want, code, "%s: %s", who, text)
			}
			check("no credential", nobody, "", http.StatusUnauthorized)
			check("an unknown token", nobody, "not-a-token", http.StatusUnauthorized)
			check("a certificate of another authority", foreign, "", http.StatusUnauthorized)
			check("a token of another audience", nobody, elsewhere, http.StatusUnauthorized)
			without := "without"
			for _, r := range row.rights {
				without += "-" + r.verb + "-" + r.subresource
			}
			check("every other right", nobody, token(without, allBut(row.rights)), http.StatusForbidden)
			for _, r := range row.rights {
				check("only the right "+r.verb+" nodes/"+r.subresource, nobody, token("only-"+r.verb+"-"+r.subresource, only(r)), row.success())
			}
			check("every right", nobody, everything, row.success())
			check("the API server's own certificate", masters, "", row.success())
		})
	}
}
