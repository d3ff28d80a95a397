package site

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LogPods logs the pods of clusters of real nodes if the test has failed, and the ends of the
// logs of liqod's own. Call it in a Cleanup, while the clusters run.
func LogPods(t *testing.T, sites ...*Site) {
	t.Helper()
	if !t.Failed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 20*time.Second)
	defer cancel()
	for _, s := range sites {
		pods, err := s.Client().CoreV1().Pods(corev1.NamespaceAll).List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Logf("%s: %v", s.Name, err)
			continue
		}
		for _, p := range pods.Items {
			t.Logf("%s: %s/%s on %s: %s %s, deleted %v, %v", s.Name, p.Namespace, p.Name, p.Spec.NodeName, p.Status.Phase, p.Status.Reason, p.DeletionTimestamp, p.Status.Conditions)
			if p.Namespace == Namespace || strings.HasPrefix(p.Name, "vk-") {
				out, err := s.Logs(ctx, p.Namespace, p.Name)
				t.Logf("log of %s of %s (%v):\n%s", p.Name, s.Name, err, out[max(0, len(out)-4000):])
			}
		}
	}
}
