package link

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	corefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	"github.com/liqod/liqod/health"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
)

// TestVouch: each peer with rights here sees that the controller runs, and a peer without rights
// has no Lease. A controller that takes over deletes what an earlier one has left.
func TestVouch(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		turin := milan("")
		turin.Name, turin.Spec.ClusterID = "turin", "turin"
		left := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-turin", Name: corev1beta1.ControllerLease, UID: "left"}}
		w := newWorld(t, tenant("milan"), milan("liqo.io:peer:milan:1"), tenant("turin"), turin, left)
		v := NewVouch(VouchConfig{Base: w.base("rome"), Clock: clock.RealClock{}})
		w.liqoInformers.Start(t.Context().Done())
		w.coreInformers.Start(t.Context().Done())
		kubetest.Run(t, v.Run)
		lease := func(peer string) *coordinationv1.Lease {
			return kubetest.Find(t, w.core.CoordinationV1().Leases(corev1beta1.TenantNamespace(peer)), corev1beta1.ControllerLease)
		}
		synctest.Wait()
		require.Nil(t, lease("turin"))
		first := lease("milan").Spec.RenewTime
		time.Sleep(vouchEvery)
		synctest.Wait()
		require.Equal(t, vouchEvery, lease("milan").Spec.RenewTime.Sub(first.Time))

		kubetest.Update(t, w.liqo.CoreV1beta1().ForeignClusters(), milan(""))
		time.Sleep(vouchEvery)
		synctest.Wait()
		require.Nil(t, lease("milan"), "it has no rights any more")
		writes := kubetest.Settled(time.Minute, w.core)
		require.Equal(t, writes, kubetest.Settled(time.Minute, w.core), "nothing is written for peers without rights")
	})
}

// TestListen: a provider's controller that renews its Lease no more is silent after three
// renewals that it has missed. One that has never had a Lease is not judged.
func TestListen(t *testing.T) {
	core, clk := corefake.NewClientset(), clocktesting.NewFakeClock(time.Now())
	leases := core.CoordinationV1().Leases("liqo-tenant-rome")
	c := NewCheck(CheckConfig{Provider: core, Namespace: "liqo-tenant-rome", Env: loop.Env{Clock: clk}})
	for range 10 {
		require.False(t, c.listen(t.Context()), "it has no Lease")
		clk.Step(vouchEvery)
	}
	lease := kubetest.Create(t, leases, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: corev1beta1.ControllerLease, ResourceVersion: "1"}})
	renew := func() {
		lease.ResourceVersion += "1"
		kubetest.Update(t, leases, lease)
	}
	for range 3 {
		require.False(t, c.listen(t.Context()))
		require.Empty(t, c.Silent())
		clk.Step(vouchEvery)
		renew()
	}
	require.False(t, c.listen(t.Context()))
	for range missedBeats - 1 {
		clk.Step(vouchEvery)
		require.False(t, c.listen(t.Context()))
	}
	clk.Step(vouchEvery)
	require.True(t, c.listen(t.Context()))
	require.Contains(t, c.Silent(), "no controller of the provider has renewed Lease liqo-tenant-rome/liqod-provider there for 30s")
	renew()
	require.True(t, c.listen(t.Context()), "a controller that has just renewed its Lease runs")
	require.Empty(t, c.Silent())
}

// TestSilenceIsWatched: the Lease of a silent controller is read at each probe, so that its return
// is noticed at once. While the controller runs, every tenth probe is enough.
func TestSilenceIsWatched(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Now())
	core := corefake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: "milan"}},
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-rome", Name: corev1beta1.ControllerLease, ResourceVersion: "1"}})
	c := NewCheck(CheckConfig{
		Provider: core, Namespace: "liqo-tenant-rome", RecordedUID: func(context.Context) (types.UID, error) { return "milan", nil },
		Interval: time.Second, Timeout: time.Second, OnState: func(ProviderState) {},
		Env: loop.Env{Clock: clk, Log: zaptest.NewLogger(t)},
	})
	c.set(nil)
	for c.Silent() == "" {
		next := c.identify(t.Context())
		require.Equal(t, c.Silent() != "", next == time.Second, "the next read is after %s", next)
		clk.Step(next)
	}
	require.Equal(t, time.Second, c.identify(t.Context()))
}

const patience = 30 * time.Second

