package lease

import (
	"testing"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
)

func TestRunnerTellsOfAnswers(t *testing.T) {
	client := fake.NewClientset()
	version, holder := "7", "self"
	answer := func() *coordinationv1.Lease {
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: "l", ResourceVersion: version}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder},
		}
	}
	client.PrependReactor("*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		if version == "" {
			return false, nil, nil // there is no Lease
		}
		return true, answer(), nil
	})
	var saw []string
	r, err := New(Config{
		Client: client.CoordinationV1(), Namespace: "ns", Name: "l", Identity: holder, Duration: duration, RenewDeadline: renewDeadline,
		RetryPeriod: retryPeriod, Clock: clock.RealClock{}, Saw: func(v string) { saw = append(saw, v) },
	})
	require.NoError(t, err)
	held, err := r.write(t.Context(), nil)
	require.NoError(t, err)
	version = "8"
	_, err = r.write(t.Context(), held)
	require.NoError(t, err)
	version = "9"
	require.NoError(t, r.giveBack(t.Context()), "it reads and writes")

	version, holder = "10", "other"
	c := &candidacy{clock: r.cfg.Clock}
	c.see(answer())
	events := watch.NewFakeWithChanSize(2, false)
	client.PrependWatchReactor("leases", clienttesting.DefaultWatchReactor(events, nil))
	version = "11"
	events.Modify(answer())
	version = "12"
	events.Delete(answer())
	require.NoError(t, r.follow(t.Context(), c))

	version = ""
	_, err = r.get(t.Context())
	require.Error(t, err)
	require.Equal(t, []string{"7", "8", "9", "9", "11", "12"}, saw)
}
