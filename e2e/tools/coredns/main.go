// Command coredns is the cluster DNS of the lab: CoreDNS with the nine plugins
// that a cluster needs, instead of all, so that it builds in a fraction of the time.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/file"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/loop"
	_ "github.com/coredns/coredns/plugin/ready"
)

func main() {
	// The order is the order of the handler chain, as in CoreDNS' own plugin.cfg.
	dnsserver.Directives = []string{"ready", "health", "errors", "loadbalance", "cache", "kubernetes", "file", "loop", "forward"}
	coremain.Run()
}
