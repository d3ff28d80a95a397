package scenarios

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

// containers are the UIDs and containers of a namespace's pods, by name: what changes
// if one is made or started again.
func containers(ctx context.Context, s *site.Site, namespace string) (map[string]string, error) {
	list, err := s.Client().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, p := range list.Items {
		id := string(p.UID)
		for _, c := range p.Status.ContainerStatuses {
			id += fmt.Sprintf(" %s %d", c.ContainerID, c.RestartCount)
		}
		out[p.Name] = id
	}
	return out, nil
}

func fullVKubeletDeleted(t *testing.T, w *fullWorld) {
	ctx := t.Context()
	w.offload(t, "vk", offloadingv1beta1.NamespaceOffloadingSpec{})
	kubetest.Create(t, w.rome.Client().AppsV1().Deployments("vk"), webDeployment("web", 3))
	within(t, time.Minute, "3 pods run", w.available("web", "vk", 3))
	here := must(containers(ctx, w.rome, "vk"))(t)
	there := must(containers(ctx, w.milan, "vk-rome"))(t)
	node := kubetest.Get(t, w.rome.Client().CoreV1().Nodes(), "milan")

	vkubelets := w.rome.Client().CoreV1().Pods("liqo-tenant-milan")
	list := kubetest.List(t, vkubelets, metav1.ListOptions{LabelSelector: "liqo.io/virtual-node=milan"})
	require.Len(t, list.Items, 1)
	require.NoError(t, vkubelets.Delete(ctx, list.Items[0].Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
	within(t, 30*time.Second, "another vkubelet keeps the node", lab.Together(lab.That(w.rome.Client().CoordinationV1().Leases("liqo-tenant-milan"), "vk-milan", func(lease *coordinationv1.Lease) error {
		holder := ptr.Deref(lease.Spec.HolderIdentity, "")
		return lab.Wrong(nil, holder == "" || strings.HasPrefix(holder, list.Items[0].Name), "%q holds the Lease", holder)
	}), w.available("web", "vk", 3)))
	within(t, 20*time.Second, "its kubelet API serves", func(ctx context.Context) error {
		for name := range here {
			if _, err := w.rome.Exec(ctx, "vk", name, "hostname"); err != nil {
				return err
			}
		}
		return nil
	})
	again := kubetest.Get(t, w.rome.Client().CoreV1().Nodes(), "milan")
	require.Equal(t, node.UID, again.UID, "the Node stays")
	w.same(t, w.rome, "vk", here)
	w.same(t, w.milan, "vk-rome", there)
}

func (w *fullWorld) same(t *testing.T, s *site.Site, namespace string, want map[string]string) {
	t.Helper()
	have := must(containers(t.Context(), s, namespace))(t)
	require.Equal(t, want, have, "nothing in %s was made or started again", s.Name)
}

// fullNodeDies follows seed 000: pods on a dead node of the provider stay Terminating and
// are not replaced; home keeps its pods. When the node returns all is well.
func fullNodeDies(t *testing.T, w *fullWorld) {
	ctx := t.Context()
	w.offload(t, "node", offloadingv1beta1.NamespaceOffloadingSpec{})
	victim := w.placeOnVictim(t, "node")
	here := must(w.pods(ctx, "node"))(t)
	there := must(containers(ctx, w.milan, "node-rome"))(t)
	require.NoError(t, victim.Kill(ctx))
	within(t, 40*time.Second, "the pods there are Terminating, not Ready at home", func(ctx context.Context) error {
		return w.terminating(ctx, there, len(here))
	})
	// Nothing may change for longer than any take-over or retry.
	hold(t, 10*time.Second, "they stay so", func(ctx context.Context) error { return w.terminating(ctx, there, len(here)) })
	require.NoError(t, victim.Start(ctx))
	within(t, 90*time.Second, "all is well again", w.available("web", "node", int32(len(here))))
	after := must(w.pods(ctx, "node"))(t)
	require.Len(t, after, len(here))
	for _, p := range here {
		q := byName(after, p.Name)
		require.NotNil(t, q, "pod %s is still home's", p.Name)
		require.Equal(t, p.UID, q.UID)
		require.Positive(t, q.Status.ContainerStatuses[0].RestartCount, "the loss is counted as a restart")
	}
}

// fullNodeFailure turns the node failure controller of milan on and kills a node: the pods
// are created again on the other node, and home keeps its pods and counts their restarts.
func fullNodeFailure(t *testing.T, w *fullWorld) {
	ctx := t.Context()
	w.enableNodeFailure(t)
	w.offload(t, "failure", offloadingv1beta1.NamespaceOffloadingSpec{})
	victim := w.placeOnVictim(t, "failure")
	here := must(w.pods(ctx, "failure"))(t)
	there := must(containers(ctx, w.milan, "failure-rome"))(t)
	before := w.restarts(t, "failure")
	require.NoError(t, victim.Kill(ctx))
	within(t, longest, "the pods run on the other node", func(ctx context.Context) error {
		now, err := containers(ctx, w.milan, "failure-rome")
		if err != nil {
			return err
		}
		for name, was := range there {
			if now[name] == "" || strings.Fields(now[name])[0] == strings.Fields(was)[0] {
				return fmt.Errorf("pod %s is not replaced", name)
			}
		}
		for name, count := range w.restarts(t, "failure") {
			if count <= before[name] {
				shadow, err := w.milan.Liqod().OffloadingV1beta1().ShadowPods("failure-rome").Get(ctx, name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				return fmt.Errorf("the loss of pod %s is not counted as a restart: %d before, %d now; was %s, is %s; ShadowPod: replaced %q, restarts %v",
					name, before[name], count, there[name], now[name], shadow.Status.Replaced, shadow.Status.Restarts)
			}
		}
		return w.available("web", "failure", int32(len(here)))(ctx)
	})
	after := must(w.pods(ctx, "failure"))(t)
	require.Len(t, after, len(here))
	for _, p := range here {
		q := byName(after, p.Name)
		require.NotNil(t, q, "pod %s is still home's", p.Name)
		require.Equal(t, p.UID, q.UID)
	}
	require.NoError(t, victim.Start(ctx))
}

// restarts returns the restart counts at home by pod.
func (w *fullWorld) restarts(t *testing.T, namespace string) map[string]int32 {
	t.Helper()
	pods := must(w.pods(t.Context(), namespace))(t)
	out := map[string]int32{}
	for _, p := range pods {
		for _, c := range p.Status.ContainerStatuses {
			out[p.Name] += c.RestartCount
		}
	}
	return out
}

// enableNodeFailure restarts the controller of milan with the node failure controller.
func (w *fullWorld) enableNodeFailure(t *testing.T) {
	t.Helper()
	deployments := w.milan.Client().AppsV1().Deployments(site.Namespace)
	within(t, 10*time.Second, "setting", lab.Changes(deployments, "liqod-controller", func(d *appsv1.Deployment) {
		c := &d.Spec.Template.Spec.Containers[0]
		c.Args = append(c.Args, "--controller.enableNodeFailureController=true")
	}))
	within(t, 2*time.Minute, "only the new controller runs", func(ctx context.Context) error {
		d, err := deployments.Get(ctx, "liqod-controller", metav1.GetOptions{})
		if err != nil {
			return err
		}
		pods, err := w.milan.Client().CoreV1().Pods(site.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=controller"})
		return lab.Wrong(err, d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedReplicas != 1 || d.Status.AvailableReplicas != 1 || len(pods.Items) != 1,
			"%d updated, %d available, %d pods", d.Status.UpdatedReplicas, d.Status.AvailableReplicas, len(pods.Items))
	})
}

// placeOnVictim runs a Deployment of the namespace on the node of milan without liqod's
// controller.
func (w *fullWorld) placeOnVictim(t *testing.T, namespace string) *lab.Node {
	t.Helper()
	pods := kubetest.List(t, w.milan.Client().CoreV1().Pods(site.Namespace))
	keep := ""
	for _, p := range pods.Items {
		if p.Labels["app.kubernetes.io/component"] == "controller" {
			keep = p.Spec.NodeName
		}
	}
	require.Contains(t, []string{"milan-1", "milan-2"}, keep)
	cordon(t, w.milan, true, keep)
	d := webDeployment("web", 2)
	// These hold at home too, where a busy machine costs the virtual node seconds of its readiness.
	for _, key := range []string{corev1.TaintNodeUnreachable, corev1.TaintNodeNotReady} {
		d.Spec.Template.Spec.Tolerations = append(d.Spec.Template.Spec.Tolerations, corev1.Toleration{
			Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](15),
		})
	}
	kubetest.Create(t, w.rome.Client().AppsV1().Deployments(namespace), d)
	within(t, longest, "2 pods run", w.available("web", namespace, 2))
	cordon(t, w.milan, false, keep)
	if keep == "milan-1" {
		return w.full.Node(w.milan.Cluster, "milan-2")
	}
	return w.full.Node(w.milan.Cluster, "milan-1")
}

// terminating says whether the pods of namespace node are the same as before, being
// deleted in the provider and not Ready at home, where none is deleted.
func (w *fullWorld) terminating(ctx context.Context, before map[string]string, want int) error {
	there, err := w.milan.Client().CoreV1().Pods("node-rome").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(there.Items) != want {
		return fmt.Errorf("%d pods in the provider, not %d", len(there.Items), want)
	}
	for _, p := range there.Items {
		if _, known := before[p.Name]; !known || p.DeletionTimestamp == nil {
			return fmt.Errorf("pod %s in the provider: deleted %v", p.Name, p.DeletionTimestamp)
		}
	}
	here, err := w.pods(ctx, "node")
	if err != nil {
		return err
	}
	if len(here) != want {
		return fmt.Errorf("%d pods at home, not %d", len(here), want)
	}
	for _, p := range here {
		if p.DeletionTimestamp != nil {
			return fmt.Errorf("pod %s at home is being deleted", p.Name)
		}
		if podReady(&p) == corev1.ConditionTrue {
			return fmt.Errorf("pod %s is Ready at home", p.Name)
		}
	}
	return nil
}

func byName(pods []corev1.Pod, name string) *corev1.Pod {
	for i := range pods {
		if pods[i].Name == name {
			return &pods[i]
		}
	}
	return nil
}
