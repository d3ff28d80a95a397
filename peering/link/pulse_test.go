package link

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	coreinformers "k8s.io/client-go/informers"
	corefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
)

const beatEvery = 2 * time.Second

// pulsed is a provider whose consumer is milan, with the clock of a synctest bubble.
type pulsed struct {
	t     *testing.T
	core  *corefake.Clientset
	pulse *Pulse
	fc    *corev1beta1.ForeignCluster

	mu     sync.Mutex
	away   bool // the API server of the provider does not answer
	reads  int
	writes int
	turns  int // of the verdict
}

func newPulsed(t *testing.T, lease *coordinationv1.Lease) *pulsed {
	p := &pulsed{t: t, core: corefake.NewClientset(lease), fc: milan("liqo.io:peer:milan:1")}
	p.core.PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.reads++
		if p.away {
			return true, nil, apierrors.NewInternalError(fmt.Errorf("away"))
		}
		return false, nil, nil
	})
	factory := coreinformers.NewSharedInformerFactoryWithOptions(p.core, 0, coreinformers.WithTransform(TrimLease))
	p.pulse = NewPulse(PulseConfig{Interval: beatEvery, Leases: factory.Coordination().V1().Leases(), Client: p.core.CoordinationV1(),
		Env: loop.Env{Clock: clock.RealClock{}, Log: zaptest.NewLogger(t)}})
	p.pulse.Subscribe(func(id string) {
		require.Equal(t, "milan", id)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.turns++
	})
	ctx, cancel := context.WithCancel(t.Context())
	factory.Start(ctx.Done())
	done := make(chan struct{})
	go func() {
		defer close(done)
		require.NoError(t, p.pulse.Run(ctx, 1))
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		factory.Shutdown()
	})
	synctest.Wait()
	return p
}

func heartbeatLease(renewedAt *metav1.MicroTime) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1beta1.TenantNamespace("milan"), Name: corev1beta1.HeartbeatLease, ResourceVersion: "1"},
		Spec: coordinationv1.LeaseSpec{RenewTime: renewedAt}}
}

// renew is what the consumer writes, by a clock that is five minutes behind.
func (p *pulsed) renew() {
	p.write(heartbeatLease(new(metav1.NewMicroTime(time.Now().Add(-5 * time.Minute)))))
}

func (p *pulsed) write(l *coordinationv1.Lease) {
	p.t.Helper()
	p.mu.Lock()
	p.writes++
	l.ResourceVersion = fmt.Sprint(1 + p.writes)
	p.mu.Unlock()
	kubetest.Update(p.t, p.core.CoordinationV1().Leases(l.Namespace), l)
	synctest.Wait()
}

func (p *pulsed) setAway(away bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = away
}

func (p *pulsed) count() (reads, turns int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reads, p.turns
}

// is returns the condition as "Status Reason", "" if there is none.
func (p *pulsed) is() string {
	synctest.Wait()
	c := p.pulse.Condition(p.fc)
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + c.Reason
}

// renewing renews n times, an interval after the other.
func (p *pulsed) renewing(n int) {
	for range n {
		time.Sleep(beatEvery) // the bubble's clock
		p.renew()
	}
}

