package scenarios

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

// testPeering makes and ends peerings by the commands, and compares what is in the
// clusters before and after.
func testPeering(t *testing.T, w *world) {
	kubetest.Create(t, w.rome.Client().CoreV1().Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "market"}})
	before := w.rest(t)

	w.peer(t, w.rome, w.milan)
	w.peer(t, w.milan, w.rome)

	w.done(t, w.rome, "offload", "namespace", "market", "--pod-offloading-strategy=Remote")
	kubetest.Create(t, w.rome.Client().CoreV1().Pods("market"), bare("away", corev1.RestartPolicyAlways))
	within(t, quickly, "the pod runs in milan", lab.Is(w.rome.Client().CoreV1().Pods("market"), "away", func(pod *corev1.Pod) bool {
		return pod.Status.Phase == corev1.PodRunning && pod.Spec.NodeName == "milan"
	}))

	begin := time.Now()
	out := w.done(t, w.rome, "unpeer", "milan", "--remote-kubeconfig", w.milan.Kubeconfig, "--timeout=1m")
	t.Logf("from the command to the end of both directions: %s\n%s", time.Since(begin).Round(time.Millisecond), out)
	w.done(t, w.rome, "unoffload", "namespace", "market")
	for _, s := range []*site.Site{w.rome, w.milan} {
		other := w.milan.Name
		if s == w.milan {
			other = w.rome.Name
		}
		(*s.VKubelet(other)).Kill()
		nothingLeft(t, s, before[s], quickly)
	}
}

// peer lets a cluster use another by the command, and runs the vkubelet as its Deployment
// would.
func (w *world) peer(t *testing.T, s, provider *site.Site) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	within(t, longest, "the controller of "+provider.Name+" serves its authentication", func(ctx context.Context) error {
		out, code, err := w.command(ctx, s, "peer", "--remote-kubeconfig", provider.Kubeconfig, "--pod-cidr", s.Options.PodCIDR, "--wait=false")
		return lab.Wrong(err, code != 0, "%s", out)
	})
	require.NoError(t, s.StartVKubelet(ctx, "liqo-tenant-"+provider.Name, provider.Name))
	within(t, longest, "the virtual node is Ready", lab.Is(s.Liqod().OffloadingV1beta1().VirtualNodes("liqo-tenant-"+provider.Name), provider.Name, func(vn *offloadingv1beta1.VirtualNode) bool {
		return meta.IsStatusConditionTrue(vn.Status.Conditions, offloadingv1beta1.VirtualNodeReady)
	}))
}
