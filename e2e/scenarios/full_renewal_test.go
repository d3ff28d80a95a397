package scenarios

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

// fullRenewal lets milan use rome, too, by a token: a log that is followed and a session
// that is held there go on while the certificates are renewed.
func fullRenewal(t *testing.T, w *fullWorld) {
	back := &fullWorld{world: world{sites: w.sites, rome: w.milan, milan: w.rome}, full: w.full}
	home := w.milan.Client().CoreV1()
	kubetest.Create(t, home.Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "archive"}})
	for _, args := range [][]string{
		{"peer", "--timeout=2m", "--token", tokenOf(t, w.sites, w.rome), "--cpu=200m", "--memory=256Mi"},
		{"offload", "namespace", "archive", "--pod-offloading-strategy=Remote"},
	} {
		w.done(t, w.milan, args...)
	}
	back.run(t, "archive", "lines", testSpec(1, "lines", "100000", "50ms"))
	within(t, time.Minute, "the pod is Ready", back.podReady("archive", "lines"))

	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	log, err := home.Pods("archive").GetLogs("lines", &corev1.PodLogOptions{Follow: true}).Stream(ctx)
	require.NoError(t, err)
	defer log.Close()
	input, typed := io.Pipe()
	defer typed.Close()
	said, failed := "", make(chan error, 1)
	go func() {
		var err error
		said, err = w.milan.Kubectl(ctx, lab.KubectlOptions{Stdin: input}, "-n", "archive", "exec", "-i", "lines", "--", "cat")
		failed <- err
	}()
	_, err = io.WriteString(typed, "before\n")
	require.NoError(t, err)

	begin, lines, identities := time.Now(), bufio.NewScanner(log), map[string]bool{}
	for n := 1; len(identities) < 4; n++ {
		require.True(t, lines.Scan(), "the log ended at line %d, after %d identities: %v", n, len(identities), lines.Err())
		require.Equal(t, fmt.Sprintf("line %d", n), lines.Text())
		if n%20 > 0 {
			continue
		}
		secret := must(home.Secrets(corev1beta1.TenantNamespace("rome")).Get(ctx, "rome", metav1.GetOptions{}))(t)
		identities[string(secret.Data[corev1beta1.KubeconfigSecretKey])] = true
	}
	t.Logf("%d renewals in %s", len(identities)-1, time.Since(begin).Round(time.Millisecond))
	_, err = io.WriteString(typed, "after\n")
	require.NoError(t, err)
	require.NoError(t, typed.Close())
	require.NoError(t, <-failed)
	require.Equal(t, "before\nafter\n", said)
	require.NoError(t, home.Pods("archive").Delete(ctx, "lines", metav1.DeleteOptions{}))
}
