package report

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// subjectRights is the subject of the finding about objects that the user may not read.
const subjectRights = "rights"

// reads are the keys of Snapshot.Unread, and the resources that the rights to read them are about.
var reads = []struct {
	what      string
	resources []string
}{
	{ReadKinds, nil},
	{ReadInstallation, []string{"deployments.apps", "clusterrolebindings.rbac.authorization.k8s.io"}},
	{ReadLeases, []string{"leases.coordination.k8s.io"}},
	{ReadConfiguration, []string{"configmaps"}},
	{ReadWebhooks, []string{"mutatingwebhookconfigurations.admissionregistration.k8s.io"}},
	{ReadRules, []string{"validatingwebhookconfigurations.admissionregistration.k8s.io"}},
	{ReadForeignClusters, []string{"foreignclusters.core.liqo.io"}},
	{ReadTenants, []string{"namespaces"}},
	{ReadNetworks, []string{"connections.networking.liqo.io", "networks.ipam.liqo.io"}},
	{ReadMaps, []string{"namespacemaps.offloading.liqo.io"}},
	{ReadOffers, []string{"resourceoffers.sharing.liqo.io"}},
	{ReadQuotas, []string{"quotas.offloading.liqo.io"}},
	{ReadVirtualNodes, []string{"virtualnodes.offloading.liqo.io"}},
	{ReadNodes, []string{"nodes"}},
	{ReadVKubelets, []string{"deployments.apps"}},
	{ReadOffloadings, []string{"namespaceoffloadings.offloading.liqo.io"}},
	{ReadPods, []string{"pods"}},
	{ReadControllers, []string{"replicasets.apps", "statefulsets.apps", "jobs.batch"}},
	{ReadClaims, []string{"persistentvolumeclaims", "storageclasses.storage.k8s.io"}},
	{ReadStored, []string{"persistentvolumes"}},
	{ReadEvents, []string{"events"}},
	{ReadBudgets, []string{"poddisruptionbudgets.policy"}},
	{ReadDaemonSets, []string{"daemonsets.apps"}},
	{ReadRolePods, []string{"pods"}},
	{ReadPolicies, nil}, // of one namespace only, as are the next
	{ReadWorkloads, nil},
	{ReadServices, nil},
}

// inNamespace are the resources that are read in liqod's namespace only.
var inNamespace = []string{"leases.coordination.k8s.io", "configmaps"}

// user is how API servers name the user of a forbidden request.
var user = regexp.MustCompile(`User "([^"]+)"`)

// rights are the resources that status and check read: those of all namespaces or of the cluster, and
// those of liqod's namespace.
func rights() (everywhere, here []string) {
	for _, read := range reads {
		for _, resource := range read.resources {
			if slices.Contains(inNamespace, resource) {
				here = append(here, resource)
			} else if !slices.Contains(everywhere, resource) {
				everywhere = append(everywhere, resource)
			}
		}
	}
	return everywhere, here
}

// refusals adds the findings about objects that could not be read for another reason than rights. It
// returns what else could not be read, and the name of the user, if an error says it.
func (c *checker) refusals() (denied []string, name string) {
	for _, read := range reads {
		err := c.Unread[read.what]
		switch {
		case err == nil:
		case apierrors.IsForbidden(err):
			denied = append(denied, read.what)
			if m := user.FindStringSubmatch(err.Error()); m != nil {
				name = m[1]
			}
		default:
			c.Add(idUnread, Unknown, read.what, "cannot be read: "+err.Error(), "run the command again; if the error stays, see the API server")
		}
	}
	return denied, name
}

// readingNamespace is reading of a snapshot of one namespace. Rights to other objects are not needed.
func (c *checker) readingNamespace() {
	denied, name := c.refusals()
	for _, what := range []string{ReadOffloadings, ReadPods} {
		if slices.Contains(denied, what) {
			c.Add(idRights, Unknown, subjectRights, fmt.Sprintf("no right to read %s of namespace %s", what, c.Only),
				fmt.Sprintf("an administrator grants it:\nkubectl -n %s create rolebinding liqod-status --clusterrole=view --user=%s", c.Only, quoted(name)))
		}
	}
}

// quoted is the name of a user as a word of a command; USER if the name is not known.
func quoted(name string) string {
	if name == "" {
		return "USER"
	}
	return "'" + strings.ReplaceAll(Line(name), "'", "") + "'"
}

// reading adds the findings about objects that could not be read. All forbidden ones are one. The
// rights that it names are all: some objects are read only once others have been.
func (c *checker) reading() {
	denied, name := c.refusals()
	if len(denied) == 0 {
		return
	}
	who, to := "this user", quoted(name)
	if name != "" {
		who = fmt.Sprintf("user %q", name)
	}
	everywhere, here := rights()
	known := ""
	if slices.Contains(denied, ReadInstallation) {
		known = "name the namespace of liqod with --namespace, or "
	}
	fix := known + fmt.Sprintf("use the kubeconfig of an administrator; or an administrator grants the rights:\nkubectl create clusterrole liqod-status --verb=get,list --resource=%s\n"+
		"kubectl create clusterrolebinding liqod-status --clusterrole=liqod-status --user=%s\nkubectl -n %s create role liqod-status --verb=get,list --resource=%s\n"+
		"kubectl -n %s create rolebinding liqod-status --role=liqod-status --user=%s", strings.Join(everywhere, ","), to, c.Namespace, strings.Join(here, ","), c.Namespace, to)
	c.Add(idRights, Unknown, subjectRights, fmt.Sprintf("%s may not read %s: their state is unknown", who, strings.Join(denied, ", ")), fix)
}

// unread reports whether something could not be read. The findings of reading say why.
func (s *Snapshot) unread(what string) bool { return s.Unread[what] != nil }

// unreadNames returns the keys of what could not be read, in the order of reads.
func (s *Snapshot) unreadNames() (out []string) {
	for _, read := range reads {
		if s.unread(read.what) {
			out = append(out, read.what)
		}
	}
	return out
}
