package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
)

// executor returns a function that runs commands in containers, over WebSocket or, if the
// API server does not know that, SPDY.
func executor(config *rest.Config, kube kubernetes.Interface) execution {
	return func(ctx context.Context, namespace, pod, container string, command []string, out io.Writer) error {
		request := kube.CoreV1().RESTClient().Post().Namespace(namespace).Resource("pods").Name(pod).SubResource("exec").
			VersionedParams(&corev1.PodExecOptions{Container: container, Command: command, Stdout: true, Stderr: true}, scheme.ParameterCodec)
		first, err := remotecommand.NewWebSocketExecutor(config, http.MethodGet, request.URL().String())
		if err != nil {
			return fmt.Errorf("preparing a WebSocket: %w", err)
		}
		second, err := remotecommand.NewSPDYExecutor(config, http.MethodPost, request.URL())
		if err != nil {
			return fmt.Errorf("preparing SPDY: %w", err)
		}
		either, err := remotecommand.NewFallbackExecutor(first, second, func(err error) bool {
			return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
		})
		if err != nil {
			return fmt.Errorf("preparing exec: %w", err)
		}
		complaint := limitedBuffer{left: 1 << 10}
		err = either.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: out, Stderr: &complaint})
		if text := complaint.String(); err != nil && text != "" {
			err = errors.Join(err, errors.New(text))
		}
		return err
	}
}
