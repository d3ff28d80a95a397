package report

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
)

// ID names a check. It is stable: scripts compare it, and it is the section of the check in
// docs/checks.md.
type ID string

// pageOfChecks has a section for each ID, in the order of this file.
const pageOfChecks = "https://github.com/liqod/liqod/blob/main/docs/checks.md"

// Docs is the address of the section about a check.
func (id ID) Docs() string { return pageOfChecks + "#" + string(id) }

// Checks of an installation.
const (
	idKubernetes   ID = "kubernetes-version"
	idUnread       ID = "objects-read"
	idRights       ID = "rights"
	idKinds        ID = "crds"
	idController   ID = "role-controller"
	idWebhook      ID = "role-webhook"
	idIPAM         ID = "role-ipam"
	idGateway      ID = "role-gateway"
	idRoute        ID = "role-route"
	idPodsWebhook  ID = "webhook-pods"
	idRulesWebhook ID = "webhook-rules"
	idVersions     ID = "versions"
	idOverlay      ID = "overlay-senders"
)

// Checks of a peering.
const (
	idForeignCluster ID = "peer-foreigncluster"
	idIdentity       ID = "peer-identity"
	idUniqueID       ID = "peer-id"
	idAPIServer      ID = "peer-api-server"
	idNetwork        ID = "peer-network"
	idOutgoing       ID = "peer-capacity-there"
	idIncoming       ID = "peer-capacity-here"
	idTenant         ID = "peer-tenant-namespace"
	idConsumerRights ID = "peer-rights"
	idQuota          ID = "peer-quota"
	idTrust          ID = "peer-trust"
	idConsumerRanges ID = "peer-address-ranges"
	idAddresses      ID = "peer-addresses"
	idRange          ID = "peer-range"
	idNamespaceMap   ID = "peer-namespaces"
	idVirtualNodes   ID = "virtual-nodes"
	idVirtualNode    ID = "virtual-node"
	idVKubelet       ID = "virtual-node-vkubelet"
	idRemoval        ID = "virtual-node-removal"
	idBudget         ID = "virtual-node-drain"
)

// Checks of offloaded namespaces, of their pods, and of DaemonSets.
const (
	idNoProvider    ID = "providers"
	idNamespace     ID = "namespace"
	idDifferences   ID = "namespace-differences"
	idRefusedObject ID = "namespace-objects"
	idPods          ID = "pods"
	idNotReady      ID = "pods-not-ready"
	idRefused       ID = "pods-refused"
	idUnschedulable ID = "pods-unschedulable"
	idWaiting       ID = "pods-waiting"
	idEarlier       ID = "pods-earlier-affinity"
	idOlder         ID = "pods-older"
	idKept          ID = "kept-data"
	idMove          ID = "data-move"
	idDaemonSets    ID = "daemonsets"
)

// Kinds of reasons.yaml.
const (
	kindPeer        = "ForeignCluster"
	kindConnection  = "Connection"
	kindVirtualNode = "VirtualNode"
	kindNode        = "Node"
	kindMap         = "NamespaceMap"
	kindOffloading  = "NamespaceOffloading"
	kindPod         = "Pod"
	kindUnplaced    = "Pod (from the scheduler)"
	kindContainer   = "Container (from the kubelet)"
	kindClaim       = "PersistentVolumeClaim"
)

// Level says how well something is.
type Level string

// Rank orders levels: the worse one has the higher rank.
func (l Level) Rank() int {
	return max(0, slices.Index([]Level{OK, Warning, Unknown, Problem}, l))
}

// Worse returns the worse of two levels.
func Worse(a, b Level) Level {
	if b.Rank() > a.Rank() {
		return b
	}
	return a
}

// Finding is what was found out about one thing.
type Finding struct {
	// ID names the check, and Docs is the address of its description.
	ID   ID     `json:"id"`
	Docs string `json:"docs"`
	// Section that the finding belongs to, as the text prints it.
	Section string `json:"section"`
	// Peer is the cluster id of the peer that it concerns, if it is one.
	Peer string `json:"peer,omitempty"`
	// Level says how well it is.
	Level Level `json:"level"`
	// Reason is the cause in one word, if the cluster reports one.
	Reason string `json:"reason,omitempty"`
	// Because names the finding of which this one is a consequence, as Finding.Name does.
	Because string `json:"because,omitempty"`
	// Subject is what was looked at.
	Subject string `json:"subject"`
	// Message is what was found.
	Message string `json:"message"`
	// Fix says what to do.
	Fix string `json:"fix,omitempty"`
}

// Name identifies a finding among those of a cluster.
func (f Finding) Name() string {
	if f.Peer == "" {
		return f.Subject
	}
	return f.Peer + ", " + f.Subject
}

// Worst returns the worst level of findings.
func Worst(findings []Finding) Level {
	level := OK
	for _, f := range findings {
		level = Worse(level, f.Level)
	}
	return level
}

// Left names the problems and the unknown parts among findings, without those that follow from others.
func Left(findings []Finding) string {
	var names []string
	for _, f := range findings {
		if (f.Level == Problem || f.Level == Unknown) && !follows(f, findings) {
			names = append(names, f.Name())
		}
	}
	return cmp.Or(strings.Join(slices.Compact(names), "; "), tallyText(findings))
}

// follows reports whether a finding is the consequence of one of the others.
func follows(f Finding, all []Finding) bool {
	return f.Because != "" && slices.ContainsFunc(all, func(other Finding) bool { return other.Name() == f.Because && other.Because == "" })
}

// checker collects findings about a snapshot.
type checker struct {
	*Snapshot
	Examination
}

// Examination collects findings.
type Examination struct {
	// Section and Peer are those of the findings that follow.
	Section, Peer string
	Findings      []Finding
}

// Add adds a finding.
func (e *Examination) Add(id ID, level Level, subject, message, fix string) {
	e.Report(Finding{ID: id, Level: level, Subject: subject, Message: message, Fix: fix})
}

// Report adds a finding, to which it gives the section, the peer and the address of the description.
func (e *Examination) Report(f Finding) {
	f.Section, f.Peer, f.Docs = e.Section, e.Peer, f.ID.Docs()
	e.Findings = append(e.Findings, f)
}

// enrolFix is how this cluster gets a token of a provider. flags are further ones of token create.
func (c *checker) enrolFix(provider, flags string) string {
	return fmt.Sprintf("In %s:\n%s token create%s\nIn this cluster:\n%s peer --token TOKEN", provider, c.Program, flags, c.Program)
}

// Expanded is a fix with its arguments.
func Expanded(fix string, arguments map[string]string) string {
	return os.Expand(fix, func(name string) string {
		if value, has := arguments[name]; has {
			return value
		}
		return "?" + name // TestArgumentsOfFixes finds it
	})
}

// tallyText says how many findings there are of what is not well. A consequence of another finding does
// not count.
func tallyText(findings []Finding) string {
	levels := map[Level]int{}
	for _, f := range findings {
		if !follows(f, findings) {
			levels[f.Level]++
		}
	}
	if levels[Problem]+levels[Unknown]+levels[Warning] == 0 {
		return "Everything is well."
	}
	return strings.Join(Tally(levels), ", ") + "."
}

// Tally says how many there are of each level that is not well.
func Tally(levels map[Level]int) (parts []string) {
	if n := levels[Problem]; n > 0 {
		parts = append(parts, Count(n, "problem"))
	}
	if n := levels[Unknown]; n > 0 {
		parts = append(parts, fmt.Sprintf("%d unknown", n))
	}
	if n := levels[Warning]; n > 0 {
		parts = append(parts, Count(n, "warning"))
	}
	return parts
}
