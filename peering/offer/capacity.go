package offer

import (
	"context"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	resourcehelper "k8s.io/component-helpers/resource"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
)

// Use is the sum of the requests on one node by the pods of one consumer, or by this
// cluster's own pods.
type Use struct {
	// Node is the name of the node. It is empty for pods of a consumer that are not bound
	// to a node yet.
	Node string
	// Consumer is the id of the consumer. It is empty for this cluster's own pods.
	Consumer  string
	Resources corev1.ResourceList
}

// Holding is capacity that is promised to another consumer.
type Holding struct {
	Consumer string
	// NodeSelector selects the nodes of the capacity.
	NodeSelector map[string]string
	Resources    corev1.ResourceList
}

// basic are the resources that every virtual node has, requested or not.
var basic = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods, corev1.ResourceEphemeralStorage}

const mebibyte = 1 << 20

// floor rounds an amount down to a unit of the API: a thousandth of a CPU, a mebibyte, or
// one piece. A negative amount becomes 0.
func floor(name corev1.ResourceName, amount resource.Quantity) resource.Quantity {
	if amount.Sign() <= 0 {
		return *resource.NewQuantity(0, format(name))
	}
	switch {
	case name == corev1.ResourceCPU:
		milli := amount.MilliValue()
		if rounded := resource.NewMilliQuantity(milli, resource.DecimalSI); rounded.Cmp(amount) > 0 {
			milli--
		}
		return *resource.NewMilliQuantity(milli, resource.DecimalSI)
	case bytes(name):
		return *resource.NewQuantity(amount.Value()/mebibyte*mebibyte, resource.BinarySI)
	}
	pieces := amount.Value()
	if rounded := resource.NewQuantity(pieces, resource.DecimalSI); rounded.Cmp(amount) > 0 {
		pieces--
	}
	return *resource.NewQuantity(pieces, resource.DecimalSI)
}

func bytes(name corev1.ResourceName) bool {
	return name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage
}

func format(name corev1.ResourceName) resource.Format {
	if bytes(name) {
		return resource.BinarySI
	}
	return resource.DecimalSI
}

// percent returns a percentage of an amount, rounded down.
func percent(name corev1.ResourceName, amount resource.Quantity, of int64) resource.Quantity {
	if name == corev1.ResourceCPU {
		return *resource.NewMilliQuantity(part(amount.MilliValue(), of), resource.DecimalSI)
	}
	return floor(name, *resource.NewQuantity(part(amount.Value(), of), format(name)))
}

// part returns n×of/100 without overflow. A negative n counts as 0.
func part(n, of int64) int64 {
	n = max(0, n)
	return n/100*of + n%100*of/100
}

// add adds more to sum, in place.
func add(sum, more corev1.ResourceList) {
	for name, amount := range more {
		have := sum[name]
		have.Add(amount)
		sum[name] = have
	}
}

// sumOf returns the sum under a key, which begins empty.
func sumOf[K comparable](sums map[K]corev1.ResourceList, key K) corev1.ResourceList {
	if sums[key] == nil {
		sums[key] = corev1.ResourceList{}
	}
	return sums[key]
}

// atLeast raises sum to the amounts in other, in place.
func atLeast(sum, other corev1.ResourceList) {
	for name, amount := range other {
		if have := sum[name]; amount.Cmp(have) > 0 {
			sum[name] = amount
		}
	}
}

func less(a, b resource.Quantity) resource.Quantity {
	if a.Cmp(b) < 0 {
		return a
	}
	return b
}

func minus(a, b resource.Quantity) resource.Quantity {
	a = a.DeepCopy()
	a.Sub(b)
	return a
}

func matches(selector, labelled map[string]string) bool {
	return labels.SelectorFromSet(selector).Matches(labels.Set(labelled))
}

// nodesFor returns the nodes that may run pods of peers and that a selector matches, by name.
func nodesFor(nodes []*corev1.Node, selector map[string]string) map[string]*corev1.Node {
	out := map[string]*corev1.Node{}
	for _, n := range nodes {
		if takesPods(n) && matches(selector, n.Labels) {
			out[n.Name] = n
		}
	}
	return out
}

// room is the capacity left for one consumer.
type room struct {
	// have is all the capacity left within Policy.Limit. share is the part of it that
	// Policy.Percentage allows.
	have, share corev1.ResourceList
}

// roomFor computes the capacity left for a consumer on the given nodes: their allocatable
// resources, minus the requests of this cluster's own pods, minus the larger of usage and
// holdings of each other consumer. A holding counts in full if its selector matches one of
// these nodes, or no node at all.
func roomFor(f Facts, p Policy, nodes map[string]*corev1.Node) room {
	free := corev1.ResourceList{}
	for _, n := range nodes {
		add(free, n.Status.Allocatable)
	}
	taken, held := map[string]corev1.ResourceList{}, map[string]corev1.ResourceList{}
	for _, u := range f.Used {
		if _, here := nodes[u.Node]; here || u.Node == "" {
			add(sumOf(taken, u.Consumer), u.Resources)
		}
	}
	for _, h := range f.Others {
		if len(nodesFor(f.Nodes, h.NodeSelector)) > 0 && len(nodesFor(slices.Collect(maps.Values(nodes)), h.NodeSelector)) == 0 {
			continue
		}
		add(sumOf(held, h.Consumer), h.Resources)
	}
	for consumer, amounts := range held {
		atLeast(sumOf(taken, consumer), amounts)
	}
	own := sumOf(taken, "")
	delete(taken, "")
	delete(taken, f.Consumer)
	out := room{have: corev1.ResourceList{}, share: corev1.ResourceList{}}
	for name, amount := range free {
		left := minus(amount, own[name])
		share := percent(name, left, p.Percentage)
		if limit, ok := p.Limit[name]; ok { // no update threshold may exceed it
			left, share = less(left, limit), less(share, limit)
		}
		for _, others := range taken {
			left.Sub(others[name])
			share.Sub(others[name])
		}
		out.have[name], out.share[name] = floor(name, left), floor(name, share)
	}
	return out
}

