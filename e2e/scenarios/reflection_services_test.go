package scenarios

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
)

// servicePair is where Services of an offloaded namespace are, here and in the provider.
type servicePair struct {
	*world
	home, remote typedcorev1.ServiceInterface
}

func (w *world) servicePair(t *testing.T, namespace string) servicePair {
	t.Helper()
	w.offload(t, namespace, offloadingv1beta1.NamespaceOffloadingSpec{})
	return servicePair{w, w.rome.Client().CoreV1().Services(namespace), w.milan.Client().CoreV1().Services(namespace + "-rome")}
}

func (s servicePair) create(t *testing.T, service *corev1.Service) *corev1.Service {
	t.Helper()
	return kubetest.Create(t, s.home, service)
}

func (s servicePair) patch(t *testing.T, name, body string) {
	t.Helper()
	kubetest.Patch(t, s.home, name, types.MergePatchType, []byte(body))
}

// until waits for a state of a Service in the provider.
func (s servicePair) until(t *testing.T, name, what string, as func(*corev1.Service) bool) *corev1.Service {
	t.Helper()
	return there(t, what, getter(s.remote, name), as)
}

// force sets the annotation that carries node ports; null takes it away.
func (s servicePair) force(t *testing.T, name, value string) {
	t.Helper()
	s.patch(t, name, fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, offloadingv1beta1.ForceRemoteNodePortAnnotation, value))
}

// nodePort is a Service with a port of the band from which clusters choose none themselves.
func nodePort(name string, port int32) *corev1.Service {
	return service(name, func(s *corev1.ServiceSpec) { s.Type, s.Ports[0].NodePort = corev1.ServiceTypeNodePort, port })
}

func hasNodePort(port int32) func(*corev1.Service) bool {
	return func(s *corev1.Service) bool { return s.Spec.Ports[0].NodePort == port }
}

// testServiceRows: Services that change in place, and such as the provider refuses.
func testServiceRows(t *testing.T, w *world) {
	s := w.servicePair(t, "service-rows")
	for name, test := range map[string]func(*testing.T, servicePair){
		"NodePortForced": testNodePortForced, "NodePortTaken": testNodePortTaken, "ExternalNameEnds": testExternalNameEnds,
		"RefusedChange": testRefusedChange,
		"Families":      testFamilies, "SlicesOfSix": testSlicesOfSix,
	} {
		t.Run(name, func(t *testing.T) { test(t, s) })
	}
}

// testNodePortForced: the annotation acts on a Service that stands. When it goes the
// provider's Service keeps its port, on which somebody may rely.
func testNodePortForced(t *testing.T, s servicePair) {
	s.create(t, nodePort("web", 30021))
	made := s.until(t, "web", "of a port that milan has chosen", func(s *corev1.Service) bool { return s.Spec.Ports[0].NodePort != 0 })
	require.False(t, hasNodePort(30021)(made))
	s.force(t, "web", `"true"`)
	s.until(t, "web", "of the port that it has at home", hasNodePort(30021))

	s.force(t, "web", "null")
	s.until(t, "web", "no longer forced", func(s *corev1.Service) bool {
		_, forced := s.Annotations[offloadingv1beta1.ForceRemoteNodePortAnnotation]
		return !forced
	})
	s.patch(t, "web", `{"metadata":{"labels":{"round":"2"}},"spec":{"ports":[{"name":"http","port":80,"targetPort":8080,"nodePort":30022}]}}`)
	have := s.until(t, "web", "changed", func(s *corev1.Service) bool { return s.Labels["round"] == "2" })
	require.True(t, hasNodePort(30021)(have), "home's port is not followed: %v", have.Spec.Ports)
	s.force(t, "web", `"true"`)
	have = s.until(t, "web", "of home's port again", hasNodePort(30022))
	require.Equal(t, made.UID, have.UID)
	require.Equal(t, made.Spec.ClusterIP, have.Spec.ClusterIP)
}

