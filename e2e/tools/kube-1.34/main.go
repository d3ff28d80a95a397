// Command kubelab is a control plane and node components of one version of Kubernetes in one
// binary, chosen by the first argument. etcd and the simulated nodes are in the lab's own.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	kcm "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	commands := map[string]func() *cobra.Command{
		"apiserver": apiserver.NewAPIServerCommand,
		"kcm":       kcm.NewControllerManagerCommand,
		"scheduler": func() *cobra.Command { return scheduler.NewSchedulerCommand() },
		"kubelet":   func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
		"proxy":     proxy.NewProxyCommand,
	}
	component := os.Args[min(1, len(os.Args)-1)]
	command, known := commands[component]
	if !known {
		fmt.Fprintln(os.Stderr, "usage: kubelab COMPONENT [flags]; COMPONENT is apiserver, kcm, scheduler, kubelet or proxy")
		os.Exit(2)
	}
	os.Args = append([]string{"kube-" + component}, os.Args[2:]...)
	os.Exit(cli.Run(command()))
}
