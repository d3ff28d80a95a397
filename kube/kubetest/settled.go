package kubetest

import (
	"testing"
	"testing/synctest"
	"time"
)

// Settled lets d pass in a synctest bubble, and returns when all goroutines of the bubble
// wait: nothing is queued, and nothing is in work. A loop that was asked to work again later
// has done so within d. It returns the number of writes that the clients have recorded since
// their last ClearActions; refused writes and events count.
func Settled(d time.Duration, clients ...Recorder) (writes int) {
	time.Sleep(d)
	synctest.Wait()
	for _, c := range clients {
		for _, action := range c.Actions() {
			switch action.GetVerb() {
			case "get", "list", "watch":
			default:
				writes++
			}
		}
	}
	return writes
}

// Bubble runs a test in a synctest bubble, beside other tests. All goroutines that the test
// starts must end with t.Context, or by a function given to t.Cleanup.
func Bubble(t *testing.T, test func(*testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, test)
}
