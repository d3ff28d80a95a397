// Command flannel connects the pods of the lab's nodes: it is flannel with its VXLAN backend and
// the Nodes of Kubernetes as its store. The other backends are left out: the module proxy does
// not serve all that they import.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/flannel-io/flannel/pkg/backend"
	_ "github.com/flannel-io/flannel/pkg/backend/vxlan"
	"github.com/flannel-io/flannel/pkg/ip"
	"github.com/flannel-io/flannel/pkg/ipmatch"
	"github.com/flannel-io/flannel/pkg/subnet/kube"
	"github.com/flannel-io/flannel/pkg/trafficmngr"
	"github.com/flannel-io/flannel/pkg/trafficmngr/iptables"
	"github.com/flannel-io/flannel/pkg/trafficmngr/nftables"
)

// resync is the time between two looks at the rules, in seconds, as flannel has it.
const resync = 5

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	kubeconfig := flag.String("kubeconfig", "", "the `file` with the access to the API server")
	network := flag.String("network", "", "the `file` with flannel's net-conf.json")
	device := flag.String("device", "eth0", "the `device` by which nodes reach each other")
	flag.Parse()
	if err := run(ctx, *kubeconfig, *network, *device); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run keeps the network of the node that NODE_NAME names, until ctx ends.
func run(ctx context.Context, kubeconfig, network, device string) error {
	nodes, err := kube.NewSubnetManager(ctx, "", kubeconfig, "flannel.alpha.coreos.com", network, false)
	if err != nil {
		return fmt.Errorf("reading the Nodes: %w", err)
	}
	config, err := nodes.GetNetworkConfig(ctx)
	if err != nil {
		return fmt.Errorf("reading the configuration: %w", err)
	}
	family, err := ipmatch.GetIPFamily(config.EnableIPv4, config.EnableIPv6)
	if err != nil {
		return err
	}
	outside, err := ipmatch.LookupExtIface(device, "", "", family, ipmatch.PublicIPOpts{})
	if err != nil {
		return fmt.Errorf("looking for device %s: %w", device, err)
	}
	chosen, err := backend.NewManager(ctx, nodes, outside).GetBackend(config.BackendType)
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	defer running.Wait()
	overlay, err := chosen.RegisterNetwork(ctx, &running, config)
	if err != nil {
		return fmt.Errorf("making the overlay: %w", err)
	}
	var rules trafficmngr.TrafficManager = &iptables.IPTablesManager{}
	if config.EnableNFTables {
		rules = &nftables.NFTablesManager{}
	}
	if err := rules.Init(ctx); err != nil {
		return fmt.Errorf("preparing the rules: %w", err)
	}
	err = rules.SetupAndEnsureMasqRules(ctx, config.Network, ip.IP4Net{}, ip.IP4Net{}, config.IPv6Network, overlay.Lease().IPv6Subnet, config.IPv6Network,
		overlay.Lease(), resync, false)
	if err != nil {
		return fmt.Errorf("writing the rules for masquerading: %w", err)
	}
	rules.SetupAndEnsureForwardRules(ctx, config.Network, config.IPv6Network, resync)
	overlay.Run(ctx)
	return ctx.Err()
}
