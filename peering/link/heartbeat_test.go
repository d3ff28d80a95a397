package link

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
)

// beating is rome, which uses milan.
type beating struct {
	*world
	milan *peer

	mu      sync.Mutex
	serving error // of rome's API server
	another error // of the identity of milan
}

// newBeating has the Lease in milan as it is when rome starts: missing, made or renewed.
func newBeating(t *testing.T, interval time.Duration, lease string) *beating {
	b := &beating{world: newWorld(t, tenant("milan"), secret("milan", "k", "m")), milan: newPeer("uid-milan")}
	b.addPeer("m", b.milan)
	if lease != missing {
		b.invite(lease == hasRenewal)
	}
	h := NewHeartbeat(HeartbeatConfig{
		Base: b.base("rome"), Interval: interval, Timeout: time.Minute, Directory: b.directory,
		Serving: func(context.Context) error {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.serving
		},
		Identity: func(_ context.Context, id string, kube kubernetes.Interface) error {
			b.mu.Lock()
			defer b.mu.Unlock()
			if id != "milan" || kube != kubernetes.Interface(b.milan.core) {
				return errors.New("a wrong client")
			}
			return b.another
		},
		Connections: b.liqoInformers.Networking().V1beta1().Connections(), Clock: clock.RealClock{},
	})
	b.liqoInformers.Start(t.Context().Done())
	b.world.run()
	kubetest.Run(t, func(ctx context.Context) error { return h.Run(ctx, 2) })
	return b
}

func (b *beating) set(serving, another error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.serving, b.another = serving, another
}

func (b *beating) use(user string) {
	kubetest.Create(b.t, b.liqo.CoreV1beta1().ForeignClusters(), milan(user))
}

// invite makes the Lease in milan; renewed: as it is after a renewal.
func (b *beating) invite(renewed bool) {
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1beta1.TenantNamespace("rome"), Name: corev1beta1.HeartbeatLease, Labels: map[string]string{"a": "b"}}}
	if renewed {
		l.Spec.RenewTime = &metav1.MicroTime{Time: time.Unix(1000, 0)}
	}
	kubetest.Create(b.t, b.milan.core.CoordinationV1().Leases(l.Namespace), l)
}

func (b *beating) lease() *coordinationv1.Lease {
	return kubetest.Get(b.t, b.milan.core.CoordinationV1().Leases(corev1beta1.TenantNamespace("rome")), corev1beta1.HeartbeatLease)
}

// patches returns how many renewals, and how many of all requests for Leases there were.
func (b *beating) patches() (patches, all int) {
	for _, a := range b.milan.core.Actions() {
		if a.GetResource().Resource == "leases" {
			all++
			if a.GetVerb() == "patch" {
				patches++
			}
		}
	}
	return patches, all
}

// more waits for n more renewals.
func (b *beating) more(n int) {
	b.t.Helper()
	before, _ := b.patches()
	b.eventually(fmt.Sprintf("%d more renewals", n), func() bool { now, _ := b.patches(); return now >= before+n })
}

// renewals returns how many there are within d.
func (b *beating) renewals(d time.Duration) int {
	before, _ := b.patches()
	kubetest.Settled(d)
	after, _ := b.patches()
	return after - before
}

// ends requires that there are no renewals but one that is due already.
func (b *beating) ends() {
	b.t.Helper()
	kubetest.Settled(beatEvery)
	require.Zero(b.t, b.renewals(time.Minute))
}

const (
	missing    = "missing"
	made       = "made"
	hasRenewal = "renewed"
)

// TestHeartbeat: a cluster that is not the peer is not written to.
func TestHeartbeat(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		b := newBeating(t, beatEvery, made)
		b.set(nil, ErrReplaced)
		b.use("")
		b.ends()
		patches, _ := b.patches()
		require.Zero(t, patches)
		b.set(nil, nil)
		b.more(3)
		first := b.lease()
		require.Equal(t, map[string]string{"a": "b"}, first.Labels, "nothing else is written")
		require.Nil(t, first.Spec.HolderIdentity)
		b.eventually("each renewal is a change", func() bool { return !b.lease().Spec.RenewTime.Equal(first.Spec.RenewTime) })

		b.set(errors.New("the own API server does not serve"), nil)
		b.ends()
		b.set(nil, nil)
		b.more(3)
	})
}

