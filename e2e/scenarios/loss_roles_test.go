package scenarios

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/e2e/site"
)

func allRoles() []string {
	return []string{"controller", "webhook", "ipam", "route", "gateway", "vkubelet"}
}

// across returns the other one of the two clusters.
func (w lossWorld) across(s *site.Site) *site.Site {
	if s == w.rome {
		return w.milan
	}
	return w.rome
}

// workload returns the namespace and the name of the Deployment or DaemonSet of a role.
func (w lossWorld) workload(s *site.Site, role string) (namespace, name string) {
	if role == "vkubelet" {
		return corev1beta1.TenantNamespace(w.across(s).Name), "vk-" + w.across(s).Name
	}
	return site.Namespace, "liqod-" + role
}

// podsOf returns the pods of a role.
func (w lossWorld) podsOf(ctx context.Context, s *site.Site, role string) ([]corev1.Pod, error) {
	namespace, name := w.workload(s, role)
	pods, err := s.Client().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return !strings.HasPrefix(p.Name, name+"-") }), nil
}

// lose lets the pods of a role hang, has them deleted, and kills them: none says a last word, or
// releases a Lease. It returns a function that gives the cluster the role again.
func (w lossWorld) lose(t *testing.T, s *site.Site, role string) (giveBack func()) {
	t.Helper()
	ctx := t.Context()
	pods, err := w.podsOf(ctx, s, role)
	require.NoError(t, err)
	require.NotEmpty(t, pods, "pods of role %s in %s", role, s.Name)
	signal := func(signal syscall.Signal) {
		for _, p := range pods {
			node := w.full.Node(s.Cluster, p.Spec.NodeName)
			processes, err := node.Processes(ctx, "--role="+role)
			require.NoError(t, err)
			require.NoError(t, node.Signal(ctx, signal, processes...))
		}
	}
	signal(syscall.SIGSTOP)
	w.want(t, s, role, 0)
	for _, p := range pods {
		within(t, longest, "pod "+p.Name+" in "+s.Name+" is deleted", func(ctx context.Context) error {
			have, err := s.Client().CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) || err == nil && have.DeletionTimestamp != nil {
				return nil
			}
			return fmt.Errorf("it is not (%v)", err)
		})
	}
	signal(syscall.SIGKILL)
	return func() { w.want(t, s, role, map[bool]int{true: 2, false: 1}[role == "webhook"]) }
}

// want changes the number of replicas of a role. Role route has none or all.
func (w lossWorld) want(t *testing.T, s *site.Site, role string, replicas int) {
	t.Helper()
	namespace, name := w.workload(s, role)
	var err error
	switch role {
	case "vkubelet":
		_, err = s.Liqod().OffloadingV1beta1().VirtualNodes(namespace).Patch(t.Context(), w.across(s).Name, types.MergePatchType,
			fmt.Appendf(nil, `{"spec":{"virtualKubelet":{"replicas":%d}}}`, replicas), metav1.PatchOptions{})
	case "route":
		selector := `{"lost":"yes"}`
		if replicas > 0 {
			selector = `{"lost":null}`
		}
		_, err = s.Client().AppsV1().DaemonSets(namespace).Patch(t.Context(), name, types.MergePatchType,
			fmt.Appendf(nil, `{"spec":{"template":{"spec":{"nodeSelector":%s}}}}`, selector), metav1.PatchOptions{})
	default:
		_, err = s.Client().AppsV1().Deployments(namespace).Patch(t.Context(), name, types.MergePatchType,
			fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas), metav1.PatchOptions{})
	}
	require.NoError(t, err)
}

// complete says whether a cluster has all replicas of a role, and they are ready.
func (w lossWorld) complete(ctx context.Context, s *site.Site, role string) error {
	namespace, name := w.workload(s, role)
	var have, want int32
	switch {
	case role == "route":
		d, err := s.Client().AppsV1().DaemonSets(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		have, want = d.Status.NumberReady, int32(len(w.full.Nodes(s.Cluster)))
	default:
		d, err := s.Client().AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
		if role == "vkubelet" && s == w.milan && apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		have, want = d.Status.ReadyReplicas, *d.Spec.Replicas
	}
	if have != want || want == 0 {
		return fmt.Errorf("role %s of %s has %d of %d pods ready", role, s.Name, have, want)
	}
	return nil
}
