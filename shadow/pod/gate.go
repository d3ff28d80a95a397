package pod

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/apply"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/shadow/rules"
)

// errNoRoom: the consumer's Quotas do not allow the resize of a pod.
var errNoRoom = errors.New("spec.resources")

// trials remembers, per namespace, whether pods come out of admission larger than
// predicted. In such a namespace, and in one that no pod has been created in yet, the size
// of a new pod is measured by a dry run first.
type trials struct {
	mu    sync.Mutex
	plain map[string]bool // by namespace; true: the prediction was right
}

func (t *trials) needed(namespace string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.plain[namespace]
}

// learn records whether a new pod of a namespace was larger than predicted. A namespace
// never goes back from larger to plain.
func (t *trials) learn(namespace string, larger bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.plain == nil {
		t.plain = map[string]bool{}
	}
	if _, known := t.plain[namespace]; !known || larger {
		t.plain[namespace] = !larger
	}
}

// drop forgets a deleted namespace.
func (t *trials) drop(namespace string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.plain, namespace)
}

func (t *trials) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.plain = nil
}

// watchQuotas registers the event handlers of the gate's inputs.
func (e *Enforcer) watchQuotas() error {
	follow := func(f func(string, *offloadingv1beta1.Quota) []loop.Key) func(any) {
		return func(obj any) {
			q, ok := loop.Object[*offloadingv1beta1.Quota](obj)
			if !ok {
				return
			}
			if consumer, ok := consumerOf(q); ok {
				e.wake(f(consumer, q))
			}
		}
	}
	seen := follow(e.ledger.quotaSeen)
	reg, err := e.cfg.Quotas.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: seen, UpdateFunc: func(_, after any) { seen(after) }, DeleteFunc: follow(e.ledger.quotaGone),
	})
	if err != nil {
		return fmt.Errorf("listening to Quotas: %w", err)
	}
	e.synced = append(e.synced, reg.HasSynced, e.cfg.LimitRanges.Informer().HasSynced, e.cfg.RuntimeClasses.Informer().HasSynced)
	// A changed LimitRange changes the predicted size of the waiting pods.
	if _, err = e.loop.Watch(e.cfg.LimitRanges.Informer(), e.shadowsBeside); err != nil {
		return err
	}
	_, err = e.loop.Watch(e.cfg.Quotas, e.shadowsThatSelect)
	return err
}

// consumerOf returns the cluster id of the consumer that a Quota applies to, taken from the
// name of its tenant namespace. A Quota in any other namespace applies to no consumer.
func consumerOf(q *offloadingv1beta1.Quota) (string, bool) {
	return strings.CutPrefix(q.Namespace, corev1beta1.TenantNamespacePrefix)
}

// shadowsBeside returns the keys of the ShadowPods in the namespace of a LimitRange that
// have the condition Enforced, and so may wait for room.
func (e *Enforcer) shadowsBeside(obj any) []loop.Key {
	r, ok := obj.(*corev1.LimitRange)
	if !ok {
		return nil
	}
	shadows, err := e.shadows.ShadowPods(r.Namespace).List(labels.Everything())
	if err != nil {
		return nil
	}
	var keys []loop.Key
	for _, s := range shadows {
		if meta.FindStatusCondition(s.Status.Conditions, offloadingv1beta1.ShadowPodEnforced) != nil {
			keys = append(keys, loop.Key{Namespace: s.Namespace, Name: s.Name})
		}
	}
	return keys
}

// selecting is the index function of selectingIndex.
func selecting(obj any) ([]string, error) {
	s, ok := obj.(*offloadingv1beta1.ShadowPod)
	if !ok || len(s.Spec.Pod.NodeSelector) == 0 && s.Spec.Pod.Affinity == nil ||
		meta.FindStatusCondition(s.Status.Conditions, offloadingv1beta1.ShadowPodEnforced) == nil {
		return nil, nil
	}
	return []string{s.Labels[offloadingv1beta1.OriginLabel]}, nil
}

