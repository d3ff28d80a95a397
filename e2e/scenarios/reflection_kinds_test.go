package scenarios

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

func service(name string, change ...func(*corev1.ServiceSpec)) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)}},
	}}
	for _, c := range change {
		c(&s.Spec)
	}
	return s
}

// services are Services of every sort that a cluster without cloud accepts.
func services() []*corev1.Service {
	forced := service("forced", func(s *corev1.ServiceSpec) { s.Type, s.Ports[0].NodePort = corev1.ServiceTypeNodePort, 30777 })
	forced.Annotations = map[string]string{offloadingv1beta1.ForceRemoteNodePortAnnotation: "true"}
	return []*corev1.Service{
		service("plain"), forced,
		service("outside", func(s *corev1.ServiceSpec) { s.ExternalIPs = []string{"192.0.2.7"} }),
		service("headless", func(s *corev1.ServiceSpec) { s.ClusterIP = corev1.ClusterIPNone }),
		service("external", func(s *corev1.ServiceSpec) {
			s.Type, s.ExternalName, s.Selector = corev1.ServiceTypeExternalName, "example.com", nil
		}),
		service("nodeport", func(s *corev1.ServiceSpec) {
			s.Type, s.ExternalTrafficPolicy = corev1.ServiceTypeNodePort, corev1.ServiceExternalTrafficPolicyLocal
		}),
		service("balanced", func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeLoadBalancer }),
		service("sticky", func(s *corev1.ServiceSpec) {
			s.SessionAffinity = corev1.ServiceAffinityClientIP
			s.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To[int32](42)}}
			s.TrafficDistribution, s.PublishNotReadyAddresses = ptr.To(corev1.ServiceTrafficDistributionPreferClose), true
		}),
	}
}

// testService: Services of every sort are reflected without what each cluster allocates.
func testService(t *testing.T, w *world) {
	w.offload(t, "services", offloadingv1beta1.NamespaceOffloadingSpec{})
	home, remote := w.rome.Client().CoreV1().Services("services"), w.milan.Client().CoreV1().Services("services-rome")
	for _, want := range services() {
		local := kubetest.Create(t, home, want)
		have := there(t, want.Name, getter(remote, want.Name), anyState[*corev1.Service])
		require.Equal(t, local.Spec.Type, have.Spec.Type)
		require.Equal(t, local.Spec.Selector, have.Spec.Selector)
		require.Equal(t, local.Spec.ExternalName, have.Spec.ExternalName)
		require.Equal(t, local.Spec.SessionAffinityConfig, have.Spec.SessionAffinityConfig)
		require.Equal(t, local.Spec.TrafficDistribution, have.Spec.TrafficDistribution)
		if len(local.Spec.ExternalIPs) == 0 { // those, and the policy that they bring, stay at home
			require.Equal(t, local.Spec.ExternalTrafficPolicy, have.Spec.ExternalTrafficPolicy)
		}
		require.Equal(t, local.Spec.PublishNotReadyAddresses, have.Spec.PublishNotReadyAddresses)
		require.Equal(t, local.Spec.ClusterIP == corev1.ClusterIPNone, have.Spec.ClusterIP == corev1.ClusterIPNone)
		if want.Name == "plain" {
			require.NotEqual(t, local.Spec.ClusterIP, have.Spec.ClusterIP)
			address := must(netip.ParseAddr(have.Spec.ClusterIP))(t)
			require.True(t, netip.MustParsePrefix(w.milan.Options.ServiceCIDR).Contains(address), "%s is of milan", address)
		}
		if want.Name == "forced" {
			require.EqualValues(t, 30777, have.Spec.Ports[0].NodePort)
		}
	}
	ip := there(t, "plain", getter(remote, "plain"), anyState[*corev1.Service]).Spec.ClusterIP
	kubetest.Patch(t, home, "plain", types.StrategicMergePatchType, []byte(`{"spec":{"ports":[{"port":81,"name":"more"}],"internalTrafficPolicy":"Local"}}`))
	there(t, "changed in place", getter(remote, "plain"), func(s *corev1.Service) bool {
		return len(s.Spec.Ports) == 2 && *s.Spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal && s.Spec.ClusterIP == ip
	})
	kubetest.Patch(t, home, "plain", types.MergePatchType, []byte(`{"spec":{"externalIPs":["192.0.2.8"],"sessionAffinity":"ClientIP"}}`))
	there(t, "changed with external IPs at home", getter(remote, "plain"), func(s *corev1.Service) bool {
		return s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP && len(s.Spec.ExternalIPs) == 0
	})
	kubetest.Patch(t, home, "plain", types.MergePatchType, []byte(`{"spec":{"type":"NodePort"}}`))
	there(t, "of another type", getter(remote, "plain"), func(s *corev1.Service) bool {
		return s.Spec.Type == corev1.ServiceTypeNodePort && s.Spec.Ports[0].NodePort != 0 && s.Spec.ClusterIP == ip
	})
	kubetest.Patch(t, home, "plain", types.MergePatchType, []byte(`{"spec":{"type":"ExternalName","externalName":"example.com"}}`))
	there(t, "of no address", getter(remote, "plain"), func(s *corev1.Service) bool { return s.Spec.ExternalName == "example.com" })
	require.NoError(t, home.Delete(t.Context(), "plain", metav1.DeleteOptions{}))
	away(t, "deleted", getter(remote, "plain"))
	kubetest.Create(t, home, service("plain", func(s *corev1.ServiceSpec) { s.ClusterIP = corev1.ClusterIPNone }))
	there(t, "headless", getter(remote, "plain"), func(s *corev1.Service) bool { return s.Spec.ClusterIP == corev1.ClusterIPNone })
}

