package roles

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/health"
	"github.com/liqod/liqod/kube/client"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/netfabric/host"
	"github.com/liqod/liqod/netfabric/kernel"
	"github.com/liqod/liqod/roles/config"
)

// must returns the result of a call that does not fail.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// errOf returns the error of a call.
func errOf[T any](_ T, err error) error { return err }

// effective is the configuration of a process with these variables and flags.
func effective(t *testing.T, env []string, args ...string) *config.Effective {
	t.Helper()
	text := must(os.ReadFile("../config.yaml"))
	settings := must(config.Schema(text))
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	config.AddFlags(flags, settings)
	require.NoError(t, flags.Parse(args))
	cfg := must(config.Load(config.Sources{Settings: settings, Flags: flags, Env: env}))
	return cfg
}

// hostEnv is the environment of a role.
func hostEnv(t *testing.T, role string, args ...string) Env {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, []byte(`{apiVersion: v1, kind: Config, current-context: x, contexts: [{name: x, context: {cluster: x, user: x}}],
  users: [{name: x, user: {}}], clusters: [{name: x, cluster: {server: "https://192.0.2.1"}}]}`), 0o600))
	cfg := effective(t, []string{"POD_IPS=192.0.2.7,2001:db8::7", "NODE_NAME=node-1"}, append(args, "--clusterID=rome", "--kubeconfig="+kubeconfig)...)
	require.NoError(t, cfg.ValidateFor([]string{role}))
	return Env{
		Config: cfg, Log: zap.NewNop(), Clock: clock.RealClock{}, Registry: &registry{Registerer: prometheus.NewRegistry()}, Ready: &health.Checks{},
		Tracker: health.NewTracker(time.Minute, clock.RealClock{}), Requests: func(string) client.Observer { return nil },
	}
}

func actorNames(parts Parts) (names []string) {
	for _, a := range parts.Actors {
		names = append(names, a.Name)
	}
	return names
}

func TestGateway(t *testing.T) {
	t.Setenv("POD_NAME", "liqod-gateway-7f9c-x2x")
	state := filepath.Join(t.TempDir(), "state")
	args := []string{"--gateway.mtu=1500", "--gateway.stateDir=" + state, "--gateway.service=liqod-gateway", "--gateway.podAddresses=true"}
	env := hostEnv(t, "gateway", args...)
	require.Equal(t, []string{"192.0.2.7", "2001:db8::7"}, env.Config.Gateway.Addresses)
	require.Equal(t, "node-1", env.Config.Gateway.NodeName)
	parts := must(buildGateway(t.Context(), env))
	require.Equal(t, []string{"caches", "gateways", "api-server", "gateway"}, actorNames(parts))
	require.ErrorContains(t, errOf(env.Ready.Report()), "this gateway has no key: it has not been read yet")

	for name, tc := range map[string]struct {
		arg, says string
	}{
		"an endpoint of no use":   {"--gateway.endpoints=127.0.0.1:51840", `gateway.endpoints: endpoint "127.0.0.1:51840"`},
		"a device that is not":    {"--gateway.mtu=0", "gateway.mtu is not set: no network device has one of the addresses"},
		"a folder that is a file": {"--gateway.stateDir=" + filepath.Join(state, keyFile), "gateway.stateDir"},
	} {
		require.ErrorContains(t, errOf(buildGateway(t.Context(), hostEnv(t, "gateway", append(args, tc.arg)...))), tc.says, name)
	}
	_, err := buildGateway(t.Context(), hostEnv(t, "gateway", "--gateway.mtu=1500", "--gateway.keySecret=a", "--gateway.stateDir="+filepath.Join(state, keyFile)))
	require.NoError(t, err, "with a Secret there is no file")

	// Of several, each has the key, Service and endpoints of its number.
	several := []string{"--gateway.mtu=1500", "--gateway.keySecret=key", "--gateway.service=gw", "--gateway.replicas=3", "--gateway.endpoints=2=gw2.rome.example:51840,gw.rome.example:51840"}
	env = hostEnv(t, "gateway", several...)
	_, err = buildGateway(t.Context(), env)
	require.NoError(t, err)
	require.ErrorContains(t, errOf(env.Ready.Report()), "other gateways hold all numbers of gateway.replicas")
	for number, want := range map[int]string{1: "gw.rome.example", 2: "gw2.rome.example"} {
		endpoints := must(endpointsOf(env.Config.Gateway, number))
		require.Equal(t, []networkingv1beta1.Endpoint{{Address: want, Port: 51840}}, endpoints)
	}
	endpoints := must(endpointsOf(env.Config.Gateway, 3))
	require.Empty(t, endpoints)
	require.Equal(t, []string{"gw", "gw-3"}, []string{nameOf(env.Config.Gateway, "gw", 1), nameOf(env.Config.Gateway, "gw", 3)})
	_, err = buildGateway(t.Context(), hostEnv(t, "gateway", append(several, "--gateway.endpoints=4=gw.rome.example:51840")...))
	require.ErrorContains(t, err, "one of the numbers 1 to 3 and =")
	require.ErrorContains(t, errOf(buildGateway(t.Context(), hostEnv(t, "gateway", append(several, "--gateway.number=2")...))), "gateway.number: 2 is not accepted")
	t.Setenv("POD_NAME", "Not_A_Label")
	require.ErrorContains(t, errOf(buildGateway(t.Context(), hostEnv(t, "gateway", args...))), "the name of this gateway")
}

