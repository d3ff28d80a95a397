package link

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	liqodfake "github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/health"
	"github.com/liqod/liqod/kube/client"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/reasons"
)

// provider is a fake API server that can become another cluster, stop answering, or revoke the
// rights of its client.
type provider struct {
	uid      atomic.Value
	down     atomic.Bool
	refusals atomic.Int64 // how many reads of its identity are still refused
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p.down.Load() {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	var answer any
	switch r.URL.Path {
	case "/readyz":
		_, _ = w.Write([]byte("ok"))
		return
	case "/version":
		answer = map[string]string{"gitVersion": "v1.36.3", "platform": "linux/amd64"}
	case "/api/v1/namespaces/kube-system":
		if p.refusals.Add(-1) >= 0 {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		answer = &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: p.uid.Load().(types.UID)}}
	}
	_ = json.NewEncoder(w).Encode(answer) // the client notices a missing answer
}

type seen struct {
	mu     sync.Mutex
	states []ProviderState
	opened int
}

func (s *seen) last() ProviderState {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.states) == 0 {
		return ProviderState{}
	}
	return s.states[len(s.states)-1]
}

// startCheck checks a provider with a UID.
func startCheck(t *testing.T, uid types.UID, recorded func(context.Context) (types.UID, error)) (*provider, *Check, *seen) {
	t.Helper()
	p := &provider{}
	p.uid.Store(uid)
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	require.NoError(t, err)
	s := &seen{}
	c := NewCheck(CheckConfig{
		Provider: client, RecordedUID: recorded,
		Window: health.Window{Size: 5, Failures: 3, Successes: 2}, Interval: 10 * time.Millisecond, Timeout: time.Second,
		OnState: func(state ProviderState) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.states = append(s.states, state)
		},
		Env: loop.Env{Clock: clock.RealClock{}, Log: zap.NewNop()},
	})
	c.OnOpen(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.opened++
	})
	require.Error(t, c.Gate(), "the gate is closed until the provider is known")
	t.Cleanup(func() { require.Error(t, c.Gate(), "and after it has been left") })
	kubetest.Run(t, func(ctx context.Context) error { c.Run(ctx); return nil })
	return p, c, s
}

func eventually(t *testing.T, cond func() bool, what string) {
	t.Helper()
	require.Eventually(t, cond, time.Minute, 5*time.Millisecond, what)
}

func known(uid types.UID) func(context.Context) (types.UID, error) {
	return func(context.Context) (types.UID, error) { return uid, nil }
}

// TestCheckFollowsTheProvider: work that began while the provider was up ends at the verdict.
func TestCheckFollowsTheProvider(t *testing.T) {
	p, c, s := startCheck(t, "a", known("a"))
	eventually(t, func() bool { return c.Gate() == nil && s.last().Ready != nil && *s.last().Ready }, "up")
	require.Equal(t, "v1.36.3", s.last().Version.GitVersion)
	ended, done := c.While(t.Context())
	done()
	require.Error(t, ended.Err(), "it is released")
	open, done := c.While(t.Context())
	defer done()
	require.NoError(t, open.Err())

	p.down.Store(true)
	eventually(t, func() bool { return open.Err() != nil && !*s.last().Ready }, "the work ends")
	require.Error(t, c.Gate())
	require.Equal(t, reasons.RemoteAPIServerNotReady, s.last().Reason)
	late, done := c.While(t.Context())
	defer done()
	require.Error(t, late.Err(), "no work begins at a closed gate")
	func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		require.Empty(t, c.uses)
	}()

	p.down.Store(false)
	eventually(t, func() bool { return c.Gate() == nil && *s.last().Ready }, "up again")
	require.Equal(t, 2, s.opened, "each opening is told, so that everything is looked at again")
}

func TestCheckRefusesAnotherCluster(t *testing.T) {
	p, c, s := startCheck(t, "b", known("a"))
	eventually(t, func() bool { return s.last().Reason == corev1beta1.ReasonClusterReplaced }, "another cluster answers")
	require.Error(t, c.Gate())
	require.ErrorContains(t, c.Verify(t.Context()), "another cluster answers")
	p.uid.Store(types.UID("a"))
	eventually(t, func() bool { return c.Gate() == nil }, "the right one again")
}

func TestVerifyNoticesASwapWhileUp(t *testing.T) {
	p, c, s := startCheck(t, "a", known("")) // no UID is recorded: the first one read counts
	eventually(t, func() bool { return c.Gate() == nil }, "up")
	p.uid.Store(types.UID("b"))
	require.Error(t, c.Verify(t.Context()))
	require.Error(t, c.Gate(), "the gate closes")
	eventually(t, func() bool { return s.last().Reason == corev1beta1.ReasonClusterReplaced }, "and it is said")
	p.uid.Store(types.UID("a"))
	eventually(t, func() bool { return c.Gate() == nil && *s.last().Ready }, "it opens when the right one is back, though no probe failed")
}

// TestRevoked: a provider that revokes the rights of this cluster, and that answers as before, is
// not ready. One refusal alone changes nothing.
func TestRevoked(t *testing.T) {
	p, c, s := startCheck(t, "a", known("a"))
	eventually(t, func() bool { return c.Gate() == nil }, "up")
	p.refusals.Store(1)
	eventually(t, func() bool { return p.refusals.Load() < -1 }, "its identity is read again, and again")
	require.NoError(t, c.Gate(), "one refusal")
	require.Equal(t, 1, s.opened)

	p.refusals.Store(1 << 40)
	eventually(t, func() bool { return c.Gate() != nil && s.last().Reason == corev1beta1.ReasonRightsRevoked }, "revoked")
	require.False(t, *s.last().Ready)
	p.refusals.Store(0)
	eventually(t, func() bool { return c.Gate() == nil && *s.last().Ready }, "the rights are back")
}

