package scenarios

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
)

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
