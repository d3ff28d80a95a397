package report

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/shadow/rules"
)

// mostDiffering limits the names in one line about what is different in providers.
const mostDiffering = 3

// fullName is the name of a Service, or of a pod of it, with its namespace.
var fullName = regexp.MustCompile(`((?:[a-z0-9-]+\.)+)([a-z0-9][a-z0-9-]*)\.svc(?:[^a-z0-9-]|$)`)

// Offloaded returns a snapshot of nothing but the NamespaceOffloading of a namespace.
func Offloaded(o *offloadingv1beta1.NamespaceOffloading) *Snapshot {
	return &Snapshot{Only: o.Namespace, Offloadings: []offloadingv1beta1.NamespaceOffloading{*o}, Unread: map[string]error{}}
}

// Leaving returns the namespaces whose pods may run in providers, sorted.
func (s *Snapshot) Leaving() (names []string) {
	return Names(s.Offloadings, func(o *offloadingv1beta1.NamespaceOffloading) string {
		if o.DeletionTimestamp != nil || o.Spec.PodOffloadingStrategy == offloadingv1beta1.PodsLocal {
			return ""
		}
		return o.Namespace
	})
}

// difference is something of a namespace that does not follow its pods, and what follows from that.
type difference struct{ what, means string }

// Differences says what of a namespace does not follow its pods into providers, in a line each. It is empty if
// the snapshot lacks its application.
func (s *Snapshot) Differences(namespace string) (lines []string) {
	for _, d := range s.differing(namespace) {
		lines = append(lines, d.what+": "+d.means)
	}
	return lines
}

// application adds one finding about what of a namespace does not follow its pods. Nothing is to be done about it.
func (c *checker) application(namespace string) {
	var names []string
	for _, d := range c.differing(namespace) {
		names = append(names, d.what)
	}
	if len(names) > 0 {
		c.Add(idDifferences, OK, "application in namespace "+namespace, fmt.Sprintf("different in providers: %s (%s status -n %s says how)", strings.Join(names, "; "), c.Program, namespace), "")
	}
}

func (s *Snapshot) differing(namespace string) (out []difference) {
	has := s.Applications[namespace]
	if has == nil {
		return nil
	}
	add := func(what string, names []string, means, where string) {
		if len(names) > 0 {
			out = append(out, difference{what + " " + Some(names, mostDiffering), means + ": docs/compatibility.md#" + where})
		}
	}
	if s.home(namespace) {
		out = append(out, difference{"services Home", "each call by name of a pod in a provider goes through this cluster, and stops while it cannot be reached: docs/networking.md#services-at-home"})
	}
	add("NetworkPolicy", has.Policies, "is not sent to providers, and does not bind pods there", "network")
	add("PodDisruptionBudget", has.Budgets, "drains in this cluster respect it, drains in a provider do not", "scheduling-and-limits")
	add("DaemonSet", has.DaemonSets, "a virtual node gets one pod of it at most, and not each node of the provider", "scheduling-and-limits")
	var onHost, naming, full []string
	for _, w := range has.Workloads {
		if w.Pod.HostNetwork {
			onHost = append(onHost, w.Name)
		}
		if found := s.fullNames(namespace, &w.Pod); len(found) > 0 && !s.home(namespace) {
			naming, full = append(naming, w.Name), append(full, found...)
		}
	}
	add("hostNetwork of", onHost, "in a provider the pod has a network of its own instead", "network")
	if len(full) > 0 {
		slices.Sort(full)
		add(fmt.Sprintf("full name %s of", Some(slices.Compact(full), mostDiffering)), naming,
			"in a provider it does not resolve, or leads to a Service of the provider, unless its namespace is offloaded there with the same name", "names")
	}
	for _, field := range []struct{ paths, where, means string }{
		{"metadata.namespace", "names", "in a provider it is the name of the twin, and this cluster's API server knows no such namespace; with --namespace-mapping-strategy EnforceSameName it is the same"},
		{"status.podIP status.podIPs", "network", "in a provider it is the address there, and this cluster may reach the pod at another one, unless ipam.keep or spec.trust Organisation of the ForeignCluster keeps it"},
		{"status.hostIP status.hostIPs", "names", "in a provider it is the address of a node there, which this cluster does not reach"},
	} {
		paths := strings.Fields(field.paths)
		var names []string
		for i := range has.Workloads {
			if w := &has.Workloads[i]; refers(&w.Pod, paths) && !(paths[0] == "metadata.namespace" && s.sameName(namespace)) {
				names = append(names, w.Name)
			}
		}
		add("fieldRef "+paths[0]+" of", names, field.means, field.where)
	}
	out = append(out, s.leftOut(has)...)
	if has.More {
		out = append(out, difference{"the namespace has more objects", "of each kind only some were looked at: docs/compatibility.md"})
	}
	for _, what := range slices.Sorted(maps.Keys(has.Unread)) {
		out = append(out, difference{what + " cannot be read", has.Unread[what].Error()})
	}
	return out
}