func TestUnreadableRecordKeepsTheGateClosed(t *testing.T) {
	_, c, s := startCheck(t, "a", func(context.Context) (types.UID, error) { return "", errors.New("home is away") })
	eventually(t, func() bool { return s.last().Reason == reasons.RemoteIdentityUnknown }, "said")
	require.Error(t, c.Gate())
}

func TestCredentials(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		secret := func(host string, token ...string) *corev1.Secret {
			return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan"},
				Data: map[string][]byte{"kubeconfig": []byte("apiVersion: v1\nkind: Config\n" +
					"clusters: [{name: c, cluster: {server: 'https://" + host + "'}}]\nusers: [{name: u, user: {token: 't" + strings.Join(token, "") + "'}}]\n" +
					"contexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n")}}
		}
		core := fake.NewClientset()
		own := liqodfake.NewSimpleClientset(&offloadingv1beta1.VirtualNode{
			ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan"},
			Spec:       offloadingv1beta1.VirtualNodeSpec{ClusterID: "milan", KubeconfigSecretRef: corev1.LocalObjectReference{Name: "milan"}},
		})
		kubetest.WatchFromList(core)
		cores, owns := informers.NewSharedInformerFactory(core, 0), externalversions.NewSharedInformerFactory(own, 0)
		c := &Credentials{VirtualNodes: owns.Offloading().V1beta1().VirtualNodes(), Secrets: cores.Core().V1().Secrets(),
			Namespace: "liqo-tenant-milan", Name: "milan", Log: zap.NewNop()}
		require.NoError(t, c.Watch())
		cores.Start(t.Context().Done())
		owns.Start(t.Context().Done())

		hosts, waited := make(chan string), make(chan error, 100)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			done <- c.Use(ctx, func(ctx context.Context, way *client.Way) error {
				hosts <- way.Config().Host
				<-ctx.Done()
				return nil
			}, func(err error) { waited <- err })
		}()
		require.Error(t, <-waited, "there is no Secret yet")
		secrets := core.CoreV1().Secrets("liqo-tenant-milan")
		empty := secret("one")
		empty.Data = nil
		kubetest.Create(t, secrets, empty)
		eventually(t, func() bool {
			select {
			case problem := <-waited:
				return strings.Contains(problem.Error(), "has no key")
			default:
				return false
			}
		}, "what is wrong now is told")
		kubetest.Update(t, secrets, secret("one"))
		require.Equal(t, "https://one", <-hosts)

		broken := secret("one")
		broken.Data = map[string][]byte{"kubeconfig": []byte("{")}
		kubetest.Update(t, secrets, broken)
		kubetest.Update(t, secrets, secret("two"))
		require.Equal(t, "https://two", <-hosts, "work runs again with the new credentials, and broken ones in between did not stop it")

		// A token of the same account: eyJzdWIiOiJ1In0 is {"sub":"u"}.
		for i, token := range []string{".eyJzdWIiOiJ1In0.1", ".eyJzdWIiOiJ1In0.2"} {
			before, err := c.Current()
			require.NoError(t, err)
			kubetest.Update(t, secrets, secret("two", token))
			eventually(t, func() bool { now, _ := c.Current(); return now != before }, "the credentials of the time are the new ones")
			if i == 0 {
				require.Equal(t, "https://two", <-hosts, "another user: work runs again")
			}
		}
		synctest.Wait()
		select {
		case <-hosts:
			require.Fail(t, "renewed credentials do not end what runs")
		default:
		}
		cancel()
		require.NoError(t, <-done)
	})
}

func TestAProvidersVersionIsBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<20)
	for name, tc := range map[string]struct{ says, want version.Info }{
		"ordinary":  {version.Info{GitVersion: "v1.36.1+k3s1", Platform: "linux/arm64"}, version.Info{GitVersion: "v1.36.1+k3s1", Platform: "linux/arm64"}},
		"long":      {version.Info{GitVersion: long, GitCommit: long, Platform: long + "/" + long}, version.Info{GitVersion: long[:longestVersion]}},
		"no labels": {version.Info{Platform: "linux/a b"}, version.Info{}},
		"unknown":   {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, bounded(tc.says))
		})
	}
}

// TestProbesAreTimed: an answer, an error and the end of the timeout count; a check that ended
// because another one was answered does not.
func TestProbesAreTimed(t *testing.T) {
	refused := errors.New("connection refused")
	silent := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	for name, tc := range map[string]struct {
		check func(context.Context) error
		ended time.Duration
		want  time.Duration // 0: it does not count
		ok    bool
	}{
		"an answer": {func(context.Context) error { time.Sleep(time.Second); return nil }, time.Minute, time.Second, true},
		"an error":  {func(context.Context) error { time.Sleep(time.Second); return refused }, time.Minute, time.Second, false},
		"silence":   {silent, 4 * time.Second, 4 * time.Second, false},
		"overtaken": {silent, time.Second, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var have time.Duration
				var failed error
				c := &Conditions{cfg: ConditionsConfig{Timeout: 4 * time.Second, Base: Base{Env: loop.Env{Clock: clock.RealClock{}}}, Probed: func(id string, d time.Duration, err error) {
					require.Equal(t, "milan", id)
					have, failed = d, err
				}}}
				ctx, cancel := context.WithTimeout(t.Context(), tc.ended)
				defer cancel()
				err := c.timed("milan", tc.check)(ctx)
				require.Equal(t, tc.want, have)
				require.Equal(t, tc.ok, err == nil)
				if tc.want > 0 {
					require.Equal(t, err, failed)
				}
			})
		})
	}
}
