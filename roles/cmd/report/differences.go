package report

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// mostDiffering limits the names in one line about what is different in providers.
const mostDiffering = 3

// fullName is the name of a Service, or of a pod of it, with its namespace.
var fullName = regexp.MustCompile(`((?:[a-z0-9-]+\.)+)([a-z0-9][a-z0-9-]*)\.svc(?:[^a-z0-9-]|$)`)

// Offloaded returns a snapshot of nothing but the NamespaceOffloading of a namespace.
func Offloaded(o *offloadingv1beta1.NamespaceOffloading) *Snapshot {
	return &Snapshot{Only: o.Namespace, Offloadings: []offloadingv1beta1.NamespaceOffloading{*o}, Unread: map[string]error{}}
}

// Leaves reports whether pods of the namespace that alone was read may run in providers.
func (s *Snapshot) Leaves() bool {
	return slices.ContainsFunc(s.Offloadings, func(o offloadingv1beta1.NamespaceOffloading) bool {
		return o.Namespace == s.Only && o.DeletionTimestamp == nil && o.Spec.PodOffloadingStrategy != offloadingv1beta1.PodsLocal
	})
}

// differences says what of the namespace that alone was read does not follow its pods, in a line each.
func (s *Snapshot) differences() (out []string) {
	if !s.Leaves() {
		return nil
	}
	add := func(what string, names []string, means, where string) {
		if len(names) > 0 {
			out = append(out, fmt.Sprintf("%s %s: %s: docs/compatibility.md#%s", what, someOf(names), means, where))
		}
	}
	has := &s.Application
	add("NetworkPolicy", has.Policies, "is not sent to providers, and does not bind pods there", "network")
	add("PodDisruptionBudget", has.Budgets, "drains in this cluster respect it, drains in a provider do not", "scheduling-and-limits")
	add("DaemonSet", has.DaemonSets, "a virtual node gets one pod of it at most, and not each node of the provider", "scheduling-and-limits")
	var onHost, naming, full []string
	for i := range has.Workloads {
		w := &has.Workloads[i]
		if w.Pod.HostNetwork {
			onHost = append(onHost, w.Name)
		}
		if found := s.fullNames(&w.Pod); len(found) > 0 {
			naming, full = append(naming, w.Name), append(full, found...)
		}
	}
	add("hostNetwork of", onHost, "in a provider the pod has a network of its own instead", "network")
	if len(full) > 0 {
		slices.Sort(full)
		add(fmt.Sprintf("full name %s of", someOf(slices.Compact(full))), naming,
			"in a provider it does not resolve, or leads to a Service of the provider, unless its namespace is offloaded there with the same name", "names")
	}
	if has.More {
		out = append(out, "the namespace has more objects: of each kind only some were looked at: docs/compatibility.md")
	}
	return out
}

// fullNames returns the full names in a template that the twin's DNS may not resolve. Every pod in a
// provider has the name of the API server.
func (s *Snapshot) fullNames(pod *corev1.PodSpec) (out []string) {
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		texts := slices.Concat(c.Command, c.Args)
		for _, e := range c.Env {
			texts = append(texts, e.Value)
		}
		for _, text := range texts {
			for _, m := range fullName.FindAllStringSubmatch(text, -1) {
				name, namespace := m[1], m[2]
				if same := namespace == s.Only && s.sameName(); !same && name+namespace != "kubernetes.default" {
					out = append(out, name+namespace+".svc")
				}
			}
		}
	}
	return out
}

// sameName reports whether the twins of the namespace that alone was read have its name.
func (s *Snapshot) sameName() bool {
	return slices.ContainsFunc(s.Offloadings, func(o offloadingv1beta1.NamespaceOffloading) bool {
		by := o.Spec.NamespaceMappingStrategy
		return o.Namespace == s.Only && (by == offloadingv1beta1.EnforceSameName || by == offloadingv1beta1.SelectedName && o.Spec.RemoteNamespaceName == s.Only)
	})
}

func someOf(names []string) string {
	if len(names) <= mostDiffering {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:mostDiffering], ", "), len(names)-mostDiffering)
}
