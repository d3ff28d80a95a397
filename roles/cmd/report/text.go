package report

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/shadow/rules"
)

func (l Level) mark() string {
	return cmp.Or(map[Level]string{OK: "✔", Warning: "‼", Problem: "✘"}[l], "?")
}

// word is a level as tables say it.
func (l Level) word() string {
	return cmp.Or(map[Level]string{OK: "Healthy", Problem: "Unhealthy"}[l], "Unknown")
}

// CheckText is what check prints.
func CheckText(findings []Finding) string {
	return FindingsText(findings) + "\n" + tallyText(findings) + "\n"
}

// FindingsText lists findings below their sections.
func FindingsText(findings []Finding) string {
	var b strings.Builder
	section := ""
	for _, f := range findings {
		if f.Section != section {
			if section != "" {
				b.WriteByte('\n')
			}
			section = f.Section
			fmt.Fprintln(&b, section)
		}
		if follows(f, findings) {
			f.Fix, f.Docs = "", ""
		}
		finding(&b, f, f.Subject)
		if follows(f, findings) {
			fmt.Fprintf(&b, "      See: %s\n", Line(f.Because))
		}
	}
	return b.String()
}

func finding(b *strings.Builder, f Finding, subject string) {
	fmt.Fprintf(b, "  %s %s: %s\n", f.Level.mark(), Line(subject), Line(f.Message))
	if f.Fix != "" {
		fmt.Fprintf(b, "      Fix: %s\n", strings.ReplaceAll(f.Fix, "\n", "\n           "))
	}
	if f.Level != OK && f.Docs != "" {
		fmt.Fprintf(b, "      Docs: %s\n", f.Docs)
	}
}

// mostFollowing limits the consequences that are listed with their cause.
const mostFollowing = 6

// Folded is a finding with the names of its consequences, which are no problems of their own.
type Folded struct {
	Finding
	Therefore []string `json:"therefore"`
}

