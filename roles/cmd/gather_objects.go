package cmd

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// mostObjects limits the objects of a file.
const mostObjects = 20000

// lister reads the objects of a kind.
type lister struct {
	// file is the name in the archive.
	file string
	list func(ctx context.Context, page metav1.ListOptions) (runtime.Object, error)
}

// listed adapts a List method. labels selects objects; empty selects all.
func listed[T runtime.Object](list func(context.Context, metav1.ListOptions) (T, error), labels string) func(context.Context, metav1.ListOptions) (runtime.Object, error) {
	return func(ctx context.Context, page metav1.ListOptions) (runtime.Object, error) {
		page.LabelSelector = labels
		return list(ctx, page)
	}
}

// clusterWide are the objects that are read once. Of most kinds of others, those of the chart
// are read only.
func (to *clients) clusterWide() []lister {
	const all, ours = "", installed
	core, admission := to.kube.CoreV1(), to.kube.AdmissionregistrationV1()
	return []lister{
		{"foreignclusters", listed(to.liqo.CoreV1beta1().ForeignClusters().List, all)},
		{"virtualnodes", listed(to.liqo.OffloadingV1beta1().VirtualNodes("").List, all)},
		{"namespaceoffloadings", listed(to.liqo.OffloadingV1beta1().NamespaceOffloadings("").List, all)},
		{"namespacemaps", listed(to.liqo.OffloadingV1beta1().NamespaceMaps("").List, all)},
		{"shadowpods", listed(to.liqo.OffloadingV1beta1().ShadowPods("").List, all)},
		{"shadowendpointslices", listed(to.liqo.OffloadingV1beta1().ShadowEndpointSlices("").List, all)},
		{"quotas", listed(to.liqo.OffloadingV1beta1().Quotas("").List, all)},
		{"resourcerequests", listed(to.liqo.SharingV1alpha1().ResourceRequests("").List, all)},
		{"resourceoffers", listed(to.liqo.SharingV1alpha1().ResourceOffers("").List, all)},
		{"configurations", listed(to.liqo.NetworkingV1beta1().Configurations("").List, all)},
		{"connections", listed(to.liqo.NetworkingV1beta1().Connections("").List, all)},
		{"networks", listed(to.liqo.IPAMV1alpha1().Networks("").List, all)},
		{"ips", listed(to.liqo.IPAMV1alpha1().IPs("").List, all)},
		{"addresspools", listed(to.liqo.IPAMV1alpha1().AddressPools().List, all)},
		{"nodes", listed(core.Nodes().List, all)},
		{"namespaces", listed(core.Namespaces().List, all)},
		{"storageclasses", listed(to.kube.StorageV1().StorageClasses().List, all)},
		{"mutatingwebhookconfigurations", listed(admission.MutatingWebhookConfigurations().List, ours)},
		{"validatingwebhookconfigurations", listed(admission.ValidatingWebhookConfigurations().List, ours)},
		{"validatingadmissionpolicies", listed(admission.ValidatingAdmissionPolicies().List, ours)},
		{"clusterroles", listed(to.kube.RbacV1().ClusterRoles().List, ours)},
		{"clusterrolebindings", listed(to.kube.RbacV1().ClusterRoleBindings().List, ours)},
		{"runtimeclasses", listed(to.kube.NodeV1().RuntimeClasses().List, ours)},
		{"flowschemas", listed(to.kube.FlowcontrolV1().FlowSchemas().List, ours)},
	}
}

// ownKinds are the objects of the namespaces of liqod itself and of its peers.
func (to *clients) ownKinds(ns string) []lister {
	return []lister{
		{"configmaps", listed(to.kube.CoreV1().ConfigMaps(ns).List, "")},
		{"serviceaccounts", listed(to.kube.CoreV1().ServiceAccounts(ns).List, "")},
		{"deployments", listed(to.kube.AppsV1().Deployments(ns).List, "")},
		{"daemonsets", listed(to.kube.AppsV1().DaemonSets(ns).List, "")},
		{"leases", listed(to.kube.CoordinationV1().Leases(ns).List, "")},
		{"poddisruptionbudgets", listed(to.kube.PolicyV1().PodDisruptionBudgets(ns).List, "")},
		{"networkpolicies", listed(to.kube.NetworkingV1().NetworkPolicies(ns).List, "")},
		{"rolebindings", listed(to.kube.RbacV1().RoleBindings(ns).List, "")},
	}
}

// sharedKinds are the objects of all namespaces that liqod has to do with, also those of
// users and peers.
func (to *clients) sharedKinds(ns string) []lister {
	return []lister{
		{"pods", listed(to.kube.CoreV1().Pods(ns).List, "")},
		{"services", listed(to.kube.CoreV1().Services(ns).List, "")},
		{"endpointslices", listed(to.kube.DiscoveryV1().EndpointSlices(ns).List, "")},
		{"resourcequotas", listed(to.kube.CoreV1().ResourceQuotas(ns).List, "")},
		{"events", listed(to.kube.CoreV1().Events(ns).List, "")},
	}
}

// prune removes the fields of an object that are of no use or may be secret: at any depth, the records of field
// managers and the copies of kubectl; and unless own is set, what containers are given, in pods and in templates of
// pods.
func prune(value any, own bool) {
	switch v := value.(type) {
	case []any:
		for _, e := range v {
			prune(e, own)
		}
	case map[string]any:
		delete(v, "managedFields")
		if annotations, ok := v["annotations"].(map[string]any); ok {
			delete(annotations, corev1.LastAppliedConfigAnnotation)
		}
		if _, container := v["image"]; container && !own {
			for _, field := range []string{"env", "args", "command", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle"} {
				if _, has := v[field]; has {
					v[field] = removedOfUser
				}
			}
		}
		for _, e := range v {
			prune(e, own)
		}
	}
}

const removedOfUser = "(removed)"

// secretView is what the archive has of a Secret.
type secretView struct {
	Namespace string            `json:"namespace"`
	Name      string            `json:"name"`
	Type      corev1.SecretType `json:"type,omitempty"`
	Created   metav1.Time       `json:"created"`
	Labels    map[string]string `json:"labels,omitempty"`
	// Bytes has the sizes of the values.
	Bytes map[string]int `json:"bytes,omitempty"`
}

func viewOfSecret(s *corev1.Secret) secretView {
	out := secretView{Namespace: s.Namespace, Name: s.Name, Type: s.Type, Created: s.CreationTimestamp, Labels: s.Labels, Bytes: map[string]int{}}
	for key, value := range s.Data {
		out.Bytes[key] = len(value)
	}
	return out
}
