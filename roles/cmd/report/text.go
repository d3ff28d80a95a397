package report

import (
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
)

func (l Level) mark() string {
	switch l {
	case OK:
		return "✔"
	case Warning:
		return "‼"
	case Problem:
		return "✘"
	}
	return "?"
}

// word is a level as tables say it.
func (l Level) word() string {
	switch l {
	case OK:
		return "Healthy"
	case Problem:
		return "Unhealthy"
	}
	return "Unknown"
}

// CheckText is what check prints.
func CheckText(findings []Finding) string {
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
		finding(&b, f, f.Subject)
	}
	fmt.Fprintf(&b, "\n%s\n", sum(findings))
	return b.String()
}

// sum says how many findings there are of what is not well.
func sum(findings []Finding) string {
	levels := map[Level]int{}
	for _, f := range findings {
		levels[f.Level]++
	}
	if levels[OK] == len(findings) {
		return "Everything is well."
	}
	var parts []string
	if n := levels[Problem]; n > 0 {
		parts = append(parts, count(n, "problem"))
	}
	if n := levels[Unknown]; n > 0 {
		parts = append(parts, fmt.Sprintf("%d unknown", n))
	}
	if n := levels[Warning]; n > 0 {
		parts = append(parts, count(n, "warning"))
	}
	return strings.Join(parts, ", ") + "."
}

// Line makes a text printable, in one line: peers have written some of it, and must neither
// steer a terminal nor add lines of their own.
func Line(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
}

func finding(b *strings.Builder, f Finding, subject string) {
	fmt.Fprintf(b, "  %s %s: %s\n", f.Level.mark(), Line(subject), Line(f.Message))
	if f.Fix != "" {
		fmt.Fprintf(b, "      Fix: %s\n", strings.ReplaceAll(f.Fix, "\n", "\n      "))
	}
}

