package cmd

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// lister reads all objects of a kind, in a namespace or, if that is empty, in all.
type lister struct {
	// file is the name in the archive.
	file string
	list func(ctx context.Context, namespace string) (runtime.Object, error)
}

// listed adapts a List method.
func listed[T runtime.Object](list func(context.Context, metav1.ListOptions) (T, error), options metav1.ListOptions) func(context.Context, string) (runtime.Object, error) {
	return func(ctx context.Context, _ string) (runtime.Object, error) { return list(ctx, options) }
}

// clusterWide are the objects that are read once. Of most kinds of others, those of the chart
// are read only.
func (to *clients) clusterWide() []lister {
	all, ours, core, admission := metav1.ListOptions{}, metav1.ListOptions{LabelSelector: installed}, to.kube.CoreV1(), to.kube.AdmissionregistrationV1()
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
func (to *clients) ownKinds() []lister {
	all := metav1.ListOptions{}
	return []lister{
		{"configmaps", func(ctx context.Context, ns string) (runtime.Object, error) {
			return to.kube.CoreV1().ConfigMaps(ns).List(ctx, all)
		}},
		{"serviceaccounts", func(ctx context.Context, ns string) (runtime.Object, error) {
			return to.kube.CoreV1().ServiceAccounts(ns).List(ctx, all)
		}},
		{"deployments", func(ctx context.Context, ns string) (runtime.Object, error) {
			return to.kube.AppsV1().Deployments(ns).List(ctx, all)
		}},
		{"daemonsets", func(ctx context.Context, ns string) (runtime.Object, error) {
			return to.kube.AppsV1().DaemonSets(ns).List(ctx, all)
		}},
		{"leases", func(ctx context.Context, ns string) (runtime.Object, error) {
			return to.kube.CoordinationV1().Leases(ns).List(ctx, all)
		}},
		{"poddisruptionbudgets", func(ctx context.Context, ns string) (runtime.Object, error) {
			return to.kube.PolicyV1().PodDisruptionBudgets(ns).List(ctx, all)
		}},
		{"networkpolicies", func(ctx context.Context, ns string) (runtime.Object, error) {
			return to.kube.NetworkingV1().NetworkPolicies(ns).List(ctx, all)
		}},
		{"rolebindings", func(ctx context.Context, ns string) (runtime.Object, error) {
			return to.kube.RbacV1().RoleBindings(ns).List(ctx, all)
		}},
	}
}

// sharedKinds are the objects of all namespaces that liqod has to do with, also those of
// users and peers.
func (to *clients) sharedKinds() []lister {
	all := metav1.ListOptions{}
	return []lister{
		{"pods", func(ctx context.Context, ns string) (runtime.Object, error) {
			return to.kube.CoreV1().Pods(ns).List(ctx, all)
		}},
		{"services", func(ctx context.Context, ns string) (runtime.Object, error) {
			return to.kube.CoreV1().Services(ns).List(ctx, all)
		}},
		{"endpointslices", func(ctx context.Context, ns string) (runtime.Object, error) {
			return to.kube.DiscoveryV1().EndpointSlices(ns).List(ctx, all)
		}},
		{"resourcequotas", func(ctx context.Context, ns string) (runtime.Object, error) {
			return to.kube.CoreV1().ResourceQuotas(ns).List(ctx, all)
		}},
		{"events", func(ctx context.Context, ns string) (runtime.Object, error) {
			return to.kube.CoreV1().Events(ns).List(ctx, all)
		}},
	}
}

// asText returns an object as YAML, without what is of no use or may be secret. own keeps the
// environment and the arguments of pods.
func asText(obj runtime.Object, own bool) (string, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return "", fmt.Errorf("encoding: %w", err)
	}
	prune(content, own)
	text, err := yaml.Marshal(content)
	if err != nil {
		return "", fmt.Errorf("encoding: %w", err)
	}
	return string(text), nil
}

// prune removes, at any depth, the records of field managers and the copies of kubectl. Unless
// own is set, it also removes what containers are given, in pods and in templates of pods.
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
