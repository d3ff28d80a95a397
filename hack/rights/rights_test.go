package rights

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const role = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: liqod-gateway, namespace: liqod}
rules:
  - {apiGroups: [""], resources: [secrets], verbs: [create, watch]}
  - {apiGroups: [apps], resources: [deployments], resourceNames: [one], verbs: [patch]}
---
apiVersion: apps/v1
kind: DaemonSet
spec: {template: {spec: {serviceAccountName: liqod-gateway, hostNetwork: true, containers: [{name: c, securityContext: {capabilities: {add: [NET_ADMIN]}}}]}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: liqod-secrets}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: ["*"], operations: [CREATE], resources: [secrets]}]}
  validations: [{message: "the gateway may write its own"}, {message: "a vkubelet may not"}]
`

func TestPage(t *testing.T) {
	page, err := Page([]byte(role))
	require.NoError(t, err)
	_, section, found := strings.Cut(string(page), "## gateway\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	for _, line := range []string{
		"Its pods have the network of their node, the capability `NET_ADMIN` in container `c`.",
		"- **reads Secrets**: in namespace `liqod`. No policy sees a read.",
		"- **writes Secrets**: in namespace `liqod`. Narrowed by `liqod-secrets`.",
		"- **runs pods, by Deployments**: in namespace `liqod`, only `one`. No policy narrows it.",
		"| in namespace `liqod` | `secrets` | read, create | `liqod-secrets` |",
		"| in namespace `liqod` | `deployments.apps`, only `one` | change | – |",
		"- the gateway may write its own",
	} {
		require.Contains(t, section, line)
	}
	require.NotContains(t, section, "a vkubelet may not")
}

// TestPageForgetsNothing: a role or a policy that the tables lack is an error.
func TestPageForgetsNothing(t *testing.T) {
	for from, to := range map[string]string{"liqod-gateway, namespace: liqod": "liqod-gateway-more", "name: liqod-secrets": "name: liqod-new", "liqod-gateway,": "liqod-new,"} {
		_, err := Page([]byte(strings.Replace(role, from, to, 1)))
		require.ErrorContains(t, err, "hack/rights", to)
	}
}
