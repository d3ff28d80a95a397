package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/liqod/liqod/e2e/site"
)

// guardPrefix begins the names of the chart's policies and webhooks.
const guardPrefix = "liqod"

// controllerUser is the account that the chart gives to role controller.
const controllerUser = "system:serviceaccount:liqod:liqod-controller"

// guards are the checks of the chart that a cluster makes at each write, as they were found
// in it.
type guards struct {
	Cluster string `json:"cluster"`
	// Policies are the bound ValidatingAdmissionPolicies of the chart.
	Policies int `json:"admissionPolicies"`
	// Webhooks are those of both kinds of webhook configurations of the chart.
	Webhooks int `json:"webhooks"`
	// Unbounded says that RBAC allows everything to the controller: the rights are not those
	// of the chart.
	Unbounded bool `json:"unboundedRights"`
}

// guardsOf reads what a cluster checks.
func guardsOf(ctx context.Context, name string, c kubernetes.Interface) (guards, error) {
	out := guards{Cluster: name}
	admission := c.AdmissionregistrationV1()
	bindings, err := admission.ValidatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return out, fmt.Errorf("listing the policy bindings of %s: %w", name, err)
	}
	for _, b := range bindings.Items {
		if strings.HasPrefix(b.Name, guardPrefix) {
			out.Policies++
		}
	}
	mutating, err := admission.MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return out, fmt.Errorf("listing the mutating webhooks of %s: %w", name, err)
	}
	for _, m := range mutating.Items {
		if strings.HasPrefix(m.Name, guardPrefix) {
			out.Webhooks += len(m.Webhooks)
		}
	}
	validating, err := admission.ValidatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return out, fmt.Errorf("listing the validating webhooks of %s: %w", name, err)
	}
	for _, v := range validating.Items {
		if strings.HasPrefix(v.Name, guardPrefix) {
			out.Webhooks += len(v.Webhooks)
		}
	}
	review, err := c.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: controllerUser, ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "*", Group: "*", Resource: "*"},
	}}, metav1.CreateOptions{})
	if err != nil {
		return out, fmt.Errorf("asking %s for the rights of the controller: %w", name, err)
	}
	out.Unbounded = review.Status.Allowed
	return out, nil
}

// expect returns an error if the cluster does not check what was asked for.
func (g guards) expect(policies bool) error {
	switch {
	case g.Unbounded:
		return fmt.Errorf("%s allows everything to %s: the rights are to be those of the chart", g.Cluster, controllerUser)
	case g.Webhooks == 0:
		return fmt.Errorf("%s has no webhook of the chart", g.Cluster)
	case policies && g.Policies == 0:
		return fmt.Errorf("%s has no admission policy of the chart: --no-policies accepts that", g.Cluster)
	case !policies && g.Policies > 0:
		return fmt.Errorf("%s has %d admission policies of the chart with --no-policies", g.Cluster, g.Policies)
	}
	return nil
}

// readGuards reads what both clusters check, and holds it against what was asked for.
func (w *world) readGuards(ctx context.Context, policies bool) error {
	for _, s := range []*site.Site{w.rome, w.milan} {
		g, err := guardsOf(ctx, s.Name, s.Client())
		if err != nil {
			return err
		}
		if err := g.expect(policies); err != nil {
			return err
		}
		w.guards = append(w.guards, g)
	}
	return nil
}

// printGuards says what the clusters checked while it was measured.
func printGuards(out io.Writer, all []guards) {
	for _, g := range all {
		policies := fmt.Sprintf("%d admission policies", g.Policies)
		if g.Policies == 0 {
			policies = "no admission policies (--no-policies)"
		}
		fmt.Fprintf(out, "%s: the chart's RBAC, %s, %d webhooks\n", g.Cluster, policies, g.Webhooks)
	}
}
