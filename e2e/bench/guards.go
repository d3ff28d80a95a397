package main

import (
	"context"
	"errors"
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
	mutating, err2 := admission.MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	validating, err3 := admission.ValidatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err := errors.Join(err, err2, err3); err != nil {
		return out, fmt.Errorf("reading what %s checks: %w", name, err)
	}
	ours := func(name string, n int) int {
		if strings.HasPrefix(name, guardPrefix) {
			return n
		}
		return 0
	}
	for _, b := range bindings.Items {
		out.Policies += ours(b.Name, 1)
	}
	for _, m := range mutating.Items {
		out.Webhooks += ours(m.Name, len(m.Webhooks))
	}
	for _, v := range validating.Items {
		out.Webhooks += ours(v.Name, len(v.Webhooks))
	}
	review, err := c.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: controllerUser, ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "*", Group: "*", Resource: "*"},
	}}, metav1.CreateOptions{})
	if err != nil {
		return out, fmt.Errorf("reading the rights of the controller of %s: %w", name, err)
	}
	out.Unbounded = review.Status.Allowed
	return out, nil
}

// expect returns an error if the cluster has other checks than the options want.
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

// readGuards reads the checks of both clusters, and compares them with the options.
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