// testIngress: an Ingress is reflected without its class, or with the one that the
// provider offers.
func testIngress(t *testing.T, w *world) {
	w.offload(t, "ingresses", offloadingv1beta1.NamespaceOffloadingSpec{})
	home, remote := w.rome.Client().NetworkingV1().Ingresses("ingresses"), w.milan.Client().NetworkingV1().Ingresses("ingresses-rome")
	backend := networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}}}
	kubetest.Create(t, home, &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: networkingv1.IngressSpec{
		IngressClassName: ptr.To("romes"), DefaultBackend: &backend, TLS: []networkingv1.IngressTLS{{Hosts: []string{"a.example.com"}, SecretName: "tls"}},
	}})
	have := there(t, "created", getter(remote, "web"), anyState[*networkingv1.Ingress])
	require.Nil(t, have.Spec.IngressClassName)
	require.Equal(t, "tls", have.Spec.TLS[0].SecretName)
	require.Equal(t, backend, *have.Spec.DefaultBackend)
	vns := w.rome.Liqod().OffloadingV1beta1().VirtualNodes(tenantOfMilan)
	kubetest.Patch(t, vns, "milan", types.MergePatchType, []byte(`{"spec":{"ingressClasses":[{"ingressClassName":"milans","default":true}]}}`))
	there(t, "of the class that is offered", getter(remote, "web"), func(i *networkingv1.Ingress) bool {
		return i.Spec.IngressClassName != nil && *i.Spec.IngressClassName == "milans"
	})
	require.NoError(t, home.Delete(t.Context(), "web", metav1.DeleteOptions{}))
	away(t, "deleted", getter(remote, "web"))
}

// addresses collects the addresses of a Service in a cluster, each as often as it is
// there, and requires that they are ready.
func addresses(ctx context.Context, slices lab.Lister[*discoveryv1.EndpointSliceList], service string) ([]string, error) {
	list, err := slices.List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service})
	if err != nil {
		return nil, err
	}
	var out []string
	for _, slice := range list.Items {
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready != nil && *e.Conditions.Ready {
				out = append(out, e.Addresses...)
			}
		}
	}
	return out, nil
}

