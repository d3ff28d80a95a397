package pod

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1informers "k8s.io/client-go/informers/core/v1"
	nodev1informers "k8s.io/client-go/informers/node/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned"
	offloadingv1beta1listers "github.com/liqod/liqod/api/generated/listers/offloading/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
)

// cacheLag is the delay before the cache of Quotas is looked at again.
const cacheLag = time.Second

// LedgerConfig is the input of New. All fields are required except HomeLost and Observer.
type LedgerConfig struct {
	loop.Env

	// Kube and Liqo list the pods and the Quotas once per term.
	Kube kubernetes.Interface
	Liqo versioned.Interface
	// Quotas is the informer of the Quotas in tenant namespaces. A Quota applies to the
	// consumer of its namespace.
	Quotas cache.SharedIndexInformer
	// LimitRanges and RuntimeClasses predict the defaults and the overhead that the API server
	// adds to a pod.
	LimitRanges    corev1informers.LimitRangeInformer
	RuntimeClasses nodev1informers.RuntimeClassInformer
	// Patience is the age up to which younger, smaller ShadowPods may overtake a ShadowPod
	// that waits for room.
	Patience time.Duration
	// Settle is how long after the begin of a term the previous leader's writes may still
	// arrive.
	Settle time.Duration
	// HomeLost returns when the cluster's state was last seen to go back to an earlier one,
	// as after the restore of an etcd backup; zero: never. It may be nil.
	HomeLost func() time.Time
}

// newLedgerOf returns a Ledger and registers its event handlers on the informers. It starts nothing.
// Run needs the informers synced. again reports whether a terminated pod is going to be
// replaced: its room is kept then. It is called without locks. wake queues the key of a
// ShadowPod that has got room, or that now waits for another reason. It must not block.
func newLedgerOf(cfg LedgerConfig, again func(*corev1.Pod) bool, wake func(loop.Key)) *Ledger {
	l := &Ledger{
		cfg: cfg, again: again, wake: wake, quotas: offloadingv1beta1listers.NewQuotaLister(cfg.Quotas.GetIndexer()),
		accounts: map[string]*account{}, claims: map[loop.Key]*claim{}, asks: map[loop.Key]*ask{},
	}
	l.loop = loop.New(loop.Config{Name: "quota", Sync: l.sync, Log: cfg.Log, Observer: cfg.Observer})
	l.loop.Watch(loop.On(cfg.Quotas, store.Each(l.quotaChanged)), loop.On(cfg.LimitRanges.Informer(), store.Each(l.rangeChanged)))
	return l
}

// quotaChanged gives away what a Quota adds, and wakes the ShadowPods of its consumer that
// wait: they may wait for another reason now.
func (l *Ledger) quotaChanged(q *offloadingv1beta1.Quota) {
	consumer := corev1beta1.PeerOfNamespace(q.Namespace)
	if consumer == "" {
		return // a Quota in any other namespace applies to no consumer
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.account(consumer)
	a.freed = true
	l.drain(a)
	for key, w := range l.asks {
		if w.account == a {
			l.wake(key)
		}
	}
}

// rangeChanged wakes the ShadowPods in the namespace of a LimitRange that wait: their size
// may be another one now.
func (l *Ledger) rangeChanged(r *corev1.LimitRange) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key := range l.asks {
		if key.Namespace == r.Namespace {
			l.wake(key)
		}
	}
}

// Begin begins a term. It drops what an earlier term of this process has reserved.
func (l *Ledger) Begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.began, l.settled = l.cfg.Clock.Now(), false
	for key := range l.asks {
		l.forget(key)
	}
	for key, c := range l.claims {
		l.change(c.account, key, func(c *claim) { c.extra, c.resize, c.least, c.sent = nil, false, nil, time.Time{} })
	}
}

