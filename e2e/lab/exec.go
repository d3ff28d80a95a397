package lab

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
)

// Exec runs a command in the first container of a pod, as kubectl does, and returns
// its output. The error carries what it said, and is an exec.CodeExitError
// (k8s.io/client-go/util/exec) if the command ended with another code than 0.
func (c *Cluster) Exec(ctx context.Context, namespace, pod string, args ...string) (string, error) {
	config := c.Config()
	request := c.Client().CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: args, Stdout: true, Stderr: true}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(config, "GET", request.URL().String())
	if err != nil {
		return "", fmt.Errorf("preparing to execute in pod %s/%s: %w", namespace, pod, err)
	}
	var out, problem bytes.Buffer
	if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &problem}); err != nil {
		said := strings.TrimSpace(problem.String() + out.String())
		return out.String(), fmt.Errorf("executing %s in pod %s/%s: %w: %s", strings.Join(args, " "), namespace, pod, err, said)
	}
	return out.String(), nil
}

// Logs returns what the first container of a pod has printed.
func (c *Cluster) Logs(ctx context.Context, namespace, pod string) (string, error) {
	stream, err := c.Client().CoreV1().Pods(namespace).GetLogs(pod, &corev1.PodLogOptions{}).Stream(ctx)
	if err != nil {
		return "", fmt.Errorf("reading the log of pod %s/%s: %w", namespace, pod, err)
	}
	defer stream.Close()
	data, err := io.ReadAll(stream)
	if err != nil {
		return "", fmt.Errorf("reading the log of pod %s/%s: %w", namespace, pod, err)
	}
	return string(data), nil
}
