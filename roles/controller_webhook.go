package roles

import (
	"k8s.io/client-go/informers"

	"github.com/liqod/liqod/kube/serve"
)

// The chart's Service of role webhook, the Secret with its certificate, and its
// MutatingWebhookConfiguration and ValidatingWebhookConfiguration.
const (
	webhookService       = "liqod-webhook"
	webhookCertificates  = "liqod-webhook-certs"
	webhookConfiguration = "liqod"
)

// addWebhookCertificates wires the loop that makes the webhook's certificate and writes the
// caBundles of its configurations. Role webhook only reads the certificate, because every client
// in the cluster reaches its port: the right to write a webhook configuration is the right to
// read and change every object that is written in the cluster.
func (c *controller) addWebhookCertificates() {
	core := c.home.plain.kube
	secrets := informers.NewSharedInformerFactoryWithOptions(core, 0, informers.WithNamespace(c.env.Config.Namespace), named(webhookCertificates))
	configurations := informers.NewSharedInformerFactoryWithOptions(core, 0, named(webhookConfiguration))
	authority := serve.NewAuthority(serve.AuthorityConfig{
		Loop: "webhook-certificates", Secrets: secrets.Core().V1().Secrets(), Configuration: webhookConfiguration,
		Mutating:   configurations.Admissionregistration().V1().MutatingWebhookConfigurations(),
		Validating: configurations.Admissionregistration().V1().ValidatingWebhookConfigurations(),
		Keeper: serve.CertificateKeeper{
			Kube: c.home.fenced.kube, Namespace: c.env.Config.Namespace, Name: webhookCertificates, Hosts: webhookHosts(c.env), Clock: c.env.Clock, Log: c.env.Log,
		},
	}, c.env.Observer)
	c.actors = append(c.actors, Actor{Name: "webhook-caches", Run: runFactories(secrets, configurations)})
	c.leased("webhook-certificates", authority.Run)
}

// webhookHosts returns the host names and addresses of the webhook's certificate.
func webhookHosts(env Env) []string {
	service := webhookService + "." + env.Config.Namespace + ".svc"
	return append([]string{service, service + ".cluster.local"}, env.Config.Webhook.Hosts...)
}