// Fold returns the findings that are not the consequence of one of all, each with the names of its
// consequences.
func Fold(findings, all []Finding) (out []Folded) {
	for _, f := range findings {
		if follows(f, all) {
			continue
		}
		var names []string
		for _, other := range all {
			if name := other.Name(); other.Because == f.Name() && follows(other, all) && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		if len(names) > mostFollowing {
			names = append(names[:mostFollowing], fmt.Sprintf("and %d more", len(names)-mostFollowing))
		}
		out = append(out, Folded{f, names})
	}
	return out
}

// folded prints findings, each with the names of its consequences.
func folded(b *strings.Builder, title string, findings, all []Finding) {
	for i, f := range Fold(findings, all) {
		if i == 0 {
			fmt.Fprintf(b, "\n%s\n", title)
		}
		finding(b, f.Finding, f.Name())
		if len(f.Therefore) > 0 {
			fmt.Fprintf(b, "      Therefore: %s\n", Line(strings.Join(f.Therefore, "; ")))
		}
	}
}

// Text is what status prints; wide has more columns.
func (s *Status) Text(wide bool) string {
	var b strings.Builder
	fmt.Fprintln(&b, s.headline())
	all := slices.Concat(s.Problems, s.Warnings)
	folded(&b, "Problems", s.Problems, all)
	folded(&b, "Warnings", s.Warnings, all)
	if s.Only == "" {
		s.installationText(&b, wide)
		s.peersText(&b, wide)
	}
	s.namespacesText(&b, wide)
	if s.Kept != "" {
		fmt.Fprintf(&b, "\nKept data: %s\n", s.Kept)
	}
	for i, m := range s.Moves {
		if i == 0 {
			b.WriteString("\nMoving data:\n")
		}
		fmt.Fprintf(&b, "  %s\n", Line(fmt.Sprintf("%s/%s %s", m.Namespace, m.Claim, m.inOneLine())))
	}
	if s.Only != "" {
		s.onlyText(&b)
	}
	return b.String()
}

// onlyText ends the status of one namespace.
func (s *Status) onlyText(b *strings.Builder) {
	if len(s.Namespaces) == 0 && !slices.Contains(s.Unread, ReadOffloadings) {
		b.WriteString("\nThe namespace is not offloaded.\n")
		if s.Left != "" {
			fmt.Fprintf(b, "On virtual nodes nevertheless: %s.\n", s.Left)
		}
	}
	differencesText(b, s.Differences)
	if len(s.Unread) > 0 {
		fmt.Fprintf(b, "\nNo right to read %s.\n", strings.Join(s.Unread, ", "))
	}
}

// DifferencesText is what offload prints of the namespace that alone was read.
func DifferencesText(s *Snapshot) string {
	var b strings.Builder
	differencesText(&b, s.Differences(s.Only))
	for i := range s.Offloadings {
		if text, fix := s.older(&s.Offloadings[i]); text != "" {
			fmt.Fprintf(&b, "\n%s:\n  %s\n", text, strings.ReplaceAll(fix, "\n", "\n  "))
		}
	}
	var denied []string
	for _, what := range s.unreadNames() {
		if err := s.Unread[what]; apierrors.IsForbidden(err) {
			denied = append(denied, what)
		} else {
			fmt.Fprintf(&b, "%s cannot be read: %s\n", what, Line(err.Error()))
		}
	}
	if len(denied) > 0 {
		fmt.Fprintf(&b, "No right to read %s.\n", strings.Join(denied, ", "))
	}
	if b.Len() > 0 {
		b.WriteByte('\n')
	}
	return b.String()
}

func differencesText(b *strings.Builder, lines []string) {
	if len(lines) > 0 {
		fmt.Fprintf(b, "\nDifferent in providers\n  %s\n", strings.Join(lines, "\n  "))
	}
}

func (s *Status) headline() string {
	name := cmp.Or(s.Cluster, "(cluster id unknown)")
	text := strings.TrimSuffix(tallyText(slices.Concat(s.Problems, s.Warnings)), ".")
	switch {
	case s.Health == OK && len(s.Warnings) == 0:
		text = "healthy"
	case s.Health == OK:
		text = "healthy, " + text
	}
	if s.Only != "" {
		return fmt.Sprintf("Namespace %s of cluster %s: %s", s.Only, name, text)
	}
	return fmt.Sprintf("Cluster %s: %s", name, text)
}

func (s Installation) installationText(b *strings.Builder, wide bool) {
	fmt.Fprintf(b, "\nliqod %s in namespace %s, Kubernetes %s", cmp.Or(PlainVersion(s.Version), "(version unknown)"), s.Namespace, s.Kubernetes)
	for _, r := range s.Roles {
		if r.Name != roleVKubelet { // the table has them
			fmt.Fprintf(b, "; %s %d/%d", r.Name, r.Ready, r.Want)
		}
	}
	b.WriteByte('\n')
	if wide {
		table(b, "LIQOD\tOBJECT\tREADY\tVERSION\tIMAGE\tRESTARTS", s.Roles, func(r Role) string {
			return fmt.Sprintf("%s\t%s\t%d/%d\t%s\t%s\t%d", r.Name, r.Object, r.Ready, r.Want, Line(cmp.Or(r.Version, "-")), Line(r.Image), r.Restarts)
		})
	}
}

// VersionsText is what version prints of a cluster.
func VersionsText(in Installation, findings []Finding) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nCluster %s", cmp.Or(in.Cluster, "(id unknown)"))
	if len(in.Roles) > 0 {
		in.installationText(&b, true)
	}
	b.WriteByte('\n')
	for _, f := range findings {
		finding(&b, f, f.Subject)
	}
	return b.String()
}

// DetailText is what status prints of single peers.
func (s *Status) DetailText(wide bool) string {
	var b strings.Builder
	b.WriteString(s.Text(wide))
	for _, p := range s.Peers {
		fmt.Fprintf(&b, "\nPeer %s\n", p.ClusterID)
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		line := func(name, value string) {
			if value != "" {
				_, _ = fmt.Fprintf(w, "  %s:\t%s\n", name, Line(value))
			}
		}
		line("Role", string(p.Role))
		line("Health", p.Health.word())
		line("Says", p.Message)
		line("API server", p.APIServer)
		line("Version", PlainVersion(p.Version))
		line("Trust", string(p.Trust))
		line("Refused", p.Refused.String())
		for _, c := range p.Conditions {
			if c.Type != corev1beta1.ConditionAPIServer || p.APIServer == "" {
				line(c.Type, fmt.Sprintf("%s (%s): %s", c.Status, c.Reason, c.Message))
			}
		}
		for _, o := range p.Offers {
			line("Offer", o.String())
		}
		if p.Hosted != (Hosted{}) {
			line("Runs here", Count(p.Hosted.Pods, "pod")+" in "+Count(p.Hosted.Namespaces, "namespace"))
		}
		if p.Given.Capacity != nil {
			line("Given", p.Given.inUse())
		}
		line("Limit", p.Limit)
		for _, n := range p.VirtualNodes {
			line("Virtual node", fmt.Sprintf("%s: %s; %s", n.Name, n.Message, n.inUse()))
		}
		for _, ns := range s.Namespaces {
			for _, in := range ns.Peers {
				if in.ClusterID == p.ClusterID {
					line("Namespace", fmt.Sprintf("%s as %s: %s; %s", ns.Name, ns.RemoteName, in.PodCounts, in.Message))
				}
			}
		}
		_ = w.Flush() // to a Builder
	}
	return b.String()
}

