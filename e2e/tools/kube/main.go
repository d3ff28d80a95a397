// Command kubelab is the Kubernetes of the lab in one binary: etcd, the control
// plane, the node components and the simulated nodes, chosen by the first argument.
// It is kubectl under the name kubectl. One binary is linked once, and its processes
// share their pages.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	kcm "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
	kwokconfig "sigs.k8s.io/kwok/pkg/config"
	kwok "sigs.k8s.io/kwok/pkg/kwok/cmd"
	kwoklog "sigs.k8s.io/kwok/pkg/log"
)

const components = "etcd, apiserver, kcm, scheduler, kubelet, proxy or kwok"

func main() {
	if filepath.Base(os.Args[0]) == "kubectl" {
		util.CheckErr(cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()))
		return
	}
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: kubelab COMPONENT [flags]; COMPONENT is "+components)
		os.Exit(2)
	}
	component := os.Args[1]
	os.Args = append([]string{"kube-" + component}, os.Args[2:]...)
	var cmd *cobra.Command
	switch component {
	case "etcd":
		etcdmain.Main(append([]string{"etcd"}, os.Args[1:]...))
		return
	case "apiserver":
		cmd = apiserver.NewAPIServerCommand()
	case "kcm":
		cmd = kcm.NewControllerManagerCommand()
	case "scheduler":
		cmd = scheduler.NewSchedulerCommand()
	case "kubelet":
		// It listens to signals itself, which a process may do once.
		cmd = kubelet.NewKubeletCommand(context.Background())
	case "proxy":
		cmd = proxy.NewProxyCommand()
	case "kwok":
		os.Exit(runKwok(server.SetupSignalContext()))
	default:
		fmt.Fprintf(os.Stderr, "kubelab: unknown component %q; use %s\n", component, components)
		os.Exit(2)
	}
	os.Exit(cli.Run(cmd))
}

// runKwok runs the simulated nodes. Its command wants its global flags read
// before it is built: they name the file that the other defaults come from.
func runKwok(ctx context.Context) int {
	flags := pflag.NewFlagSet("global", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.Usage = func() {}
	ctx, logger := kwoklog.InitFlags(ctx, flags)
	ctx, err := kwokconfig.InitFlags(ctx, flags)
	if err != nil {
		logger.Error("reading the kwok configuration", "err", err)
		return 1
	}
	cmd := kwok.NewCommand(ctx)
	cmd.PersistentFlags().AddFlagSet(flags)
	cmd.Version = "" // Kubernetes has registered a global --version of another type, which cobra would refuse
	if err := cmd.ExecuteContext(ctx); err != nil {
		logger.Error("running kwok", "err", err)
		return 1
	}
	return 0
}
