package kubelet

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// healthz says that requests are answered; whether the provider is well says the Node.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	_, _ = w.Write([]byte("ok"))
}

// runningOf shows what runs of a pod, as a kubelet does that asks its container runtime: no more
// than names and images.
func runningOf(pod *corev1.Pod) (corev1.Pod, bool) {
	out := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID}}
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses) {
		if status.State.Running != nil {
			out.Spec.Containers = append(out.Spec.Containers, corev1.Container{Name: status.Name, Image: status.Image})
		}
	}
	return out, len(out.Spec.Containers) > 0
}

// pods lists what show returns of each pod.
func (s *Server) pods(show func(*corev1.Pod) (corev1.Pod, bool)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		local, err := s.cfg.Pods.List()
		if err != nil {
			s.fail(w, r, httpError{http.StatusServiceUnavailable, fmt.Sprintf("listing the pods of node %s: %v", s.cfg.NodeName, err)})
			return
		}
		list := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: make([]corev1.Pod, 0, len(local))}
		for _, pod := range local {
			if it, ok := show(pod); ok {
				list.Items = append(list.Items, it)
			}
		}
		s.writeJSON(w, list)
	}
}

func (s *Server) writeJSON(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(body); err != nil {
		s.cfg.Log.Debug("writing an answer failed", zap.Error(err))
	}
}
