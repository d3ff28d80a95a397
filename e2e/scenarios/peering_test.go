package scenarios

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqod/liqod/e2e/site"
)

// testPeering makes and ends peerings by the commands, and compares what is in the
// clusters before and after.
func testPeering(t *testing.T, w *world) {
	ctx := t.Context()
	_, err := w.rome.Client().CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "market"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	before := w.rest(t)

	out, code, err := w.command(ctx, w.rome, w.toPeer(w.rome)...)
	require.NoError(t, err)
	require.Equal(t, 1, code, out)
	require.Contains(t, out, "a cluster cannot be a peer of itself")

	begin := time.Now()
	w.peer(t, w.rome, w.milan)
	t.Logf("from the command to a virtual node that is Ready: %s", time.Since(begin).Round(time.Millisecond))
	again := w.rest(t)
	w.peer(t, w.rome, w.milan)
	for s, have := range w.rest(t) {
		require.NoError(t, site.Changes(again[s], have), "asked for again nothing is made anew")
	}
	w.peer(t, w.milan, w.rome)

	out, code, err = w.command(ctx, w.rome, "offload", "namespace", "market", "--pod-offloading-strategy=Remote")
	require.NoError(t, err)
	require.Zero(t, code, out)
	_, err = w.rome.Client().CoreV1().Pods("market").Create(ctx, bare("away", corev1.RestartPolicyAlways), metav1.CreateOptions{})
	require.NoError(t, err)
	within(t, quickly, "the pod runs in milan", func(ctx context.Context) error {
		pod, err := w.rome.Client().CoreV1().Pods("market").Get(ctx, "away", metav1.GetOptions{})
		if err == nil && (pod.Status.Phase != corev1.PodRunning || pod.Spec.NodeName != "milan") {
			err = fmt.Errorf("it is %s on %q", pod.Status.Phase, pod.Spec.NodeName)
		}
		return err
	})

	begin = time.Now()
	out, code, err = w.command(ctx, w.rome, "unpeer", "milan", "--remote-kubeconfig", w.milan.Kubeconfig, "--timeout=1m")
	require.NoError(t, err)
	require.Zero(t, code, out)
	t.Logf("from the command to the end of both directions: %s\n%s", time.Since(begin).Round(time.Millisecond), out)
	out, code, err = w.command(ctx, w.rome, "unoffload", "namespace", "market")
	require.NoError(t, err)
	require.Zero(t, code, out)
	for _, s := range []*site.Site{w.rome, w.milan} {
		other := w.milan.Name
		if s == w.milan {
			other = w.rome.Name
		}
		(*s.VKubelet(other)).Kill()
		nothingLeft(t, s, before[s], quickly)
	}
}

// toPeer are the arguments by which a command knows a provider.
func (w *world) toPeer(provider *site.Site) []string {
	return []string{"peer", "--remote-kubeconfig", provider.Kubeconfig, "--server-url", provider.Config().Host}
}

// peer lets a cluster use another by the command, and runs the vkubelet as its Deployment
// would.
func (w *world) peer(t *testing.T, s, provider *site.Site) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	args := append(w.toPeer(provider), "--pod-cidr", s.Options.PodCIDR)
	if s.VKubelet(provider.Name) == nil {
		out, code, err := w.command(ctx, s, append(args, "--wait=false")...)
		require.NoError(t, err)
		require.Zero(t, code, out)
		require.NoError(t, s.StartVKubelet(ctx, "liqo-tenant-"+provider.Name, provider.Name))
	}
	out, code, err := w.command(ctx, s, args...)
	require.NoError(t, err)
	require.Zero(t, code, out)
	require.Contains(t, out, "virtual node "+provider.Name)
}
