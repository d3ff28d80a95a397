package main

import (
	"context"
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// The commands of the bench that it starts itself, in processes of their own.
const (
	mirrorCommand = "mirror"
	copierCommand = "copier"

	gatewayCommand  = "gateway"
	tunnelCommand   = "tunnel"
	receiverCommand = "receive"
	senderCommand   = "send"
)

const (
	firstRetry = 5 * time.Millisecond
	lastRetry  = time.Second
)

// mirrors are what is measured beside liqod, by command. Each runs until ctx ends.
func mirrors() map[string]func(ctx context.Context, args []string) error {
	return map[string]func(context.Context, []string) error{mirrorCommand: runMirror, copierCommand: runCopier}
}

// processes are all commands of the bench.
func processes() map[string]func(ctx context.Context, args []string) error {
	all := map[string]func(context.Context, []string) error{
		gatewayCommand: runGateway, tunnelCommand: runTunnel, receiverCommand: runReceiver, senderCommand: runSender,
	}
	maps.Copy(all, mirrors())
	return all
}

// mirrorClient speaks protobuf and is not limited.
func mirrorClient(kubeconfig string) (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading a kubeconfig: %w", err)
	}
	config.QPS, config.UserAgent = -1, mirrorName
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf
	return kubernetes.NewForConfig(config)
}

// lean drops what neither mirror reads.
func lean(obj any) (any, error) {
	if o, err := meta.Accessor(obj); err == nil {
		o.SetManagedFields(nil)
	}
	return obj, nil
}
