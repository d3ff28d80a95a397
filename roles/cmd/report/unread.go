package report

import (
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// subjectRights is the subject of the finding about objects that the user may not read.
const subjectRights = "rights"

// reads are the keys of Snapshot.Unread, and the resources that the rights to read them are about, each once.
var reads = []struct{ what, resources string }{
	{ReadKinds, ""},
	{ReadInstallation, "deployments.apps,clusterrolebindings.rbac.authorization.k8s.io"},
	{ReadLeases, ""}, // in liqod's namespace, as the next: inNamespace
	{ReadConfiguration, ""},
	{ReadWebhooks, "mutatingwebhookconfigurations.admissionregistration.k8s.io"},
	{ReadRules, "validatingwebhookconfigurations.admissionregistration.k8s.io"},
	{ReadForeignClusters, "foreignclusters.core.liqo.io"},
	{ReadTenants, "namespaces"},
	{ReadNetworks, "connections.networking.liqo.io,networks.ipam.liqo.io"},
	{ReadMaps, "namespacemaps.offloading.liqo.io"},
	{ReadOffers, "resourceoffers.sharing.liqo.io"},
	{ReadQuotas, "quotas.offloading.liqo.io"},
	{ReadVirtualNodes, "virtualnodes.offloading.liqo.io"},
	{ReadNodes, "nodes"},
	{ReadVKubelets, ""},
	{ReadOffloadings, "namespaceoffloadings.offloading.liqo.io"},
	{ReadPods, "pods"},
	{ReadControllers, "replicasets.apps,statefulsets.apps,jobs.batch"},
	{ReadClaims, "persistentvolumeclaims,storageclasses.storage.k8s.io"},
	{ReadStored, "persistentvolumes"},
	{ReadEvents, "events"},
	{ReadBudgets, "poddisruptionbudgets.policy"},
	{ReadDaemonSets, "daemonsets.apps"},
	{ReadRolePods, ""},
	{ReadPolicies, ""}, // of one namespace only, as are the next
	{ReadWorkloads, ""},
	{ReadServices, ""},
}

// inNamespace are the resources that are read in liqod's namespace only.
const inNamespace = "leases.coordination.k8s.io,configmaps"

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
	var everywhere []string
	for _, read := range reads {
		if read.resources != "" {
			everywhere = append(everywhere, read.resources)
		}
	}
	known := ""
	if slices.Contains(denied, ReadInstallation) {
		known = "name the namespace of liqod with --namespace, or "
	}
	fix := known + fmt.Sprintf("use the kubeconfig of an administrator; or an administrator grants the rights:\nkubectl create clusterrole liqod-status --verb=get,list --resource=%s\n"+
		"kubectl create clusterrolebinding liqod-status --clusterrole=liqod-status --user=%s\nkubectl -n %s create role liqod-status --verb=get,list --resource=%s\n"+
		"kubectl -n %s create rolebinding liqod-status --role=liqod-status --user=%s", strings.Join(everywhere, ","), to, c.Namespace, inNamespace, c.Namespace, to)
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