func TestPulse(t *testing.T) {
	t.Parallel()
	const up, down, awaited = "True HeartbeatSeen", "False HeartbeatMissed", "Unknown HeartbeatAwaited"
	for name, story := range map[string]struct {
		lease *coordinationv1.Lease
		tell  func(t *testing.T, p *pulsed)
	}{
		"nobody renews": {heartbeatLease(nil), func(t *testing.T, p *pulsed) {
			time.Sleep(time.Hour)
			require.Empty(t, p.is())
			reads, turns := p.count()
			require.Zero(t, reads+turns)
		}},
		"the peer has written that it ended its use, and comes back": {heartbeatLease(nil), func(t *testing.T, p *pulsed) {
			p.renewing(1)
			p.write(heartbeatLease(nil))
			require.Empty(t, p.is(), "it is checked in another way")
			last := heartbeatLease(nil)
			last.Spec.AcquireTime = new(metav1.NowMicro())
			p.write(last)
			require.Equal(t, "False EndedByPeer", p.is())
			_, turns := p.count()
			require.Equal(t, 3, turns)
			p.renewing(1)
			require.Equal(t, up, p.is())
		}},
		"at the start, and nobody renews": {heartbeatLease(new(metav1.NewMicroTime(time.Now().Add(time.Hour)))), func(t *testing.T, p *pulsed) {
			time.Sleep(missedBeats*beatEvery - time.Millisecond)
			require.Equal(t, awaited, p.is())
			time.Sleep(time.Second)
			require.Equal(t, down, p.is())
		}},
		"what was told before stands until there is a verdict": {heartbeatLease(new(metav1.NowMicro())), func(t *testing.T, p *pulsed) {
			p.fc.Status.Conditions = []metav1.Condition{{Type: corev1beta1.ConditionAPIServer, Status: "False", Reason: corev1beta1.ReasonHeartbeatMissed}}
			require.Equal(t, down, p.is())
			p.renewing(1)
			require.Equal(t, up, p.is())
		}},
		"what another source told does not": {heartbeatLease(new(metav1.NowMicro())), func(t *testing.T, p *pulsed) {
			p.fc.Status.Conditions = []metav1.Condition{{Type: corev1beta1.ConditionAPIServer, Status: "True", Reason: "PeerReportsUp"}}
			require.Equal(t, awaited, p.is())
		}},
		"the last renewal is followed by silence, and then by others": {heartbeatLease(nil), func(t *testing.T, p *pulsed) {
			p.renewing(30)
			require.Equal(t, up, p.is())
			reads, turns := p.count()
			require.Zero(t, reads, "a peer that renews in time is not read")
			require.Equal(t, 1, turns)
			time.Sleep(missedBeats*beatEvery - time.Millisecond)
			require.Equal(t, up, p.is())
			time.Sleep(time.Second)
			require.Equal(t, down, p.is(), "within 7 s")
			reads, _ = p.count()
			time.Sleep(time.Hour)
			later, _ := p.count()
			require.Equal(t, reads, later, "a peer that is down is not read")
			p.renewing(1)
			require.Equal(t, down, p.is(), "one is no return")
			p.renewing(1)
			require.Equal(t, up, p.is())
			_, turns = p.count()
			require.Equal(t, 3, turns)
		}},
		"two are lost": {heartbeatLease(nil), func(t *testing.T, p *pulsed) {
			for range 10 {
				p.renewing(1)
				time.Sleep(2*beatEvery - 100*time.Millisecond)
				require.Equal(t, up, p.is())
			}
			_, turns := p.count()
			require.Equal(t, 1, turns)
		}},
		"this cluster's own API server is away": {heartbeatLease(nil), func(t *testing.T, p *pulsed) {
			p.renewing(1)
			p.setAway(true)
			time.Sleep(10 * time.Minute)
			p.setAway(false)
			require.Equal(t, up, p.is())
			p.renewing(2)
			require.Equal(t, up, p.is())
			_, turns := p.count()
			require.Equal(t, 1, turns)
		}},
		"a flood of writes": {heartbeatLease(nil), func(t *testing.T, p *pulsed) {
			for range 1000 {
				p.renew()
			}
			_, turns := p.count()
			require.Equal(t, 1, turns, "wakes nobody")
		}},
		"a peer that takes it back": {heartbeatLease(nil), func(t *testing.T, p *pulsed) {
			p.renewing(2)
			p.write(heartbeatLease(nil))
			require.Empty(t, p.is())
			time.Sleep(time.Hour)
			require.Empty(t, p.is())
		}},
		"a Lease that is deleted": {heartbeatLease(nil), func(t *testing.T, p *pulsed) {
			p.renewing(2)
			require.NoError(t, p.core.CoordinationV1().Leases(corev1beta1.TenantNamespace("milan")).Delete(t.Context(), corev1beta1.HeartbeatLease, metav1.DeleteOptions{}))
			require.Empty(t, p.is())
		}},
		"a peer without rights": {heartbeatLease(nil), func(t *testing.T, p *pulsed) {
			p.renewing(2)
			p.fc.Spec.UserName = ""
			require.Empty(t, p.is())
		}},
		"other Leases": {heartbeatLease(nil), func(t *testing.T, p *pulsed) {
			for _, key := range [][2]string{{"liqo-tenant-milan", "reflection"}, {"kube-system", corev1beta1.HeartbeatLease}} {
				l := heartbeatLease(new(metav1.NowMicro()))
				l.Namespace, l.Name = key[0], key[1]
				kubetest.Create(t, p.core.CoordinationV1().Leases(key[0]), l)
			}
			time.Sleep(time.Minute)
			require.Empty(t, p.is())
			reads, turns := p.count()
			require.Zero(t, reads+turns)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { story.tell(t, newPulsed(t, story.lease)) })
		})
	}
}

// TestTrimLease: what a peer writes is not kept.
func TestTrimLease(t *testing.T) {
	t.Parallel()
	l := heartbeatLease(new(metav1.NowMicro()))
	l.UID, l.Annotations, l.Labels, l.Finalizers = "u", map[string]string{"a": "b"}, map[string]string{"c": "d"}, []string{"e"}
	l.Spec.HolderIdentity = new(string)
	got, err := TrimLease(l)
	require.NoError(t, err)
	require.Equal(t, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: l.Name, UID: "u", ResourceVersion: "1"},
		Spec:       coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{}},
	}, got)
	got, err = TrimLease("another")
	require.NoError(t, err)
	require.Equal(t, "another", got)
}
