package kinds

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/liqod/liqod/kube/kubetest"
)

// onPort returns a pod with a host port, whose name is also its UID.
func onPort(name string, port int32, change ...func(*corev1.Pod)) *corev1.Pod {
	return localPod(append([]func(*corev1.Pod){func(p *corev1.Pod) {
		p.Name, p.UID = name, types.UID(name)
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: port}}
	}}, change...)...)
}

func (s *site) phase(t *testing.T, name string) corev1.PodPhase {
	t.Helper()
	pod := kubetest.Get(t, s.home.CoreV1().Pods("shop"), name)
	return pod.Status.Phase
}

func (s *site) sent(t *testing.T, name string) bool {
	t.Helper()
	_, err := s.remoteLiqod.OffloadingV1beta1().ShadowPods("shop-rome").Get(t.Context(), name, metav1.GetOptions{})
	return err == nil
}

// bind creates a pod that is bound to the node already.
func (s *site) bind(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	pod.ResourceVersion = "1"
	kubetest.Create(t, s.home.CoreV1().Pods("shop"), pod)
}

// TestHostPortInUse: a kubelet rejects the second pod, and says why.
func TestHostPortInUse(t *testing.T) {
	s := shopSite()
	s.start(t)
	s.bind(t, onPort("first", 8080))
	eventually(t, func() bool { return s.sent(t, "first") }, "the first pod is sent")
	s.bind(t, onPort("second", 8080))
	eventually(t, func() bool { return s.phase(t, "second") == corev1.PodFailed }, "the second pod is rejected")
	second := kubetest.Get(t, s.home.CoreV1().Pods("shop"), "second")
	require.Equal(t, "NodePorts", second.Status.Reason)
	require.Equal(t, "Pod was rejected: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports: hostPort 8080/TCP", second.Status.Message)
	require.Empty(t, second.Status.ContainerStatuses, "it has never run")
	require.Contains(t, <-s.events.Events, "Warning NodePorts Predicate NodePorts failed")
	require.False(t, s.sent(t, "second"))
	require.Equal(t, corev1.PodPending, s.phase(t, "first"))

	// A rejected pod stays rejected, and the next one gets the port when the first is gone.
	require.NoError(t, s.home.CoreV1().Pods("shop").Delete(t.Context(), "first", metav1.DeleteOptions{}))
	eventually(t, func() bool { return !s.sent(t, "first") }, "the first pod is withdrawn")
	s.bind(t, onPort("third", 8080))
	eventually(t, func() bool { return s.sent(t, "third") }, "the port is free")
	require.Equal(t, corev1.PodFailed, s.phase(t, "second"))
}

// TestHostPortsAtOnce: of many pods that are synced at the same time, one gets the port.
func TestHostPortsAtOnce(t *testing.T) {
	const pods = 20
	s := shopSite()
	for i := range pods {
		s.add(s.home.Tracker(), onPort(fmt.Sprintf("pod-%d", i), 8080))
	}
	s.start(t)
	count := func() (failed, sent int) {
		for i := range pods {
			name := fmt.Sprintf("pod-%d", i)
			if s.phase(t, name) == corev1.PodFailed {
				failed++
			}
			if s.sent(t, name) {
				sent++
			}
		}
		return failed, sent
	}
	eventually(t, func() bool { failed, sent := count(); return failed == pods-1 && sent == 1 }, "all but one are rejected")
}

// TestHostPortsAfterARestart: pods that the provider has already are judged by nobody, and the
// port of a pod that has no status yet is known from its ShadowPod.
func TestHostPortsAfterARestart(t *testing.T) {
	s := shopSite()
	for _, name := range []string{"one", "two"} {
		pod := onPort(name, 8080)
		s.add(s.home.Tracker(), pod)
		s.there(pod, false)
	}
	s.start(t)
	s.bind(t, onPort("late", 8080))
	eventually(t, func() bool { return s.phase(t, "late") == corev1.PodFailed }, "the port is in use")
	s.idle(t, "shop")
	for _, name := range []string{"one", "two"} {
		require.True(t, s.sent(t, name))
		require.Equal(t, corev1.PodPending, s.phase(t, name))
	}
}

