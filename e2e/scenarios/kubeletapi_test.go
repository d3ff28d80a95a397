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
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
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
