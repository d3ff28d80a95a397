package kinds

import (
	"errors"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/reasons"
	"github.com/liqod/liqod/reflect/forge"
)

// views is a Remapper whose translations the test changes.
type views struct {
	mu  sync.Mutex
	all map[string]string
}

func (v *views) Remap(addr netip.Addr) (netip.Addr, string, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	out, err := netip.ParseAddr(v.all[addr.String()])
	return out, "", err == nil
}

func (v *views) set(all map[string]string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.all = all
}

// TestAddressesFollowTheView: a changed view reaches the status of running pods without a
// restart, in both families. Without a Connection pods have no address, and run on.
func TestAddressesFollowTheView(t *testing.T) {
	v := &views{}
	s := shopSite(localPod())
	s.remapper = v
	s.there(localPod(), true, running, func(p *corev1.Pod) {
		p.Status.PodIPs = []corev1.PodIP{{IP: "10.1.0.9"}, {IP: "fd01::9"}}
	})
	s.start(t)
	eventually(t, func() bool { return s.local(t).Status.Phase == corev1.PodRunning }, "the status comes home")
	require.Empty(t, s.local(t).Status.PodIP, "there is no Connection yet")
	for _, step := range []struct {
		views map[string]string
		want  []corev1.PodIP
	}{
		{map[string]string{"10.1.0.9": "10.80.0.9"}, []corev1.PodIP{{IP: "10.80.0.9"}}},
		{map[string]string{"10.1.0.9": "10.80.0.9", "fd01::9": "fd80::9"}, []corev1.PodIP{{IP: "10.80.0.9"}, {IP: "fd80::9"}}},
		{map[string]string{"10.1.0.9": "10.81.0.9", "fd01::9": "fd80::9"}, []corev1.PodIP{{IP: "10.81.0.9"}, {IP: "fd80::9"}}},
		{nil, nil},
		{map[string]string{"10.1.0.9": "10.81.0.9"}, []corev1.PodIP{{IP: "10.81.0.9"}}},
	} {
		v.set(step.views)
		s.pods.Resync()
		eventually(t, func() bool {
			have := s.local(t).Status
			if len(have.PodIPs) != len(step.want) {
				return false
			}
			for i := range step.want {
				if have.PodIPs[i] != step.want[i] {
					return false
				}
			}
			return len(step.want) == 0 && have.PodIP == "" || len(step.want) > 0 && have.PodIP == step.want[0].IP
		}, "the status has the addresses of the view")
		require.Equal(t, corev1.PodRunning, s.local(t).Status.Phase)
	}
	require.Empty(t, writes(s.remoteLiqod.Actions()), "the pod in the provider is not touched")
}

// someAPI is a HomeAPI whose answers the test changes.
type someAPI struct {
	mu     sync.Mutex
	fabric bool
	server netip.AddrPort
	err    error
}

func (a *someAPI) Fabric() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.fabric
}

func (a *someAPI) Address(atHome bool) (netip.AddrPort, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if atHome {
		return netip.MustParseAddrPort("10.96.0.1:443"), a.err
	}
	return a.server, a.err
}

func (a *someAPI) set(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
}

var errNoIP = errors.New("there is no IP yet") // a sentinel of the tests

// boundNow is what a scheduler writes.
func boundNow(p *corev1.Pod) {
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
}