// The pod with a number has its label, and no other has it.
func TestActivate(t *testing.T) {
	t.Parallel()
	pod := func(name string, labels map[string]string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "liqod", Name: name, Labels: labels}}
	}
	kube := kubefake.NewClientset(pod("a", map[string]string{activeLabel: "2", "x": "y"}), pod("b", map[string]string{"x": "y"}), pod("c", nil), pod("d", map[string]string{activeLabel: "true"}))
	pods := kube.CoreV1().Pods("liqod")
	require.NoError(t, activate(pods, "b", 2)(t.Context()))
	require.NoError(t, activate(pods, "b", 2)(t.Context()))
	have := map[string]map[string]string{}
	list := kubetest.List(t, pods)
	for _, p := range list.Items {
		have[p.Name] = p.Labels
	}
	require.Equal(t, map[string]string{"x": "y"}, have["a"])
	require.Equal(t, map[string]string{"x": "y", activeLabel: "2"}, have["b"])
	require.Empty(t, have["c"])
	require.Equal(t, map[string]string{activeLabel: "true"}, have["d"], "the Service of number 1 leads to the gateway before, until another has the number")

	require.NoError(t, activate(pods, "c", 1)(t.Context()))
	for name, want := range map[string]string{"c": "true", "d": ""} {
		p := kubetest.Get(t, pods, name)
		require.Equal(t, want, p.Labels[activeLabel], name)
	}
	require.ErrorContains(t, activate(pods, "gone", 1)(t.Context()), "label networking.liqo.io/active of pod gone")
}

// A pod keeps its number until Kubernetes has given it up. It may still run then, so the next one with
// its number has another key than any that it has.
func TestPodLost(t *testing.T) {
	t.Parallel()
	pod := func(name string, phase corev1.PodPhase, changes ...func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "liqod", Name: name}, Status: corev1.PodStatus{Phase: phase}}
		for _, change := range changes {
			change(p)
		}
		return p
	}
	ending := func(p *corev1.Pod) {
		p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: time.Now()}, []string{"a/b"}
	}
	kube := kubefake.NewClientset(pod("runs", corev1.PodRunning), pod("failed", corev1.PodFailed), pod("ended", corev1.PodSucceeded), pod("ending", corev1.PodRunning, ending))
	keys := func(number int) secretKeys {
		return secretKeys{kube.CoreV1().Secrets("liqod"), nameOf(config.Gateway{Replicas: 2}, "key", number)}
	}
	lost := podLost(kube.CoreV1().Pods("liqod"), keys)
	for name, want := range map[string]bool{"runs": false, "ending": true, "failed": true, "ended": true, "deleted": true} {
		before := must(keys(2).Read(t.Context()))
		require.NoError(t, keys(2).Prepare(t.Context()))
		before = must(keys(2).Read(t.Context()))
		others := must(keys(1).Read(t.Context()))
		got := must(lost(t.Context(), name, 2))
		require.Equal(t, want, got, name)
		after := must(keys(2).Read(t.Context()))
		require.Equal(t, want, after.Key != before.Key, name)
		require.NotEqual(t, want, after.Next == before.Next, name)
		require.NotEqual(t, before.Next, after.Key, name)
		same := must(keys(1).Read(t.Context()))
		require.Equal(t, others, same, "the key of another number stays")
	}
	kube.PrependReactor("delete", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("away") })
	got, err := lost(t.Context(), "deleted", 2)
	require.ErrorContains(t, err, "away")
	require.False(t, got && err == nil, "with the key that it has, the number is not taken")
	kube.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("away") })
	require.ErrorContains(t, errOf(lost(t.Context(), "deleted", 2)), "reading pod deleted, which holds the number of a gateway: away")
}