// shadowsThatSelect returns the keys of the ShadowPods of a Quota's consumer that have the
// condition Enforced and select nodes: Harden accepts the labels of Quotas.
func (e *Enforcer) shadowsThatSelect(obj any) []loop.Key {
	q, ok := obj.(*offloadingv1beta1.Quota)
	if !ok {
		return nil
	}
	consumer, ok := consumerOf(q)
	if !ok {
		return nil
	}
	return e.indexed(selectingIndex, consumer)
}

func (e *Enforcer) wake(keys []loop.Key) {
	for _, key := range keys {
		e.loop.Wake(key)
	}
}

// Accounts returns the usage of each consumer, sorted by id. It returns nil while this
// process does not lead. It is safe for concurrent use.
func (e *Enforcer) Accounts() []Account { return e.ledger.report() }

// admit reserves room for the pod that is to be created. It reports whether there is room.
// If there is none, the error is the result of the sync.
func (e *Enforcer) admit(ctx context.Context, key loop.Key, f facts) (bool, error) {
	consumer := f.want.Labels[offloadingv1beta1.OriginLabel]
	w, err := e.asked(key, f, f.want, e.ledger.bounded(consumer))
	if err != nil {
		return false, err
	}
	v, woken := e.ledger.admit(w)
	e.wake(woken)
	if v.reason == "" && !v.parked {
		e.ledger.place(consumer, &f.want.Spec)
		if !v.tried && e.ledger.bounded(consumer) && e.trials.needed(key.Namespace) {
			if v, err = e.try(ctx, f, w); err != nil {
				return false, err
			}
		}
	}
	switch {
	case v.parked:
		return false, nil
	case v.reason != "":
		return false, e.denyOnce(ctx, f, v)
	}
	return true, nil
}

// asked returns the ask for pod. With foresee, it measures the pod as the API server is
// expected to complete it.
func (e *Enforcer) asked(key loop.Key, f facts, pod *corev1.Pod, foresee bool) (ask, error) {
	w := ask{
		consumer: f.want.Labels[offloadingv1beta1.OriginLabel], key: key,
		shadow: f.shadow.UID, generation: f.shadow.Generation, created: f.shadow.CreationTimestamp.Time,
		nodes: maps.Clone(f.want.Spec.NodeSelector),
	}
	if foresee {
		ranges, err := e.cfg.LimitRanges.Lister().LimitRanges(key.Namespace).List(labels.Everything())
		if err != nil {
			return ask{}, fmt.Errorf("looking up LimitRanges of namespace %s: %w", key.Namespace, err)
		}
		pod = rules.Predict(pod, ranges, e.overhead(pod))
		w.foreseen = true
	}
	w.measure(pod)
	return w, nil
}

// overhead returns the pod overhead of the pod's RuntimeClass.
func (e *Enforcer) overhead(pod *corev1.Pod) corev1.ResourceList {
	if pod.Spec.RuntimeClassName == nil {
		return nil
	}
	class, err := e.cfg.RuntimeClasses.Lister().Get(*pod.Spec.RuntimeClassName)
	if err != nil || class.Overhead == nil {
		return nil // the API server rejects a pod with an unknown class
	}
	return class.Overhead.PodFixed
}

// measure fills in the quantities of w from pod.
func (w *ask) measure(pod *corev1.Pod) {
	w.total = rules.Requests(pod)
	w.need = w.total
	w.undeclared = map[offloadingv1beta1.LimitsEnforcement]string{}
	for _, level := range []offloadingv1beta1.LimitsEnforcement{offloadingv1beta1.EnforcementSoft, offloadingv1beta1.EnforcementHard} {
		w.undeclared[level] = rules.Undeclared(&pod.Spec, level)
	}
}

