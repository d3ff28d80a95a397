package helper

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// hostile is an API server of which each answer is a log that never ends; silent is without any byte.
type hostile struct{ silent bool }

func (h hostile) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(endless{r.Context(), h.silent})}, nil
}

type endless struct {
	ctx    context.Context
	silent bool
}

func (e endless) Read(to []byte) (int, error) {
	if e.silent {
		<-e.ctx.Done()
		return 0, e.ctx.Err()
	}
	return copy(to, strings.Repeat("x", len(to))), nil
}

// TestLogsOfPeersEnd: a peer that sends a log without end, or none, neither fills the memory of a command nor stops it.
func TestLogsOfPeersEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
		read := func(h hostile) ([]byte, error) {
			kube, err := kubernetes.NewForConfig(&rest.Config{Host: "http://rome", Transport: h})
			require.NoError(t, err)
			return Logs(t.Context(), kube, pod, corev1.PodLogOptions{})
		}
		text, err := read(hostile{})
		require.NoError(t, err)
		require.Len(t, text, mostLog)
		_, err = read(hostile{silent: true})
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}
