package endpoints

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/health"
)

func TestWell(t *testing.T) {
	server := func(s metav1.ConditionStatus, since time.Duration) clusterMod {
		return check(corev1beta1.ConditionAPIServer, s, ago(since))
	}
	network := func(s metav1.ConditionStatus, since time.Duration) clusterMod {
		return check(corev1beta1.ConditionNetwork, s, ago(since))
	}
	const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	for name, tc := range map[string]struct {
		mods  []clusterMod
		last  bool
		want  bool
		again time.Duration
	}{
		"no check applies":             {want: true},
		"Ready says nothing":           {mods: []clusterMod{check(corev1beta1.ConditionReady, no, ago(0))}, want: true},
		"API server up":                {mods: []clusterMod{server(yes, 0)}, want: true},
		"API server down":              {mods: []clusterMod{server(no, 0)}, last: true},
		"network up, server unchecked": {mods: []clusterMod{network(yes, 0)}, want: true},
		"network down":                 {mods: []clusterMod{server(yes, 0), network(no, 0)}, last: true},
		"both up":                      {mods: []clusterMod{server(yes, 0), network(yes, 0)}, want: true},
		"unknown keeps ready":          {mods: []clusterMod{server(unknown, 10*time.Second)}, last: true, want: true, again: 20 * time.Second},
		"unknown keeps not ready":      {mods: []clusterMod{server(unknown, 10*time.Second)}, again: 20 * time.Second},
		"unknown for too long":         {mods: []clusterMod{server(unknown, testGrace)}, last: true},
		"unknown since the future":     {mods: []clusterMod{server(unknown, -time.Hour)}, last: true, want: true, again: testGrace},
		"unknown and down":             {mods: []clusterMod{server(unknown, 0), network(no, 0)}, last: true},
		"down and unknown":             {mods: []clusterMod{server(no, 0), network(unknown, 0)}, last: true},
		"unknown and up":               {mods: []clusterMod{server(unknown, 0), network(yes, 0)}, last: true, want: true, again: testGrace},
		"the earlier end counts":       {mods: []clusterMod{server(unknown, 5*time.Second), network(unknown, 20*time.Second)}, last: true, want: true, again: 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			ready, again := well(peer(tc.mods...).Status.Conditions, tc.last, testGrace, testTime())
			require.Equal(t, tc.want, ready)
			require.Equal(t, tc.again, again)
		})
	}
}

// TestATurnOfAVerdict: a peer whose verdict turns 50 times a second costs each EndpointSlice one
// write in ten seconds at most, and an outage is written at once.
func TestATurnOfAVerdict(t *testing.T) {
	t.Parallel()
	r := newRig(t, newShadow())
	var dwell health.Dwell
	turn := func(v health.Verdict) []string {
		counts, _ := dwell.Pass(v, r.clock.Now())
		status := metav1.ConditionTrue
		if counts == health.Down {
			status = metav1.ConditionFalse
		}
		r.peer(check(corev1beta1.ConditionAPIServer, status, metav1.NewTime(r.clock.Now())))
		return r.settle()
	}
	turn(health.Up)
	require.Equal(t, []string{"update"}, turn(health.Down), "at once")
	writes := 0
	for i := range 50 * 60 {
		r.clock.SetTime(r.clock.Now().Add(20 * time.Millisecond))
		writes += len(turn([]health.Verdict{health.Up, health.Down}[i%2]))
	}
	require.LessOrEqual(t, writes, 6)
	r.clock.SetTime(r.clock.Now().Add(time.Minute))
	require.Equal(t, []string{"update"}, turn(health.Up))
}
