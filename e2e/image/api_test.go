package main

import (
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAPI(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" || r.URL.Path != "/api/v1/namespaces/shop/pods" {
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	defer server.Close()
	at, err := url.Parse(server.URL)
	require.NoError(t, err)
	host, port, err := net.SplitHostPort(at.Host)
	require.NoError(t, err)
	t.Setenv("KUBERNETES_SERVICE_HOST", host)
	t.Setenv("KUBERNETES_SERVICE_PORT", port)
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	require.Error(t, api(t.Context(), dir, "x"), "no files")
	write("token", "secret")
	write("namespace", "shop")
	write("ca.crt", "x")
	require.ErrorContains(t, api(t.Context(), dir, "x"), "no certificate")
	write("ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	require.NoError(t, api(t.Context(), dir, "api/v1/namespaces/NAMESPACE/pods"))
	require.ErrorContains(t, api(t.Context(), dir, "api"), "403")
}