// TestHeartbeatUnasked: a provider without the Lease is asked seldom.
func TestHeartbeatUnasked(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		b := newBeating(t, beatEvery, missing)
		b.use("")
		b.more(1)
		require.Zero(t, b.renewals(unaskedDelay-beatEvery))
		patches, _ := b.patches()
		require.Equal(t, 1, patches)
		require.Equal(t, 1, b.renewals(2*beatEvery))
	})
}

// TestHeartbeatTakenBack: where the peer has a better way to check this cluster, it does not
// take the end of the renewals for an outage.
func TestHeartbeatTakenBack(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		interval time.Duration
		user     string
	}{"the peer has rights here": {beatEvery, "liqo.io:peer:milan:1"}, "it is off": {}} {
		t.Run(name, func(t *testing.T) {
			kubetest.Bubble(t, func(t *testing.T) {
				b := newBeating(t, tc.interval, hasRenewal)
				b.use(tc.user)
				b.eventually("taken back", func() bool { return b.lease().Spec.RenewTime == nil })
			})
		})
	}
	t.Run("nothing to take back", func(t *testing.T) {
		kubetest.Bubble(t, func(t *testing.T) {
			b := newBeating(t, 0, made)
			b.use("")
			b.eventually("looked at", func() bool { _, all := b.patches(); return all >= 2 }) // with that of invite
			b.ends()
			patches, all := b.patches()
			require.Zero(t, patches)
			require.Equal(t, 2, all, "once")
		})
	})
	t.Run("a tunnel comes, and goes", func(t *testing.T) {
		kubetest.Bubble(t, func(t *testing.T) {
			b := newBeating(t, beatEvery, made)
			b.use("")
			b.more(2)
			connections := b.liqo.NetworkingV1beta1().Connections(corev1beta1.TenantNamespace("milan"))
			kubetest.Create(t, connections, &networkingv1beta1.Connection{ObjectMeta: metav1.ObjectMeta{Namespace: tenant("milan").Name, Name: "milan"}})
			b.eventually("taken back", func() bool { return b.lease().Spec.RenewTime == nil })
			b.ends()
			require.Nil(t, b.lease().Spec.RenewTime)
			require.NoError(t, connections.Delete(t.Context(), "milan", metav1.DeleteOptions{}))
			b.more(2)
		})
	})
}

// TestHeartbeatLastWord: a consumer that deletes its credentials for a provider has ended its use
// of it. It writes so into the Lease, with the credentials that it had.
func TestHeartbeatLastWord(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		b := newBeating(t, beatEvery, made)
		b.use("")
		b.more(2)
		require.Nil(t, b.lease().Spec.AcquireTime)
		secrets := b.core.CoreV1().Secrets(corev1beta1.TenantNamespace("milan"))
		require.NoError(t, secrets.Delete(t.Context(), "k", metav1.DeleteOptions{}))
		b.eventually("the last word", func() bool { return b.lease().Spec.AcquireTime != nil })
		require.Nil(t, b.lease().Spec.RenewTime)
		b.ends()
		kubetest.Create(t, secrets, secret("milan", "k", "m"))
		b.more(2)
		require.NotNil(t, b.lease().Spec.RenewTime)
		b.set(nil, ErrReplaced)
		before, _ := b.patches()
		require.NoError(t, secrets.Delete(t.Context(), "k", metav1.DeleteOptions{}))
		b.ends()
		after, _ := b.patches()
		require.LessOrEqual(t, after, before+1, "another cluster at its address is not written to")
		require.NotNil(t, b.lease().Spec.RenewTime)
	})
}