// witnessed is a cluster with the peer milan, and the clock of a synctest bubble.
type witnessed struct {
	t    *testing.T
	core *corefake.Clientset
	liqo *fake.Clientset

	mu     sync.Mutex
	away   error // what the API server answers
	writes int
	// networks are what living gateways report.
	networks map[string]metav1.Condition
}

func newWitnessed(t *testing.T) *witnessed {
	fc := milan("")
	for _, c := range []struct{ kind, status, reason string }{
		{ready, "True", "AllChecksPassed"}, {server, "False", "APIServerNotReady"}, {corev1beta1.ConditionNetwork, "Unknown", "NoGateway"}, {authenticated, "True", "Enrolled"},
	} {
		fc.Status.Conditions = append(fc.Status.Conditions, metav1.Condition{Type: c.kind, Status: metav1.ConditionStatus(c.status), Reason: c.reason, ObservedGeneration: 7})
	}
	w := &witnessed{t: t, core: corefake.NewClientset(), liqo: fake.NewSimpleClientset(fc, &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "new"}})}
	w.core.PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.away != nil, nil, w.away
	})
	witness := NewWitness(WitnessConfig{Leases: w.core.CoordinationV1(), Namespace: "liqod", Name: "liqod-controller", Period: 2 * time.Second, Patience: patience,
		Networks: func(context.Context) map[string]metav1.Condition {
			w.mu.Lock()
			defer w.mu.Unlock()
			return maps.Clone(w.networks)
		},
		Liqo: w.liqo, Clock: clock.RealClock{}, Log: zaptest.NewLogger(t)})
	kubetest.Run(t, witness.Run)
	return w
}

// renewing renews the controller's Lease for n seconds.
func (w *witnessed) renewing(n int) {
	w.t.Helper()
	leases := w.core.CoordinationV1().Leases("liqod")
	for range n {
		w.writes++
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "liqod", Name: "liqod-controller", ResourceVersion: fmt.Sprint(w.writes)}}
		_, err := leases.Update(w.t.Context(), l, metav1.UpdateOptions{})
		if apierrors.IsNotFound(err) {
			_, err = leases.Create(w.t.Context(), l, metav1.CreateOptions{})
		}
		require.NoError(w.t, err)
		time.Sleep(time.Second) // the bubble's clock
	}
}

func (w *witnessed) answers(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.away = err
}

// report sets what living gateways report of the network to milan; "": no gateway lives.
func (w *witnessed) report(status metav1.ConditionStatus, reason string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.networks = nil
	if status != "" {
		w.networks = map[string]metav1.Condition{"milan": {Type: corev1beta1.ConditionNetwork, Status: status, Reason: reason}}
	}
}

// is returns the conditions as "Status Reason", by type.
func (w *witnessed) is() map[string]string {
	synctest.Wait()
	fc := kubetest.Get(w.t, w.liqo.CoreV1beta1().ForeignClusters(), "milan")
	out := map[string]string{}
	for _, c := range fc.Status.Conditions {
		out[c.Type] = string(c.Status) + " " + c.Reason
		require.EqualValues(w.t, 7, c.ObservedGeneration)
	}
	return out
}