// count says how many there are of something.
func count(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// Text is what status prints.
func (s *Status) Text() string {
	var b strings.Builder
	fmt.Fprintln(&b, s.headline())
	if len(s.Problems) > 0 {
		b.WriteString("\nProblems\n")
		for _, f := range s.Problems {
			subject := f.Subject
			if f.Peer != "" {
				subject = f.Peer + ", " + subject
			}
			finding(&b, f, subject)
		}
	}
	s.installationText(&b)
	table(&b, "PEER\tROLE\tHEALTH\tNODES\tPODS\tCPU\tMEMORY\tHOSTED PODS", len(s.Peers), func(i int) string { return s.Peers[i].row() })
	table(&b, "OFFLOADED NAMESPACE\tSTRATEGY\tPHASE\tIN", len(s.Namespaces), func(i int) string { return s.Namespaces[i].row() })
	if len(s.Peers) == 0 {
		b.WriteString("\nNo peers.\n")
	}
	return b.String()
}

func (s *Status) headline() string {
	name := s.Cluster
	if name == "" {
		name = "(cluster id unknown)"
	}
	text := strings.TrimSuffix(sum(s.Problems), ".")
	if s.Health == OK {
		text = "healthy"
	}
	return fmt.Sprintf("Cluster %s: %s", name, text)
}

func (s *Status) installationText(b *strings.Builder) {
	version := s.Version
	if version == "" {
		version = "(version unknown)"
	}
	fmt.Fprintf(b, "\nliqod %s in namespace %s, Kubernetes %s", version, s.Namespace, s.Kubernetes)
	for _, r := range s.Roles {
		fmt.Fprintf(b, "; %s %d/%d", r.Name, r.Ready, r.Want)
	}
	b.WriteByte('\n')
}

// DetailText is what status prints of single peers.
func (s *Status) DetailText() string {
	var b strings.Builder
	b.WriteString(s.Text())
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
		line("Version", p.Version)
		for _, c := range p.Conditions {
			if c.Type != corev1beta1.ConditionAPIServer || p.APIServer == "" {
				line(c.Type, fmt.Sprintf("%s (%s): %s", c.Status, c.Reason, c.Message))
			}
		}
		for _, o := range p.Offers {
			line("Offer", o.String())
		}
		if p.Hosted != (Hosted{}) {
			line("Runs here", count(p.Hosted.Pods, "pod")+" in "+count(p.Hosted.Namespaces, "namespace"))
		}
		for _, n := range p.VirtualNodes {
			line("Virtual node", fmt.Sprintf("%s: %s; %s", n.Name, n.Message, n.room()))
		}
		for _, ns := range s.Namespaces {
			for _, in := range ns.Peers {
				if in.ClusterID == p.ClusterID {
					line("Namespace", fmt.Sprintf("%s as %s: %s; %s", ns.Name, ns.RemoteName, count(in.Pods, "pod"), in.Message))
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
	text := fmt.Sprintf("%s, %s: %s; cpu %s, memory %s", o.Name, from, phase, quantity(o.Capacity, corev1.ResourceCPU), quantity(o.Capacity, corev1.ResourceMemory))
	if o.Message != "" {
		text += "; " + o.Message
	}
	return text
}

func quantity(list corev1.ResourceList, name corev1.ResourceName) string {
	q := list[name]
	return q.String()
}

// room is how much of each resource is used.
func (n VirtualNode) room() string {
	var parts []string
	for _, name := range []corev1.ResourceName{corev1.ResourcePods, corev1.ResourceCPU, corev1.ResourceMemory} {
		parts = append(parts, fmt.Sprintf("%s %s", name, share(n.Used[name], n.Capacity[name])))
	}
	return strings.Join(parts, ", ")
}

func share(used, capacity resource.Quantity) string {
	return used.String() + "/" + capacity.String()
}

func (p Peer) row() string {
	ready, pods := 0, 0
	used, capacity := corev1.ResourceList{}, corev1.ResourceList{}
	for _, n := range p.VirtualNodes {
		if n.Health == OK {
			ready++
		}
		pods += n.Pods
		add(used, n.Used)
		add(capacity, n.Capacity)
	}
	hosted := "-"
	if p.Hosted != (Hosted{}) || consumes(p.Role) {
		hosted = fmt.Sprint(p.Hosted.Pods)
	}
	if len(p.VirtualNodes) == 0 {
		return fmt.Sprintf("%s\t%s\t%s\t-\t-\t-\t-\t%s", p.ClusterID, p.Role, p.Health.word(), hosted)
	}
	return fmt.Sprintf("%s\t%s\t%s\t%d/%d\t%d\t%s\t%s\t%s", p.ClusterID, p.Role, p.Health.word(), ready, len(p.VirtualNodes), pods,
		share(used[corev1.ResourceCPU], capacity[corev1.ResourceCPU]), share(used[corev1.ResourceMemory], capacity[corev1.ResourceMemory]), hosted)
}

func add(to, more corev1.ResourceList) {
	for name, quantity := range more {
		sum := to[name]
		sum.Add(quantity)
		to[name] = sum
	}
}

func (n Namespace) row() string {
	var in []string
	for _, p := range n.Peers {
		text := p.ClusterID
		if !p.Ready {
			text += " (not ready)"
		}
		in = append(in, text+": "+count(p.Pods, "pod"))
	}
	if len(in) == 0 {
		in = []string{"-"}
	}
	phase := string(n.Phase)
	if phase == "" {
		phase = "-"
	}
	return fmt.Sprintf("%s\t%s\t%s\t%s", n.Name, n.Strategy, phase, strings.Join(in, ", "))
}

// table prints rows in columns; nothing if there are none.
func table(b *strings.Builder, head string, rows int, row func(int) string) {
	if rows == 0 {
		return
	}
	b.WriteByte('\n')
	w := tabwriter.NewWriter(b, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(w, head)
	for i := range rows {
		_, _ = fmt.Fprintln(w, row(i))
	}
	_ = w.Flush() // to a Builder
}
