package site

import (
	"context"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// restless are resources that change by themselves, or stay for a while on purpose.
var restless = map[string]bool{
	"events": true, "leases": true, "pods": true, "endpoints": true, "endpointslices": true,
	"certificatesigningrequests": true, // those that Kubernetes removes by itself; see requests
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
