// Package rights writes the page about what an attacker could do in the place of each role, from
// the manifests of the chart: its rules, and the admission policies that narrow them.
package rights

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// holder is one that has rights.
type holder struct{ name, about string }

// holders are all that the page is about, in its order.
var holders = []holder{
	{"webhook", "It answers whoever reaches its port."},
	{"controller", "It reads what peers write here, and what the API servers of peers answer. It serves the authentication endpoint to strangers. It may give a claim of class liqo any data that a CSI driver or an NFS server finds by a name, unless another claim's volume has the same; without the admission policies, it reads and writes all files of nodes."},
	{"vkubelet", "There is one for each virtual node, with an account of its own. It reads what its provider answers, and serves the kubelet API."},
	{"gateway", "It receives the packets of peers. One outside of the cluster has its token on its host."},
	{"route", "There is one on each node, and so its token is on each node. It receives the packets of the fabric."},
	{"ipam", "It reads what peers state about their networks."},
	{"peer", "This is another cluster, with the identity that it has here, once it is offered capacity."},
}

// places are where the ClusterRoles hold that the controller binds at run time.
var places = map[string]string{
	"liqod-controller-tenant":  "in tenant namespaces",
	"liqod-controller-twin":    "in twin namespaces",
	"liqod-vkubelet-cluster":   "in the whole cluster",
	"liqod-vkubelet-tenant":    "in its tenant namespace",
	"liqod-vkubelet-namespace": "in namespaces that are offloaded through it",
	"liqod-peer-cluster":       "in the whole cluster",
	"liqod-peer-tenant":        "in its tenant namespace",
	"liqod-peer-twin":          "in its twin namespaces",
}

// narrows says whose rights each admission policy narrows, and each rule of the webhook. A policy that
// is missing is an error. A rule that is missing narrows no rights.
var narrows = map[string][]string{
	"liqod-controller":             {"controller"},
	"liqod-controller-bindings":    {"controller"},
	"liqod-controller-deployments": {"controller"},
	"liqod-controller-peers":       {"controller"},
	"liqod-controller-storage":     {"controller"},
	"liqod-events":                 {"controller", "gateway", "route"},
	"liqod-controller-pods":        {"controller", "vkubelet", "peer"},
	"liqod-gateway":                {"gateway"},
	"liqod-peer":                   {"peer"},
	"liqod-peer-others":            {"peer"},
	"liqod-secrets":                {"controller", "vkubelet", "gateway"},
	"liqod-tenants":                {}, // it only warns
	"liqod-vkubelet":               {"vkubelet"},
	"liqod-vkubelet-tokens":        {"vkubelet"},
	"binding.validate.liqo.io":     {"controller"},
	"volume.validate.liqo.io":      {"controller"},
}

// right is one rule about one resource, in one place.
type right struct {
	place, group, resource string
	verbs, names           []string
}

// chart is what the page needs of the manifests.
type chart struct {
	rights   map[string][]right // by holder
	policies []admissionregistrationv1.ValidatingAdmissionPolicy
	pods     map[string]corev1.PodSpec // by service account
}

// Page returns the page for the manifests that Helm makes of the chart: YAML documents.
func Page(manifests []byte) ([]byte, error) {
	c, err := read(manifests)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	out.WriteString(head)
	for _, h := range holders {
		c.write(&out, h)
	}
	return out.Bytes(), nil
}