// TestOwnServer: what the gateway tells its peers of the own API server follows that.
func TestOwnServer(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" || broken.Load() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = w.Write([]byte("ok"))
	}))
	defer api.Close()
	kube := must(kubernetes.NewForConfig(&rest.Config{Host: api.URL}))
	env := hostEnv(t, "gateway", "--gateway.mtu=1500", "--gateway.stateDir="+t.TempDir(), "--probe.interval=100ms", "--probe.timeout=1s")
	server, probe := ownServer(env, kube)
	require.Equal(t, health.Unknown, server())
	stop := kubetest.Run(t, probe)
	for _, want := range []health.Verdict{health.Up, health.Down, health.Up} {
		broken.Store(want == health.Down)
		require.Eventually(t, func() bool { return server() == want }, time.Minute, 5*time.Millisecond)
	}
	stop()
}

func TestRoute(t *testing.T) {
	t.Parallel()
	env := hostEnv(t, "route")
	require.Equal(t, "node-1", env.Config.Route.NodeName)
	parts := must(buildRoute(t.Context(), env))
	require.Equal(t, []string{"caches", "gateways", "node", "refusals"}, actorNames(parts))
	require.ErrorContains(t, errOf(env.Ready.Report()), "nothing has been applied yet")
}

func TestKeyOfAGateway(t *testing.T) {
	t.Parallel()
	files := fileKeys{filepath.Join(t.TempDir(), "a", "b")}
	first := must(files.Read(t.Context()))
	require.Zero(t, first.Next)
	require.WithinDuration(t, time.Now(), first.Made, time.Minute)
	again := must(files.Read(t.Context()))
	require.Equal(t, first, again)
	info := must(os.Stat(files.path()))
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	folder := must(os.Stat(files.dir))
	require.Equal(t, os.FileMode(0o700), folder.Mode().Perm())
	for _, mode := range []os.FileMode{0o640, 0o604, 0o660, 0o666} {
		require.NoError(t, os.Chmod(files.path(), mode))
		require.ErrorContains(t, errOf(files.Read(t.Context())), "chmod 600 "+files.path())
	}
	require.NoError(t, os.Chmod(files.path(), 0o600))
	entries := must(os.ReadDir(files.dir))
	require.Len(t, entries, 1)

	require.NoError(t, files.Promote(t.Context()), "there is no next key")
	require.NoError(t, files.Prepare(t.Context()))
	require.NoError(t, files.Prepare(t.Context()))
	both := must(files.Read(t.Context()))
	require.Equal(t, first.Key, both.Key)
	require.NotZero(t, both.Next)
	require.NoError(t, files.Promote(t.Context()))
	require.NoError(t, files.Promote(t.Context()))
	last := must(files.Read(t.Context()))
	require.Equal(t, host.Keys{Key: both.Next, Made: both.NextMade}, last)

	require.NoError(t, os.WriteFile(files.path(), []byte("secret?"), 0o600))
	_, err := files.Read(t.Context())
	require.ErrorContains(t, err, "delete the file for another key")
	require.False(t, strings.Contains(err.Error(), "secret?"))
}