// String says what is offered to whom, and what has become of it.
func (o Offer) String() string {
	from := "by this cluster"
	if o.Incoming {
		from = "to this cluster"
	}
	phase := string(cmp.Or(o.Phase, sharingv1alpha1.OfferPending))
	if !o.Approved {
		phase = "not approved"
	}
	text := fmt.Sprintf("%s, %s: %s; cpu %s, memory %s", o.Name, from, phase, Amount(corev1.ResourceCPU, *o.Capacity.Cpu()), Amount(corev1.ResourceMemory, *o.Capacity.Memory()))
	if o.Message != "" {
		text += "; " + o.Message
	}
	return text
}

func (s *Status) peersText(b *strings.Builder, wide bool) {
	head := "PEER\tROLE\tHEALTH\tNODES\tPODS READY\tCPU\tMEMORY\tHOSTED PODS"
	if wide {
		head += "\tVERSION\tAPI SERVER"
	}
	table(b, head, s.Peers, func(p Peer) string {
		if !wide {
			return p.cells()
		}
		return fmt.Sprintf("%s\t%s\t%s", p.cells(), Line(cmp.Or(PlainVersion(p.Version), "-")), Line(cmp.Or(p.APIServer, "-")))
	})
	for _, p := range s.Peers {
		if p.Trust != "" {
			fmt.Fprintf(b, "\nTrust in %s: %s (spec.trust of its ForeignCluster).\n", p.ClusterID, Line(string(p.Trust)))
		}
		if p.Refused != (Refused{}) {
			fmt.Fprintf(b, "\nRefused by the network of this cluster from %s: %s.\n", p.ClusterID, p.Refused)
		}
	}
	if wide {
		s.virtualNodesText(b)
	}
	switch {
	case slices.Contains(s.Unread, ReadForeignClusters):
		b.WriteString("\nThe list of peers is not complete: ForeignClusters cannot be read.\n")
	case len(s.Peers) == 0:
		b.WriteString("\nNo peers.\n")
	}
}

func (s *Status) virtualNodesText(b *strings.Builder) {
	var rows []string
	for _, p := range s.Peers {
		for _, n := range p.VirtualNodes {
			rows = append(rows, fmt.Sprintf("%s\t%s\t%s\t%d/%d\t%s\t%s", n.Name, p.ClusterID, n.word(), n.Ready, n.Pods,
				n.share(corev1.ResourceCPU), n.share(corev1.ResourceMemory)))
		}
	}
	table(b, "VIRTUAL NODE\tPEER\tHEALTH\tPODS READY\tCPU\tMEMORY", rows, func(row string) string { return row })
}

func (n VirtualNode) word() string {
	if n.Removing {
		return "Being removed"
	}
	return n.Health.word()
}

func (s *Status) namespacesText(b *strings.Builder, wide bool) {
	head, row := "OFFLOADED NAMESPACE\tSTRATEGY\tPHASE\tIN", Namespace.cells
	if wide {
		head, row = "OFFLOADED NAMESPACE\tSTRATEGY\tPHASE\tIN\tREMOTE NAME\tPODS\tREADY\tNOT READY\tREFUSED\tUNSCHEDULABLE\tWAITING\tFIRST CAUSE", Namespace.wideRow
	}
	table(b, head, s.Namespaces, row)
	if slices.Contains(s.Unread, ReadOffloadings) {
		b.WriteString("\nOffloaded namespaces are unknown: NamespaceOffloadings cannot be read.\n")
	}
	if slices.Contains(s.Unread, ReadPods) {
		b.WriteString("\nNumbers of pods are too low: some Pods cannot be read.\n")
	}
}

