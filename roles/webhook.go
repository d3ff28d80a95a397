package roles

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/liqod/liqod/api/generated/informers/externalversions"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/client"
	"github.com/liqod/liqod/kube/serve"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/peering/link"
	"github.com/liqod/liqod/roles/config"
	"github.com/liqod/liqod/shadow/namespace"
	"github.com/liqod/liqod/shadow/pod"
)

// Paths of the webhook's rules. docs/security.md#what-the-webhook-role-checks describes them.
const (
	mutatePodPath                   = "/mutate/pod"
	mutateServicePath               = "/mutate/service"
	mutateMetadataPath              = "/mutate/metadata"
	validateIngressPath             = "/validate/ingress"
	validateClaimPath               = "/validate/claim"
	validateSessionPath             = "/validate/session"
	validateBindingPath             = "/validate/binding"
	validateVolumePath              = "/validate/volume"
	validateShadowPodPath           = "/validate/shadowpod"
	validateNamespaceOffloadingPath = "/validate/namespaceoffloading"
	validateVirtualNodePath         = "/validate/virtualnode"
	validateForeignClusterPath      = "/validate/foreigncluster"
)

// Limits of the webhook's server. They are far above what API servers send, and bound the
// memory of the process: a review takes up to three times its size.
const (
	webhookConnections        = 512
	webhookAddressConnections = 256
	webhookBytes              = 40 << 20 // of all reviews in work
	webhookSourceBytes        = 8 << 20  // of those of one source
	webhookReviews            = 1000     // per second and source
	webhookWait               = 2 * time.Second
	webhookHeaders            = 16 << 10 // bytes
	webhookRequest            = 10 * time.Second
	webhookAnswer             = 45 * time.Second // an API server waits for at most 30
	webhookGrace              = 5 * time.Second  // the creation of a pod waits for each answer
)

func buildWebhook(_ context.Context, env Env) (Parts, error) {
	h, err := newHome(env, env.Config.Namespace, "liqod-webhook")
	if err != nil {
		return Parts{}, err
	}
	own := externalversions.NewSharedInformerFactoryWithOptions(h.plain.liqo, 0, externalversions.WithTransform(client.StripManagedFields))
	source, secrets := follow(env, h.plain.kube, webhookCertificates)
	offloadings := own.Offloading().V1beta1().NamespaceOffloadings()
	offloaded := stripped(h.plain.kube, labelled(offloadingv1beta1.SchedulingEnabledLabel+"=true"))
	namespaces := offloaded.Core().V1().Namespaces()
	core := stripped(h.plain.kube)
	classes := core.Storage().V1().StorageClasses()
	pods := namespace.PodRule{
		Offloadings: offloadings.Lister(), Namespaces: namespaces.Lister(), Classes: classes.Lister(), ClassesSynced: classes.Informer().HasSynced, Liqo: h.plain.liqo, Kube: h.plain.kube, OwnNamespace: env.Config.Namespace,
		NoOwnVolumes: env.Config.Storage.StorageNamespace == "",
	}
	caches := map[string]cache.InformerSynced{
		"NamespaceOffloadings": offloadings.Informer().HasSynced, "offloaded namespaces": namespaces.Informer().HasSynced,
		"StorageClasses": classes.Informer().HasSynced,
		"VirtualNodes":   own.Offloading().V1beta1().VirtualNodes().Informer().HasSynced, "ForeignClusters": own.Core().V1beta1().ForeignClusters().Informer().HasSynced,
	}
	env.Ready.Add("webhook", func() error {
		if !source.Ready() {
			return serve.ErrNoCertificate
		}
		for kind, known := range caches {
			if !known() {
				return fmt.Errorf("the cache of %s is not filled yet", kind)
			}
		}
		return nil
	})
	quotas, ranges := own.Offloading().V1beta1().Quotas(), core.Core().V1().LimitRanges()
	shadows := pod.Rule{
		Quotas: quotas.Lister(), LimitRanges: ranges.Lister(), Synced: []cache.InformerSynced{quotas.Informer().HasSynced, ranges.Informer().HasSynced},
	}
	rules := rulesForPeople(h.plain, own, env.Config.ClusterID, env.Config.Namespace)
	rules[mutatePodPath], rules[validateShadowPodPath] = pods.Decide, countRequests(env.Denied, deniedQuota, lenient(shadows.Decide))
	rulesForPeers(env.Config, own.Core().V1beta1().ForeignClusters(), core, env.Denied, rules)
	rules[validateSessionPath] = countRequests(env.Denied, deniedSession, strict(namespace.PeerSessionRule{Pods: h.plain.kube.CoreV1()}.Decide))
	written := namespace.ControllerRule{Kube: h.plain.kube, Liqo: h.plain.liqo, StorageNamespace: env.Config.Storage.StorageNamespace}
	rules[validateBindingPath], rules[validateVolumePath] = strict(written.DecideBinding), strict(written.DecideVolume)
	measure(env.Registry, rules)
	refused := counter("liqod_webhook_refused_total", "Reviews that the webhook refused for a limit.")
	env.Registry.add(refused)
	env.Expiries.serving("webhook", source.GetCertificate)
	return Parts{Leader: h.lease, Actors: []Actor{
		{Name: "caches", Run: runFactories(own, core, offloaded, secrets)},
		{Name: "witness", Leased: true, Run: witness(env, h).Run},
		{Name: "server", Run: webhookServer(env, source, rules, refused.WithLabelValues().Inc)},
	}}, nil
}

