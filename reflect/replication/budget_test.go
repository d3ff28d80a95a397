package replication

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
)

// affording returns a pair with the budget of milan, which does not run.
func (w *world) affording(clock *clocktesting.FakeClock, delayed func(string)) *pair[*nm] {
	cfg := w.r.cfg
	cfg.Clock, cfg.budget, cfg.Delayed = clock, w.r.budget("milan"), delayed
	return newPair(cfg, namespaceMaps("rome", w.home), cfg.Maps.Informer(), "milan", *w.way("1"))
}

// TestAPeerThatAnswersAllTheTime: a provider changes the status of the NamespaceMap each
// second, with as much text as is copied. After a burst this cluster writes no
// more than the budget, and what it writes is the newest.
func TestAPeerThatAnswersAllTheTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, nil)
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	delayed := 0
	p := w.affording(clock, func(string) { delayed++ })
	home := homeMap(map[string]string{"web": "web-rome"})
	kubetest.Create(t, w.home.OffloadingV1beta1().NamespaceMaps(home.Namespace), home)
	says := func(n int) error {
		remote := remoteMap(map[string]string{"web": "web-rome"})
		remote.Status.ObservedGeneration = remote.Generation
		for i := range 2 * maxConditions {
			remote.Status.Conditions = append(remote.Status.Conditions, metav1.Condition{Type: fmt.Sprint("C", i), Status: metav1.ConditionTrue, Reason: "Loud",
				Message: fmt.Sprint(n, strings.Repeat("x", 4<<10)), LastTransitionTime: metav1.Unix(1, 0)})
		}
		return p.equal(t.Context(), w.own(), remote)
	}
	attack := func(d time.Duration) {
		for n := range int(d / time.Second) {
			if err := says(n); err != nil {
				require.ErrorContains(t, err, "again in")
			}
			clock.Step(time.Second)
		}
	}
	attack(5 * time.Minute) // the burst
	w.home.ClearActions()
	attack(5 * time.Minute)
	written := 0
	for _, a := range w.home.Actions() {
		if u, ok := a.(clienttesting.UpdateAction); ok {
			body, err := json.Marshal(u.GetObject())
			require.NoError(t, err)
			written += len(body)
		}
	}
	require.NotZero(t, written)
	require.Less(t, written, 6*peerBytesPerMinute, "in 5 minutes")
	require.NotZero(t, delayed)
	require.Len(t, w.own().Status.Conditions, maxConditions)

	wait := says(-1)
	require.Error(t, wait)
	clock.Step(time.Minute)
	require.NoError(t, says(-2))
	require.True(t, strings.HasPrefix(w.own().Status.Conditions[0].Message, "-2x"), "the newest is written")
}

// TestABudgetOutlastsTheConnection: a peer that closes its connections gets no new burst.
func TestABudgetOutlastsTheConnection(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, nil)
	require.Same(t, w.r.budget("milan"), w.r.budget("milan"))
	require.NotSame(t, w.r.budget("milan"), w.r.budget("paris"))
}

// TestHonestAnswersAreNotDelayed: a provider that creates 200 namespaces, and answers after
// each of them.
func TestHonestAnswersAreNotDelayed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, nil)
	p := w.affording(clocktesting.NewFakeClock(time.Now()), nil)
	home := homeMap(map[string]string{})
	home.Status.CurrentMapping = map[string]offloadingv1beta1.RemoteNamespaceStatus{}
	for i := range 200 {
		ns := fmt.Sprintf("shop-%d", i)
		home.Status.CurrentMapping[ns] = accepted(ns + "-rome")
		require.NoError(t, p.afford(home, 0), i)
	}
}

// TestSteadyNamespacesAreNotDelayed: in each second of a long run of tests, this cluster offloads a
// namespace and takes back another. The provider answers each change twice, and no answer waits.
func TestSteadyNamespacesAreNotDelayed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, nil)
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	p := w.affording(clock, func(string) { require.Fail(t, "delayed") })
	desired := map[string]string{}
	for i := range 150 {
		desired[fmt.Sprintf("end-to-end-tests-%04d", i)] = fmt.Sprintf("end-to-end-tests-%04d-rome", i)
	}
	home := homeMap(desired)
	maps := w.home.OffloadingV1beta1().NamespaceMaps(home.Namespace)
	kubetest.Create(t, maps, home)
	for i := range 15 * 60 {
		clock.Step(time.Second)
		gone, made := fmt.Sprintf("end-to-end-tests-%04d", i), fmt.Sprintf("end-to-end-tests-%04d", i+150)
		home := w.own()
		delete(home.Spec.DesiredMapping, gone)
		home.Spec.DesiredMapping[made] = made + "-rome"
		home.Generation++
		kubetest.Update(t, maps, home)
		for _, phase := range []offloadingv1beta1.MappingPhase{offloadingv1beta1.MappingCreationLoopBackOff, offloadingv1beta1.MappingAccepted} {
			remote := remoteMap(home.Spec.DesiredMapping)
			remote.Status.ObservedGeneration = remote.Generation
			remote.Status.CurrentMapping = map[string]offloadingv1beta1.RemoteNamespaceStatus{}
			for ns, name := range home.Spec.DesiredMapping {
				remote.Status.CurrentMapping[ns] = accepted(name)
			}
			remote.Status.CurrentMapping[made] = offloadingv1beta1.RemoteNamespaceStatus{RemoteNamespace: made + "-rome", Phase: phase}
			require.NoError(t, p.equal(t.Context(), w.own(), remote), "second %d", i)
			require.Equal(t, phase, w.own().Status.CurrentMapping[made].Phase)
		}
	}
}
