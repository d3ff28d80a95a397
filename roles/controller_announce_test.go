package roles

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// A change of the main condition has an event, and other changes have none.
func TestAnnouncements(t *testing.T) {
	t.Parallel()
	peer := func(conditions ...metav1.Condition) *corev1beta1.ForeignCluster {
		return &corev1beta1.ForeignCluster{Status: corev1beta1.ForeignClusterStatus{Conditions: conditions}}
	}
	offloading := func(conditions ...metav1.Condition) *offloadingv1beta1.NamespaceOffloading {
		return &offloadingv1beta1.NamespaceOffloading{Status: offloadingv1beta1.NamespaceOffloadingStatus{Conditions: conditions}}
	}
	is := func(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
	}
	well := is(corev1beta1.ConditionReady, metav1.ConditionTrue, "AllChecksPassed", "all checks pass")
	down := is(corev1beta1.ConditionReady, metav1.ConditionFalse, "APIServerNotReady", "timeout")
	clk := clocktesting.NewFakeClock(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC))
	since := func(age time.Duration, condition metav1.Condition) *corev1beta1.ForeignCluster {
		fc := peer(condition)
		fc.CreationTimestamp = metav1.NewTime(clk.Now().Add(-age))
		return fc
	}
	begun := func(condition metav1.Condition) *corev1beta1.ForeignCluster { return since(beginning-1, condition) }
	for name, tc := range map[string]struct {
		before, now any
		want        string
	}{
		"a peer goes":              {peer(well), peer(down), "Warning APIServerNotReady timeout"},
		"a peer comes":             {peer(down), peer(well), "Normal AllChecksPassed all checks pass"},
		"its first condition":      {peer(), peer(well), "Normal AllChecksPassed all checks pass"},
		"unknown":                  {peer(well), peer(is(corev1beta1.ConditionReady, metav1.ConditionUnknown, "NoController", "stopped")), "Warning NoController stopped"},
		"another reason":           {peer(down), peer(is(corev1beta1.ConditionReady, metav1.ConditionFalse, "TunnelDown", "silent")), "Warning TunnelDown silent"},
		"it has begun long ago":    {nil, since(beginning, down), "Warning APIServerNotReady timeout"},
		"it begins":                {nil, begun(down), "Normal APIServerNotReady timeout"},
		"its next step":            {begun(down), begun(is(corev1beta1.ConditionReady, metav1.ConditionFalse, "TunnelDown", "silent")), "Normal TunnelDown silent"},
		"it is refused":            {begun(down), begun(is(corev1beta1.ConditionReady, metav1.ConditionFalse, corev1beta1.ReasonTokenRefused, "used up")), "Warning TokenRefused used up"},
		"new, and goes":            {begun(well), begun(down), "Warning APIServerNotReady timeout"},
		"other words":              {peer(down), peer(is(corev1beta1.ConditionReady, metav1.ConditionFalse, "APIServerNotReady", "refused")), ""},
		"another condition":        {peer(well), peer(well, is(corev1beta1.ConditionNetwork, metav1.ConditionFalse, "Down", "")), ""},
		"no condition":             {peer(), peer(), ""},
		"a namespace is offloaded": {offloading(is(offloadingv1beta1.RemoteNamespaceReady, metav1.ConditionFalse, "InProgress", "asked")), offloading(is(offloadingv1beta1.RemoteNamespaceReady, metav1.ConditionTrue, "Ready", "it stands")), "Normal Ready it stands"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			recorder := record.NewFakeRecorder(1)
			(&controller{env: Env{Clock: clk}, events: recorder}).announce(tc.before, tc.now)
			have := ""
			select {
			case have = <-recorder.Events:
			default:
			}
			require.Equal(t, tc.want, have)
		})
	}
}
