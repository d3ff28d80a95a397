package rules

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
)

// Bound is what the Quotas of one consumer allow together. The zero value bounds nothing.
type Bound struct {
	// Quotas is their number.
	Quotas int
	// Resources is the sum of those that are not cordoned. It has every resource that any of
	// them lists; any other is not bounded, unless Closed.
	Resources corev1.ResourceList
	// Whole is Resources as if none were cordoned.
	Whole corev1.ResourceList
	// Closed says that one of them comes from an offer: of a resource that none of them lists
	// there is nothing, because it was not offered.
	Closed bool
	// Cordoned says that all are: nothing new begins.
	Cordoned bool
	// Enforcement is the strictest of them.
	Enforcement offloadingv1beta1.LimitsEnforcement
	// Nodes has, by label of nodes, the values that those which are not cordoned ask for,
	// sorted: with more than one nothing begins.
	Nodes map[string][]string
}

// SumQuotas returns what quotas allow together. One that is cordoned gives nothing to what begins,
// and takes nothing from what runs.
func SumQuotas(quotas []*offloadingv1beta1.Quota) Bound {
	b := Bound{Quotas: len(quotas), Resources: corev1.ResourceList{}, Whole: corev1.ResourceList{}, Cordoned: len(quotas) > 0, Enforcement: offloadingv1beta1.EnforcementNone,
		Nodes: map[string][]string{}}
	for _, q := range quotas {
		cordoned := q.Spec.Cordoned != nil && *q.Spec.Cordoned
		b.Cordoned = b.Cordoned && cordoned
		b.Closed = b.Closed || q.Labels[offloadingv1beta1.ManagedByLabel] == sharingv1alpha1.ManagedByOffer
		if strictness(q.Spec.LimitsEnforcement) > strictness(b.Enforcement) {
			b.Enforcement = q.Spec.LimitsEnforcement
		}
		listed := maps.Clone(q.Spec.Resources)
		if cordoned {
			for name, quantity := range listed {
				quantity.Sub(quantity)
				listed[name] = quantity
			}
		} else {
			b.pick(q.Spec.NodeSelector)
		}
		AddResources(b.Resources, listed)
		AddResources(b.Whole, q.Spec.Resources)
	}
	return b
}

func (b *Bound) pick(selector map[string]string) {
	for key, value := range selector {
		if i, found := slices.BinarySearch(b.Nodes[key], value); !found {
			b.Nodes[key] = slices.Insert(b.Nodes[key], i, value)
		}
	}
}

// Misplaced says why no node is allowed that has the labels which a pod asks for, empty if
// nothing speaks against it.
func (b Bound) Misplaced(asked map[string]string) string {
	for _, key := range slices.Sorted(maps.Keys(b.Nodes)) {
		values := b.Nodes[key]
		if len(values) > 1 {
			return fmt.Sprintf("its quotas contradict each other: they require nodes with %s %s", key, strings.Join(values, " and "))
		}
		if value, ok := asked[key]; ok && value != values[0] {
			return fmt.Sprintf("spec.nodeSelector selects nodes with %s=%s; the quota allows nodes with %s=%s", key, value, key, values[0])
		}
	}
	return ""
}

// Place has a pod run on nodes that are allowed. The pod is not misplaced.
func (b Bound) Place(spec *corev1.PodSpec) {
	if spec.NodeSelector == nil && len(b.Nodes) > 0 {
		spec.NodeSelector = make(map[string]string, len(b.Nodes))
	}
	for key, values := range b.Nodes {
		spec.NodeSelector[key] = values[0]
	}
}

func strictness(e offloadingv1beta1.LimitsEnforcement) int {
	return slices.Index([]offloadingv1beta1.LimitsEnforcement{offloadingv1beta1.EnforcementSoft, offloadingv1beta1.EnforcementHard}, e)
}

// limit returns the most of a resource that is allowed, and false if it is not bounded.
func (b Bound) limit(name corev1.ResourceName) (limit resource.Quantity, bounded bool) {
	limit, bounded = b.Resources[name]
	return limit, bounded || b.Closed
}

// Short returns the resources of more, sorted, of which the sum would be beyond the bound.
// What more does not have is not looked at: who has too much of one resource may have more
// of another.
func (b Bound) Short(used, more corev1.ResourceList) []corev1.ResourceName {
	if b.Quotas == 0 {
		return nil
	}
	var short []corev1.ResourceName
	for name, quantity := range more {
		limit, bounded := b.limit(name)
		if !bounded || quantity.Sign() <= 0 {
			continue
		}
		sum := quantity.DeepCopy()
		sum.Add(used[name])
		if sum.Cmp(limit) > 0 {
			short = append(short, name)
		}
	}
	slices.Sort(short)
	return short
}

// Beyond reports whether used is beyond the bound in any of the resources of which.
func (b Bound) Beyond(used, which corev1.ResourceList) bool {
	for name := range which {
		limit, bounded := b.limit(name)
		if have := used[name]; bounded && have.Cmp(limit) > 0 {
			return true
		}
	}
	return false
}

// unlisted says how a consumer gets a resource that is in no offer.
const unlisted = "the consumer can list it in spec.request.resources of its ForeignCluster; an administrator of the provider can write a Quota with it"

// Tell says for people what a pod requests of some resources, and what is allowed of them.
func (b Bound) Tell(names []corev1.ResourceName, requests corev1.ResourceList) string {
	parts := make([]string, 0, len(names))
	for _, name := range names {
		request := requests[name]
		limit, listed := b.Resources[name]
		text := fmt.Sprintf("%s: %s requested, %s allowed in all", name, request.String(), limit.String())
		if !listed {
			text = fmt.Sprintf("%s: %s requested, and none was offered (%s)", name, request.String(), unlisted)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// Undeclared says what a pod lacks to be counted as exactly as level asks, empty if nothing.
// Soft: each container requests CPU and memory, or the pod as a whole does. Hard: its limit
// equals that request, too.
func Undeclared(spec *corev1.PodSpec, level offloadingv1beta1.LimitsEnforcement) string {
	if strictness(level) < 0 {
		return ""
	}
	hard, found := level == offloadingv1beta1.EnforcementHard, ""
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if spec.Resources != nil {
			if _, has := spec.Resources.Requests[name]; has {
				found = cmp.Or(found, undeclared("the pod as a whole", *spec.Resources, name, hard))
				continue
			}
		}
		eachContainer(spec, func(c *corev1.Container) {
			found = cmp.Or(found, undeclared("container "+c.Name, c.Resources, name, hard))
		})
	}
	return found
}

func undeclared(where string, have corev1.ResourceRequirements, name corev1.ResourceName, hard bool) string {
	request, requested := have.Requests[name]
	limit, limited := have.Limits[name]
	switch {
	case !requested:
		return fmt.Sprintf("%s has no resources.requests.%s", where, name)
	case hard && !limited:
		return fmt.Sprintf("%s has no resources.limits.%s", where, name)
	case hard && limit.Cmp(request) != 0:
		return fmt.Sprintf("%s has resources.limits.%s %s, which is not its request, %s", where, name, limit.String(), request.String())
	}
	return ""
}
