package kubelet

import (
	"crypto/tls"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// upgrade makes a GET ask for a WebSocket.
var upgrade = http.Header{
	"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"},
	"Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}, "Sec-Websocket-Protocol": {"v4.channel.k8s.io"},
}

func TestEveryRouteIsGuarded(t *testing.T) {
	remote := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("the provider was asked %s %s", r.Method, r.URL)
	})
	rig := newRig(t, remote)
	rig.home.set(func(h *home) { h.allowed = func(authorizationv1.SubjectAccessReviewSpec) bool { return false } })
	for name, tc := range map[string]struct {
		method, path string
		header       http.Header
		verb         string
		subresources []string
	}{
		"health":            {"GET", "/healthz", nil, "get", []string{"healthz", "proxy"}},
		"pods":              {"GET", "/pods", nil, "get", []string{"pods", "proxy"}},
		"running pods":      {"GET", "/runningpods/", nil, "get", []string{"pods", "proxy"}},
		"logs":              {"GET", "/containerLogs/shop/web/app", nil, "get", []string{"proxy"}},
		"exec":              {"POST", "/exec/shop/web/app?command=ls&output=1", nil, "create", []string{"proxy"}},
		"exec with a UID":   {"POST", "/exec/shop/web/uid-1/app?command=ls&output=1", nil, "create", []string{"proxy"}},
		"exec by WebSocket": {"GET", "/exec/shop/web/app?command=ls&output=1", upgrade, "create", []string{"proxy"}},
		"attach":            {"POST", "/attach/shop/web/app?output=1", nil, "create", []string{"proxy"}},
		"attach by GET":     {"GET", "/attach/shop/web/app?output=1", upgrade, "create", []string{"proxy"}},
		"port-forward":      {"POST", "/portForward/shop/web", nil, "create", []string{"proxy"}},
		"forward by GET":    {"GET", "/portForward/shop/web?port=80", upgrade, "create", []string{"proxy"}},
		"run":               {"POST", "/run/shop/web/app", nil, "create", []string{"proxy"}},
		"run by GET":        {"GET", "/run/shop/web/app", nil, "create", []string{"proxy"}},
		"stats":             {"GET", "/stats/summary", nil, "get", []string{"stats"}},
		"metrics":           {"GET", "/metrics/resource", nil, "get", []string{"metrics"}},
		"node logs":         {"GET", "/logs/syslog", nil, "get", []string{"log"}},
		"configuration":     {"GET", "/configz", nil, "get", []string{"configz", "proxy"}},
		"flags":             {"GET", "/flagz", nil, "get", []string{"configz"}},
		"status":            {"GET", "/statusz", nil, "get", []string{"statusz"}},
		"checkpoint":        {"POST", "/checkpoint/shop/web/app", nil, "create", []string{"checkpoint"}},
		"unknown":           {"DELETE", "/whatever", nil, "delete", []string{"proxy"}},
		"a longer name":     {"GET", "/podsy", nil, "get", []string{"proxy"}},
	} {
		t.Run(name, func(t *testing.T) {
			code, _ := rig.do(t, tc.method, tc.path, "", tc.header)
			require.Equal(t, http.StatusUnauthorized, code, "without credentials")
			code, _ = rig.do(t, tc.method, tc.path, "bad", tc.header)
			require.Equal(t, http.StatusUnauthorized, code, "with an unknown token")
			code, body := rig.do(t, tc.method, tc.path, "good", tc.header)
			require.Equal(t, http.StatusForbidden, code, "without the right: %s", body)
			require.Contains(t, body, "verb="+tc.verb)
			for _, subresource := range tc.subresources {
				require.Contains(t, body, subresource)
			}
			require.Contains(t, rig.home.asked(), authorizationv1.ResourceAttributes{
				Verb: tc.verb, Version: "v1", Resource: "nodes", Subresource: tc.subresources[0], Name: "milan",
			})
		})
	}
}