// leftOut says what of an application each provider leaves out or refuses, by what its offer says that it accepts.
func (s *Snapshot) leftOut(has *Application) (out []difference) {
	for i := range s.Offers {
		o, names := &s.Offers[i].Spec, map[string][]string{} // by what is different
		if o.Accepts == nil || s.Offers[i].Name != o.ProviderClusterID || s.Offers[i].Namespace != corev1beta1.TenantNamespace(o.ProviderClusterID) {
			continue // an offer of this cluster, or a further one of a provider
		}
		note := func(name, kind string, m *metav1.ObjectMeta, refused string) {
			if _, keys := (rules.Metadata{Annotations: o.Accepts.Annotations, Labels: o.Accepts.LabelsLeftOut}).Keep(kind, rules.Marks{Labels: m.Labels, Annotations: m.Annotations}, rules.Marks{}); len(keys) > 0 {
				what := fmt.Sprintf("without %s there: its settings %s and %s", rules.NamedKeys(keys), rules.AnnotationsSetting, rules.LabelsSetting)
				names[what] = append(names[what], name)
			}
			if refused != "" {
				names[refused] = append(names[refused], name)
			}
		}
		for j := range has.Workloads {
			note(has.Workloads[j].Name, "Pod", &has.Workloads[j].Meta, templateRefused(o, &has.Workloads[j].Pod))
		}
		for j := range has.Services {
			note("Service "+has.Services[j].Name, "Service", &has.Services[j].ObjectMeta, partRefused(o.Accepts, &has.Services[j]))
		}
		for _, what := range slices.Sorted(maps.Keys(names)) {
			out = append(out, difference{"in " + o.ProviderClusterID + " " + Some(names[what], mostDiffering), what})
		}
		if len(names) > 0 && o.Accepts.Trust == corev1beta1.TrustStrict {
			out = append(out, difference{"in " + o.ProviderClusterID, StrictProvider + ": docs/security.md#how-far-this-cluster-trusts-its-peers"})
		}
	}
	return out
}

// StrictLeavesOut is what a cluster does not accept from a peer that it trusts as Strict, where no setting says otherwise.
const StrictLeavesOut = "volumes such as nfs and csi, most tolerations, annotations of products, labels that command controllers, Services of type ExternalName and chosen node ports"

// StrictProvider says what a provider that trusts this cluster as Strict leaves out, and what opens it.
const StrictProvider = "it trusts this cluster as another organisation, and leaves out " + StrictLeavesOut +
	"; a token that is made there with --trust=Organisation, or spec.trust of the ForeignCluster there, opens these"

// templateRefused says why a provider refuses the pods of a template; empty: it does not.
func templateRefused(o *sharingv1alpha1.ResourceOfferSpec, template *corev1.PodSpec) string {
	pod := template.DeepCopy() // without what this cluster leaves out or replaces
	pod.NodeSelector, pod.Affinity, pod.RuntimeClassName = nil, nil, nil
	if err := rules.Harden(pod, rules.Allowed{Cluster: o.ProviderClusterID, VolumeTypes: o.Accepts.VolumeTypes, StorageClasses: []string{rules.AllKeys}, ProvisionedClass: func(string) bool { return true }}); err != nil {
		return "refused there: " + err.Error()
	}
	return ""
}

// partRefused says why a provider has a Service only without a part of it; empty: it has all of it.
func partRefused(a *sharingv1alpha1.Accepts, service *corev1.Service) string {
	sent := &corev1.Service{Spec: corev1.ServiceSpec{Type: service.Spec.Type}}
	if service.Annotations[offloadingv1beta1.ForceRemoteNodePortAnnotation] == "true" {
		sent.Spec.Ports = service.Spec.Ports
	}
	if _, why := (rules.ServiceBounds{Types: a.ServiceTypes, Fields: a.ServiceFields}).Refuse(sent, nil); why != "" {
		return "there without it: " + strings.ReplaceAll(why, "this cluster", "it")
	}
	return ""
}