func read(manifests []byte) (*chart, error) {
	c := &chart{rights: map[string][]right{}, pods: map[string]corev1.PodSpec{}}
	var roles []rbacv1.ClusterRole
	wide := map[string]bool{} // names of ClusterRoles that the chart binds in the whole cluster
	for document := range bytes.SplitSeq(append([]byte("\n"), manifests...), []byte("\n---\n")) {
		var kind struct {
			Kind string `json:"kind"`
		}
		if err := yaml.Unmarshal(document, &kind); err != nil {
			return nil, fmt.Errorf("reading a document: %w", err)
		}
		var into any
		var role rbacv1.ClusterRole
		var binding rbacv1.ClusterRoleBinding
		var policy admissionregistrationv1.ValidatingAdmissionPolicy
		var webhooks admissionregistrationv1.ValidatingWebhookConfiguration
		var workload appsv1.Deployment // the fields of a DaemonSet that are read are the same
		switch kind.Kind {
		case "ClusterRole", "Role":
			into = &role
		case "ClusterRoleBinding":
			into = &binding
		case "ValidatingAdmissionPolicy":
			into = &policy
		case "ValidatingWebhookConfiguration":
			into = &webhooks
		case "Deployment", "DaemonSet":
			into = &workload
		default:
			continue
		}
		if err := yaml.Unmarshal(document, into); err != nil {
			return nil, fmt.Errorf("reading a %s: %w", kind.Kind, err)
		}
		switch kind.Kind {
		case "ClusterRole", "Role":
			roles = append(roles, role)
		case "ClusterRoleBinding":
			wide[binding.RoleRef.Name] = true
		case "ValidatingAdmissionPolicy":
			if narrows[policy.Name] == nil {
				return nil, fmt.Errorf("ValidatingAdmissionPolicy %s is not in the table of hack/rights", policy.Name)
			}
			c.policies = append(c.policies, policy)
		case "ValidatingWebhookConfiguration":
			c.addRules(webhooks.Webhooks)
		default:
			c.pods[workload.Spec.Template.Spec.ServiceAccountName] = workload.Spec.Template.Spec
		}
	}
	return c, c.add(roles, wide)
}

// addRules adds rules of the webhook as policies without validations: the role has their messages.
func (c *chart) addRules(webhooks []admissionregistrationv1.ValidatingWebhook) {
	for _, w := range webhooks {
		rule := admissionregistrationv1.ValidatingAdmissionPolicy{Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{MatchConstraints: &admissionregistrationv1.MatchResources{}}}
		rule.Name = w.Name
		for _, r := range w.Rules {
			rule.Spec.MatchConstraints.ResourceRules = append(rule.Spec.MatchConstraints.ResourceRules, admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: r})
		}
		c.policies = append(c.policies, rule)
	}
}

// add sorts the rules of roles by their holders.
func (c *chart) add(roles []rbacv1.ClusterRole, wide map[string]bool) error {
	for _, role := range roles {
		if strings.HasPrefix(role.Name, "liqod-user-") {
			continue // of people: security.md
		}
		i := slices.IndexFunc(holders, func(h holder) bool {
			return role.Name == "liqod-"+h.name || strings.HasPrefix(role.Name, "liqod-"+h.name+"-")
		})
		place, known := places[role.Name]
		switch {
		case role.Namespace != "":
			place, known = "in namespace `"+role.Namespace+"`", true
		case wide[role.Name]:
			place, known = "in the whole cluster", true
		}
		if i < 0 || !known {
			return fmt.Errorf("ClusterRole %s: hack/rights does not say who has it, or where", role.Name)
		}
		for _, rule := range role.Rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					c.rights[holders[i].name] = append(c.rights[holders[i].name], right{place, group, resource, rule.Verbs, rule.ResourceNames})
				}
			}
		}
	}
	return nil
}

// policiesOf returns the names of the policies that narrow the writes of a right, sorted.
func (c *chart) policiesOf(holder string, r right) []string {
	names := map[string]bool{}
	for _, p := range c.policies {
		if slices.Contains(narrows[p.Name], holder) && p.Spec.MatchConstraints != nil && looks(p.Spec.MatchConstraints, r) {
			names[p.Name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// looks reports whether a policy is asked about any write that a right allows.
func looks(at *admissionregistrationv1.MatchResources, r right) bool {
	operations := map[string]admissionregistrationv1.OperationType{
		"create": admissionregistrationv1.Create, "update": admissionregistrationv1.Update, "patch": admissionregistrationv1.Update,
		"delete": admissionregistrationv1.Delete, "deletecollection": admissionregistrationv1.Delete,
	}
	return slices.ContainsFunc(r.verbs, func(verb string) bool {
		matches := func(rule admissionregistrationv1.NamedRuleWithOperations) bool {
			return slices.Contains(rule.Operations, operations[verb]) && contains(rule.APIGroups, r.group) &&
				(contains(rule.Resources, r.resource) || slices.Contains(rule.Resources, "*/*"))
		}
		return slices.ContainsFunc(at.ResourceRules, matches) && !slices.ContainsFunc(at.ExcludeResourceRules, matches)
	})
}

func contains(list []string, word string) bool {
	return slices.Contains(list, word) || slices.Contains(list, "*")
}
