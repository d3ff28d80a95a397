package lease

import (
	"testing"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/liqod/liqod/kube/kubetest"
)

func TestWitnessTellsOfAnswers(t *testing.T) {
	client := fake.NewClientset()
	version := "7"
	client.PrependReactor("*", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if version == "" {
			return false, nil, nil // there is no Lease
		}
		return true, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "l", ResourceVersion: version}}, nil
	})
	var saw []string
	leases := versionReporter{client.CoordinationV1(), func(v string) { saw = append(saw, v) }}.Leases("ns")
	lease := kubetest.Create(t, leases, &coordinationv1.Lease{})
	version = "8"
	kubetest.Update(t, leases, lease)
	version = "9"
	kubetest.Get(t, leases, "l")
	version = ""
	_, err := leases.Get(t.Context(), "l", metav1.GetOptions{})
	require.Error(t, err)
	require.Equal(t, []string{"7", "8", "9"}, saw)
}