func TestWitness(t *testing.T) {
	t.Parallel()
	before := map[string]string{ready: "True AllChecksPassed", server: "False APIServerNotReady", corev1beta1.ConditionNetwork: "Unknown NoGateway", authenticated: "True Enrolled"}
	doubted := map[string]string{ready: "Unknown NoController", server: "Unknown NoController", corev1beta1.ConditionNetwork: "Unknown NoGateway", authenticated: "True Enrolled"}
	for name, story := range map[string]func(t *testing.T, w *witnessed){
		"a take-over": func(t *testing.T, w *witnessed) {
			for range 10 {
				w.renewing(20)
				time.Sleep(20 * time.Second)
			}
			require.Equal(t, before, w.is())
		},
		"its end": func(t *testing.T, w *witnessed) {
			w.renewing(60)
			time.Sleep(patience - 2*time.Second)
			require.Equal(t, before, w.is())
			time.Sleep(5 * time.Second)
			require.Equal(t, doubted, w.is())
			fc := kubetest.Get(t, w.liqo.CoreV1beta1().ForeignClusters(), "milan")
			require.Contains(t, meta.FindStatusCondition(fc.Status.Conditions, server).Message, "it was False (APIServerNotReady) before")
			n := len(w.liqo.Actions())
			time.Sleep(time.Hour)
			synctest.Wait()
			require.Len(t, w.liqo.Actions(), n, "once")
		},
		"it comes back, and ends again": func(t *testing.T, w *witnessed) {
			w.renewing(10)
			time.Sleep(time.Minute)
			require.Equal(t, doubted, w.is())
			w.renewing(10)
			fc := kubetest.Get(t, w.liqo.CoreV1beta1().ForeignClusters(), "milan")
			meta.SetStatusCondition(&fc.Status.Conditions, metav1.Condition{Type: ready, Status: "True", Reason: "AllChecksPassed", ObservedGeneration: 7})
			kubetest.UpdateStatus(t, w.liqo.CoreV1beta1().ForeignClusters(), fc)
			time.Sleep(time.Minute)
			require.Equal(t, doubted, w.is())
		},
		"gateways vouch for the network": func(t *testing.T, w *witnessed) {
			w.renewing(10)
			w.report("True", "AllTunnelsUp")
			time.Sleep(10 * time.Minute)
			network := func() string { return w.is()[corev1beta1.ConditionNetwork] }
			require.Equal(t, "True AllTunnelsUp", network())
			require.Equal(t, "Unknown NoController", w.is()[server])
			n := len(w.liqo.Actions())
			time.Sleep(time.Hour)
			synctest.Wait()
			require.Len(t, w.liqo.Actions(), n, "once")
			w.report("False", "TunnelDown")
			time.Sleep(2 * time.Second)
			require.Equal(t, "False TunnelDown", network())
			w.report("", "")
			time.Sleep(2 * time.Second)
			require.Equal(t, "Unknown NoController", network())
			w.report("True", "AllTunnelsUp")
			time.Sleep(2 * time.Second)
			require.Equal(t, "True AllTunnelsUp", network())
		},
		"there was none": func(t *testing.T, w *witnessed) {
			time.Sleep(patience - time.Second)
			require.Equal(t, before, w.is())
			time.Sleep(3 * time.Second)
			require.Equal(t, doubted, w.is())
		},
		"the API server is away": func(t *testing.T, w *witnessed) {
			w.renewing(10)
			w.answers(errors.New("away"))
			time.Sleep(time.Hour)
			w.answers(nil)
			require.Equal(t, before, w.is())
			time.Sleep(patience - 3*time.Second)
			w.renewing(60)
			require.Equal(t, before, w.is())
		},
		"a write that fails is repeated": func(t *testing.T, w *witnessed) {
			w.renewing(10)
			failures := 3
			w.liqo.PrependReactor("update", "foreignclusters", func(clienttesting.Action) (bool, runtime.Object, error) {
				failures--
				return failures >= 0, nil, errors.New("not now")
			})
			time.Sleep(time.Minute)
			require.Equal(t, doubted, w.is())
		},
		"somebody else has just written": func(t *testing.T, w *witnessed) {
			w.renewing(10)
			w.liqo.PrependReactor("update", "foreignclusters", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewConflict(corev1beta1.Resource("foreignclusters"), "milan", nil)
			})
			time.Sleep(time.Hour)
			require.Equal(t, before, w.is())
			n := 0
			for _, a := range w.liqo.Actions() {
				if a.GetVerb() == "update" {
					n++
				}
			}
			require.Equal(t, 1, n)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { story(t, newWitnessed(t)) })
		})
	}
}

// TestAfterNoController: a controller that comes back begins anew: the verdict of before is
// not shown, and what is Unknown is so from then on.
func TestAfterNoController(t *testing.T) {
	t.Parallel()
	long := metav1.NewTime(time.Unix(1000, 0))
	fc := milan("")
	for _, kind := range []string{server, outgoing, ready} {
		fc.Status.Conditions = append(fc.Status.Conditions, metav1.Condition{Type: kind, Status: "Unknown", Reason: corev1beta1.ReasonNoController, LastTransitionTime: long})
	}
	f := facts{clusterID: "milan", ownID: "rome", now: time.Unix(9000, 0), credentials: true}
	fc.Status = f.status(fc)
	for _, kind := range []string{server, ready} {
		c := meta.FindStatusCondition(fc.Status.Conditions, kind)
		require.Equal(t, "Unknown Probing", string(c.Status)+" "+c.Reason)
		require.Equal(t, metav1.NewTime(f.now), c.LastTransitionTime)
	}
	begin := fc.Status
	f.now = f.now.Add(time.Minute)
	require.Equal(t, begin, f.status(fc), "nothing is written again")
	f.state, f.uid = health.State{Verdict: health.Up}, "u"
	require.True(t, meta.IsStatusConditionTrue(f.status(fc).Conditions, server))
}