// refers reports whether a template has one of the fields of its pod in a variable or a file.
func refers(pod *corev1.PodSpec, paths []string) bool {
	is := func(f *corev1.ObjectFieldSelector) bool { return f != nil && slices.Contains(paths, f.FieldPath) }
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		if slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.ValueFrom != nil && is(e.ValueFrom.FieldRef) }) {
			return true
		}
	}
	file := func(f corev1.DownwardAPIVolumeFile) bool { return is(f.FieldRef) }
	return slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool {
		return v.DownwardAPI != nil && slices.ContainsFunc(v.DownwardAPI.Items, file) ||
			v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(p corev1.VolumeProjection) bool {
				return p.DownwardAPI != nil && slices.ContainsFunc(p.DownwardAPI.Items, file)
			})
	})
}

// fullNames returns the full names in a template that the twin's DNS may not resolve. Every pod in a
// provider has the name of the API server.
func (s *Snapshot) fullNames(of string, pod *corev1.PodSpec) (out []string) {
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		texts := slices.Concat(c.Command, c.Args)
		for _, e := range c.Env {
			texts = append(texts, e.Value)
		}
		for _, text := range texts {
			for _, m := range fullName.FindAllStringSubmatch(text, -1) {
				name, namespace := m[1], m[2]
				if same := namespace == of && s.sameName(of); !same && name+namespace != "kubernetes.default" {
					out = append(out, name+namespace+".svc")
				}
			}
		}
	}
	return out
}

// home reports whether the pods of a namespace use the Services of this cluster.
func (s *Snapshot) home(namespace string) bool {
	o := s.offloadingOf(namespace)
	return o != nil && o.Spec.Services == offloadingv1beta1.ServicesHome
}

// sameName reports whether the twins of a namespace have its name, or its pods the name from here.
func (s *Snapshot) sameName(namespace string) bool {
	spec := cmp.Or(s.offloadingOf(namespace), &offloadingv1beta1.NamespaceOffloading{}).Spec
	by := spec.NamespaceMappingStrategy
	return s.home(namespace) || by == offloadingv1beta1.EnforceSameName || by == offloadingv1beta1.SelectedName && spec.RemoteNamespaceName == namespace
}

// Some joins names, and counts those beyond most of them.
func Some(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// older describes the pods that run in this cluster as they were created before their namespace was offloaded, and
// says how they are created again. It is empty without such pods. Pods with claims may stay where their data is.
func (s *Snapshot) older(o *offloadingv1beta1.NamespaceOffloading) (text, fix string) {
	strategy := o.Spec.PodOffloadingStrategy
	if o.DeletionTimestamp != nil || strategy == offloadingv1beta1.PodsLocal {
		return "", ""
	}
	n, commands := 0, map[string]bool{}
	for _, pod := range where(s.Pods, func(pod *corev1.Pod) bool { return pod.Namespace == o.Namespace && !ended(pod) }) {
		kind, name := madeBy(pod)
		switch {
		case pod.DeletionTimestamp != nil, pod.Spec.NodeName == "", s.providerOf(pod.Spec.NodeName) != "":
			continue
		case tolerates(pod), mentionsVirtualNodes(pod), kind == "daemonset", strategy != offloadingv1beta1.PodsRemote && len(claimsOf(pod)) > 0:
			continue
		case kind == "deployment", kind == "statefulset":
			commands[fmt.Sprintf("kubectl -n %s rollout restart %s %s", o.Namespace, kind, name)] = true
		}
		n++
	}
	if n == 0 {
		return "", ""
	}
	fix = fmt.Sprintf("kubectl -n %s get pods -o wide\nshows them. Nothing creates them again by itself.", o.Namespace)
	if all := slices.Sorted(maps.Keys(commands)); len(all) > 0 {
		fix = strings.Join(all[:min(len(all), mostNames)], "\n")
	}
	return Count(n, "pod") + " created before the namespace was offloaded: existing pods stay on nodes of this cluster until they are created again", fix
}