// TestHostPortRejectsNothingUnseen: while the provider cannot say that it has no ShadowPod, the
// pod is not rejected.
func TestHostPortRejectsNothingUnseen(t *testing.T) {
	s := shopSite()
	asked := make(chan struct{}, 1000)
	away := true
	s.remoteLiqod.PrependReactor("get", "shadowpods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.(clienttesting.GetAction).GetName() != "second" {
			return false, nil, nil
		}
		asked <- struct{}{}
		if away {
			away = false
			return true, nil, errors.New("timeout")
		}
		return false, nil, nil
	})
	first := onPort("first", 8080)
	s.add(s.home.Tracker(), first)
	s.there(first, false)
	s.start(t)
	eventually(t, func() bool { return s.pods.localPods("shop") != nil }, "the first pod is known")
	s.idle(t, "shop")
	s.bind(t, onPort("second", 8080))
	<-asked
	eventually(t, func() bool { return s.phase(t, "second") == corev1.PodFailed }, "the second pod is rejected in the end")
	require.NotEmpty(t, asked, "it was asked again")
}

// TestHostPortsThatAreFree: what a kubelet runs side by side runs.
func TestHostPortsThatAreFree(t *testing.T) {
	port := func(change func(*corev1.ContainerPort)) func(*corev1.Pod) {
		return func(p *corev1.Pod) { change(&p.Spec.Containers[0].Ports[0]) }
	}
	inited := func(policy *corev1.ContainerRestartPolicy) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "i", RestartPolicy: policy, Ports: p.Spec.Containers[0].Ports}}
			p.Spec.Containers[0].Ports = nil
		}
	}
	address := func(ip string) func(*corev1.Pod) {
		return port(func(c *corev1.ContainerPort) { c.HostIP = ip })
	}
	for name, tc := range map[string]struct {
		a, b  func(*corev1.Pod)
		clash bool
	}{
		"the same":                     {a: address(""), b: address(""), clash: true},
		"another protocol":             {a: address(""), b: port(func(c *corev1.ContainerPort) { c.Protocol = corev1.ProtocolUDP })},
		"the usual protocol":           {a: address(""), b: port(func(c *corev1.ContainerPort) { c.Protocol = corev1.ProtocolTCP }), clash: true},
		"other addresses":              {a: address("10.0.0.1"), b: address("10.0.0.2")},
		"one address":                  {a: address("10.0.0.1"), b: address("10.0.0.1"), clash: true},
		"an address and all":           {a: address("10.0.0.1"), b: address("0.0.0.0"), clash: true},
		"all and an address":           {a: address(""), b: address("10.0.0.1"), clash: true},
		"another port":                 {a: address(""), b: port(func(c *corev1.ContainerPort) { c.HostPort = 8081 })},
		"no port of the host":          {a: address(""), b: port(func(c *corev1.ContainerPort) { c.HostPort = 0 })},
		"the host's network":           {a: address(""), b: func(p *corev1.Pod) { p.Spec.HostNetwork = true }},
		"an init container":            {a: address(""), b: inited(nil)},
		"an init container that stays": {a: address(""), b: inited(ptr.To(corev1.ContainerRestartPolicyAlways)), clash: true},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := onPort("a", 8080, tc.a), onPort("b", 8080, tc.b)
			clash := func(x, y *corev1.Pod) bool {
				for _, p := range hostPorts(&x.Spec) {
					if clashes(hostPorts(&y.Spec))(p) {
						return true
					}
				}
				return false
			}
			require.Equal(t, tc.clash, clash(a, b))
			require.Equal(t, tc.clash, clash(b, a))
		})
	}
}

// TestHostPortOfPodsThatHaveNone: an ended pod, one that waits outside of offloaded namespaces,
// and one that is gone use no port.
func TestHostPortOfPodsThatHaveNone(t *testing.T) {
	s := shopSite()
	s.add(s.home.Tracker(), onPort("ended", 8080, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
		onPort("waits", 8080, func(p *corev1.Pod) { p.Namespace = "plain" }))
	s.start(t)
	eventually(t, func() bool { return len(s.pods.localPods("")) == 2 }, "both pods are known")
	s.bind(t, onPort("web", 8080))
	eventually(t, func() bool { return s.sent(t, "web") }, "the pod is sent")
}
