package dashboard

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/liqod/liqod/roles/cmd/report"
)

// Peer is how a peering is.
type Peer struct {
	ID      string       `json:"id"`
	Role    string       `json:"role"`
	Health  report.Level `json:"health"`
	Message string       `json:"message"`
	Server  string       `json:"server"`
	Version string       `json:"version"`
	// Refused says how many of its packets the network of this cluster has dropped lately.
	Refused string `json:"refused"`
	// API and Network tell how the ways to the peer are; empty if they are not checked.
	API     report.Level `json:"api"`
	Network report.Level `json:"network"`
	// Uses says that pods of this cluster may run there, Serves the reverse.
	Uses   bool `json:"uses"`
	Serves bool `json:"serves"`
	// Pods of this cluster that run there, and HostedPods of the peer that run here.
	Pods       int `json:"pods"`
	HostedPods int `json:"hostedPods"`
	// Checks are the findings about the peer.
	Checks []report.Finding `json:"checks"`
	Offers []string         `json:"offers"`
	Nodes  []Node           `json:"nodes"`
	// Given is what its pods here request of what this cluster gives it, and Limit what bounds them.
	Given []Bar  `json:"given"`
	Limit string `json:"limit"`
}

// Node is a virtual node, and how much of it is used.
type Node struct {
	Name    string       `json:"name"`
	Health  report.Level `json:"health"`
	Message string       `json:"message"`
	Bars    []Bar        `json:"bars"`
}

// Bar is how much of a resource is requested. Capacity is empty if nothing bounds it.
type Bar struct {
	Resource string `json:"resource"`
	Used     string `json:"used"`
	Capacity string `json:"capacity"`
	Percent  int    `json:"percent"`
}

func peer(p *picture, from *report.Peer, findings []report.Finding) Peer {
	out := Peer{
		ID: from.ClusterID, Role: string(from.Role), Health: from.Health, Message: from.Message, Server: from.APIServer,
		Version: from.Version, Refused: from.Refused.String(), HostedPods: from.Hosted.Pods,
		Given: bars(from.Given), Limit: from.Limit,
		Uses:   report.Provides(from.Role) || len(from.VirtualNodes) > 0,
		Serves: report.Consumes(from.Role) || from.Hosted.Pods > 0,
	}
	for _, f := range findings {
		if f.Peer == from.ClusterID {
			f.Fix, f.Docs = "", "" // the problems have them
			out.Checks = append(out.Checks, f)
		}
	}
	out.API, out.Network = levelOf(out.Checks, "API server"), levelOf(out.Checks, "network")
	for _, offer := range from.Offers {
		out.Offers = append(out.Offers, offer.String())
	}
	for _, vn := range from.VirtualNodes {
		out.Pods += vn.Pods
		out.Nodes = append(out.Nodes, Node{Name: vn.Name, Health: vn.Health, Message: vn.Message, Bars: bars(vn.Room)})
	}
	return out
}

// levelOf is the level of the first finding about a subject; empty if it was not checked.
func levelOf(findings []report.Finding, subject string) report.Level {
	if i := slices.IndexFunc(findings, func(f report.Finding) bool { return f.Subject == subject }); i >= 0 {
		return findings[i].Level
	}
	return ""
}

// bars are the resources of a room: cpu, memory and pods, then the others by name. Without a
// capacity they are those in use.
func bars(room report.Room) (out []Bar) {
	known := []corev1.ResourceName{corev1.ResourcePods, corev1.ResourceMemory, corev1.ResourceCPU} // the last one comes first
	listed := room.Capacity
	if listed == nil {
		listed = room.Used
	}
	names := slices.SortedFunc(maps.Keys(listed), func(a, b corev1.ResourceName) int {
		return cmp.Or(cmp.Compare(slices.Index(known, b), slices.Index(known, a)), cmp.Compare(a, b))
	})
	for _, name := range names {
		used, capacity := room.Used[name], room.Capacity[name]
		if used.IsZero() && capacity.IsZero() {
			continue
		}
		bar := Bar{Resource: string(name), Used: report.Amount(name, used)}
		if room.Capacity != nil {
			bar.Capacity, bar.Percent = report.Amount(name, capacity), report.Percent(used, capacity)
		}
		out = append(out, bar)
	}
	return out
}