// Run works until ctx is done, and ends the term that Begin began.
func (l *Ledger) Run(ctx context.Context) {
	_ = l.loop.Run(ctx, 1) // an informer that takes no handler breaks the loop of the ShadowPods, too
	l.mu.Lock()
	defer l.mu.Unlock()
	l.began, l.settled = time.Time{}, false
}

// sync counts the pods of the previous leader if a ShadowPod of the consumer waits for that,
// and then gives free room to the ShadowPods that wait.
func (l *Ledger) sync(ctx context.Context, key loop.Key) error {
	left, needed := l.unsettled(key.Name)
	if needed && left > 0 {
		return loop.After(left)
	}
	if needed {
		if err := l.Count(ctx); err != nil {
			return err
		}
	}
	for from := l.next(key.Name, nil); from != nil; {
		from = l.next(key.Name, from)
	}
	return nil
}

// unsettled reports whether a ShadowPod of consumer waits for the list of the pods, and how
// long writes of the previous leader may still arrive.
func (l *Ledger) unsettled(consumer string) (left time.Duration, needed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cfg.Settle - l.cfg.Clock.Since(l.began), !l.settled && len(l.account(consumer).line) > 0
}

// Count lists the pods and counts them. Until then no pod of a consumer with a Quota has room.
// It returns an error while the cache lacks a change of a Quota: the previous leader may have
// decided by it.
func (l *Ledger) Count(ctx context.Context) error {
	quotas, err := store.Find[*offloadingv1beta1.Quota](ctx, "Quota", l.cfg.Liqo.OffloadingV1beta1().Quotas(metav1.NamespaceAll), metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, q := range quotas {
		if have, err := l.quotas.Quotas(q.Namespace).Get(q.Name); err != nil || store.OlderVersion(have.ResourceVersion, q.ResourceVersion) {
			return loop.After(cacheLag)
		}
	}
	// A list without a resource version is consistent: it is not older than the request.
	pods, err := store.Find[*corev1.Pod](ctx, "pod", l.cfg.Kube.CoreV1().Pods(metav1.NamespaceAll), metav1.ListOptions{
		LabelSelector: offloadingv1beta1.ManagedByLabel + "=" + offloadingv1beta1.ManagedByShadowPod,
	})
	if err == nil {
		l.settle(pods)
	}
	return err
}

// settle counts the pods of a consistent list. A cache may still show pods that the list has
// not; they count until the cache shows their deletion. All ShadowPods that wait are woken:
// none has been given a reason yet.
func (l *Ledger) settle(pods []*corev1.Pod) {
	for _, pod := range pods {
		l.Seen(pod)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settled = true
	for key := range l.asks {
		l.wake(key)
	}
	for _, a := range l.accounts {
		for from := l.pass(a, nil); from != nil; {
			from = l.pass(a, from)
		}
	}
}

// next gives room to the next asks of a consumer. It returns the one to continue with, or
// nil.
func (l *Ledger) next(consumer string, from *ask) *ask {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pass(l.account(consumer), from)
}

// Account is the usage of one consumer.
type Account struct {
	// Consumer is its cluster id.
	Consumer string
	// Used is the sum of the requests of its pods, including creations and resizes in
	// flight.
	Used corev1.ResourceList
	// Limit is the sum of what its Quotas allow, without cordoned Quotas. It is empty
	// without Quotas.
	Limit corev1.ResourceList
	// Waiting is the number of its ShadowPods that wait for room.
	Waiting int
}

// Accounts returns the usage of each consumer, sorted by id. It returns nil while this
// process does not lead.
func (l *Ledger) Accounts() []Account {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.began.IsZero() {
		return nil
	}
	waiting := map[*account]int{}
	for _, w := range l.asks {
		waiting[w.account]++
	}
	out := []Account{}
	for _, consumer := range slices.Sorted(maps.Keys(l.accounts)) {
		a := l.accounts[consumer]
		out = append(out, Account{Consumer: consumer, Used: maps.Clone(a.used), Limit: l.bound(consumer).Resources, Waiting: waiting[a]})
	}
	return out
}
