// Command kube-router enforces NetworkPolicies on the lab's nodes: it is the firewall of
// kube-router, with its flags. Its router and its proxy are left out, which would take minutes
// to compile.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/cloudnativelabs/kube-router/v2/pkg/controllers/netpol"
	"github.com/cloudnativelabs/kube-router/v2/pkg/healthcheck"
	"github.com/cloudnativelabs/kube-router/v2/pkg/options"
	"github.com/spf13/pflag"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	config := options.NewKubeRouterConfig()
	config.AddFlags(pflag.CommandLine)
	pflag.Parse()
	if err := enforce(ctx, config); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// enforce keeps the rules of the node as the NetworkPolicies want them, until ctx ends.
func enforce(ctx context.Context, config *options.KubeRouterConfig) error {
	if !config.RunFirewall || config.RunRouter || config.RunServiceProxy {
		return fmt.Errorf("this is the firewall only: set --run-firewall, --run-router=false and --run-service-proxy=false")
	}
	rest, err := clientcmd.BuildConfigFromFlags(config.Master, config.Kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	client, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	pods, policies := factory.Core().V1().Pods().Informer(), factory.Networking().V1().NetworkPolicies().Informer()
	namespaces := factory.Core().V1().Namespaces().Informer()
	tables, sets, err := netpol.NewIPTablesHandlers(config)
	if err != nil {
		return fmt.Errorf("looking for iptables and ipset: %w", err)
	}
	firewall, err := netpol.NewNetworkPolicyController(client, config, pods, policies, namespaces, &sync.Mutex{}, tables, sets)
	if err != nil {
		return fmt.Errorf("making the firewall: %w", err)
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), pods.HasSynced, policies.HasSynced, namespaces.HasSynced) {
		return fmt.Errorf("reading pods, namespaces and NetworkPolicies: %w", context.Cause(ctx))
	}
	for informer, handler := range map[cache.SharedIndexInformer]cache.ResourceEventHandler{
		pods: firewall.PodEventHandler, policies: firewall.NetworkPolicyEventHandler, namespaces: firewall.NamespaceEventHandler,
	} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return fmt.Errorf("watching: %w", err)
		}
	}
	beats := make(chan *healthcheck.ControllerHeartbeat)
	go func() {
		for range beats { // nobody asks for its health, and it waits for a reader
		}
	}()
	var running sync.WaitGroup
	running.Add(1)
	firewall.Run(beats, ctx.Done(), &running)
	running.Wait()
	close(beats)
	return nil
}
