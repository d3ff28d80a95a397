package offer

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
)

// Node is a node that pods of peers may run on.
type Node struct {
	Name        string
	Labels      map[string]string
	Allocatable corev1.ResourceList
}

// Use is what the pods of one consumer, or of this cluster itself, request on one node.
type Use struct {
	// Node is empty for pods of a consumer that have none yet.
	Node string
	// Consumer is empty for this cluster's own.
	Consumer  string
	Resources corev1.ResourceList
}

// Holding is what another consumer may count on.
type Holding struct {
	Consumer string
	// NodeSelector says on which nodes.
	NodeSelector map[string]string
	Resources    corev1.ResourceList
}

// basic are the resources that every virtual node has, asked for or not.
var basic = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods, corev1.ResourceEphemeralStorage}

const mebibyte = 1 << 20

// floor rounds an amount down, to what is written: a thousandth of a CPU, a mebibyte, or
// one piece. It is never less than nothing.
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

// percent returns so many percent of an amount, rounded down.
func percent(name corev1.ResourceName, amount resource.Quantity, of int64) resource.Quantity {
	if name == corev1.ResourceCPU {
		return *resource.NewMilliQuantity(part(amount.MilliValue(), of), resource.DecimalSI)
	}
	return floor(name, *resource.NewQuantity(part(amount.Value(), of), format(name)))
}

// part is n×of/100 without an overflow.
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

// atLeast raises sum, in place, to what other has.
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

// nodesFor returns the nodes that a selector picks, by name.
func nodesFor(nodes []Node, selector map[string]string) map[string]Node {
	out := map[string]Node{}
	for _, n := range nodes {
		if matches(selector, n.Labels) {
			out[n.Name] = n
		}
	}
	return out
}

// room is what is left for one consumer.
type room struct {
	// have is all that there is for it, within the limit for all, and share what the policy
	// gives of that: less a reserve.
	have, share corev1.ResourceList
}

// roomFor computes what is left on some nodes for a consumer: what they can give, less what
// this cluster's own pods request, less what the other consumers use or may count on,
// whichever is more. A holding on any of the nodes counts in full.
func roomFor(f Facts, p Policy, nodes map[string]Node) room {
	free := corev1.ResourceList{}
	for _, n := range nodes {
		add(free, n.Allocatable)
	}
	taken := map[string]corev1.ResourceList{}
	of := func(consumer string) corev1.ResourceList {
		if taken[consumer] == nil {
			taken[consumer] = corev1.ResourceList{}
		}
		return taken[consumer]
	}
	for _, u := range f.Used {
		if _, here := nodes[u.Node]; here || u.Node == "" {
			add(of(u.Consumer), u.Resources)
		}
	}
	held := map[string]corev1.ResourceList{}
	for _, h := range f.Others {
		if len(nodesFor(f.Nodes, h.NodeSelector)) > 0 && !meets(nodes, h.NodeSelector) {
			continue
		}
		if held[h.Consumer] == nil {
			held[h.Consumer] = corev1.ResourceList{}
		}
		add(held[h.Consumer], h.Resources)
	}
	for consumer, amounts := range held {
		atLeast(of(consumer), amounts)
	}
	own := of("")
	delete(taken, "")
	delete(taken, f.Consumer)
	out := room{have: corev1.ResourceList{}, share: corev1.ResourceList{}}
	for name, amount := range free {
		left := minus(amount, own[name])
		share := percent(name, left, p.Percentage)
		if limit, ok := p.Limit[name]; ok { // no threshold lets anybody have more
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

func meets(nodes map[string]Node, selector map[string]string) bool {
	for _, n := range nodes {
		if matches(selector, n.Labels) {
			return true
		}
	}
	return false
}

// settle returns what is to be offered of one resource where current is offered now, if
// anything: target, unless that differs too little. Whoever gets all that it may have
// (most; nil: no bound) gets exactly that, and never more than there is.
func settle(current, most *resource.Quantity, target, have resource.Quantity, threshold int64) resource.Quantity {
	switch {
	case current == nil, current.Cmp(have) > 0:
		return target
	case most != nil && (current.Cmp(*most) > 0 || target.Cmp(*most) >= 0):
		return target
	}
	now, then := current.AsApproximateFloat64(), target.AsApproximateFloat64()
	if math.Abs(then-now)*100 <= float64(threshold)*now {
		return *current
	}
	return target
}

// divide splits resources into n parts that together are no more; the first has what is
// left over.
func divide(sum corev1.ResourceList, n int) []corev1.ResourceList {
	out := make([]corev1.ResourceList, n)
	for i := range out {
		out[i] = corev1.ResourceList{}
	}
	for name, amount := range sum {
		each := amount.DeepCopy()
		if n > 1 {
			if name == corev1.ResourceCPU {
				each = *resource.NewMilliQuantity(amount.MilliValue()/int64(n), resource.DecimalSI)
			} else {
				each = floor(name, *resource.NewQuantity(amount.Value()/int64(n), format(name)))
			}
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
