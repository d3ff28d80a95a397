package scenarios

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/liqod/liqod/e2e/lab"
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

// chartOutside checks what the chart has for gateways outside of the cluster, without its own and with it.
func chartOutside(t *testing.T, c chart) {
	edge := []any{values{"name": "edge", "number": 2}}
	with := func(of values) values { return values{"networking": values{"gatewayTemplates": of}} }
	alone, beside := c.mustRender(t, with(values{"replicas": 0, "outside": edge})), c.mustRender(t, with(values{"outside": edge}))
	names := func(objects rendered) (out []string) {
		for _, obj := range objects.ofKind("Deployment", "Service", "NetworkPolicy", "ServiceAccount", "Role", "RoleBinding", "ClusterRole") {
			if strings.HasPrefix(obj.GetName(), "liqod-gateway") {
				out = append(out, obj.GetKind()+" "+obj.GetName())
			}
		}
		slices.Sort(out)
		return out
	}
	outside := []string{"ClusterRole liqod-gateway", "Role liqod-gateway-edge", "RoleBinding liqod-gateway-edge", "ServiceAccount liqod-gateway-edge"}
	require.Equal(t, outside, names(alone))
	require.Equal(t, slices.Sorted(slices.Values(append([]string{
		"Deployment liqod-gateway", "Role liqod-gateway", "RoleBinding liqod-gateway", "Service liqod-gateway", "ServiceAccount liqod-gateway",
	}, outside...))), names(beside))
	for _, objects := range []rendered{alone, beside} {
		chartRights(t, objects, "controller", "gateway", "ipam", "peer", "route", "user", "vkubelet", "webhook")
		chartOutsideRights(t, objects)
	}
	for name, tc := range map[string]struct {
		values values
		says   string
	}{
		"a number of the chart's":   {with(values{"outside": []any{values{"name": "edge", "number": 1}}}), "number 1 of edge is not accepted: the gateways of replicas have the numbers 1 to 1"},
		"a name twice":              {with(values{"outside": append(slices.Clone(edge), values{"name": "edge", "number": 3})}), "name edge with number 3 is not accepted"},
		"a number twice":            {with(values{"outside": append(slices.Clone(edge), values{"name": "brim", "number": 2})}), "name brim with number 2 is not accepted"},
		"no number":                 {with(values{"outside": []any{values{"name": "edge"}}}), "number"},
		"a name with dots":          {with(values{"outside": []any{values{"name": "edge.example", "number": 2}}}), "pattern"},
		"without the network":       {values{"networking": values{"enabled": false, "gatewayTemplates": values{"outside": edge}}}, "outside is not accepted: it needs networking.enabled"},
		"endpoints of no gateway":   {with(values{"replicas": 0, "outside": edge, "endpoints": []string{"192.0.2.1:51840"}}), "gatewayTemplates.endpoints is not accepted"},
		"pods' addresses of none":   {with(values{"replicas": 0, "outside": edge, "podAddresses": true}), "gatewayTemplates.podAddresses is not accepted"},
		"the MTU of none":           {with(values{"replicas": 0, "outside": edge, "mtu": 1400}), "gatewayTemplates.mtu is not accepted"},
		"arguments of none":         {with(values{"replicas": 0, "outside": edge, "extraArgs": []string{"--log.level=debug"}}), "gatewayTemplates.extraArgs is not accepted"},
		"the type of no Service":    {with(values{"replicas": 0, "outside": edge, "service": values{"type": "NodePort"}}), "gatewayTemplates.service is not accepted"},
		"a policy without its pods": {values{"networking": values{"nodeCIDRs": []string{"192.0.2.0/24"}, "gatewayTemplates": values{"replicas": 0, "outside": edge}}, "networkPolicy": values{"enabled": true, "overlayFromNodeCIDRs": true}}, "no gateway is a pod"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := c.render(t, tc.values)
			require.ErrorContains(t, err, tc.says)
		})
	}
}

// chartOutsideRights checks that the gateway outside has the rights of role gateway in the whole cluster, and
// in liqod's namespace writes its own Lease and nothing else.
func chartOutsideRights(t *testing.T, objects rendered) {
	t.Helper()
	subjects, leases := map[string]bool{}, map[string][]string{}
	for _, obj := range objects.ofKind("ClusterRoleBinding") {
		binding := typed[rbacv1.ClusterRoleBinding](t, obj)
		for _, s := range binding.Subjects {
			if s.Name == "liqod-gateway-edge" {
				subjects[binding.RoleRef.Name] = true
			}
		}
	}
	require.Equal(t, []string{"liqod-gateway"}, slices.Collect(maps.Keys(subjects)))
	for _, obj := range objects.ofKind("Role") {
		if obj.GetName() != "liqod-gateway-edge" {
			continue
		}
		role := typed[rbacv1.Role](t, obj)
		for _, rule := range role.Rules {
			require.Equal(t, []string{"leases"}, rule.Resources)
			for _, verb := range rule.Verbs {
				leases[verb] = rule.ResourceNames
			}
		}
	}
	var all []string
	for number := 1; number <= 14; number++ {
		all = append(all, fmt.Sprintf("liqod-gateway-%d", number))
	}
	require.Equal(t, map[string][]string{"create": nil, "list": nil, "watch": nil, "get": all, "update": {"liqod-gateway-2"}}, leases)
}

// chartUninstall checks the hooks of helm uninstall: one Job with rights to read what it judges, unless it
// is switched off.
func chartUninstall(t *testing.T, c chart) {
	hooks := func(more values) rendered {
		return must(c.renderWith(t, lab.ChartOptions{Values: more, Hooks: true}))(t)
	}
	require.Empty(t, hooks(values{"uninstall": values{"check": false}}))
	objects := hooks(values{"image": values{"repository": "r.example/liqod", "tag": "v1"}})
	require.Len(t, objects, 1)
	require.Len(t, objects["uninstall.yaml"], 4)
	for _, obj := range objects["uninstall.yaml"] {
		require.Equal(t, "liqod-uninstall", obj.GetName())
		require.Equal(t, "pre-delete", obj.GetAnnotations()["helm.sh/hook"])
		require.Equal(t, "before-hook-creation,hook-succeeded", obj.GetAnnotations()["helm.sh/hook-delete-policy"])
		weight := "-1"
		if obj.GetKind() == "Job" {
			weight = "0"
		}
		require.Equal(t, weight, obj.GetAnnotations()["helm.sh/hook-weight"], obj.GetKind())
	}
	role := typed[rbacv1.ClusterRole](t, objects.ofKind("ClusterRole")[0])
	require.Equal(t, []rbacv1.PolicyRule{ // TestUninstallReads has the same
		{APIGroups: []string{"core.liqo.io"}, Resources: []string{"foreignclusters"}, Verbs: []string{"list"}},
		{APIGroups: []string{"offloading.liqo.io"}, Resources: []string{"namespacemaps", "namespaceoffloadings", "virtualnodes"}, Verbs: []string{"list"}},
	}, role.Rules)
	job := typed[batchv1.Job](t, objects.ofKind("Job")[0])
	pod := job.Spec.Template.Spec
	require.Equal(t, "liqod-uninstall", pod.ServiceAccountName)
	require.Equal(t, "r.example/liqod:v1", pod.Containers[0].Image)
	require.Equal(t, []string{"uninstall", "--timeout=1m"}, pod.Containers[0].Args)
}
