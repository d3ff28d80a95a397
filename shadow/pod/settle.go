package pod

import (
	"context"
	"fmt"
	"maps"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
)

// listRetry is the delay between attempts to list Quotas or pods at the start of a term.
const listRetry = time.Second

// begin starts a term with a live list of the Quotas, because the cache of a standby may
// lag.
func (e *Enforcer) begin(ctx context.Context) {
	e.trials.forget()
	e.head.Store(e.newest(ctx))
	e.ledger.begin()
	e.persist(ctx, "Quotas", func() error {
		list, err := e.cfg.Liqo.OffloadingV1beta1().Quotas(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
		if err == nil {
			e.ledger.listQuotas(list)
		}
		return err
	})
}

// newest returns the resource version of the ShadowPods in the API server. It returns nil if
// the API server does not answer; then more creations are confirmed by live reads.
func (e *Enforcer) newest(ctx context.Context) *string {
	list, err := e.cfg.Liqo.OffloadingV1beta1().ShadowPods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		e.cfg.Log.Warn("the resource version at the begin of the term is not known", zap.Error(fmt.Errorf("listing ShadowPods: %w", err)))
		return nil
	}
	return &list.ResourceVersion
}

// takeStock lists the pods once no write of the previous leader can arrive any more. Until
// then no pod is created for a consumer with a Quota. It sends no request before such a
// consumer needs room.
func (e *Enforcer) takeStock(ctx context.Context) {
	over := time.NewTimer(e.cfg.Settle)
	defer over.Stop()
	select {
	case <-ctx.Done():
		return
	case <-over.C:
	}
	select {
	case <-ctx.Done():
		return
	case <-e.ledger.needed:
	}
	e.persist(ctx, "pods", func() error {
		// A list without a resource version is consistent: it is not older than the
		// request.
		list, err := e.cfg.Kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
			LabelSelector: offloadingv1beta1.ManagedByLabel + "=" + offloadingv1beta1.ManagedByShadowPod,
		})
		if err == nil {
			e.wake(e.ledger.listPods(list))
		}
		return err
	})
}

// persist calls list until it succeeds or ctx is done. what names the listed kind in the
// log.
func (e *Enforcer) persist(ctx context.Context, what string, list func() error) {
	for {
		err := list()
		if err == nil || ctx.Err() != nil {
			return
		}
		e.cfg.Log.Warn("what pods are counted by is not known yet", zap.Error(fmt.Errorf("listing %s: %w", what, err)))
		select {
		case <-ctx.Done():
			return
		case <-time.After(listRetry):
		}
	}
}

// begin resets the reservations, the waiting asks and the growth of an earlier term of this
// process.
func (l *ledger) begin() {
	l.settled.Store(false)
	l.leading.Store(true)
	for _, a := range l.all() {
		l.reset(a)
	}
}

func (l *ledger) reset(a *account) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, key := range a.waiting() {
		l.forget(a, key)
	}
	for key := range a.reserved {
		l.release(a, key)
	}
	for _, have := range a.pods {
		before := have.charge()
		have.growth = nil
		a.charge(before, have.charge())
	}
}

// end ends the term.
func (l *ledger) end() { l.leading.Store(false) }

// listQuotas replaces the Quotas by those of a consistent list.
func (l *ledger) listQuotas(list *offloadingv1beta1.QuotaList) {
	byConsumer := map[string]map[string]*offloadingv1beta1.Quota{}
	for i := range list.Items {
		consumer, ok := consumerOf(&list.Items[i])
		if !ok {
			continue
		}
		l.account(consumer)
		if byConsumer[consumer] == nil {
			byConsumer[consumer] = map[string]*offloadingv1beta1.Quota{}
		}
		byConsumer[consumer][list.Items[i].Name] = &list.Items[i]
	}
	l.quotas.Store(&floor{list.ResourceVersion, l.clock.Now()})
	for _, a := range l.all() {
		a.mu.Lock()
		clear(a.quotas)
		maps.Copy(a.quotas, byConsumer[a.consumer])
		l.rebound(a)
		a.mu.Unlock()
	}
}

// listPods replaces the pods by those of a consistent list, and settles the ledger. It
// returns the keys of all asks that were waiting.
func (l *ledger) listPods(list *corev1.PodList) []loop.Key {
	present := make(map[types.UID]bool, len(list.Items))
	for i := range list.Items {
		present[list.Items[i].UID] = true
		l.seen(&list.Items[i])
	}
	l.listed.Store(&floor{list.ResourceVersion, l.clock.Now()})
	for _, a := range l.all() {
		l.prune(a, present)
	}
	l.settled.Store(true)
	var woken []loop.Key
	for _, a := range l.all() {
		a.mu.Lock()
		woken = append(woken, a.waiting()...)
		for _, key := range l.drain(a) {
			if key == turnKey(a.consumer) {
				woken = append(woken, key)
			}
		}
		a.mu.Unlock()
	}
	return woken
}

// prune removes the pods that the list should have and has not.
func (l *ledger) prune(a *account, present map[types.UID]bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	listed := l.listed.Load()
	for uid, have := range a.pods {
		if !present[uid] && l.over(have.version, listed.version, listed.at) {
			l.drop(a, uid)
		}
	}
}
