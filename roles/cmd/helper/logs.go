package helper

import (
	"context"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
)

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
	if err != nil {
		return nil, fmt.Errorf("reading the log of pod %s: %w", pod.Name, err)
	}
	defer stream.Close()
	text, err := io.ReadAll(io.LimitReader(stream, mostLog))
	if err != nil {
		return nil, fmt.Errorf("reading the log of pod %s: %w", pod.Name, err)
	}
	return text, nil
}