// testReflectedEndpoints: both clusters know each endpoint once: the provider's own pods
// by itself, the others by reflection.
func testReflectedEndpoints(t *testing.T, w *world) {
	w.offload(t, "eps", offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsLocalAndRemote})
	pods := w.rome.Client().CoreV1().Pods("eps")
	atHome := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "home"}, Spec: podSpec("sim/web:1")}
	atHome.Spec.NodeName = w.rome.SimulatedNodeName(1)
	var ips []string
	for _, pod := range []*corev1.Pod{atHome, boundPod("away")} {
		pod.Labels = map[string]string{"app": "web"}
		kubetest.Create(t, pods, pod)
	}
	home, remote := w.rome.Client().CoreV1().Services("eps"), w.milan.Client().CoreV1().Services("eps-rome")
	kubetest.Create(t, home, service("web"))
	for _, name := range []string{"home", "away"} {
		ips = append(ips, untilPod(t, w.rome, quickly*2, "eps", name, "runs", func(p *corev1.Pod) bool { return podReady(p) == corev1.ConditionTrue }).Status.PodIP)
	}
	slices.Sort(ips)
	knows := func(want ...string) func(context.Context) error {
		return knowsOnceOf(w.milan, "eps-rome", "web", want)
	}
	within(t, quickly, "milan knows each endpoint once", knows(ips...))
	there := kubetest.Get(t, w.milan.Client().CoreV1().Pods("eps-rome"), "away")

	annotate := func(body string) {
		t.Helper()
		kubetest.Patch(t, home, "web", types.MergePatchType, []byte(body))
	}
	annotate(`{"metadata":{"annotations":{"liqo.io/skip-reflection":"true"}}}`)
	away(t, "the Service is not reflected", getter(remote, "web"))
	within(t, quickly, "and neither are its endpoints", knows())
	list := kubetest.List(t, w.rome.Client().DiscoveryV1().EndpointSlices("eps"))
	require.Len(t, list.Items, 1)
	kubetest.Patch(t, w.rome.Client().DiscoveryV1().EndpointSlices("eps"), list.Items[0].Name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"liqo.io/allow-reflection":"true"}}}`))
	homeOnly := slices.DeleteFunc(slices.Clone(ips), func(ip string) bool { return ip == there.Status.PodIP })
	within(t, quickly, "a slice that is allowed itself", knows(homeOnly...))
	annotate(`{"metadata":{"annotations":{"liqo.io/skip-reflection":null}}}`)
	within(t, quickly*2, "milan knows each endpoint once again", knows(ips...))
	require.NoError(t, pods.Delete(t.Context(), "home", metav1.DeleteOptions{}))
	within(t, quickly, "an endpoint less", knows(there.Status.PodIP))
}

// testLeader: the endpoints of a Service without selector, such as one that follows a
// leader, are known in the provider wherever they are; nothing there would find its own.
func testLeader(t *testing.T, w *world) {
	w.offload(t, "leader", offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsLocalAndRemote})
	pods := w.rome.Client().CoreV1().Pods("leader")
	db := boundPod("db")
	db.Spec.AutomountServiceAccountToken = ptr.To(false) // a token would be withdrawn while later tests count writes
	kubetest.Create(t, pods, db)
	pod := there(t, "the pod runs", getter(pods, "db"), func(p *corev1.Pod) bool { return podReady(p) == corev1.ConditionTrue && p.Status.PodIP != "" })
	kubetest.Create(t, w.rome.Client().CoreV1().Services("leader"), service("db", func(s *corev1.ServiceSpec) { s.Selector = nil }))
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "db", Labels: map[string]string{discoveryv1.LabelServiceName: "db"}}, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{pod.Status.PodIP}, NodeName: ptr.To(pod.Spec.NodeName)}},
		Ports:     []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To[int32](8080)}},
	}
	home, remote := w.rome.Client().DiscoveryV1().EndpointSlices("leader"), w.milan.Client().DiscoveryV1().EndpointSlices("leader-rome")
	kubetest.Create(t, home, slice)
	has := func(want ...string) func(*discoveryv1.EndpointSlice) bool {
		return func(s *discoveryv1.EndpointSlice) bool {
			var have []string
			for _, e := range s.Endpoints {
				if *e.Conditions.Ready {
					have = append(have, e.Addresses...)
				}
			}
			return slices.Equal(have, want)
		}
	}
	have := there(t, "milan knows the pod that it runs", getter(remote, "db"), has(pod.Status.PodIP))
	atMilan := kubetest.Get(t, w.milan.Client().CoreV1().Pods("leader-rome"), "db")
	require.Equal(t, atMilan.Spec.NodeName, *have.Endpoints[0].NodeName)

	kubetest.Patch(t, home, "db", types.MergePatchType, []byte(`{"endpoints":[{"addresses":["10.100.3.3"]}]}`))
	there(t, "another leads, at home", getter(remote, "db"), has("10.100.3.3"))
	for name, endpoint := range map[string]string{
		"as operators write it": fmt.Sprintf(`{"addresses":[%q]}`, pod.Status.PodIP),
		"by its UID":            fmt.Sprintf(`{"addresses":["10.100.3.4"],"targetRef":{"kind":"Pod","namespace":"leader","name":"db","uid":%q}}`, pod.UID),
	} {
		kubetest.Patch(t, home, "db", types.MergePatchType, fmt.Appendf(nil, `{"endpoints":[%s]}`, endpoint))
		there(t, name, getter(remote, "db"), has(pod.Status.PodIP))
	}
	kubetest.Patch(t, home, "db", types.MergePatchType, fmt.Appendf(nil, `{"endpoints":[{"addresses":["10.100.3.3"]},{"addresses":[%q],"nodeName":%q}]}`, pod.Status.PodIP, pod.Spec.NodeName))
	there(t, "both", getter(remote, "db"), has("10.100.3.3", pod.Status.PodIP))
	require.NoError(t, pods.Delete(t.Context(), "db", metav1.DeleteOptions{}))
	there(t, "the address is not the pod's any more, whoever still says so", getter(remote, "db"), has("10.100.3.3"))
}

// pullSecret has the credentials of a registry.
func pullSecret(name, password string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Type: corev1.SecretTypeDockerConfigJson,
		StringData: map[string]string{corev1.DockerConfigJsonKey: fmt.Sprintf(`{"auths":{"registry.example.com":{"username":"u","password":%q}}}`, password)},
	}
}

// builderPod is a pod of an account, with pull secrets of its own if any are named.
func builderPod(name string, pulls ...string) *corev1.Pod {
	pod := boundPod(name)
	pod.Spec.ServiceAccountName = "builder"
	for _, secret := range pulls {
		pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: secret})
	}
	return pod
}

// testPullSecrets: images are pulled in the provider with the credentials of the pod's
// service account here, which the API server names in every pod that names none.
func testPullSecrets(t *testing.T, w *world) {
	c := w.fixture(t, "pulls")
	home := w.rome.Client().CoreV1().Secrets(c.namespace)
	for _, name := range []string{"first", "second"} {
		kubetest.Create(t, home, pullSecret(name, "1"))
	}
	kubetest.Create(t, w.rome.Client().CoreV1().ServiceAccounts(c.namespace), &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Name: "builder"}, ImagePullSecrets: []corev1.LocalObjectReference{{Name: "first"}},
	})
	before := c.pullsWith(t, builderPod("before"), "first")
	own := c.pullsWith(t, builderPod("own", "second", "missing"), "second", "missing")

	c.givesPullSecret(t, "second")
	c.pullsWith(t, builderPod("after"), "second")
	require.Equal(t, before.UID, c.remote(t, "before").UID, "it runs on with what it was made with")
	require.Equal(t, own.UID, c.remote(t, "own").UID)

	kubetest.Update(t, home, pullSecret("first", "2"))
	c.pullSecretThere(t, "first")
	require.NoError(t, home.Delete(t.Context(), "second", metav1.DeleteOptions{}))
	away(t, "credentials that are withdrawn", getter(w.milan.Client().CoreV1().Secrets(c.twin), "second"))
}

// pullsWith runs a pod, requires that it names those pull secrets in both clusters, and
// returns the one in the provider.
func (c *fixture) pullsWith(t *testing.T, pod *corev1.Pod, want ...string) *corev1.Pod {
	t.Helper()
	c.create(t, pod)
	local := c.untilLocal(t, 30*time.Second, pod.Name, "runs", podRunning)
	require.Equal(t, builderPod("", want...).Spec.ImagePullSecrets, local.Spec.ImagePullSecrets)
	remote := c.remote(t, pod.Name)
	require.Equal(t, local.Spec.ImagePullSecrets, remote.Spec.ImagePullSecrets)
	c.pullSecretThere(t, want[0])
	return remote
}

// pullSecretThere waits until a Secret is in the provider as it is here.
func (c *fixture) pullSecretThere(t *testing.T, name string) {
	t.Helper()
	want := kubetest.Get(t, c.rome.Client().CoreV1().Secrets(c.namespace), name)
	there(t, "the credentials "+name, getter(c.milan.Client().CoreV1().Secrets(c.twin), name), func(s *corev1.Secret) bool {
		return s.Type == corev1.SecretTypeDockerConfigJson && equality.Semantic.DeepEqual(s.Data, want.Data)
	})
}

// givesPullSecret has the account give new pods another Secret, and waits until the API
// server, which reads accounts from a cache, does so.
func (c *fixture) givesPullSecret(t *testing.T, name string) {
	t.Helper()
	kubetest.Patch(t, c.rome.Client().CoreV1().ServiceAccounts(c.namespace), "builder", types.MergePatchType, fmt.Appendf(nil, `{"imagePullSecrets":[{"name":%q}]}`, name))
	within(t, quickly, "new pods are given "+name, func(ctx context.Context) error {
		probe, err := c.rome.Client().CoreV1().Pods(c.namespace).Create(ctx, builderPod("probe"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && probe.Spec.ImagePullSecrets[0].Name != name {
			err = fmt.Errorf("they are given %v", probe.Spec.ImagePullSecrets)
		}
		return err
	})
}
