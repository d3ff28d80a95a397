package namespace

import (
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// remoteName returns the name of the twins of a namespace. An error is a message for the
// author of the NamespaceOffloading.
func remoteName(spec *offloadingv1beta1.NamespaceOffloadingSpec, namespace, clusterID string) (string, error) {
	var name string
	switch spec.NamespaceMappingStrategy {
	case offloadingv1beta1.EnforceSameName:
		name = namespace
	case offloadingv1beta1.SelectedName:
		name = spec.RemoteNamespaceName
	case offloadingv1beta1.DefaultName, "":
		name = namespace + "-" + clusterID
	default:
		return "", fmt.Errorf("spec.namespaceMappingStrategy %q is not known: accepted are %s, %s and %s", spec.NamespaceMappingStrategy,
			offloadingv1beta1.EnforceSameName, offloadingv1beta1.DefaultName, offloadingv1beta1.SelectedName)
	}
	if len(name) > validation.DNS1123LabelMaxLength {
		return "", fmt.Errorf("the remote namespace would be named %q, which has %d characters where a namespace may have %d: "+
			"use namespaceMappingStrategy SelectedName with a shorter remoteNamespaceName", name, len(name), validation.DNS1123LabelMaxLength)
	}
	if msgs := validation.IsDNS1123Label(name); len(msgs) > 0 {
		return "", fmt.Errorf("the remote namespace would be named %q: %s", name, strings.Join(msgs, "; "))
	}
	return name, nil
}

// refusal returns the reason for which a namespace of the consumer may not be offloaded, or
// "". own is the namespace that liqod runs in.
func refusal(ns *corev1.Namespace, own string) string {
	switch {
	case ns.Name == "kube-system", ns.Name == "kube-public", ns.Name == "kube-node-lease":
		return fmt.Sprintf("namespace %s belongs to Kubernetes and cannot be offloaded", ns.Name)
	case ns.Name == own:
		return fmt.Sprintf("namespace %s is the one that liqod runs in and cannot be offloaded", ns.Name)
	case ns.Labels[corev1beta1.TenantNamespaceLabel] == "true", strings.HasPrefix(ns.Name, corev1beta1.TenantNamespacePrefix):
		return fmt.Sprintf("namespace %s is a tenant namespace and cannot be offloaded", ns.Name)
	case ns.Annotations[offloadingv1beta1.ManagedByNamespaceMapAnnotation] != "":
		return fmt.Sprintf("namespace %s is itself offloaded here by cluster %s: what is reflected is not reflected again",
			ns.Name, ns.Labels[corev1beta1.RemoteClusterIDLabel])
	}
	return ""
}

// twinRefusal returns the reason for which a peer may not have a twin of this name, or "".
// own is the namespace that liqod runs in.
func twinRefusal(name, own string) string {
	msgs := validation.IsDNS1123Label(name)
	switch {
	case len(msgs) > 0:
		return fmt.Sprintf("%.80q is not the name of a namespace: %s", name, strings.Join(msgs, "; "))
	case name == "default", name == own, strings.HasPrefix(name, "kube-"), strings.HasPrefix(name, "liqo"):
		return fmt.Sprintf("the name %s is reserved in this cluster: default, %s and names that begin with kube- or liqo are", name, own)
	}
	return ""
}

// mayName reports whether a peer may have a twin of this name created: one that ends in -
// and the peer's id, or one that matches a pattern of path.Match. Any other name may be that
// of a product that is installed later, whose Secrets the peer would read then.
func mayName(name, peer string, patterns []string) bool {
	return peer != "" && strings.HasSuffix(name, "-"+peer) || slices.ContainsFunc(patterns, func(pattern string) bool {
		matched, err := path.Match(pattern, name)
		return err == nil && matched
	})
}