func TestKeyInASecret(t *testing.T) {
	t.Parallel()
	kube := kubefake.NewClientset()
	keys := secretKeys{kube.CoreV1().Secrets("liqod"), "key"}
	first := must(keys.Read(t.Context()))
	again := must(keys.Read(t.Context()))
	require.Equal(t, first, again)
	made := kubetest.Get(t, keys.secrets, "key")
	require.True(t, *made.Immutable)
	for _, a := range kube.Actions() {
		require.Contains(t, []string{"get", "create"}, a.GetVerb(), "it is never watched or listed")
	}

	// Another gateway makes it between the look and the write.
	var hidden atomic.Bool
	hidden.Store(true)
	kube.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return hidden.Swap(false), nil, apierrors.NewNotFound(corev1.Resource("secrets"), "key")
	})
	again = must(keys.Read(t.Context()))
	require.Equal(t, first, again)

	closed := map[string]bool{"closed": true}
	kube.PrependReactor("get", "secrets", func(a clienttesting.Action) (bool, runtime.Object, error) {
		name := a.(clienttesting.GetAction).GetName()
		return closed[name], nil, apierrors.NewForbidden(corev1.Resource("secrets"), name, errors.New("no right"))
	})
	require.ErrorContains(t, errOf(secretKeys{keys.secrets, "closed"}.Read(t.Context())), "Secret closed (gateway.keySecret)")
}

// A key is replaced whatever write the API server does not do, or does without an answer: at each
// time the gateway has one of the two keys, and in the end the next one.
func TestKeysEndAnywhere(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} { // the answer alone
		for dead := 1; dead <= 8; dead++ {
			kube := kubefake.NewClientset()
			keys, n := secretKeys{kube.CoreV1().Secrets("liqod"), "key"}, 0
			first := must(keys.Read(t.Context()))
			require.NoError(t, keys.Prepare(t.Context()))
			both := must(keys.Read(t.Context()))
			require.NotZero(t, both.Next)
			require.NotEqual(t, first.Key, both.Next)
			kube.PrependReactor("*", "secrets", func(a clienttesting.Action) (bool, runtime.Object, error) {
				if n++; n != dead {
					return false, nil, nil
				}
				if d, ok := a.(clienttesting.DeleteAction); lost && ok {
					require.NoError(t, kube.Tracker().Delete(a.GetResource(), a.GetNamespace(), d.GetName()))
				}
				if c, ok := a.(clienttesting.CreateAction); lost && ok {
					require.NoError(t, kube.Tracker().Create(a.GetResource(), c.GetObject(), a.GetNamespace()))
				}
				return true, nil, errors.New("away")
			})
			errPromote := keys.Promote(t.Context())
			var got host.Keys
			require.Eventually(t, func() bool {
				var err error
				got, err = keys.Read(t.Context())
				return err == nil
			}, time.Minute, time.Millisecond)
			require.Contains(t, []kernel.Key{first.Key, both.Next}, got.Key)
			if errPromote == nil {
				require.Equal(t, both.Next, got.Key)
			}
			for got.Next != (kernel.Key{}) {
				require.NoError(t, keys.Promote(t.Context()))
				got = must(keys.Read(t.Context()))
			}
			require.Equal(t, both.Next, got.Key, "the API server is away at %d", dead)
			require.Len(t, kubetest.List(t, keys.secrets).Items, 1)
		}
	}
}

func TestBrokenKeyInASecret(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*corev1.Secret)
		says   string
	}{
		"another type": {func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque }, `type "Opaque" is not accepted`},
		"no field":     {func(s *corev1.Secret) { s.Data = nil }, "field privateKey is missing"},
		"too short":    {func(s *corev1.Secret) { s.Data[keySecretField] = []byte("c2VjcmV0") }, "field privateKey: a WireGuard private key is 32 bytes in base64"},
		"no base64":    {func(s *corev1.Secret) { s.Data[keySecretField] = []byte("secret?") }, "field privateKey: a WireGuard private key is 32 bytes in base64"},
	} {
		key := must(kernel.GenerateKey())
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "liqod", Name: "key"}, Type: keySecretType,
			Data: map[string][]byte{keySecretField: []byte(key.Private() + "\n")}}
		got := must(parseKeySecret(secret))
		require.Equal(t, key, got)
		tc.change(secret)
		_, err := parseKeySecret(secret)
		require.ErrorContains(t, err, tc.says, name)
		require.ErrorContains(t, err, "Secret liqod/key (gateway.keySecret)", name)
		require.ErrorContains(t, err, "delete the Secret for another key", name)
		require.NotContains(t, err.Error(), "secret?", name)
	}
}
