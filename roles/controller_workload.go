package roles

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	storagelisters "k8s.io/client-go/listers/storage/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadinglisters "github.com/liqod/liqod/api/generated/listers/offloading/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/roles/config"
	"github.com/liqod/liqod/shadow/namespace"
	"github.com/liqod/liqod/shadow/pod"
	"github.com/liqod/liqod/shadow/rules"
)

func (c *controller) addWorkload() {
	classes, quotas := c.own.Storage().V1().StorageClasses(), c.liqo.Offloading().V1beta1().Quotas()
	peers := c.liqo.Core().V1beta1().ForeignClusters()
	harden := hardener{
		allowed: perPeer(c.env.Config, peers.Lister(), func(cfg config.Config) rules.Allowed { return allowedToPeers(cfg, classes.Lister()) }), quotas: quotas.Lister(),
	}
	lease := c.env.Config.Lease
	enforcer := pod.New(pod.Config{
		RoomConfig: pod.RoomConfig{
			Kube: c.home.fenced.kube, Liqo: c.home.fenced.liqo, Quotas: quotas.Informer(),
			LimitRanges: c.own.Core().V1().LimitRanges(), RuntimeClasses: c.own.Node().V1().RuntimeClasses(),
			Patience: c.cfg.QuotaPatience, Settle: lease.Duration - lease.RenewDeadline, HomeLost: c.home.head.Lost, Env: c.env.component(),
		},
		ShadowPods: c.liqo.Offloading().V1beta1().ShadowPods().Informer(), Pods: c.pods.Core().V1().Pods().Informer(),
		Namespaces: c.own.Core().V1().Namespaces().Informer(), ForeignClusters: peers.Informer(), StorageClasses: classes.Informer(),
		Harden: countPods(c.env.Denied, harden.harden), Metadata: perPeer(c.env.Config, peers.Lister(), metadataOf), AlwaysPull: c.cfg.AlwaysPullImages,
		Limits: config.Amounts(c.env.Config.Sharing.TwinLimits), Recorder: c.events,
	})
	c.env.Registry.add(newQuotaMetrics(enforcer.Accounts))
	c.addLoop("shadow-pods", enforcer)
	c.addLoop("ingress-hosts", namespace.NewHosts(namespace.HostsConfig{
		Ingresses: c.own.Networking().V1().Ingresses(), Recorder: c.events, Env: c.env.component(),
	}))
	c.addLostNodes()
}

// allowedToPeers returns what the settings allow pods of peers.
func allowedToPeers(cfg config.Config, classes storagelisters.StorageClassLister) rules.Allowed {
	return rules.Allowed{
		Cluster:        cfg.ClusterID,
		RuntimeClasses: cfg.Controller.RuntimeClasses, VolumeTypes: cfg.Controller.VolumeTypes, StorageClasses: cfg.Sharing.StorageClasses,
		SelectorLabels: slices.Concat(cfg.Sharing.SelectorLabels, slices.Sorted(maps.Keys(config.Pairs(cfg.Sharing.NodeSelector)))),
		Tolerations:    config.Tolerations(cfg.Controller.Tolerations), AlwaysPull: cfg.Controller.AlwaysPullImages,
		ProvisionedClass: provisioned(classes),
		DefaultStorageClass: func() string {
			return rules.DefaultStorageClass(store.Listed(classes.List(labels.Everything())))
		},
	}
}

// provisioned reports of a storage class whether it exists and has a provisioner.
func provisioned(classes storagelisters.StorageClassLister) func(string) bool {
	return func(name string) bool {
		class, err := classes.Get(name)
		return err == nil && rules.Provisioned(class)
	}
}

// hardener hardens the pods of each consumer.
type hardener struct {
	allowed func(consumer string) rules.Allowed
	quotas  offloadinglisters.QuotaLister
}

// harden also accepts the labels of the consumer's Quotas: it was told of these nodes.
func (h hardener) harden(consumer string, spec *corev1.PodSpec) error {
	allowed := h.allowed(consumer)
	quotas := store.Listed(h.quotas.Quotas(corev1beta1.TenantNamespace(consumer)).List(labels.Everything()))
	for _, key := range quotaLabels(quotas) {
		if !slices.Contains(allowed.SelectorLabels, key) {
			allowed.SelectorLabels = append(slices.Clip(allowed.SelectorLabels), key)
		}
	}
	return rules.Harden(spec, allowed)
}

// quotaLabels returns the labels by which Quotas select nodes, sorted.
func quotaLabels(quotas []*offloadingv1beta1.Quota) []string {
	keys := map[string]bool{}
	for _, q := range quotas {
		for key := range q.Spec.NodeSelector {
			keys[key] = true
		}
	}
	return slices.Sorted(maps.Keys(keys))
}

// addLostNodes adds the force deletion of pods on NotReady nodes, if it is enabled.
func (c *controller) addLostNodes() {
	if !c.cfg.NodeFailure {
		return
	}
	c.addLoop("lost-nodes", pod.NewLostNodes(pod.LostNodesConfig{
		Kube: c.home.fenced.kube, Nodes: c.own.Core().V1().Nodes(), Pods: c.pods.Core().V1().Pods(),
		Recorder: c.events, Env: c.env.component(),
	}))
}

// quotaMetrics collects the usage and the limits of each consumer at the time of the scrape.
type quotaMetrics struct {
	described

	accounts             func() []pod.Account
	used, limit, waiting *prometheus.Desc
}

func newQuotaMetrics(accounts func() []pod.Account) quotaMetrics {
	m := quotaMetrics{
		accounts: accounts,
		used:     describe("liqod_quota_used", "Sum of the requests of a consumer's pods that have not ended, in the resource's base unit; at most 256 resources.", "consumer", "resource"),
		limit:    describe("liqod_quota_limit", "Limit by the consumer's Quotas, without cordoned ones; absent for resources without a limit.", "consumer", "resource"),
		waiting:  describe("liqod_quota_waiting", "ShadowPods that wait for room in a consumer's Quotas.", "consumer"),
	}
	m.described = described{m.used, m.limit, m.waiting}
	return m
}

// Collect implements prometheus.Collector.
func (m quotaMetrics) Collect(out chan<- prometheus.Metric) {
	for _, a := range m.accounts() {
		gauges(out).resources(m.used, a.Used, a.Consumer)
		gauges(out).resources(m.limit, a.Limit, a.Consumer)
		gauges(out).send(m.waiting, float64(a.Waiting), a.Consumer)
	}
}