// testNodePortTaken: another Service of the provider has the port. An event about the Service at home reports
// it. Until the port is free, a new Service has another port, and an existing one keeps its port.
func testNodePortTaken(t *testing.T, s servicePair) {
	theirs := s.milan.Client().CoreV1().Services(metav1.NamespaceDefault)
	ports := map[string]int32{"fresh": 30031, "standing": 30032}
	for name, port := range ports {
		kubetest.Create(t, theirs, nodePort("theirs-"+name, port))
	}
	standing := s.create(t, nodePort("standing", ports["standing"]))
	before := s.until(t, "standing", "of a port that milan has chosen", anyState[*corev1.Service])
	s.force(t, "standing", `"true"`)
	fresh := nodePort("fresh", ports["fresh"])
	fresh.Annotations = map[string]string{offloadingv1beta1.ForceRemoteNodePortAnnotation: "true"}
	fresh = s.create(t, fresh)
	for _, local := range []*corev1.Service{standing, fresh} {
		s.eventAbout(t, local, "FailedReflection", fmt.Sprintf("%d: provided port is already allocated", ports[local.Name]))
	}
	instead := s.until(t, "fresh", "of another port meanwhile", func(s *corev1.Service) bool { return s.Spec.Ports[0].NodePort != 0 })
	require.False(t, hasNodePort(ports["fresh"])(instead))
	require.Equal(t, before.Spec, s.until(t, "standing", "of the port that it had", anyState[*corev1.Service]).Spec)
	for name, port := range ports {
		require.NoError(t, theirs.Delete(t.Context(), "theirs-"+name, metav1.DeleteOptions{}))
		have := s.until(t, name, "of the port that is free now", hasNodePort(port))
		require.Contains(t, []types.UID{before.UID, instead.UID}, have.UID)
	}
}

// testRefusedChange: a Service whose new selector comes with a port that the provider refuses has the
// selector at once, and the port when it is free.
func testRefusedChange(t *testing.T, s servicePair) {
	theirs := s.milan.Client().CoreV1().Services(metav1.NamespaceDefault)
	kubetest.Create(t, theirs, nodePort("theirs-changed", 30033))
	s.create(t, nodePort("changed", 30033))
	s.until(t, "changed", "of a port that milan has chosen", anyState[*corev1.Service])
	s.patch(t, "changed", fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}},"spec":{"selector":{"app":"other"}}}`, offloadingv1beta1.ForceRemoteNodePortAnnotation))
	s.until(t, "changed", "of the new selector", func(s *corev1.Service) bool {
		return s.Spec.Selector["app"] == "other" && s.Spec.Ports[0].NodePort != 30033
	})
	require.NoError(t, theirs.Delete(t.Context(), "theirs-changed", metav1.DeleteOptions{}))
	have := s.until(t, "changed", "of the port that is free now", hasNodePort(30033))
	require.Equal(t, "other", have.Spec.Selector["app"])
}

// testExternalNameEnds: a Service that is no longer a mere name gets an address of the
// provider's, or none where it is headless, and stays the same Service.
func testExternalNameEnds(t *testing.T, s servicePair) {
	s.create(t, service("named", func(s *corev1.ServiceSpec) {
		s.Type, s.ExternalName, s.Selector = corev1.ServiceTypeExternalName, "example.com", nil
	}))
	named := func(s *corev1.Service) bool { return s.Spec.ExternalName == "example.com" && s.Spec.ClusterIP == "" }
	made := s.until(t, "named", "a name", named)
	s.patch(t, "named", `{"spec":{"type":"ClusterIP","externalName":null,"selector":{"app":"web"}}}`)
	have := s.until(t, "named", "of an address", func(s *corev1.Service) bool {
		return s.Spec.Type == corev1.ServiceTypeClusterIP && s.Spec.ExternalName == "" && s.Spec.Selector["app"] == "web"
	})
	address := must(netip.ParseAddr(have.Spec.ClusterIP))(t)
	require.True(t, netip.MustParsePrefix(s.milan.Options.ServiceCIDR).Contains(address), "%s is of milan", address)
	require.Equal(t, made.UID, have.UID)
	s.patch(t, "named", `{"spec":{"type":"ExternalName","externalName":"example.com"}}`)
	s.until(t, "named", "a name again", named)
	s.patch(t, "named", `{"spec":{"type":"ClusterIP","externalName":null,"clusterIP":"None"}}`)
	have = s.until(t, "named", "headless", func(s *corev1.Service) bool { return s.Spec.ClusterIP == corev1.ClusterIPNone })
	require.Equal(t, made.UID, have.UID)
}
