package link

import (
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/kube/client"
	"github.com/liqod/liqod/kube/store"
)

// kubeconfigFor returns a kubeconfig for one of the servers of httptest, which all have the
// same certificate.
func kubeconfigFor(t *testing.T, address string) []byte {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	kubeconfig, err := clientcmd.Write(clientcmdapi.Config{
		CurrentContext: "c", Contexts: map[string]*clientcmdapi.Context{"c": {Cluster: "c", AuthInfo: "c"}}, AuthInfos: map[string]*clientcmdapi.AuthInfo{"c": {Token: "t"}},
		Clusters: map[string]*clientcmdapi.Cluster{"c": {Server: "https://" + address, CertificateAuthorityData: ca}},
	})
	require.NoError(t, err)
	return kubeconfig
}

var errStandby = errors.New("another replica leads")

type closedGate struct{}

func (closedGate) Allow() error { return errStandby }

// TestStandbyWritesHeartbeatsOnly: a replica that does not lead renews heartbeat Leases, so
// that a take-over misses none, and writes nothing else.
func TestStandbyWritesHeartbeatsOnly(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"`+r.Method+`"}}`)
	}))
	t.Cleanup(server.Close)
	clients, err := Connector(client.Settings{Gate: closedGate{}, Log: zap.NewNop()}, func(id string) client.Foreign { return client.Foreign{Name: id} })("milan", kubeconfigFor(t, server.Listener.Addr().String()))
	require.NoError(t, err)
	now := metav1.NowMicro()
	require.NoError(t, patchLease(t.Context(), clients.Beats, "liqo-tenant-rome", corev1beta1.HeartbeatLease, store.Patch{"renewTime": &now}))
	require.ErrorIs(t, patchLease(t.Context(), clients.Kube, "liqo-tenant-rome", corev1beta1.HeartbeatLease, store.Patch{"renewTime": &now}), errStandby)
	_, err = clients.Kube.CoordinationV1().Leases("liqo-tenant-rome").Create(t.Context(), &coordinationv1.Lease{}, metav1.CreateOptions{})
	require.ErrorIs(t, err, errStandby)
}
