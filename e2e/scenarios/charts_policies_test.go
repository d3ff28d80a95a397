package scenarios

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// chartPolicies checks which policies look at the writes of a pod's life. The API server
// prepares the objects once for each policy that looks, for every user.
func chartPolicies(t *testing.T, plain rendered) {
	var policies []admissionregistrationv1.ValidatingAdmissionPolicy
	for _, obj := range plain.ofKind("ValidatingAdmissionPolicy") {
		p := typed[admissionregistrationv1.ValidatingAdmissionPolicy](t, obj)
		// An aggregated API server evaluates all policies, and is not Ready until it has listed the parameters of
		// each, which it may not.
		require.Nil(t, p.Spec.ParamKind, p.Name)
		policies = append(policies, p)
	}
	const offloading = "offloading.liqo.io"
	for _, tc := range []struct {
		operation       admissionregistrationv1.OperationType
		group, resource string
		want            []string
	}{
		// liqod-peer-others looks only in namespaces of peers, liqod-gateway only in that of liqod.
		{"CREATE", "", "pods", []string{"liqod-peer-others"}},
		{"CREATE", "", "pods/binding", nil},
		{"UPDATE", "", "pods", []string{"liqod-controller-pods", "liqod-gateway", "liqod-peer-others"}},
		{"UPDATE", "", "pods/status", []string{"liqod-controller-pods"}},
		{"DELETE", "", "pods", []string{"liqod-controller-pods"}},
		{"CREATE", offloading, "shadowpods", []string{"liqod-peer"}},
		{"UPDATE", offloading, "shadowpods", []string{"liqod-peer"}},
		{"UPDATE", offloading, "shadowpods/status", nil},
		{"DELETE", offloading, "shadowpods", []string{"liqod-peer"}},
	} {
		var got []string
		for _, p := range policies {
			matches := func(r admissionregistrationv1.NamedRuleWithOperations) bool {
				return ruleMatches(r.RuleWithOperations, tc.operation, tc.group, tc.resource)
			}
			if c := p.Spec.MatchConstraints; slices.ContainsFunc(c.ResourceRules, matches) && !slices.ContainsFunc(c.ExcludeResourceRules, matches) {
				got = append(got, p.Name)
			}
		}
		require.ElementsMatch(t, tc.want, got, "%s %s of %q", tc.operation, tc.resource, tc.group)
	}
}

// ruleMatches tells whether a rule is about an operation on a resource, or a subresource of one.
func ruleMatches(r admissionregistrationv1.RuleWithOperations, operation admissionregistrationv1.OperationType, group, resource string) bool {
	name, sub, isSub := strings.Cut(resource, "/")
	all := []string{resource, "*/*"}
	if isSub {
		all = append(all, name+"/*", "*/"+sub)
	} else {
		all = append(all, "*", name+"/*")
	}
	return slices.Contains(r.Operations, operation) && (slices.Contains(r.APIGroups, group) || slices.Contains(r.APIGroups, "*")) &&
		slices.ContainsFunc(r.Resources, func(s string) bool { return slices.Contains(all, s) })
}

// chartWebhookRights checks that the role which answers anybody writes neither Secrets nor
// webhook configurations, and that the controller writes only those of this release.
func chartWebhookRights(t *testing.T, plain rendered) {
	for _, obj := range plain.ofKind("ClusterRole", "Role") {
		role := typed[rbacv1.ClusterRole](t, obj)
		for _, rule := range role.Rules {
			configurations := slices.Contains(rule.APIGroups, admissionregistrationv1.GroupName)
			written := slices.DeleteFunc(slices.Clone(rule.Verbs), func(verb string) bool { return slices.Contains([]string{"get", "list", "watch"}, verb) })
			switch {
			case role.Name == "liqod-webhook" && (configurations || slices.Contains(rule.Resources, "secrets")):
				require.Empty(t, written, "%+v", rule)
			case configurations && len(written) > 0:
				require.Equal(t, "liqod-controller", role.Name)
				require.Equal(t, []string{"update"}, written)
				require.Equal(t, []string{"liqod"}, rule.ResourceNames)
			}
		}
	}
}
