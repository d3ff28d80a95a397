package roles

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/liqod/liqod/shadow/rules"
	"github.com/liqod/liqod/shadow/workload"
)

func (c *controller) addWorkload() error {
	classes := c.own.Storage().V1().StorageClasses()
	allowed := rules.Allowed{
		RuntimeClasses: c.cfg.RuntimeClasses, StorageClasses: c.env.Config.Sharing.StorageClasses,
		DefaultStorageClass: func() string {
			all, err := classes.Lister().List(labels.Everything())
			if err != nil {
				return "" // a lister fails only for an invalid selector
			}
			return rules.DefaultStorageClass(all)
		},
	}
	lease := c.env.Config.Lease
	enforcer, err := workload.New(workload.Config{
		Kube: c.home.fenced.kube, Liqo: c.home.fenced.liqo,
		ShadowPods: c.liqo.Offloading().V1beta1().ShadowPods().Informer(), Pods: c.pods.Core().V1().Pods().Informer(),
		Namespaces: c.own.Core().V1().Namespaces().Informer(), Quotas: c.liqo.Offloading().V1beta1().Quotas().Informer(),
		LimitRanges: c.own.Core().V1().LimitRanges(), RuntimeClasses: c.own.Node().V1().RuntimeClasses(), StorageClasses: classes.Informer(),
		Harden:   func(spec *corev1.PodSpec) error { return rules.Harden(spec, allowed) },
		Patience: c.cfg.QuotaPatience, Settle: lease.Duration - lease.RenewDeadline, HomeLost: c.home.head.Lost,
		Recorder: c.events, Clock: c.env.Clock, Log: c.env.Log, Observer: c.env.Observer,
	})
	if err != nil {
		return err
	}
	if err := c.env.Registry.Register(newQuotaMetrics(enforcer.Accounts)); err != nil {
		return fmt.Errorf("registering the metrics of quotas: %w", err)
	}
	c.loop("shadow-pods", enforcer)
	return c.addLostNodes()
}

// addLostNodes adds the force deletion of pods on NotReady nodes, if it is enabled.
func (c *controller) addLostNodes() error {
	if !c.cfg.NodeFailure {
		return nil
	}
	lost, err := workload.NewLostNodes(workload.LostNodesConfig{
		Kube: c.home.fenced.kube, Nodes: c.own.Core().V1().Nodes(), Pods: c.pods.Core().V1().Pods(),
		Recorder: c.events, Clock: c.env.Clock, Log: c.env.Log, Observer: c.env.Observer,
	})
	if err != nil {
		return err
	}
	c.loop("lost-nodes", lost)
	return nil
}

// quotaMetrics collects the usage and the limits of each consumer at the time of the scrape.
type quotaMetrics struct {
	accounts             func() []workload.Account
	used, limit, waiting *prometheus.Desc
}

func newQuotaMetrics(accounts func() []workload.Account) quotaMetrics {
	describe := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return quotaMetrics{
		accounts: accounts,
		used:     describe("liqod_quota_used", "Sum of the requests of a consumer's pods that have not ended, in the resource's base unit.", "consumer", "resource"),
		limit:    describe("liqod_quota_limit", "Limit by the consumer's Quotas, without cordoned ones; absent for resources without a limit.", "consumer", "resource"),
		waiting:  describe("liqod_quota_waiting", "ShadowPods that wait for room in a consumer's Quotas.", "consumer"),
	}
}

// Describe implements prometheus.Collector.
func (m quotaMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.used, m.limit, m.waiting} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (m quotaMetrics) Collect(out chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	for _, a := range m.accounts() {
		for name, quantity := range a.Used {
			send(m.used, quantity.AsApproximateFloat64(), a.Consumer, string(name))
		}
		for name, quantity := range a.Limit {
			send(m.limit, quantity.AsApproximateFloat64(), a.Consumer, string(name))
		}
		send(m.waiting, float64(a.Waiting), a.Consumer)
	}
}