func TestFineGrainedRightSuffices(t *testing.T) {
	for name, tc := range map[string]struct {
		path, right string
		want        int
	}{
		"pods by its own right":      {"/pods", "pods", 200},
		"pods by the broad right":    {"/pods", "proxy", 200},
		"health by its own right":    {"/healthz", "healthz", 200},
		"logs need the broad right":  {"/containerLogs/shop/web/app", "pods", 403},
		"stats not by broad right":   {"/stats/summary", "proxy", 403},
		"unknown path, broad right":  {"/nothing", "proxy", 404},
		"run is not served":          {"/run/shop/web/app", "proxy", 404},
		"metrics are not served":     {"/metrics", "metrics", 404},
		"a path with dots":           {"/healthz/../pods", "proxy", 404},
		"a path with escapes":        {"/pods%2f", "proxy", 404},
		"a path with double slashes": {"//pods", "proxy", 404},
		"a path that ends with two":  {"/runningpods//", "proxy", 404},
		"a slash at the end":         {"/pods/", "pods", 404},
	} {
		t.Run(name, func(t *testing.T) {
			rig := newRig(t, http.NotFoundHandler(), func(h *home) { // answers are kept, so each case has its own
				h.allowed = func(s authorizationv1.SubjectAccessReviewSpec) bool {
					return s.ResourceAttributes.Subresource == tc.right
				}
			})
			code, body := rig.do(t, "GET", tc.path, "good", nil)
			require.Equal(t, tc.want, code, body)
		})
	}
}

func TestMethodsThatMeanNothing(t *testing.T) {
	rig := newRig(t, http.NotFoundHandler())
	for _, method := range []string{"HEAD", "OPTIONS", "TRACE", "FOO"} {
		code, _ := rig.do(t, method, "/pods", "good", nil)
		require.Equal(t, http.StatusMethodNotAllowed, code, method)
		code, _ = rig.do(t, method, "/pods", "", nil)
		require.Equal(t, http.StatusUnauthorized, code, method)
	}
}

func (r *rig) codeFor(t *testing.T, cert tls.Certificate) int {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: r.ca.pool(), Certificates: []tls.Certificate{cert}}}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Get(r.url + "/healthz")
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return response.StatusCode
}

func TestClientCertificates(t *testing.T) {
	rig := newRig(t, http.NotFoundHandler())
	apiServer := rig.ca.issue(t, "kube-apiserver-kubelet-client", "system:masters")
	require.Eventually(t, func() bool { return rig.codeFor(t, apiServer) == http.StatusOK }, time.Minute, 20*time.Millisecond)
	require.Equal(t, http.StatusUnauthorized, rig.codeFor(t, newAuthority(t, "another").issue(t, "kube-apiserver-kubelet-client")))
}

func TestHomeAway(t *testing.T) {
	rig := newRig(t, http.NotFoundHandler())
	code, _ := rig.do(t, "GET", "/pods", "good", nil)
	require.Equal(t, http.StatusOK, code)
	rig.home.set(func(h *home) { h.away = true })
	code, body := rig.do(t, "GET", "/containerLogs/shop/web/app", "good", nil) // the token is still known
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Contains(t, body, "API server does not answer")
	code, _ = rig.do(t, "GET", "/pods", "new", nil)
	require.Equal(t, http.StatusUnauthorized, code)
}

func TestStartsBeforeTheHomeAPIServer(t *testing.T) {
	rig := newRig(t, http.NotFoundHandler(), func(h *home) { h.away = true })
	apiServer := rig.ca.issue(t, "kube-apiserver-kubelet-client", "system:masters")
	require.Equal(t, http.StatusUnauthorized, rig.codeFor(t, apiServer))
	rig.home.set(func(h *home) { h.away = false })
	require.Eventually(t, func() bool { return rig.codeFor(t, apiServer) == http.StatusOK }, time.Minute, 50*time.Millisecond)
}

const document = "../../docs/kubelet-api.md"

// TestDocumentation compares the table of routes for people with the server's, and the
// rights in it with the guard's.
func TestDocumentation(t *testing.T) {
	data, err := os.ReadFile(document)
	require.NoError(t, err)
	documented := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([A-Z]+ /[^`]*)` \\| ([^|]*) \\|").FindAllStringSubmatch(string(data), -1) {
		documented[m[1]] = m[2]
	}
	served := sets.New[string]()
	for _, r := range (&Server{}).table() {
		for _, method := range r.methods {
			name := method + " " + strings.TrimSuffix(r.path, "{$}")
			served.Insert(name)
			require.Contains(t, documented, name, "a row of %s is missing; e2e/scenarios tests each with every kind of credential", document)
			request := requestOf(t, name)
			var rights []string
			for _, subresource := range subresourcesOf(request.URL.Path) {
				rights = append(rights, "`"+verbOf(request)+" nodes/"+subresource+"`")
			}
			require.Equal(t, strings.Join(rights, ", "), documented[name], name)
		}
	}
	require.Equal(t, served, sets.KeySet(documented))
}

func requestOf(t *testing.T, route string) *http.Request {
	t.Helper()
	method, path, _ := strings.Cut(route, " ")
	request, err := http.NewRequestWithContext(t.Context(), method, path, nil)
	require.NoError(t, err)
	return request
}
