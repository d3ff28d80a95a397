package scenarios

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

// storeNear: a Service that prefers near endpoints has one in rome, in zone a, and one in milan,
// in zone b. All requests of clients in zone a of rome and in zone a of milan are answered in
// their own cluster: zone a of rome is none of milan's, as zones are not shared.
func storeNear(t *testing.T, w storeWorld) {
	zone := func(s *site.Site, node, zone string) {
		require.NoError(t, second(s.Kubectl(t.Context(), lab.KubectlOptions{}, "label", "node", node, corev1.LabelTopologyZone+"="+zone)))
	}
	inMilan := w.milan.Client().CoreV1().Pods(storeNamespace)
	web := kubetest.Get(t, inMilan, w.pod(t, "web", "milan").Name)
	nodes := kubetest.List(t, w.milan.Client().CoreV1().Nodes(), metav1.ListOptions{LabelSelector: "!" + offloadingv1beta1.TypeLabel})
	i := slices.IndexFunc(nodes.Items, func(n corev1.Node) bool { return n.Name != web.Spec.NodeName })
	zone(w.milan, web.Spec.NodeName, "b")
	zone(w.milan, nodes.Items[i].Name, "a")
	zone(w.rome, w.pod(t, "web", "rome").Spec.NodeName, "a")

	client := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "far"}, Spec: testSpec(0, "serve")}
	client.Spec.NodeName = nodes.Items[i].Name
	kubetest.Create(t, inMilan, client)
	services := w.rome.Client().CoreV1().Services(storeNamespace)
	near, prefer := kubetest.Get(t, services, "web"), corev1.ServiceTrafficDistributionPreferSameZone
	for _, s := range []*site.Site{w.rome, w.milan} {
		if strings.HasPrefix(s.KubernetesVersion(), "v1.32.") {
			prefer = corev1.ServiceTrafficDistributionPreferClose // the name before 1.34
		}
	}
	kubetest.Create(t, services, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "near"}, Spec: corev1.ServiceSpec{
		Selector: near.Spec.Selector, Ports: near.Spec.Ports, TrafficDistribution: &prefer,
	}})
	for s, from := range map[*site.Site]string{w.rome: w.pod(t, "customers", "rome").Name, w.milan: client.Name} {
		within(t, time.Minute, "requests of "+s.Name+" are answered there", func(ctx context.Context) error {
			for range 20 {
				said, err := s.Exec(ctx, storeNamespace, from, "get", "http://near/")
				if err != nil {
					return err
				}
				var who answer
				if err := json.Unmarshal([]byte(said), &who); err != nil {
					return fmt.Errorf("%s: %w", said, err)
				}
				if runsIn(who.Node) != s.Name {
					return fmt.Errorf("an answer comes from %s", who.Node)
				}
			}
			return nil
		})
	}
	require.NoError(t, services.Delete(t.Context(), "near", metav1.DeleteOptions{}))
	require.NoError(t, inMilan.Delete(t.Context(), client.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
}