// settle returns the amount of one resource to offer. It keeps the current offer if target
// differs from it by at most threshold percent. It returns target in any case if nothing is
// offered yet, if current exceeds the room (have) or the consumer's maximum (most; nil:
// none), or if target reaches that maximum.
func settle(current, most *resource.Quantity, target, have resource.Quantity, threshold int64) resource.Quantity {
	if current == nil || current.Cmp(have) > 0 || most != nil && (current.Cmp(*most) > 0 || target.Cmp(*most) >= 0) {
		return target
	}
	now, then := current.AsApproximateFloat64(), target.AsApproximateFloat64()
	if math.Abs(then-now)*100 <= float64(threshold)*now {
		return *current
	}
	return target
}

// divide splits resources into n parts whose sum equals them. The first part gets the
// remainders.
func divide(sum corev1.ResourceList, n int) []corev1.ResourceList {
	out := make([]corev1.ResourceList, n)
	for i := range out {
		out[i] = corev1.ResourceList{}
	}
	for name, amount := range sum {
		each := floor(name, *resource.NewQuantity(amount.Value()/int64(n), format(name)))
		if name == corev1.ResourceCPU {
			each = *resource.NewMilliQuantity(amount.MilliValue()/int64(n), resource.DecimalSI)
		}
		first := amount.DeepCopy()
		for i := 1; i < n; i++ {
			out[i][name] = each
			first.Sub(each)
		}
		out[0][name] = first
	}
	return out
}

// usageDelay is the delay before a sync that needs the pods of the cluster runs again, while
// their watch starts.
const usageDelay = 100 * time.Millisecond

// usage sums up the requests of the cluster's pods. It watches the pods from the first call
// of get until the context is done, so a cluster without requests for capacity has no such
// watch. It caches only the fields that it sums up. It is safe for concurrent use.
type usage struct {
	kube    kubernetes.Interface
	changed func() // called when a sum may have changed

	mu       sync.Mutex
	informer *store.Informer // nil without a watch
	stale    bool
	sums     []Use
	running  sync.WaitGroup
}

// get returns the sums. Until the watch has delivered all pods, its error requeues the key.
func (u *usage) get(ctx context.Context) ([]Use, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.informer == nil {
		if err := u.watch(ctx); err != nil {
			return nil, err
		}
	}
	if !u.informer.HasSynced() {
		return nil, loop.After(usageDelay)
	}
	if u.stale {
		u.stale = false
		u.sums = sumUp(u.informer.GetStore().List())
	}
	return u.sums, nil
}

// watch starts the watch. The caller holds the lock.
func (u *usage) watch(ctx context.Context) error {
	inf := store.NewInformer(u.kube, u.kube.CoreV1().Pods(metav1.NamespaceAll), &corev1.Pod{}, func(o *metav1.ListOptions) {
		o.FieldSelector = "status.phase!=Succeeded,status.phase!=Failed"
	})
	inf.Transform = slim
	same := func(a, b *corev1.Pod) bool {
		return a.Spec.NodeName == b.Spec.NodeName && equality.Semantic.DeepEqual(a.Spec.Resources, b.Spec.Resources)
	}
	if _, err := loop.Register(store.AnyChange(inf, same, u.touch)); err != nil {
		return err
	}
	u.informer, u.stale = inf, true
	u.running.Go(func() { inf.RunWithContext(ctx) })
	return nil
}

func (u *usage) touch() {
	u.mu.Lock()
	u.stale = true
	u.mu.Unlock()
	u.changed()
}

// end waits until the watch has stopped; its context is done. The next call of get starts a
// new one.
func (u *usage) end() {
	u.running.Wait()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.informer, u.sums = nil, nil
}

// slim reduces a pod to its consumer, its node and its total requests.
func slim(obj any) (any, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	out := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion}}
	out.Spec.NodeName = pod.Spec.NodeName
	if consumer := consumerOf(pod); consumer != "" {
		out.Labels = map[string]string{offloadingv1beta1.OriginLabel: consumer}
	}
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	requests[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	out.Spec.Resources = &corev1.ResourceRequirements{Requests: requests}
	return out, nil
}

// consumerOf returns the id of the consumer of a pod, or "" for the cluster's own pods.
func consumerOf(pod *corev1.Pod) string {
	if pod.Labels[offloadingv1beta1.ManagedByLabel] != offloadingv1beta1.ManagedByShadowPod {
		return ""
	}
	return pod.Labels[offloadingv1beta1.OriginLabel]
}

// sumUp adds up the requests of slim pods per node and consumer. It skips the cluster's own
// pods without a node.
func sumUp(pods []any) []Use {
	type place struct{ node, consumer string }
	sums := map[place]corev1.ResourceList{}
	for _, obj := range pods {
		pod, ok := obj.(*corev1.Pod)
		if !ok || pod.Spec.Resources == nil {
			continue
		}
		at := place{pod.Spec.NodeName, pod.Labels[offloadingv1beta1.OriginLabel]}
		if at == (place{}) {
			continue
		}
		add(sumOf(sums, at), pod.Spec.Resources.Requests)
	}
	out := make([]Use, 0, len(sums))
	for at, sum := range sums {
		out = append(out, Use{Node: at.node, Consumer: at.consumer, Resources: sum})
	}
	return out
}