// TestHeartbeatWithoutTenantNamespace: credentials that went with their namespace are no last
// word, because the controller makes both again.
func TestHeartbeatWithoutTenantNamespace(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		b := newBeating(t, beatEvery, made)
		b.use("")
		b.more(2)
		going, now := tenant("milan"), metav1.Now()
		going.DeletionTimestamp, going.Finalizers = &now, []string{"kubernetes"}
		kubetest.Update(t, b.core.CoreV1().Namespaces(), going)
		require.NoError(t, b.core.CoreV1().Secrets(going.Name).Delete(t.Context(), "k", metav1.DeleteOptions{}))
		b.ends()
		require.Nil(t, b.lease().Spec.AcquireTime)
		require.NotNil(t, b.lease().Spec.RenewTime)
	})
}

func TestInvitations(t *testing.T) {
	t.Parallel()
	const user = "liqo.io:peer:milan:1"
	namespace := corev1beta1.TenantNamespace("milan")
	for name, tc := range map[string]struct {
		interval time.Duration
		user     string
		secret   bool // credentials for milan
		tunnel   bool
		before   bool // there is a Lease
		want     bool
	}{
		"a consumer":                    {time.Second, user, false, false, false, true},
		"it has its Lease":              {time.Second, user, false, false, true, true},
		"no consumer":                   {time.Second, "", false, false, false, false},
		"a user that is not its own":    {time.Second, "admin", false, false, false, false},
		"off":                           {0, user, false, false, true, false},
		"this cluster can probe it":     {time.Second, user, true, false, true, false},
		"its gateway reports":           {time.Second, user, false, true, true, false},
		"one whose rights are withheld": {time.Second, "", false, false, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			kubetest.Bubble(t, func(t *testing.T) {
				w := newWorld(t, tenant("milan"), milan(tc.user))
				w.addPeer("m", newPeer("uid-milan"))
				leases := w.core.CoordinationV1().Leases(namespace)
				if tc.before {
					kubetest.Create(t, leases, heartbeatLease(nil))
				}
				if tc.secret {
					kubetest.Create(t, w.core.CoreV1().Secrets(namespace), secret("milan", "k", "m"))
				}
				if tc.tunnel {
					kubetest.Create(t, w.liqo.NetworkingV1beta1().Connections(namespace), &networkingv1beta1.Connection{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "milan"}})
				}
				n := NewInvitations(InvitationsConfig{
					Base: w.base("rome"), Interval: tc.interval, Directory: w.directory,
					Connections: w.liqoInformers.Networking().V1beta1().Connections(), Leases: w.coreInformers.Coordination().V1().Leases(),
				})
				w.coreInformers.Start(t.Context().Done())
				w.liqoInformers.Start(t.Context().Done())
				kubetest.Run(t, func(ctx context.Context) error { return n.Run(ctx, 2) })
				kubetest.Run(t, w.directory.Run)
				exists := func() bool { return kubetest.Find(t, leases, corev1beta1.HeartbeatLease) != nil }
				w.eventually("the Lease", func() bool { return exists() == tc.want })
				w.settled()
				require.Equal(t, tc.want, exists())
				if tc.want {
					require.NoError(t, leases.Delete(t.Context(), corev1beta1.HeartbeatLease, metav1.DeleteOptions{}))
					if tc.user != "" {
						w.eventually("is made again", exists)
					}
				}
			})
		})
	}
}

// TestSourcesOfOneCondition: the first source that has a condition counts, and all of them wake.
func TestSourcesOfOneCondition(t *testing.T) {
	t.Parallel()
	a, b := &source{}, &source{}
	c := &Conditions{loop: loop.New(loop.Config{}), sources: map[string][]Source{}}
	c.AddSource(server, a, b)
	told := func() *metav1.Condition { return c.sourced(milan(""))[server] }
	require.Nil(t, told())
	b.says = says("False", "Second")
	require.Equal(t, "Second", told().Reason)
	a.says = says("Unknown", "First")
	require.Equal(t, "First", told().Reason)
	a.told("x")
	b.told("y")
	require.Equal(t, 2, c.loop.Len())
}

