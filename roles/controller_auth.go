package roles

import (
	"context"
	"net/netip"
	"net/url"
	"slices"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/kube/serve"
	"github.com/liqod/liqod/peering/auth"
	"github.com/liqod/liqod/peering/link"
	"github.com/liqod/liqod/roles/config"
)

// authService is the chart's Service that leads to the authentication endpoint.
const authService = "liqod-auth"

// addAuthentication wires the authentication endpoint, which gives peers their identities.
// Every replica serves it and renews its certificate, with or without the lease.
func (c *controller) addAuthentication() {
	cfg := c.env.Config.Authentication
	if cfg.Address == "" {
		return
	}
	source, secrets := follow(c.env, c.home.plain.kube, corev1beta1.AuthCertificatesName)
	authority := serve.NewAuthority(serve.AuthorityConfig{Loop: "auth-certificates", Secrets: secrets.Core().V1().Secrets(), Keeper: serve.CertificateKeeper{
		Kube: c.home.plain.kube, Namespace: c.env.Config.Namespace, Name: corev1beta1.AuthCertificatesName, Hosts: authHosts(c.env), Clock: c.env.Clock, Log: c.env.Log,
	}}, c.env.Observer)
	requests := counter("liqod_authentication_requests_total", "Requests of peers; result is granted or the reason of the refusal.", "path", "result")
	c.env.Registry.add(requests)
	cluster := auth.NewCluster(auth.ClusterConfig{
		Namespace: c.env.Config.Namespace, Kube: c.home.plain.kube, Liqo: c.home.plain.liqo,
		APIServerURL: cfg.APIServerURL, Host: c.home.plain.config.Host, Ranges: ownRanges(c.env.Config.Networking),
		Events: c.events, Clock: c.env.Clock, Log: c.env.Log,
	})
	endpoint := auth.New(auth.Config{
		ClusterID: c.env.Config.ClusterID, Version: c.env.Version, Authorities: func() string { return string(source.Bundle()) },
		Home: cluster, Wanted: func(fc *corev1beta1.ForeignCluster) bool { return link.OutgoingWanted(fc, c.outgoing) },
		Identity: cfg.Identity, Lifetime: cfg.Lifetime, PerMinute: cfg.RequestsPerMinute, PerAddress: cfg.RequestsPerAddress,
		Connections: cfg.Connections, ConnectionsPerAddress: cfg.ConnectionsPerAddress, MaxPeers: cfg.MaxPeers, AcceptRanges: config.Prefixes(cfg.AcceptRanges),
		Count:  func(path, result string) { requests.WithLabelValues(path, result).Inc() },
		Closed: func() { c.env.Closed("authentication") }, Clock: c.env.Clock, Log: c.env.Log,
	})
	c.env.Expiries.serving("authentication", source.GetCertificate)
	c.env.Ready.Add("authentication", func() error {
		if !source.Ready() {
			return serve.ErrNoCertificate
		}
		return nil
	})
	c.actors = append(c.actors,
		Actor{Name: "auth-caches", Run: runFactories(secrets)},
		Actor{Name: "auth-certificates", Run: authority.Run},
		Actor{Name: "auth", Run: func(ctx context.Context) error { return endpoint.Serve(ctx, cfg.Address, source.GetCertificate) }})
}

// ownRanges returns the ranges of this cluster that its settings name.
func ownRanges(n config.Networking) []netip.Prefix {
	texts := slices.Concat(n.PodCIDRs, n.ServiceCIDRs, n.NodeCIDRs, n.ReservedSubnets)
	if n.Enabled {
		texts = append(texts, n.ExternalCIDRs...)
	}
	return config.Prefixes(texts)
}

// authHosts returns the host names of the endpoint.
func authHosts(env Env) []string {
	cfg := env.Config.Authentication
	service := authService + "." + env.Config.Namespace + ".svc"
	hosts := []string{service, service + ".cluster.local"}
	if u, err := url.Parse(cfg.URL); err == nil && u.Hostname() != "" {
		hosts = append(hosts, u.Hostname())
	}
	return append(hosts, cfg.Hosts...)
}
