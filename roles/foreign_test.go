package roles

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/liqod/liqod/kube/client"
	"github.com/liqod/liqod/kube/lease"
)

// TestPeersAreNotTrusted: the clients of a peer refuse a redirect. Each refusal is counted, and
// one of them is logged.
func TestPeersAreNotTrusted(t *testing.T) {
	t.Parallel()
	visited := false
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { visited = true }))
	t.Cleanup(other.Close)
	server := httptest.NewTLSServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	t.Cleanup(server.Close)
	core, logs := observer.New(zap.WarnLevel)
	counted := map[string]int{}
	env := Env{
		Log: zap.New(core), Requests: func(string) client.Observer { return nil },
		Refused: func(peer, reason string) { counted[peer+" "+reason]++ },
	}
	runner := &lease.Runner{}
	peer := must(home{lease: runner}.toPeer(env, "milan", &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}))
	for range 3 {
		require.ErrorContains(t, errOf(peer.kube.CoreV1().Pods("shop").Get(t.Context(), "web", metav1.GetOptions{})), "API server of milan: GET /api/v1/namespaces/shop/pods/web is answered with a redirect")
	}
	require.False(t, visited)
	require.Equal(t, map[string]int{"milan redirect": 3}, counted)
	require.Len(t, logs.FilterField(zap.String("reason", client.RefusedRedirect)).All(), 1)
}
