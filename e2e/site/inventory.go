package site

import (
	"context"
	"errors"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/liqod/liqod/e2e/lab"
)

// restless are resources that change by themselves, or stay for a while on purpose.
var restless = map[string]bool{
	"events": true, "leases": true, "pods": true, "endpoints": true, "endpointslices": true,
	"certificatesigningrequests": true, // those that Kubernetes removes by itself; see requests
}

// AtRest waits until a cluster is at rest and returns its inventory: its own controllers
// have given each namespace and each aggregated role what belongs to it, no request for a
// certificate waits, and two looks in a row see the same.
func (s *Site) AtRest(ctx context.Context) (have []string, err error) {
	err = lab.Eventually(ctx, func(ctx context.Context) error {
		if err := errors.Join(s.furnished(ctx), s.aggregated(ctx), s.answered(ctx)); err != nil {
			return err
		}
		now, err := s.Inventory(ctx)
		if err != nil {
			return err
		}
		last := have
		have = now
		return Changes(last, now)
	})
	if err != nil {
		return nil, fmt.Errorf("%s has not come to rest: %w", s.Name, err)
	}
	return have, nil
}

// Changes is an error that tells in what two inventories differ; nil if they are the same.
func Changes(before, have []string) (err error) {
	for _, x := range have {
		if !slices.Contains(before, x) {
			err = errors.Join(err, fmt.Errorf("new: %s", x))
		}
	}
	for _, x := range before {
		if !slices.Contains(have, x) {
			err = errors.Join(err, fmt.Errorf("gone: %s", x))
		}
	}
	return err
}

// furnished requires what Kubernetes' controllers put into each namespace.
func (s *Site) furnished(ctx context.Context) error {
	namespaces, err := s.Client().CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, ns := range namespaces.Items {
		if ns.Status.Phase == corev1.NamespaceTerminating {
			return fmt.Errorf("namespace %s is being removed", ns.Name)
		}
		if _, err := s.Client().CoreV1().ServiceAccounts(ns.Name).Get(ctx, "default", metav1.GetOptions{}); err != nil {
			return err
		}
		if _, err := s.Client().CoreV1().ConfigMaps(ns.Name).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// aggregated requires that aggregated roles have the rules of those that they select.
func (s *Site) aggregated(ctx context.Context) error {
	roles, err := s.Client().RbacV1().ClusterRoles().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, whole := range roles.Items {
		if whole.AggregationRule == nil {
			continue
		}
		for _, part := range roles.Items {
			if part.Name == whole.Name || !selected(whole.AggregationRule, part) {
				continue
			}
			for _, rule := range part.Rules {
				if !slices.ContainsFunc(whole.Rules, func(r rbacv1.PolicyRule) bool { return equality.Semantic.DeepEqual(r, rule) }) {
					return fmt.Errorf("cluster role %s lacks a rule of %s", whole.Name, part.Name)
				}
			}
		}
	}
	return nil
}

// answered requires that no request for a certificate waits.
func (s *Site) answered(ctx context.Context) error {
	list, err := s.Client().CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, r := range list.Items {
		if len(r.Status.Certificate) == 0 {
			return fmt.Errorf("request %s for a certificate of %s waits", r.Name, r.Spec.SignerName)
		}
	}
	return nil
}

func selected(by *rbacv1.AggregationRule, role rbacv1.ClusterRole) bool {
	return slices.ContainsFunc(by.ClusterRoleSelectors, func(one metav1.LabelSelector) bool {
		selector, err := metav1.LabelSelectorAsSelector(&one)
		return err == nil && selector.Matches(labels.Set(role.Labels))
	})
}

// Inventory names every object of a cluster, with its finalizers, who is bound to which
// rights and what those are, and the requests for certificates that are not done. Objects
// that change by themselves are left out. It is sorted.
func (s *Site) Inventory(ctx context.Context) ([]string, error) {
	out, err := s.objects(ctx)
	if err != nil {
		return nil, err
	}
	for _, more := range []func(context.Context) ([]string, error){s.rights, s.requests} {
		lines, err := more(ctx)
		if err != nil {
			return nil, err
		}
		out = append(out, lines...)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

func (s *Site) objects(ctx context.Context) (out []string, err error) {
	config := s.Config()
	config.WarningHandler = rest.NoWarnings{} // of kinds that are on their way out
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	_, lists, err := s.Client().Discovery().ServerGroupsAndResources()
	if err != nil {
		return nil, err
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			if restless[r.Name] || !slices.Contains(r.Verbs, "list") {
				continue
			}
			gvr := gv.WithResource(r.Name)
			objects, err := client.Resource(gvr).List(ctx, metav1.ListOptions{})
			if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", gvr, err)
			}
			for _, o := range objects.Items {
				out = append(out, fmt.Sprintf("%s %s/%s %v", gvr.GroupResource(), o.Namespace, o.Name, o.Finalizers))
			}
		}
	}
	return out, nil
}

// rights are the rules of roles and the subjects of bindings.
func (s *Site) rights(ctx context.Context) (out []string, err error) {
	rbac, all := s.Client().RbacV1(), metav1.ListOptions{}
	roles, err := rbac.Roles(metav1.NamespaceAll).List(ctx, all)
	if err != nil {
		return nil, err
	}
	for _, r := range roles.Items {
		out = append(out, fmt.Sprintf("rules of role %s/%s: %v", r.Namespace, r.Name, r.Rules))
	}
	clusterRoles, err := rbac.ClusterRoles().List(ctx, all)
	if err != nil {
		return nil, err
	}
	for _, r := range clusterRoles.Items {
		out = append(out, fmt.Sprintf("rules of cluster role %s: %v", r.Name, r.Rules))
	}
	bindings, err := rbac.RoleBindings(metav1.NamespaceAll).List(ctx, all)
	if err != nil {
		return nil, err
	}
	for _, b := range bindings.Items {
		out = append(out, fmt.Sprintf("role binding %s/%s: %s to %v", b.Namespace, b.Name, b.RoleRef.Name, b.Subjects))
	}
	clusterBindings, err := rbac.ClusterRoleBindings().List(ctx, all)
	if err != nil {
		return nil, err
	}
	for _, b := range clusterBindings.Items {
		out = append(out, fmt.Sprintf("cluster role binding %s: %s to %v", b.Name, b.RoleRef.Name, b.Subjects))
	}
	return out, nil
}

// requests are those for certificates but for the ones that a node's serving certificate
// came from: Kubernetes removes them an hour later.
func (s *Site) requests(ctx context.Context) (out []string, err error) {
	list, err := s.Client().CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, r := range list.Items {
		if r.Spec.SignerName != certificatesv1.KubeletServingSignerName || len(r.Status.Certificate) == 0 {
			out = append(out, fmt.Sprintf("request %s for a certificate of %s", r.Name, r.Spec.SignerName))
		}
	}
	return out, nil
}
