// Package helper has what the pods have in common with which commands work inside of clusters: they
// run liqod's own image on a node that the command chooses.
package helper

import (
	"context"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// New returns a pod with one container, on a node and without any privilege. It has no token of a
// ServiceAccount, tolerates all taints, has at most 256Mi of memory, and ends within a second.
func New(meta metav1.ObjectMeta, node, image string, args ...string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: meta,
		Spec: corev1.PodSpec{
			NodeName: node, TerminationGracePeriodSeconds: ptr.To[int64](1),
			AutomountServiceAccountToken: ptr.To(false), EnableServiceLinks: ptr.To(false),
			Tolerations:     []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			SecurityContext: &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{
				Name: "liqod", Image: image, Args: args,
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
					Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi")},
					Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")},
				},
			}},
		},
	}
}

// A log may come from another cluster, which may send one without end, or nothing.
const (
	mostLog     = 1 << 20 // bytes that are read
	logPatience = 10 * time.Second
)

// Logs returns the log of a pod, of which it reads mostLog at most.
func Logs(ctx context.Context, kube kubernetes.Interface, pod *corev1.Pod, options corev1.PodLogOptions) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, logPatience)
	defer cancel()
	stream, err := kube.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &options).Stream(ctx)
	var text []byte
	if err == nil {
		defer stream.Close()
		text, err = io.ReadAll(io.LimitReader(stream, mostLog))
	}
	if err != nil {
		return nil, fmt.Errorf("reading the log of pod %s: %w", pod.Name, err)
	}
	return text, nil
}
