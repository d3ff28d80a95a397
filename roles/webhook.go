package roles

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"go.uber.org/zap"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/liqod/liqod/api/generated/clientset/versioned"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	offloadinglisters "github.com/liqod/liqod/api/generated/listers/offloading/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/admit"
	"github.com/liqod/liqod/kube/certs"
	"github.com/liqod/liqod/kube/client"
	"github.com/liqod/liqod/shadow/rules"
)

// Paths of the webhook's rules.
const mutatePodPath = "/mutate/pod"

// An API server sends a review at once, and keeps its connections. Others reach the webhook,
// too: what they begin is not kept for them.
const (
	webhookHeaderTimeout = 5 * time.Second
	webhookReadTimeout   = 10 * time.Second
	webhookIdleTimeout   = 2 * time.Minute
)

func buildWebhook(_ context.Context, env Env) (Parts, error) {
	cfg := env.Config.Webhook
	h, err := newHome(env, env.Config.Namespace, "liqod-webhook")
	if err != nil {
		return Parts{}, err
	}
	own := externalversions.NewSharedInformerFactoryWithOptions(h.plain.liqo, 0, externalversions.WithTransform(client.StripManagedFields))
	secrets := informers.NewSharedInformerFactoryWithOptions(h.plain.kube, 0, informers.WithNamespace(env.Config.Namespace), named(cfg.SecretName))
	configurations := informers.NewSharedInformerFactoryWithOptions(h.plain.kube, 0, named(cfg.ConfigurationName))
	authority, err := admit.NewAuthority(admit.AuthorityConfig{
		Kube: h.fenced.kube, Secrets: secrets.Core().V1().Secrets(),
		Mutating:   configurations.Admissionregistration().V1().MutatingWebhookConfigurations(),
		Validating: configurations.Admissionregistration().V1().ValidatingWebhookConfigurations(),
		Namespace:  env.Config.Namespace, Secret: cfg.SecretName, Configuration: cfg.ConfigurationName,
		Hosts: webhookHosts(env), Clock: env.Clock, Log: env.Log,
	}, env.Observer)
	if err != nil {
		return Parts{}, err
	}
	var source certs.Source
	if err := follow(secrets.Core().V1().Secrets().Informer(), &source, env.Log); err != nil {
		return Parts{}, err
	}
	offloadings := own.Offloading().V1beta1().NamespaceOffloadings()
	rule := podRule{lister: offloadings.Lister(), synced: offloadings.Informer().HasSynced, liqo: h.plain.liqo, ownNamespace: env.Config.Namespace}
	env.Ready.Add("webhook", func() error {
		if !source.Ready() {
			return certs.ErrNoCertificate
		}
		if !rule.synced() {
			return errors.New("NamespaceOffloadings are not known yet")
		}
		return nil
	})
	core := informers.NewSharedInformerFactoryWithOptions(h.plain.kube, 0, informers.WithTransform(client.StripManagedFields))
	quotas, ranges := own.Offloading().V1beta1().Quotas(), core.Core().V1().LimitRanges()
	shadows := shadowPodRule{
		quotas: quotas.Lister(), ranges: ranges.Lister(), synced: []cache.InformerSynced{quotas.Informer().HasSynced, ranges.Informer().HasSynced},
	}
	return Parts{Leader: h.lease, Actors: []Actor{
		{Name: "caches", Run: runFactories(own, core, secrets, configurations)},
		{Name: "certificates", Leased: true, Run: authority.Run},
		{Name: "server", Run: webhookServer(env, &source, webhookRules(env, h, rule, shadows))},
	}}, nil
}

// webhookRules are all rules, by their paths.
func webhookRules(env Env, h home, pods podRule, shadows shadowPodRule) map[string]admit.Func {
	people := written{kube: h.plain.kube, liqo: h.plain.liqo, clusterID: env.Config.ClusterID, ownNamespace: env.Config.Namespace}
	rules := people.rules()
	rules[mutatePodPath] = pods.decide
	rules[validateShadowPodPath] = shadows.decide
	return rules
}

// named restricts a factory to the objects of one name.
func named(name string) informers.SharedInformerOption {
	return informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	})
}

func webhookHosts(env Env) []string {
	service := env.Config.Webhook.ServiceName + "." + env.Config.Namespace + ".svc"
	return append([]string{service, service + ".cluster.local"}, env.Config.Webhook.Hosts...)
}

