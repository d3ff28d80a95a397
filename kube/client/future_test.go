package client

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// TestPatienceHandsOnAResourceVersionFromTheFuture covers an API server whose etcd was
// restored from a backup. The server rejects the newer resource version of an informer. A
// retry of the same request could wait for ever, so patience must return the error to the
// informer.
func TestPatienceHandsOnAResourceVersionFromTheFuture(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusGatewayTimeout)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Timeout","code":504,
			"message":"Too large resource version: 9, current: 5",
			"details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}]}}`))
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(Harden(&rest.Config{Host: server.URL}, Settings{Log: zap.NewNop()}))
	require.NoError(t, err)
	_, err = client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{ResourceVersion: "9"})
	require.True(t, apierrors.IsTimeout(err), "%v", err)
	require.True(t, apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge), "the body is handed on whole")
	require.Equal(t, int32(1), asked.Load())
}
