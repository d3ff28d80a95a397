package rights

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

const head = `<!-- Generated from the chart: make generate -->

# What each role could do if it were taken over

This page lists, for each role of liqod and for a peer, what an attacker could do who controls its process or its credentials. It is derived from the chart with its default values: the rules of RBAC, and the
admission policies and the rules of the webhook (` + "`….validate.liqo.io`" + `) that narrow them (` + "`admissionPolicies.enabled`" + `). Without these policies the rules alone hold. No policy sees a read.
[threat-model.md](threat-model.md) has the attacks that are tried in tests.

"Amounts to" names what reaches beyond liqod's own objects. The table below it has every rule.
`

// power is what rules on a resource amount to beyond liqod's own objects.
type power struct {
	group    string
	resource string
	verbs    []string
	says     string
	used     []right // writes by which the power is used, if it is none itself
}

var (
	reading = []string{"get", "list", "watch"}
	writing = []string{"create", "update", "patch", "delete", "deletecollection"}
)

// powers are in the order of the page.
var powers = []power{
	{"admissionregistration.k8s.io", "mutatingwebhookconfigurations", writing, "has everything that is written in the cluster sent to a server of its choice, and changes it, by its webhook configurations", nil},
	{"rbac.authorization.k8s.io", "clusterroles", []string{"bind"}, "gives ClusterRoles to others", []right{
		{group: "rbac.authorization.k8s.io", resource: "rolebindings", verbs: []string{"create"}}, {group: "rbac.authorization.k8s.io", resource: "clusterrolebindings", verbs: []string{"create"}},
	}},
	{"certificates.k8s.io", "signers", []string{"approve"}, "approves certificates", []right{
		{group: "certificates.k8s.io", resource: "certificatesigningrequests/approval", verbs: []string{"update"}},
	}},
	{"", "secrets", reading, "reads Secrets", nil},
	{"", "secrets", writing, "writes Secrets", nil},
	{"", "serviceaccounts/token", []string{"create"}, "gets tokens of service accounts, and so acts as these", nil},
	{"apps", "deployments", []string{"create", "update", "patch"}, "runs pods, by Deployments", nil},
	{"", "pods", reading, "reads the specifications of pods, with what their variables say", nil},
	{"", "pods", []string{"create"}, "runs pods", nil},
	{"", "pods", []string{"update", "patch"}, "changes pods", nil},
	{"", "pods", []string{"delete", "deletecollection"}, "deletes pods", nil},
	{"", "pods/eviction", []string{"create"}, "evicts pods", nil},
	{"", "pods/exec", []string{"create", "get"}, "opens sessions in pods", nil},
	{"", "nodes", writing, "writes Nodes", nil},
	{"", "namespaces", writing, "writes namespaces", nil},
	{"", "persistentvolumes", writing, "writes PersistentVolumes, by which claims get data", nil},
	{"", "events", writing, "writes events, by which people and alerts go", nil},
	{"", "services", []string{"create", "update", "patch"}, "leads traffic elsewhere, by Services", nil},
	{"networking.k8s.io", "ingresses", []string{"create", "update", "patch"}, "leads traffic elsewhere, by Ingresses", nil},
	{"discovery.k8s.io", "endpointslices", []string{"create", "update", "patch"}, "leads traffic elsewhere, by EndpointSlices", nil},
	{"networking.k8s.io", "networkpolicies", writing, "opens and closes the network of pods", nil},
}

// namesInACell is how many names of a rule stand in one row.
const namesInACell = 3

// words are the verbs of RBAC as the page has them. Others stay as they are.
var words = []struct {
	verbs []string
	word  string
}{{reading, "read"}, {[]string{"create"}, "create"}, {[]string{"update", "patch"}, "change"}, {[]string{"delete", "deletecollection"}, "delete"}}

// write writes the section of one holder.
func (c *chart) write(out *bytes.Buffer, h holder) {
	fmt.Fprintf(out, "\n## %s\n\n%s\n", h.name, h.about)
	if spec, runs := c.pods["liqod-"+h.name]; runs {
		fmt.Fprintf(out, "Its pods have %s.\n", ofItsNode(spec))
	}
	out.WriteString("\nAmounts to:\n\n")
	before := out.Len()
	for _, p := range powers {
		c.amounts(out, h.name, p)
	}
	if out.Len() == before {
		out.WriteString("- nothing beyond liqod's own objects\n")
	}
	out.WriteString("\n| where | what | may | narrowed by |\n|---|---|---|---|\n")
	for _, r := range c.rights[h.name] {
		by := "–"
		if names := c.policiesOf(h.name, r); len(names) > 0 {
			by = quoted(names)
		}
		all := r.names
		for names := range slices.Chunk(all, namesInACell) {
			r.names = names
			fmt.Fprintf(out, "| %s | %s | %s | %s |\n", r.place, r.what(), verbs(r.verbs), by)
		}
		if len(all) == 0 {
			fmt.Fprintf(out, "| %s | %s | %s | %s |\n", r.place, r.what(), verbs(r.verbs), by)
		}
	}
	c.messages(out, h.name)
}

