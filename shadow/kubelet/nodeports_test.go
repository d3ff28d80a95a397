package kubelet

import (
	"io"
	"net"
	"net/netip"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// echoServer answers each connection with a name and with what it gets, and returns its port.
func echoServer(t *testing.T, name string) int32 {
	t.Helper()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Close() })
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			got, _ := io.ReadAll(conn)
			_, _ = conn.Write(append([]byte(name), got...))
			_ = conn.Close()
		}
	}()
	return int32(server.Addr().(*net.TCPAddr).Port)
}

// TestNodePorts: a node port leads to the cluster IP of its Service while the Service has it, in both directions, and a
// client may end its own direction first.
func TestNodePorts(t *testing.T) {
	t.Parallel()
	a, b, taken := echoServer(t, "a "), echoServer(t, "b "), echoServer(t, "other ")
	free, err := net.Listen("tcp", "127.0.0.2:0")
	require.NoError(t, err)
	nodePort := int32(free.Addr().(*net.TCPAddr).Port)
	require.NoError(t, free.Close())
	ask := func(address string, port int32) string {
		conn, err := net.Dial("tcp", net.JoinHostPort(address, strconv.Itoa(int(port))))
		if err != nil {
			return "refused"
		}
		defer conn.Close()
		_, err = conn.Write([]byte("hello"))
		require.NoError(t, err)
		require.NoError(t, conn.(*net.TCPConn).CloseWrite())
		answer, err := io.ReadAll(conn)
		require.NoError(t, err)
		return string(answer)
	}
	service := func(name string, port, nodePort int32) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, ClusterIP: "127.0.0.1", Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: port, NodePort: nodePort}},
		}}
	}
	var served map[string]string
	told := func(now map[string]string) { served = now }
	n := NewNodePorts(netip.MustParseAddr("127.0.0.2"), told, func(string) {}, zap.NewNop())
	see := func(s *corev1.Service) { n.change(func() { n.services[cache.MetaObjectToName(s)] = s }) }

	see(service("web", a, nodePort))
	require.Equal(t, "a hello", ask("127.0.0.2", nodePort))
	see(service("web", b, nodePort))
	require.Equal(t, "b hello", ask("127.0.0.2", nodePort), "the Service has another port")
	require.Equal(t, "refused", ask("127.0.0.3", nodePort), "an address that is not the node's")
	require.Equal(t, map[string]string{strconv.Itoa(int(nodePort)): "shop"}, served)
	local := service("web", b, nodePort)
	local.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	see(local)
	require.Equal(t, "refused", ask("127.0.0.2", nodePort), "no endpoint is on the machine")
	require.Empty(t, served)
	see(service("web", a, nodePort))
	udp := service("dns", a, nodePort)
	udp.Spec.Ports[0].Protocol = corev1.ProtocolUDP
	see(udp)
	require.Equal(t, "a hello", ask("127.0.0.2", nodePort))
	n.Close("other")
	require.Equal(t, "a hello", ask("127.0.0.2", nodePort))
	n.Close("shop")
	require.Equal(t, "refused", ask("127.0.0.2", nodePort))
	require.Empty(t, served)

	n = NewNodePorts(netip.MustParseAddr("127.0.0.1"), told, func(string) {}, zap.NewNop())
	see(service("taken", a, taken))
	require.Equal(t, "other hello", ask("127.0.0.1", taken), "another process has the port")
	require.Empty(t, served, "what another process has is not for others to reach")
}
