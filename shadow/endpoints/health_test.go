package endpoints

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
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