// try creates the pod as a dry run, and asks for room for the result. A rejected dry run is
// no error: the creation itself is rejected for the same reason and reports it.
func (e *Enforcer) try(ctx context.Context, f facts, w ask) (verdict, error) {
	pod, err := e.cfg.Kube.CoreV1().Pods(f.want.Namespace).Create(ctx, f.want, metav1.CreateOptions{FieldManager: FieldManager, DryRun: []string{metav1.DryRunAll}})
	switch {
	case err == nil:
		foreseen := w.total
		w.measure(pod)
		e.trials.learn(w.key.Namespace, len(rules.MoreResources(w.total, foreseen)) > 0)
	case !loop.IsRefusal(err) && !apierrors.IsAlreadyExists(err):
		return verdict{}, fmt.Errorf("creating the pod of ShadowPod %s as a dry run: %w", w.key, err)
	}
	w.tried = true
	v, woken := e.ledger.admit(w)
	e.wake(woken)
	return v, nil
}

// denyOnce sets the condition of a waiting pod once per reason and generation. The numbers
// in its message change with every other pod, so they are not kept up to date.
func (e *Enforcer) denyOnce(ctx context.Context, f facts, v verdict) error {
	have := meta.FindStatusCondition(f.shadow.Status.Conditions, offloadingv1beta1.ShadowPodEnforced)
	if have != nil && have.Reason == v.reason && have.ObservedGeneration == f.shadow.Generation {
		return nil
	}
	return e.deny(ctx, f, deny(f, v.reason, v.message))
}

// giveBack releases the room reserved for a key whose ShadowPod needs no new pod now.
func (e *Enforcer) giveBack(ctx context.Context, key loop.Key, f facts, a action) error {
	if a.verb == recordLoss || a.verb == releasePod || a.verb == wait || a.verb == updatePod {
		return nil // not decided yet, or waiting to grow
	}
	sent, woken := e.ledger.idle(key)
	e.wake(woken)
	if sent.IsZero() || f.pod != nil {
		return nil
	}
	// A creation was sent for a pod that is no longer wanted. It counts until the pod is
	// seen, or until a live read shows that it does not exist.
	if left := e.cfg.Settle - e.cfg.Clock.Since(sent); left > 0 {
		return loop.After(left)
	}
	pod, err := e.cfg.Kube.CoreV1().Pods(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading pod %s: %w", key, err)
	}
	if err == nil {
		e.wake(e.ledger.seen(pod))
	}
	e.wake(e.ledger.absent(key))
	return nil
}

// outgrown asks for room for a pending resize. parked means that the pod stays as it is for
// now. The error says why the pod may not grow.
func (e *Enforcer) outgrown(key loop.Key, f facts) (parked bool, err error) {
	if len(resourceChanges(f.want, f.pod)) == 0 {
		return false, nil
	}
	w, err := e.asked(key, f, rules.Resized(f.pod, f.want), false)
	if err != nil {
		return false, err
	}
	w.resize = true
	v := e.ledger.grow(f.pod, w)
	e.wake(e.ledger.resume(w.consumer))
	if v.reason != "" {
		return false, fmt.Errorf("%w: %s", errNoRoom, v.message)
	}
	return v.parked, nil
}

// surprise handles a new pod that is larger than predicted and exceeds the consumer's
// bound. If the pod still has the resource version of the creation, no scheduler has bound
// it, so it has not run. It is deleted then, and waits for room for its real size.
// Otherwise it stays, and counts.
func (e *Enforcer) surprise(ctx context.Context, key loop.Key, pod *corev1.Pod) error {
	e.memory.undo(pod.UID)
	err := e.cfg.Kube.CoreV1().Pods(key.Namespace).Delete(ctx, key.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion},
	})
	if apierrors.IsConflict(err) {
		e.memory.arrived(pod.UID)
		e.cfg.Log.Warn("the created pod is larger than expected and exceeds the quota", zap.Stringer("key", key))
		return nil
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting pod %s, which exceeds the quota: %w", key, err)
	}
	e.wake(e.ledger.absent(key))
	e.cfg.Log.Info("pod deleted before it ran: it is larger than expected and exceeds the quota", zap.Stringer("key", key))
	if !hasFinalizer(pod) {
		return nil
	}
	live, err := e.cfg.Kube.CoreV1().Pods(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if err != nil || live.UID != pod.UID {
		return apply.IgnoreNotFound(err)
	}
	return e.release(ctx, live)
}