// witness writes the health of peers while no replica of role controller leads. A take-over
// lasts as long as the Lease, and a little more.
func witness(env Env, h home) *link.Witness {
	reports := &gatewayReports{
		leases: h.plain.kube.CoordinationV1().Leases(env.Config.Namespace), liqo: h.plain.liqo,
		otherwise: env.Config.Lease.Duration, clock: env.Clock, log: env.Log,
	}
	return link.NewWitness(link.WitnessConfig{
		Leases: h.plain.kube.CoordinationV1(), Namespace: env.Config.Namespace, Name: controllerLease,
		Period: env.Config.Lease.RetryPeriod, Patience: 2 * env.Config.Lease.Duration, Networks: reports.networks, Liqo: h.fenced.liqo, Clock: env.Clock, Log: env.Log,
	})
}

// follow returns the certificate in a Secret of liqod's namespace, and the informers that it follows.
func follow(env Env, kube kubernetes.Interface, secret string) (*serve.Certificate, informers.SharedInformerFactory) {
	source := &serve.Certificate{}
	secrets := informers.NewSharedInformerFactoryWithOptions(kube, 0, informers.WithNamespace(env.Config.Namespace), named(secret))
	// Fails for an informer that has stopped only.
	_, _ = secrets.Core().V1().Secrets().Informer().AddEventHandler(store.Handler[*corev1.Secret]{Set: func(_, secret *corev1.Secret) {
		if err := source.Set(secret.Data); err != nil {
			env.Log.Warn("certificates not usable; role controller replaces them", zap.Error(err))
		}
	}})
	return source, secrets
}

func webhookServer(env Env, source *serve.Certificate, rules map[string]serve.Rule, refused func()) func(context.Context) error {
	mux := http.NewServeMux()
	for path, rule := range rules {
		mux.Handle("POST "+path, serve.Reviews(env.Log, rule))
	}
	guarded := serve.Guard(serve.GuardConfig{
		PerSecond: webhookReviews, Bytes: webhookBytes, SourceBytes: webhookSourceBytes, Wait: webhookWait,
		Count: refused, Clock: env.Clock,
	}, mux)
	return func(ctx context.Context) error {
		server, err := serve.Listen(ctx, serve.Config{
			Address: env.Config.Webhook.Address, Handler: lastOf(ctx, guarded), TLS: webhookTLS(env.Config.Webhook, source),
			Connections: webhookConnections, PerAddress: webhookAddressConnections, Headers: webhookHeaders,
			Request: webhookRequest, Answer: webhookAnswer, Grace: webhookGrace, Count: func() { env.Closed("webhook") }, Log: env.Log,
		})
		if err != nil {
			return fmt.Errorf("serving webhooks: %w", err)
		}
		// The nodes need a moment until they lead the API server to other replicas only.
		drained, stop := context.WithCancel(context.WithoutCancel(ctx))
		defer stop()
		defer context.AfterFunc(ctx, func() {
			<-env.Clock.After(env.Config.Webhook.Drain)
			stop()
		})()
		return server.Run(drained)
	}
}

// lastOf has each connection closed after its answer once ctx is done. An API server sends
// reviews on connections that it keeps (HTTP/1.1), and a review that is on its way when
// Shutdown closes its connection fails.
func lastOf(ctx context.Context, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ctx.Err() != nil {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// webhookTLS returns the TLS configuration of the webhook. With authorities of API servers,
// a client without a certificate of them does not get beyond the handshake.
func webhookTLS(cfg config.Webhook, source *serve.Certificate) *tls.Config {
	out := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: source.GetCertificate}
	if cfg.ClientCA == "" {
		return out
	}
	out.ClientAuth, out.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	out.ClientCAs.AppendCertsFromPEM([]byte(cfg.ClientCA))
	out.VerifyConnection = func(state tls.ConnectionState) error {
		if name := state.PeerCertificates[0].Subject.CommonName; len(cfg.ClientNames) > 0 && !slices.Contains(cfg.ClientNames, name) {
			return errors.New("the name of the client's certificate is not in webhook.clientNames")
		}
		return nil
	}
	return out
}