// TestHeartbeatPair: rome, the provider, hears of milan's API server by the Lease that it
// makes and milan renews. All loops of both are there.
func TestHeartbeatPair(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		const interval = 200 * time.Millisecond
		provider := newWorld(t, tenant("milan"), milan("liqo.io:peer:milan:1"))
		provider.core.PrependReactor("*", "*", kubetest.NewServer(provider.core.Tracker(), clock.RealClock{}).React)
		leases := coreinformers.NewSharedInformerFactoryWithOptions(provider.core, 0, coreinformers.WithTransform(TrimLease))
		pulse := NewPulse(PulseConfig{Interval: interval, Leases: leases.Coordination().V1().Leases(), Client: provider.core.CoordinationV1(),
			Env: loop.Env{Clock: clock.RealClock{}, Log: zaptest.NewLogger(t)}})
		provider.conditions.AddSource(server, &source{}, pulse)
		invitations := NewInvitations(InvitationsConfig{
			Base: provider.base("rome"), Interval: interval, Directory: provider.directory,
			Connections: provider.liqoInformers.Networking().V1beta1().Connections(), Leases: leases.Coordination().V1().Leases(),
		})
		provider.liqoInformers.Start(t.Context().Done())
		leases.Start(t.Context().Done())

		consumer := newWorld(t, tenant("rome"), secret("rome", "k", "rome"))
		consumer.addPeer("rome", &peer{core: provider.core})
		var mu sync.Mutex
		var down error
		set := func(err error) {
			mu.Lock()
			defer mu.Unlock()
			down = err
		}
		heartbeat := NewHeartbeat(HeartbeatConfig{
			Base: consumer.base("milan"), Interval: interval, Timeout: time.Second, Directory: consumer.directory,
			Serving: func(context.Context) error {
				mu.Lock()
				defer mu.Unlock()
				return down
			},
			Identity:    func(context.Context, string, kubernetes.Interface) error { return nil },
			Connections: consumer.liqoInformers.Networking().V1beta1().Connections(), Clock: clock.RealClock{},
		})
		consumer.liqoInformers.Start(t.Context().Done())
		kubetest.Create(t, consumer.liqo.CoreV1beta1().ForeignClusters(), &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "rome"}, Spec: corev1beta1.ForeignClusterSpec{ClusterID: "rome"}})

		provider.run()
		kubetest.Run(t, func(ctx context.Context) error { return pulse.Run(ctx, 1) })
		kubetest.Run(t, func(ctx context.Context) error { return invitations.Run(ctx, 1) })
		provider.eventually("the Lease is there", func() bool {
			return kubetest.Find(t, provider.core.CoordinationV1().Leases("liqo-tenant-milan"), corev1beta1.HeartbeatLease) != nil
		})
		require.Nil(t, meta.FindStatusCondition(provider.cluster("milan").Status.Conditions, server), "nobody has renewed it yet")
		kubetest.Run(t, consumer.directory.Run)
		kubetest.Run(t, func(ctx context.Context) error { return heartbeat.Run(ctx, 1) })

		provider.awaits(server, "True HeartbeatSeen")
		provider.awaits(ready, "True AllChecksPassed")
		set(errors.New("paused"))
		provider.awaits(server, "False HeartbeatMissed")
		provider.awaits(ready, "False HeartbeatMissed")
		set(nil)
		provider.awaits(server, "True HeartbeatSeen")
		provider.awaits(ready, "True AllChecksPassed")
		// Milan ends the peering: rome does not take its API server for down.
		require.NoError(t, consumer.core.CoreV1().Secrets("liqo-tenant-rome").Delete(t.Context(), "k", metav1.DeleteOptions{}))
		provider.awaits(server, "False EndedByPeer")
		provider.awaits(ready, "False EndedByPeer")
	})
}