// follow gives the source each new certificate of the Secret.
func follow(secrets cache.SharedIndexInformer, source *certs.Source, log *zap.Logger) error {
	set := func(obj any) {
		if secret, ok := obj.(*corev1.Secret); ok {
			if err := source.Set(secret.Data); err != nil {
				log.Warn("the certificates cannot be used; they are about to be replaced", zap.Error(err))
			}
		}
	}
	_, err := secrets.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: set, UpdateFunc: func(_, obj any) { set(obj) }})
	return err
}

// runFactories returns an actor that keeps caches filled.
func runFactories(factories ...factory) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, f := range factories {
			f.Start(ctx.Done())
		}
		<-ctx.Done()
		for _, f := range factories {
			f.Shutdown()
		}
		return nil
	}
}

func webhookServer(env Env, source *certs.Source, rules map[string]admit.Func) func(context.Context) error {
	mux := http.NewServeMux()
	for path, rule := range rules {
		mux.Handle("POST "+path, admit.Handler(env.Log, rule))
	}
	return func(ctx context.Context) error {
		server := &http.Server{
			Addr: env.Config.Webhook.Address, Handler: mux, ReadHeaderTimeout: webhookHeaderTimeout,
			ReadTimeout: webhookReadTimeout, IdleTimeout: webhookIdleTimeout,
			TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: source.GetCertificate},
			ErrorLog:  zap.NewStdLog(env.Log.WithOptions(zap.IncreaseLevel(zap.ErrorLevel))),
		}
		failed := make(chan error, 1)
		go func() { failed <- server.ListenAndServeTLS("", "") }()
		select {
		case err := <-failed:
			return fmt.Errorf("serving webhooks at %s: %w", env.Config.Webhook.Address, err)
		case <-ctx.Done():
		}
		// Requests in flight are answered: a pod's creation waits for each.
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		err := server.Shutdown(stopping)
		<-failed
		return err
	}
}

// podRule is the webhook's rule for pods in offloaded namespaces.
type podRule struct {
	lister       offloadinglisters.NamespaceOffloadingLister
	synced       cache.InformerSynced
	liqo         versioned.Interface
	ownNamespace string
}

func (r podRule) decide(ctx context.Context, req *admissionv1.AdmissionRequest) admit.Response {
	if req.Namespace == r.ownNamespace || req.Operation != admissionv1.Create {
		return admit.Allow()
	}
	var pod corev1.Pod
	if err := json.Unmarshal(req.Object.Raw, &pod); err != nil {
		return admit.Response{Message: "reading the pod: " + err.Error(), Code: http.StatusBadRequest}
	}
	offloading, err := r.offloading(ctx, req.Namespace)
	if err != nil {
		return admit.Response{Message: err.Error(), Code: http.StatusServiceUnavailable}
	}
	spec := offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsLocal}
	if offloading != nil {
		spec = offloading.Spec
	}
	want, err := rules.Offload(&pod, spec.PodOffloadingStrategy, spec.ClusterSelector)
	if err != nil {
		return admit.Deny(fmt.Sprintf("namespace %s: %v", req.Namespace, err))
	}
	patch, err := operations(&pod, want)
	if err != nil {
		return admit.Response{Message: "comparing pods: " + err.Error(), Code: http.StatusInternalServerError}
	}
	return admit.Allow(patch...)
}

func operations(have, want *corev1.Pod) ([]admit.Operation, error) {
	patch, err := rules.OffloadPatch(have, want)
	if err != nil || len(patch) == 0 {
		return nil, err
	}
	var steps []admit.Operation
	return steps, json.Unmarshal(patch, &steps)
}

// offloading returns the NamespaceOffloading of a namespace, nil if there is none. The
// namespace's label says that there is one: its absence is confirmed by a live read.
func (r podRule) offloading(ctx context.Context, namespace string) (*offloadingv1beta1.NamespaceOffloading, error) {
	o, err := r.lister.NamespaceOffloadings(namespace).Get(offloadingv1beta1.NamespaceOffloadingName)
	if apierrors.IsNotFound(err) {
		o, err = r.liqo.OffloadingV1beta1().NamespaceOffloadings(namespace).Get(ctx, offloadingv1beta1.NamespaceOffloadingName, metav1.GetOptions{})
	}
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the NamespaceOffloading of namespace %s: %w", namespace, err)
	}
	return o, nil
}