func (p Peer) cells() string {
	ready, removed, pods, serving := 0, 0, 0, 0
	sum := Room{Used: corev1.ResourceList{}, Capacity: corev1.ResourceList{}}
	for _, n := range p.VirtualNodes {
		if n.Health == OK {
			ready++
		}
		if n.Removing {
			removed++
		}
		pods += n.Pods
		serving += n.Ready
		rules.AddResources(sum.Used, n.Used)
		rules.AddResources(sum.Capacity, n.Capacity)
	}
	hosted := "-"
	if p.Hosted != (Hosted{}) || Consumes(p.Role) {
		hosted = fmt.Sprint(p.Hosted.Pods)
	}
	if len(p.VirtualNodes) == 0 {
		return fmt.Sprintf("%s\t%s\t%s\t-\t-\t-\t-\t%s", p.ClusterID, p.Role, p.Health.word(), hosted)
	}
	nodes := fmt.Sprintf("%d/%d", ready, len(p.VirtualNodes))
	if removed > 0 {
		nodes += fmt.Sprintf(" (%d being removed)", removed)
	}
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%d/%d\t%s\t%s\t%s", p.ClusterID, p.Role, p.Health.word(), nodes, serving, pods,
		sum.share(corev1.ResourceCPU), sum.share(corev1.ResourceMemory), hosted)
}

func (n Namespace) cells() string {
	var in []string
	for _, p := range n.Peers {
		text := p.ClusterID
		if !p.Ready {
			text += " (not ready)"
		}
		in = append(in, text+": "+p.PodCounts.String())
	}
	if n.NoNode.Pods > 0 {
		in = append(in, "no node yet: "+Count(n.NoNode.Pods, "pod"))
	}
	if len(in) == 0 {
		in = []string{"-"}
	}
	return fmt.Sprintf("%s\t%s\t%s\t%s", n.Name, n.Strategy, cmp.Or(string(n.Phase), "-"), strings.Join(in, ", "))
}

// wideRow has one line for each peer of the namespace.
func (n Namespace) wideRow() string {
	var rows []string
	line := func(in string, c PodCounts) {
		rows = append(rows, fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%s", n.Name, n.Strategy, cmp.Or(string(n.Phase), "-"), in,
			cmp.Or(n.RemoteName, "-"), c.Pods, c.Ready, c.NotReady, c.Refused, c.Unschedulable, c.Waiting, Line(cmp.Or(c.Cause, "-"))))
	}
	for _, p := range n.Peers {
		line(p.ClusterID, p.PodCounts)
	}
	if n.NoNode.Pods > 0 || len(n.Peers) == 0 {
		line("-", n.NoNode)
	}
	return strings.Join(rows, "\n")
}

// inUse is how much of each resource is used.
func (r Room) inUse() string {
	var parts []string
	for _, name := range []corev1.ResourceName{corev1.ResourcePods, corev1.ResourceCPU, corev1.ResourceMemory} {
		parts = append(parts, fmt.Sprintf("%s %s", name, r.share(name)))
	}
	return strings.Join(parts, ", ")
}

// Colours of a terminal.
const (
	plain  = "\x1b[0m"
	bold   = "\x1b[1m"
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	cyan   = "\x1b[36m"
)

// Paint colours a text of this package for a terminal: its headings, its marks, and the health of
// peers in tables.
func Paint(text string) string {
	for _, p := range []struct{ what, colour string }{
		{`(?m)^()(  ✔ )`, green}, {`(?m)^()(  ‼ )`, yellow}, {`(?m)^()(  ✘ )`, red}, {`(?m)^()(  \? )`, cyan},
		{`(  )( Healthy )`, green}, {`(  )( Unhealthy )`, red}, {`(  )( Unknown )`, cyan}, {`(  )( Being removed )`, yellow},
		{`(\A|\n\n)([^ \n].*)`, bold},
	} {
		text = regexp.MustCompile(p.what).ReplaceAllString(text, "${1}"+p.colour+"${2}"+plain)
	}
	return text
}

// thisCluster is the place of data in this cluster.
const thisCluster = "this cluster"