// TestPodsAreLedHome: a pod that gets a token starts when the address of the consumer's API
// server is known, and has it in its environment.
func TestPodsAreLedHome(t *testing.T) {
	inTokenSite(t, func(s *tokenSite) {
		api := &someAPI{fabric: true, err: errNoIP}
		s.homeAPI = api
		s.add(s.home.Tracker(), cashier("web", boundNow))
		s.run()
		require.Nil(t, s.shadow(t))
		require.Equal(t, reasons.HomeAPIServerUnknown, s.local(t).Status.Reason)
		require.Contains(t, s.local(t).Status.Message, "there is no IP yet")

		api.set(func() { api.server, api.err = netip.MustParseAddrPort("10.91.0.20:6443"), nil })
		s.pods.Resync()
		s.settle(0)
		spec := s.shadow(t).Spec.Pod
		require.Equal(t, []corev1.HostAlias{{IP: "10.91.0.20", Hostnames: []string{"kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}}}, spec.HostAliases)
		require.Equal(t, []corev1.EnvVar{
			{Name: "KUBERNETES_SERVICE_HOST", Value: "kubernetes.default"}, {Name: "KUBERNETES_SERVICE_PORT", Value: "6443"}, {Name: "KUBERNETES_SERVICE_PORT_HTTPS", Value: "6443"},
		}, spec.Containers[0].Env)

		// What is known later changes no pod that is there.
		api.set(func() { api.err = errNoIP })
		s.pods.Resync()
		s.settle(0)
		require.Equal(t, spec, s.shadow(t).Spec.Pod)
	})
}

// TestPodsAtHomeAreLedToItsService: a pod whose namespace has services Home waits until its DNS is reached, and finds
// the API server as pods at home do: its address in the provider means another one there.
func TestPodsAtHomeAreLedToItsService(t *testing.T) {
	inTokenSite(t, func(s *tokenSite) {
		away := errors.New("the fabric does not lead there")
		s.homeAPI = &someAPI{fabric: true, server: netip.MustParseAddrPort("10.80.0.16:443")}
		s.homeDNS = func() (forge.DNS, error) {
			return forge.DNS{Servers: []string{"10.96.0.10"}, Domain: "cluster.local"}, away
		}
		s.editMap(t, func(m *offloadingv1beta1.NamespaceMap) {
			m.Spec.Services = map[string]offloadingv1beta1.ServiceNetwork{"shop": offloadingv1beta1.ServicesHome}
		})
		s.add(s.home.Tracker(), cashier("web", boundNow))
		s.run()
		require.Nil(t, s.shadow(t))
		require.Equal(t, reasons.HomeServicesUnknown, s.local(t).Status.Reason)
		require.Contains(t, s.local(t).Status.Message, away.Error())

		away = nil
		s.settle(homeAPIRetry)
		spec := s.shadow(t).Spec.Pod
		require.Equal(t, []string{"10.96.0.10"}, spec.DNSConfig.Nameservers)
		require.Empty(t, spec.HostAliases)
		require.Equal(t, []corev1.EnvVar{
			{Name: "KUBERNETES_SERVICE_HOST", Value: "10.96.0.1"}, {Name: "KUBERNETES_SERVICE_PORT", Value: "443"}, {Name: "KUBERNETES_SERVICE_PORT_HTTPS", Value: "443"},
		}, spec.Containers[0].Env)
	})
}

// TestPodsStartWithoutAPIServer: pods without tokens do not wait, others for a limited time;
// and nobody waits where there is no fabric, or people wrote the address.
func TestPodsStartWithoutAPIServer(t *testing.T) {
	for name, tc := range map[string]struct {
		api   *someAPI
		pod   *corev1.Pod
		host  string // by hand
		waits bool
	}{
		"without tokens":          {api: &someAPI{fabric: true, err: errNoIP}, pod: localPod()},
		"without a fabric":        {api: &someAPI{err: errNoIP}, pod: cashier("web")},
		"with an address by hand": {api: &someAPI{fabric: true, err: errNoIP}, pod: cashier("web"), host: "192.0.2.7"},
		"in the end":              {api: &someAPI{fabric: true, err: errNoIP}, pod: cashier("web"), waits: true},
	} {
		t.Run(name, func(t *testing.T) {
			inTokenSite(t, func(s *tokenSite) {
				s.homeAPI = tc.api
				if tc.host != "" {
					s.api.Host, s.api.Port = tc.host, "443"
				}
				boundNow(tc.pod) // by the clock of the bubble
				s.add(s.home.Tracker(), tc.pod)
				s.run()
				if tc.waits {
					require.Nil(t, s.shadow(t))
					s.settle(homeAPIPatience + homeAPIRetry + time.Second)
					require.Contains(t, <-s.events.Events, reasons.HomeAPIServerUnknown)
				}
				require.NotNil(t, s.shadow(t))
				aliases := s.shadow(t).Spec.Pod.HostAliases
				require.Equal(t, tc.host != "", len(aliases) == 1 && aliases[0].IP == tc.host, "%v", aliases)
			})
		})
	}
}
