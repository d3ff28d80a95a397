package scenarios

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

// testHostileConsumer attacks the provider with the credentials of its consumer, where the
// provider has the defaults of the chart. It leaves the provider as it was.
func testHostileConsumer(t *testing.T, w *world) {
	before := lives(t, w.milan.Cluster, twinOfRome)
	p := attacker{world: w}
	p.core, p.liqod = clients(t, holder{in: w.milan, namespace: tenantOfRome, account: "peer-1"}.config(t))
	specs := refusedSpecs()
	delete(specs, "claim") // of a class that is shared by default
	t.Run("pods", func(t *testing.T) { refused(t, p, specs) })
	own := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Labels: map[string]string{offloadingv1beta1.OriginLabel: "rome", offloadingv1beta1.DestinationLabel: "elsewhere"}}
	}
	kubetest.Create(t, p.core.CoreV1().Services(twinOfRome), &corev1.Service{ObjectMeta: own("own"), Spec: service("own").Spec})
	tries := serviceAttempts(p, own)
	maps.Copy(tries, hostAttempts(t, p, own))
	maps.Copy(tries, objectAttempts(p.core))
	guests := w.milan.Client().CoreV1().Pods(twinOfRome)
	kubetest.Create(t, guests, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "guest"}, Spec: podSpec("sim/web:1")})
	t.Run("sessions", func(t *testing.T) {
		allRefused(t, sessionAttempts(p.core, "guest"))
		requireSessions(t, p.core, slices.Sorted(maps.Keys(before))[0])
	})
	within(t, soon, "the refusals are counted", measures(w.milan.Webhook, `liqod_consumer_refused_total{consumer="rome",reason="Session"} [1-9][0-9]*`))
	t.Run("objects", func(t *testing.T) { allRefused(t, tries) })
	require.NoError(t, guests.Delete(t.Context(), "guest", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	within(t, soon, "the provider's pod is gone", isGone(guests, "guest"))

	services, ingresses := w.milan.Client().CoreV1().Services(twinOfRome), w.milan.Client().NetworkingV1().Ingresses(twinOfRome)
	require.NoError(t, services.Delete(t.Context(), "own", metav1.DeleteOptions{}))
	require.NoError(t, ingresses.Delete(t.Context(), "store", metav1.DeleteOptions{}))
	require.NoError(t, w.milan.Client().NetworkingV1().Ingresses("default").Delete(t.Context(), "bank", metav1.DeleteOptions{}))
	shadows := w.milan.Liqod().OffloadingV1beta1().ShadowPods(twinOfRome)
	within(t, longest, "the ShadowPods of the attacks are gone", func(ctx context.Context) error {
		list, err := shadows.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		left := 0
		for _, s := range list.Items {
			if !strings.HasPrefix(s.Name, "refused-") {
				continue
			}
			left++
			if err := shadows.Delete(ctx, s.Name, metav1.DeleteOptions{}); err != nil {
				return err
			}
		}
		return lab.Wrong(nil, left > 0, "%d are left", left)
	})
	requireLiving(t, before, lives(t, w.milan.Cluster, twinOfRome))
}
