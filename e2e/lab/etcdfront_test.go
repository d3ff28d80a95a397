package lab

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLabEtcdFront: writes take longer, reads do not, and the trailers of gRPC arrive.
func TestLabEtcdFront(t *testing.T) {
	plain := &http.Protocols{}
	plain.SetUnencryptedHTTP2(true)
	etcd := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, _ := io.ReadAll(request.Body)
		w.Header().Set("Trailer", "grpc-status")
		_, _ = w.Write(append([]byte(request.URL.Path+" "), body...))
		w.Header().Set("grpc-status", "0")
	}))
	etcd.Config.Protocols = plain
	etcd.Start()
	t.Cleanup(etcd.Close)
	server, err := url.Parse(etcd.URL)
	require.NoError(t, err)
	port, err := strconv.Atoi(server.Port())
	require.NoError(t, err)
	c := &Cluster{Name: "test"}
	c.etcdFront, err = newEtcdFront(c, port)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.etcdFront.close()) })
	client := &http.Client{Transport: &http.Transport{Protocols: plain}}
	call := func(method string) time.Duration {
		begin := time.Now()
		answer, err := client.Post(c.etcdFront.url+"/etcdserverpb."+method, "application/grpc", strings.NewReader("x"))
		require.NoError(t, err)
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.Equal(t, "/etcdserverpb."+method+" x", string(body))
		require.Equal(t, "0", answer.Trailer.Get("grpc-status"))
		return time.Since(begin)
	}
	call("KV/Txn")
	require.Zero(t, c.SlowedWrites())
	const delay = 300 * time.Millisecond
	c.SlowWrites(delay)
	require.GreaterOrEqual(t, call("KV/Txn"), delay)
	require.Equal(t, 1, c.SlowedWrites())
	call("KV/Range")
	call("Watch/Watch")
	call("Lease/LeaseGrant")
	require.Equal(t, 1, c.SlowedWrites(), "only writes take longer")
	c.SlowWrites(0)
	call("KV/Txn")
	require.Equal(t, 1, c.SlowedWrites())
}
