// Command kube-router is kube-router on the lab's nodes, with its flags: the firewall, which
// enforces NetworkPolicies, and the router, which gives the nodes routes to each other's pods by
// BGP. Its proxy is left out, which needs IPVS.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/cloudnativelabs/kube-router/v2/pkg/controllers/netpol"
	"github.com/cloudnativelabs/kube-router/v2/pkg/controllers/routing"
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
	if err := run(ctx, config); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// node is kube-router on one node.
type node struct {
	config  *options.KubeRouterConfig
	client  kubernetes.Interface
	factory informers.SharedInformerFactory
	sets    sync.Mutex // for the sets of addresses, which both parts write
	beats   chan *healthcheck.ControllerHeartbeat
	running sync.WaitGroup
}

// run keeps the routes and the rules of the node, until ctx ends.
func run(ctx context.Context, config *options.KubeRouterConfig) error {
	if !config.RunFirewall || config.RunServiceProxy {
		return errors.New("this is kube-router without its proxy: set --run-firewall and --run-service-proxy=false")
	}
	rest, err := clientcmd.BuildConfigFromFlags(config.Master, config.Kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	client, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	n := &node{config: config, client: client, factory: informers.NewSharedInformerFactory(client, 0), beats: make(chan *healthcheck.ControllerHeartbeat)}
	go func() {
		for range n.beats { // nobody asks for its health, and it waits for a reader
		}
	}()
	if config.RunRouter {
		if err := n.route(ctx); err != nil {
			return err
		}
	}
	if err := n.enforce(ctx); err != nil {
		return err
	}
	n.running.Wait()
	close(n.beats)
	return nil
}

// read waits until informers have read all there is, and then hands changes to their handlers.
func (n *node) read(ctx context.Context, handlers map[cache.SharedIndexInformer]cache.ResourceEventHandler) error {
	n.factory.Start(ctx.Done())
	for informer := range handlers {
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			return fmt.Errorf("reading the cluster: %w", context.Cause(ctx))
		}
	}
	for informer, handler := range handlers {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return fmt.Errorf("watching: %w", err)
		}
	}
	return nil
}

// route starts the router, and returns when its rules are there: those of the firewall go before them.
func (n *node) route(ctx context.Context) error {
	core := n.factory.Core().V1()
	nodes, services, endpoints := core.Nodes().Informer(), core.Services().Informer(), core.Endpoints().Informer()
	router, err := routing.NewNetworkRoutingController(n.client, n.config, nodes, services, endpoints, &n.sets)
	if err != nil {
		return fmt.Errorf("making the router: %w", err)
	}
	err = n.read(ctx, map[cache.SharedIndexInformer]cache.ResourceEventHandler{
		nodes: router.NodeEventHandler, services: router.ServiceEventHandler, endpoints: router.EndpointsEventHandler,
	})
	if err != nil {
		return err
	}
	router.CNIFirewallSetup.L.Lock()
	defer router.CNIFirewallSetup.L.Unlock()
	n.running.Add(1)
	go router.Run(n.beats, ctx.Done(), &n.running)
	router.CNIFirewallSetup.Wait()
	return nil
}

// enforce starts the firewall.
func (n *node) enforce(ctx context.Context) error {
	pods, namespaces := n.factory.Core().V1().Pods().Informer(), n.factory.Core().V1().Namespaces().Informer()
	policies := n.factory.Networking().V1().NetworkPolicies().Informer()
	tables, sets, err := netpol.NewIPTablesHandlers(n.config)
	if err != nil {
		return fmt.Errorf("looking for iptables and ipset: %w", err)
	}
	firewall, err := netpol.NewNetworkPolicyController(n.client, n.config, pods, policies, namespaces, &n.sets, tables, sets)
	if err != nil {
		return fmt.Errorf("making the firewall: %w", err)
	}
	err = n.read(ctx, map[cache.SharedIndexInformer]cache.ResourceEventHandler{
		pods: firewall.PodEventHandler, policies: firewall.NetworkPolicyEventHandler, namespaces: firewall.NamespaceEventHandler,
	})
	if err != nil {
		return err
	}
	n.running.Add(1)
	go firewall.Run(n.beats, ctx.Done(), &n.running)
	return nil
}