// amounts writes a line for a power that the holder has.
func (c *chart) amounts(out *bytes.Buffer, holder string, p power) {
	var where, by []string
	for _, r := range c.rights[holder] {
		r.verbs = slices.DeleteFunc(slices.Clone(r.verbs), func(v string) bool { return !slices.Contains(p.verbs, v) })
		if r.group != p.group || r.resource != p.resource || len(r.verbs) == 0 {
			continue
		}
		place := r.place
		if len(r.names) > 0 {
			place += ", only " + quoted(r.names)
		}
		if !slices.Contains(where, place) && !slices.Contains(where, r.place) {
			where = append(where, place)
		}
		for _, write := range append(p.used, r) {
			by = append(by, c.policiesOf(holder, write)...)
		}
	}
	if len(where) == 0 {
		return
	}
	slices.Sort(by)
	narrowed := "No policy narrows it"
	if by = slices.Compact(by); len(by) > 0 {
		narrowed = "Narrowed by " + quoted(by)
	}
	if slices.Equal(p.verbs, reading) {
		narrowed = "No policy sees a read"
	}
	fmt.Fprintf(out, "- **%s**: %s. %s.\n", p.says, strings.Join(where, "; "), narrowed)
}

// messages writes what the policies say to the holder.
func (c *chart) messages(out *bytes.Buffer, holder string) {
	for i, p := range c.policies {
		if !slices.Contains(narrows[p.Name], holder) {
			continue
		}
		var says []string
		for _, v := range p.Spec.Validations {
			if to := recipient(v.Message); len(narrows[p.Name]) == 1 || to == holder {
				says = append(says, strings.ReplaceAll(strings.ReplaceAll(v.Message, "<", "&lt;"), "*", "\\*"))
			}
		}
		if len(says) == 0 {
			continue
		}
		fmt.Fprintf(out, "\n`%s` refuses with:\n\n", c.policies[i].Name)
		for _, s := range says {
			fmt.Fprintf(out, "- %s\n", s)
		}
	}
}

// recipient returns the holder that a message of a shared policy is for.
func recipient(message string) string {
	switch {
	case strings.Contains(message, "a vkubelet"):
		return "vkubelet"
	case strings.Contains(message, "the gateway"):
		return "gateway"
	case strings.HasPrefix(message, "a peer"):
		return "peer"
	}
	return "controller"
}

// what returns the resource of a right, and the names that it is limited to.
func (r right) what() string {
	name, sub, isSub := strings.Cut(r.resource, "/")
	if r.group != "" {
		name += "." + r.group
	}
	if isSub {
		name += "/" + sub
	}
	if len(r.names) > 0 {
		return "`" + name + "`, only " + quoted(r.names)
	}
	return "`" + name + "`"
}

func verbs(of []string) string {
	var out []string
	left := slices.Clone(of)
	for _, w := range words {
		if slices.ContainsFunc(left, func(v string) bool { return slices.Contains(w.verbs, v) }) {
			out = append(out, w.word)
		}
		left = slices.DeleteFunc(left, func(v string) bool { return slices.Contains(w.verbs, v) })
	}
	return strings.Join(append(out, left...), ", ")
}

// ofItsNode returns what the pods of a role have of their node.
func ofItsNode(spec corev1.PodSpec) string {
	var has []string
	if spec.HostNetwork {
		has = append(has, "the network of their node")
	}
	for _, v := range spec.Volumes {
		if v.HostPath != nil {
			has = append(has, "the host path `"+v.HostPath.Path+"`")
		}
	}
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		s := ptr.Deref(c.SecurityContext, corev1.SecurityContext{})
		if ptr.Deref(s.Privileged, false) {
			has = append(has, "a privileged container `"+c.Name+"`")
		}
		if s.Capabilities != nil && len(s.Capabilities.Add) > 0 {
			names := make([]string, len(s.Capabilities.Add))
			for i, name := range s.Capabilities.Add {
				names[i] = string(name)
			}
			has = append(has, "the capability "+quoted(names)+" in container `"+c.Name+"`")
		}
	}
	if len(has) == 0 {
		return "nothing of their node: no host network, no host path, no privileges, no capabilities"
	}
	return strings.Join(has, ", ")
}

func quoted(words []string) string { return "`" + strings.Join(words, "`, `") + "`" }
