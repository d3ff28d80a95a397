package scenarios

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// testCommandBrokenPods breaks pods in the ways of newcomers: status counts each, names its cause in
// the words of the cluster that has it, and prints a fix that works as it stands.
func testCommandBrokenPods(t *testing.T, w *world) {
	const namespace = "broken"
	_, err := w.rome.Client().CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	require.NoError(t, err)

	// The selector has a typing error, and the pod gets its affinity.
	offload := []string{"offload", "namespace", namespace, "--selector=region in (nowhere)", "--pod-offloading-strategy=Remote", "--wait=false"}
	require.NoError(t, w.says(w.rome, offload, 0)(t.Context()))
	_, err = w.rome.Client().AppsV1().Deployments(namespace).Create(t.Context(), deployment("web", 1), metav1.CreateOptions{})
	require.NoError(t, err)
	var fix string
	within(t, longest, "status tells of the selector", w.problem("namespace "+namespace, "", &fix, "spec.clusterSelector (region in (nowhere)) matches none of the virtual nodes: milan (region=north)"))
	require.Equal(t, "liqod offload namespace broken --selector region=north --pod-offloading-strategy Remote", fix)
	require.NoError(t, w.says(w.rome, strings.Fields(fix)[1:], 0, "namespace broken: offloaded")(t.Context()))

	within(t, longest, "status tells of the earlier affinity", w.problem("pods of namespace "+namespace, "EarlierAffinity", &fix, "with the affinity of an earlier NamespaceOffloading"))
	command, found := strings.CutPrefix(fix, "kubectl -n broken delete pod web-")
	require.True(t, found, fix)
	require.NoError(t, w.rome.Client().CoreV1().Pods(namespace).Delete(t.Context(), "web-"+command, metav1.DeleteOptions{}))
	within(t, longest, "the next pod of the Deployment runs", w.available("web", namespace, 1))

	w.bare(t, namespace, "image", func(s *corev1.PodSpec) { s.Containers[0].Image = "sim/missing:1" })
	w.bare(t, namespace, "privileged", func(s *corev1.PodSpec) {
		s.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
	})
	w.bare(t, namespace, "large", func(s *corev1.PodSpec) {
		s.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5000")}
	})
	within(t, longest, "status tells of the image", w.problem("pods of namespace "+namespace, "ImagePullBackOff", &fix, `image: container c: Back-off pulling image "sim/missing:1"`))
	within(t, longest, "status tells of the refused pod", w.problem("pods of namespace "+namespace, "PodRefused", &fix, "privileged: ", "PodSecurity"))
	within(t, longest, "status tells of the pod without room", w.problem("pods of namespace "+namespace, corev1.PodReasonUnschedulable, &fix, "pod large waits for a node", "Insufficient cpu"))
	within(t, longest, "the counts are right", w.says(w.rome, []string{"status"}, 1, "milan: 1 of 3 pods ready (1 not ready, 1 refused), no node yet: 1 pod"))
	require.NoError(t, w.says(w.rome, []string{"check"}, 1, "✘ pods of namespace broken: ")(t.Context()))

	w.namespaceDeleted(t, namespace)
	within(t, longest, "all is well again", w.says(w.rome, []string{"status"}, 0, "Cluster rome: healthy"))
}

// problem returns a condition: status has a problem with a subject and, if it is not empty, a reason,
// and its message has all of the texts. It stores the first line of the fix.
func (w *world) problem(subject, reason string, fix *string, texts ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		out, _, err := w.command(ctx, w.rome, "status", "-o", "json")
		if err != nil {
			return err
		}
		var have struct {
			Problems []struct{ Subject, Reason, Message, Fix string }
		}
		if err := json.Unmarshal([]byte(out), &have); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		for _, p := range have.Problems {
			if p.Subject != subject || reason != "" && p.Reason != reason {
				continue
			}
			for _, text := range texts {
				if !strings.Contains(p.Message, text) {
					return fmt.Errorf("the problem of %s does not say %q: %s", subject, text, p.Message)
				}
			}
			*fix, _, _ = strings.Cut(p.Fix, "\n")
			return nil
		}
		return fmt.Errorf("no problem of %s with reason %q: %s", subject, reason, out)
	}
}
