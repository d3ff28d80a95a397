package main

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/netfabric/plan"
)

// fault is one thing that happens to a cluster.
type fault struct {
	name, text string
	// condition of the ForeignCluster that tells of it; empty: none does.
	condition string
	// slow says that Kubernetes itself has patience with the part that is hit, beside that of the bench.
	slow time.Duration
	// node says that a consumer loses its virtual node by it.
	node bool
	// dies says that the node dies, and its pods are started again.
	dies bool
	// inflict returns when it has begun, undo when it has ended.
	inflict, undo func(context.Context, *victim) error
}

// What tells of a fault.
const (
	byAPIServer = "APIServerStatus"
	byNetwork   = "NetworkStatus"
	byEither    = "either"
)

func faults() []fault {
	return []fault{
		{
			name: "api-killed", text: "its API server is killed", condition: byAPIServer, node: true,
			inflict: func(_ context.Context, v *victim) error { v.site.KillAPIServer(); return nil },
			undo:    func(ctx context.Context, v *victim) error { return v.site.StartAPIServer(ctx) },
		},
		{
			name: "api-paused", text: "its API server is paused (SIGSTOP)", condition: byAPIServer, node: true,
			inflict: func(_ context.Context, v *victim) error { v.site.PauseAPIServer(); return nil },
			undo:    func(_ context.Context, v *victim) error { v.site.ResumeAPIServer(); return nil },
		},
		{
			name: "api-dropped", text: "packets to its API server are dropped, but those of its own machine", condition: byAPIServer, node: true,
			inflict: dropAPI, undo: func(ctx context.Context, v *victim) error { return v.node.Machine.Pass(ctx, faultTable) },
		},
		{
			name: "api-failing", text: "its API server answers 500 to other machines", condition: byAPIServer, node: true,
			inflict: failAPI, undo: mendAPI,
		},
		{
			name: "tunnel-cut", text: "no packet passes between the gateways", condition: byNetwork,
			inflict: func(ctx context.Context, v *victim) error { return v.cutTunnel(ctx, true) },
			undo:    func(ctx context.Context, v *victim) error { return v.site.Fabric.Machine.Pass(ctx, faultTable) },
		},
		{
			name: "tunnel-cut-from", text: "no packet passes from its gateway to the other", condition: byNetwork,
			inflict: func(ctx context.Context, v *victim) error { return v.cutTunnel(ctx, false) },
			undo:    func(ctx context.Context, v *victim) error { return v.site.Fabric.Machine.Pass(ctx, faultTable) },
		},
		{
			name: "gateway-killed", text: "its gateway is killed", condition: byNetwork,
			inflict: func(_ context.Context, v *victim) error { v.site.Fabric.Gateway().Kill(); return nil },
			undo:    func(_ context.Context, v *victim) error { return v.site.Fabric.RestartGateway() },
		},
		{
			name: "node-killed", text: "its only node dies, with liqod's roles; API server and gateway live on other hosts", dies: true, slow: nodeGrace,
			inflict: func(ctx context.Context, v *victim) error { return v.site.KillNode(ctx, v.node) },
			undo:    func(ctx context.Context, v *victim) error { return v.site.StartNode(ctx, v.node) },
		},
		{
			name: "all-killed", text: "all of it dies", condition: byEither, node: true, dies: true,
			inflict: func(ctx context.Context, v *victim) error { return v.site.KillAll(ctx) },
			undo:    func(ctx context.Context, v *victim) error { return v.site.StartAll(ctx) },
		},
	}
}

func faultNames() (names []string) {
	for _, f := range faults() {
		names = append(names, f.name)
	}
	return names
}

// faultOf is the fault of that name, which exists.
func faultOf(name string) (out fault) {
	for _, f := range faults() {
		if f.name == name {
			out = f
		}
	}
	return out
}

// faultTable names the rules of nftables that a fault needs.
const faultTable = "benchfault"

// dropAPI drops what reaches the API server from other machines and from pods.
func dropAPI(ctx context.Context, v *victim) error {
	server, err := url.Parse(v.site.APIServer)
	if err != nil {
		return fmt.Errorf("reading the URL of the API server of %s: %w", v.site.Name, err)
	}
	return v.node.Machine.Drop(ctx, faultTable, lab.Drops{Received: []string{fmt.Sprintf(`iifname != "lo" tcp dport %s`, server.Port())}})
}

// failAPI leads other machines to the front of the API server, which fails all requests.
// Their connections of before are reset.
func failAPI(ctx context.Context, v *victim) error {
	server, err := url.Parse(v.site.APIServer)
	if err != nil {
		return fmt.Errorf("reading the URL of the API server of %s: %w", v.site.Name, err)
	}
	front, err := url.Parse(v.site.Proxied().URL)
	if err != nil {
		return fmt.Errorf("reading the URL of the front of %s: %w", v.site.Name, err)
	}
	v.site.Proxied().Fail()
	return v.rules(ctx, frontRules(server.Port(), front.Hostname(), front.Port()))
}

// frontRules lead connections to a port of this machine to the front, but those of the
// front's own host: it reaches the API server by the same port.
func frontRules(port, host, frontPort string) string {
	others := fmt.Sprintf(`iifname "eth0" ip saddr != %s tcp dport %s`, host, port)
	return fmt.Sprintf(`table ip %s {
	chain resets { type filter hook input priority -300; %s reject with tcp reset; }
	chain leads { type nat hook prerouting priority -110; %[2]s dnat to %[3]s:%[4]s; }
	chain hides { type nat hook postrouting priority 90; ip daddr %[3]s tcp dport %[4]s masquerade; }
}
`, faultTable, others, host, frontPort)
}

// mendAPI leads other machines to the API server itself again.
func mendAPI(ctx context.Context, v *victim) error {
	v.site.Proxied().Pass()
	err := v.rules(ctx, "delete table ip "+faultTable)
	v.site.Proxied().Cut()
	return err
}

// cutTunnel drops what the gateway sends to other gateways, and also what it gets from them
// if both is true.
func (v *victim) cutTunnel(ctx context.Context, both bool) error {
	tunnel := []string{fmt.Sprintf("udp dport %d", plan.TunnelPort)}
	drops := lab.Drops{Leaving: tunnel}
	if both {
		drops.Arriving = tunnel
	}
	return v.site.Fabric.Machine.Drop(ctx, faultTable, drops)
}

// rules changes the rules of the node.
func (v *victim) rules(ctx context.Context, rules string) error {
	_, err := v.node.Machine.Command(ctx, "nft", rules)
	return err
}
