package kubelet

import (
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// In an outage of the provider the answer is a 502 with the side that is away. kubectl replaces the
// text of a 503 by one about the consumer's API server.
func TestAnOutageNamesTheProvider(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err  error
		says string
	}{
		"no connection": {errors.New("dial tcp 203.0.113.7:6443: i/o timeout"),
			"the API server of the provider does not answer; this cluster works, and pods that run in the provider go on running: dial tcp"},
		"unavailable": {apierrors.NewServiceUnavailable("etcd is away"), "the provider is not available; this cluster works: etcd is away"},
		"no answer":   {apierrors.NewTimeoutError("etcd is slow", 1), "the provider is not available; this cluster works: Timeout: etcd is slow"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var answer httpError
			require.ErrorAs(t, remoteError(tc.err), &answer)
			require.Equal(t, http.StatusBadGateway, answer.code)
			require.ErrorContains(t, answer, tc.says)
		})
	}
}
