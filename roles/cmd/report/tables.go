package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/liqod/liqod/shadow/rules"
)

func (s *Status) peersText(b *strings.Builder, wide bool) {
	head := "PEER\tROLE\tHEALTH\tNODES\tPODS READY\tCPU\tMEMORY\tHOSTED PODS"
	if wide {
		head += "\tVERSION\tAPI SERVER"
	}
	table(b, head, s.Peers, func(p Peer) string {
		if !wide {
			return p.row()
		}
		return fmt.Sprintf("%s\t%s\t%s", p.row(), Line(cmp.Or(PlainVersion(p.Version), "-")), Line(cmp.Or(p.APIServer, "-")))
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
	head, row := "OFFLOADED NAMESPACE\tSTRATEGY\tPHASE\tIN", Namespace.row
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

func (p Peer) row() string {
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
	if p.Hosted != (Hosted{}) || consumes(p.Role) {
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

func (n Namespace) row() string {
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

// room is how much of each resource is used.
func (r Room) room() string {
	var parts []string
	for _, name := range []corev1.ResourceName{corev1.ResourcePods, corev1.ResourceCPU, corev1.ResourceMemory} {
		parts = append(parts, fmt.Sprintf("%s %s", name, r.share(name)))
	}
	return strings.Join(parts, ", ")
}
