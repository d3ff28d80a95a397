package kinds

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// TestSilentControllerIsReportedAfterAWait: a provider's controller that is back has not shown so
// to the vkubelet yet when it creates the first pods. Such a pod has no event; one that no
// controller creates has it after the wait.
func TestSilentControllerIsReportedAfterAWait(t *testing.T) {
	for _, returns := range []bool{true, false} {
		t.Run(fmt.Sprint("the controller returns: ", returns), func(t *testing.T) {
			inTokenSite(t, func(s *tokenSite) {
				var back atomic.Bool
				s.silent = func() string {
					if back.Load() {
						return ""
					}
					return "no controller"
				}
				s.add(s.home.Tracker(), localPod(boundNow))
				s.run()
				s.settle(silentPatience / 2)
				require.NotNil(t, s.shadow(t))
				require.Empty(t, s.local(t).Status.Reason)
				back.Store(returns)
				if returns {
					s.pods.Resync() // as the check does when the controller is back
				}
				s.settle(time.Minute)
				if returns {
					require.Empty(t, s.local(t).Status.Reason)
					require.Empty(t, s.events.Events)
					return
				}
				require.Equal(t, offloadingv1beta1.ReasonControllerSilent, s.local(t).Status.Reason)
				require.Len(t, s.events.Events, 1)
				require.Contains(t, <-s.events.Events, offloadingv1beta1.ReasonControllerSilent)
			})
		})
	}
}
