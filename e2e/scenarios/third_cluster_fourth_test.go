package scenarios

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqod/liqod/kube/kubetest"
)

// fourth: another cluster becomes one of them, and leaves again, while milan asks turin through rome:
// no request fails.
func (w hubWorld) fourth(t *testing.T) {
	paris := w.more[0]
	pods := w.settled(t)
	asking := boundPod("asks")
	tolerations := asking.Spec.Tolerations
	asking.Spec = testSpec(1)
	asking.Spec.Containers[0].Args = []string{"load", "http://" + pods["turin"].seen["milan"] + ":8080/", "20ms"}
	asking.Spec.NodeName, asking.Spec.Tolerations = "milan", tolerations
	kubetest.Create(t, w.rome.Client().CoreV1().Pods(netNamespace), asking)
	asked := func(ctx context.Context) (tally, error) {
		return tallyOf(ctx, w.list[1], w.twin(w.list[1], netNamespace), "asks")
	}
	within(t, longest, "milan asks turin", func(ctx context.Context) error { return second(asked(ctx)) })
	w.peer(t, w.rome, paris)
	w.only(t, "milan", "turin", "paris")
	w.run(t, netNamespace, "paris")
	more := w
	more.list = append(slices.Clone(w.list), paris)
	more.reached(t)
	w.given(t, 4)
	w.ends(t, "paris", "milan", "turin")
	w.given(t, 3)
	out, code, err := (&world{sites: w.sites, rome: w.rome, milan: paris}).command(t.Context(), w.rome, "unpeer", "paris", "--remote-kubeconfig", paris.Kubeconfig, "--timeout=4m")
	require.NoError(t, err)
	require.Zero(t, code, out)
	have := must(asked(t.Context()))(t)
	t.Logf("milan has asked turin: %d requests, %d failed, longest pause %s", have.Requests, have.Failed, have.Pause)
	require.Greater(t, have.Requests, 100)
	require.Zero(t, have.Failed, "%v", have.Failures)
	w.reached(t)
	require.NoError(t, w.rome.Client().CoreV1().Pods(netNamespace).Delete(t.Context(), "asks", metav1.DeleteOptions{}))
}
