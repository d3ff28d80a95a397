package timed

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// faultKind is a kind of fault.
type faultKind struct {
	name string
	// shortest and longest limit its duration; a fault that ends by itself has neither.
	shortest, longest time.Duration
	// parts of the cluster that it hits: "*" is all of it. No other fault hits them meanwhile.
	parts []string
	// between: it hits two clusters.
	between bool
	// spare: it kills a node, and another node of the cluster has to live.
	spare bool
	// limited: Kubernetes is slower with each repetition.
	limited bool
}

// A role that is killed again and again is started later each time: 10 s, 20 s, 40 s, …
const mostKills = 3

const (
	apart  = 5 * time.Second // between two faults of the same part
	short  = 2 * time.Second
	middle = 15 * time.Second
	long   = 40 * time.Second
)

// Names of kinds that the checks use.
const (
	apiKilled  = "api-killed"
	apiPaused  = "api-paused"
	apiCut     = "api-cut"
	partition  = "partition"
	nodeKilled = "node-killed"
	allKilled  = "all-killed"
	rollout    = "rollout"
)

func faultKinds() []faultKind {
	out := []faultKind{
		{name: apiKilled, shortest: short, longest: middle, parts: []string{"api"}},
		{name: apiPaused, shortest: short, longest: middle, parts: []string{"api"}},
		{name: apiCut, shortest: short, longest: long, parts: []string{"reach"}},
		{name: "tunnel-cut", shortest: short, longest: long, parts: []string{"tunnel"}},
		{name: "tunnel-cut-from", shortest: short, longest: long, parts: []string{"tunnel"}},
		{name: partition, shortest: short, longest: long, parts: []string{"reach", "tunnel"}, between: true},
		{name: "gateway-killed", shortest: 0, longest: short, parts: []string{"gateway"}},
		{name: "gateway-paused", shortest: short, longest: middle, parts: []string{"gateway"}},
		{name: "route-killed", shortest: 0, longest: short, parts: []string{"route"}},
		{name: nodeKilled, shortest: middle, longest: long, spare: true, parts: []string{"node", "route", "controller", "webhook", "ipam", "vkubelet"}},
		{name: allKilled, shortest: short, longest: middle, parts: []string{"*"}},
		{name: rollout, parts: []string{rollout}},
	}
	for _, role := range []string{"controller", "webhook", "ipam", "vkubelet"} {
		out = append(out, faultKind{name: role + "-killed", parts: []string{role}, limited: true})
	}
	for _, role := range []string{"controller", "vkubelet"} {
		out = append(out, faultKind{name: role + "-paused", shortest: short, longest: middle, parts: []string{role}})
	}
	return out
}

// clusterFault is a fault with its time and the clusters that it hits.
type clusterFault struct {
	at, lasts     time.Duration
	kind          string
	cluster, peer string
	// pick chooses among the nodes, vkubelets or Deployments of the cluster.
	pick uint32
	// hits are the parts, as CLUSTER/PART.
	hits []string
}

func (s clusterFault) String() string {
	return fmt.Sprintf("%s %s %s for %s", s.kind, s.cluster, s.peer, s.lasts.Round(100*time.Millisecond))
}

// targets are the clusters that faults hit.
type targets struct {
	clusters []string
	nodes    int // of each cluster
	// consumers have vkubelets and Deployments.
	consumers []string
	// atOnce limits the number of faults at a time.
	atOnce int
}

// schedule chooses faults until a time at which the last one has ended.
func (r targets) schedule(random *rand.Rand, length time.Duration) (out []clusterFault) {
	for at := time.Second; at < length; at += time.Second + time.Duration(random.Int64N(int64(5*time.Second))) {
		s := r.choose(random, at)
		if s.at+s.lasts <= length && r.room(out, s) {
			out = append(out, s)
		}
	}
	return out
}

func (r targets) choose(random *rand.Rand, at time.Duration) clusterFault {
	kinds := slices.DeleteFunc(faultKinds(), func(m faultKind) bool { return m.spare && r.nodes < 2 })
	m := kinds[random.IntN(len(kinds))]
	among := r.clusters
	if m.name == rollout || slices.Contains(m.parts, "vkubelet") && !m.spare {
		among = r.consumers
	}
	s := clusterFault{at: at, kind: m.name, cluster: one(random, among...), pick: random.Uint32(), lasts: m.shortest}
	if m.longest > m.shortest {
		s.lasts += time.Duration(random.Int64N(int64(m.longest - m.shortest)))
	}
	hit := []string{s.cluster}
	if m.between {
		s.peer = one(random, slices.DeleteFunc(slices.Clone(r.clusters), func(c string) bool { return c == s.cluster })...)
		hit = append(hit, s.peer)
	}
	for _, cluster := range hit {
		for _, part := range m.parts {
			s.hits = append(s.hits, cluster+"/"+part)
		}
	}
	return s
}

// room reports whether a fault may be added to those that begin no later.
func (r targets) room(before []clusterFault, s clusterFault) bool {
	now, repeated := 0, 0
	for _, b := range before {
		if b.kind == s.kind && b.cluster == s.cluster {
			repeated++
		}
		if b.at+b.lasts > s.at {
			now++
		}
		if b.at+b.lasts+apart > s.at && b.meets(s) {
			return false
		}
	}
	limited := slices.ContainsFunc(faultKinds(), func(m faultKind) bool { return m.name == s.kind && m.limited })
	return now < r.atOnce && (!limited || repeated < mostKills)
}

// meets reports whether two faults hit the same part.
func (s clusterFault) meets(other clusterFault) bool {
	return slices.ContainsFunc(s.hits, func(a string) bool {
		return slices.ContainsFunc(other.hits, func(b string) bool { return sameHit(a, b) })
	})
}

func sameHit(a, b string) bool {
	cluster, part, _ := strings.Cut(a, "/")
	other, its, _ := strings.Cut(b, "/")
	return cluster == other && (part == its || part == "*" || its == "*")
}
