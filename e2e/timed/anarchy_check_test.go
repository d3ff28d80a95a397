package timed

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	// readyAtMost is how long an endpoint may be ready while its pod does not answer: three seconds
	// until a probe reports it, and one until the endpoint changes.
	readyAtMost = 4 * time.Second
	// silentAtMost is how long a running pod may not report: the machine is busy, and reports may
	// be lost.
	silentAtMost = 20 * time.Second
	// overlap is how long reports of a run may arrive after the first one of the next run.
	overlap = 3 * time.Second
	// recoverAfter is how long a part needs to work again after the end of its fault.
	recoverAfter = 20 * time.Second
	// tunnelAfter is how long a gateway needs to reach the others after its start: WireGuard
	// repeats a lost handshake after five seconds.
	tunnelAfter = 10 * time.Second
	// anarchyGrace is after how long Kubernetes counts a node as lost, as it does by default.
	anarchyGrace = 40 * time.Second
)

// run is one run of the program of a pod, by its reports.
type run struct {
	id, node    string
	revision    int
	first, last time.Time
}

// span is a time from a moment until before another one.
type span struct{ from, to time.Time }

func (s span) length() time.Duration { return s.to.Sub(s.from) }

func (s span) overlaps(o span) bool { return s.from.Before(o.to) && o.from.Before(s.to) }

// pastFault is a fault with the times when it began and ended.
type pastFault struct {
	clusterFault
	span
	// node is the node that died, if a single one did.
	node string
}

// kills reports whether the node died by it.
func (h pastFault) kills(node string) bool {
	return h.kind == nodeKilled && h.node == node || h.kind == allKilled && clusterOf(node) == h.cluster
}

// clusterOf is the cluster of a node, which is called CLUSTER-N.
func clusterOf(node string) string {
	i := strings.LastIndex(node, "-")
	return node[:max(i, 0)]
}

// deploymentOf is the Deployment of a pod, which is called DEPLOYMENT-HASH-RANDOM.
func deploymentOf(pod string) string {
	for range 2 {
		pod = pod[:max(strings.LastIndex(pod, "-"), 0)]
	}
	return pod
}

// podFindings are the pods that did not run as they have to.
type podFindings struct {
	lost, twice, again []string
	// left are pods of an old revision that still run.
	left []string
}

// checkRuns checks the runs of all pods. revised has the times at which a Deployment got each of
// its revisions: a revision ends the pods of the one before.
func checkRuns(pods map[string][]run, revised map[string][]time.Time, faults []pastFault, end time.Time) (v podFindings) {
	for _, pod := range slices.Sorted(maps.Keys(pods)) {
		runs := slices.SortedFunc(slices.Values(pods[pod]), func(a, b run) int { return a.first.Compare(b.first) })
		for i, r := range runs[1:] {
			before := runs[i]
			switch {
			case before.last.After(r.first.Add(overlap)):
				v.twice = append(v.twice, fmt.Sprintf("%s ran on %s until %s and on %s since %s", pod, before.node, clock(before.last), r.node, clock(r.first)))
			case !died(before, r.first, faults):
				v.again = append(v.again, fmt.Sprintf("%s ran on %s until %s and again on %s since %s, and node %s had not died",
					pod, before.node, clock(before.last), r.node, clock(r.first), before.node))
			}
		}
		last := runs[len(runs)-1]
		until := end
		if times := revised[deploymentOf(pod)]; last.revision+1 < len(times) {
			until = times[last.revision+1]
			if last.last.Add(overlap).After(end) {
				v.left = append(v.left, fmt.Sprintf("%s runs on %s still; its revision was wanted until %s", pod, last.node, clock(until)))
			}
		}
		if last.last.Add(silentAtMost).Before(until) && !died(last, until, faults) {
			v.lost = append(v.lost, fmt.Sprintf("%s ran on %s until %s; its revision was wanted until %s", pod, last.node, clock(last.last), clock(until)))
		}
	}
	return v
}

// died reports whether a run ended, before a time, because its node died.
func died(r run, before time.Time, faults []pastFault) bool {
	return slices.ContainsFunc(faults, func(h pastFault) bool {
		heard := !r.last.After(h.to.Add(overlap)) && !r.last.Add(silentAtMost).Before(h.from)
		return h.kills(r.node) && heard && h.to.After(r.first) && h.from.Before(before)
	})
}

func clock(t time.Time) string { return t.Format("15:04:05.0") }

// endpoint is a ready address in the EndpointSlices of a cluster.
type endpoint struct{ cluster, address, pod string }

// endpointTimes has the times in which an endpoint was ready, and those in which it did not answer.
type endpointTimes struct{ ready, silent []span }

// falseReady is a time in which an endpoint was ready and did not answer.
type falseReady struct {
	endpoint
	span
	// rest is a part of it that no fault explains.
	rest span
}

func (l falseReady) String() string {
	return fmt.Sprintf("%s lists %s of %s as ready, which did not answer from %s to %s (not explained by a fault from %s to %s)",
		l.cluster, l.address, l.pod, clock(l.from), clock(l.to), clock(l.rest.from), clock(l.rest.to))
}

// falselyReady are the times in which endpoints were ready and did not answer, one for each part of
// them that no fault explains, the longest such part first.
func falselyReady(all map[endpoint]endpointTimes, pods map[string][]run, faults []pastFault) (out []falseReady) {
	for e, l := range all {
		for _, silent := range l.silent {
			for _, ready := range l.ready {
				if !ready.overlaps(silent) {
					continue
				}
				both := span{later(ready.from, silent.from), earlier(ready.to, silent.to)}
				for _, rest := range without(both, explained(e, both, pods[e.pod], faults)) {
					out = append(out, falseReady{e, both, rest})
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b falseReady) int {
		return cmp.Or(cmp.Compare(b.rest.length(), a.rest.length()), a.from.Compare(b.from), cmp.Compare(a.pod, b.pod))
	})
	return out
}

// tooLong are those that are longer than readyAtMost.
func tooLong(all []falseReady) []falseReady {
	return slices.DeleteFunc(slices.Clone(all), func(l falseReady) bool { return l.rest.length() <= readyAtMost })
}

// explained are the times in which no role can detect, or write, that an endpoint does not answer:
//   - The API server of the cluster that lists the endpoint is down: nothing can be written there.
//   - The pod runs in another cluster, and a part of the endpointTimes cluster is down that watches that
//     one: its controller, its vkubelets, or a node on which they may run. Its gateway is such a
//     part, too: without its probes the network is Unknown, and for health.unknownGrace endpoints
//     stay as they are. This does not explain pods of the endpointTimes cluster itself.
//   - The node of the pod has died: Kubernetes detects that after its grace. If all of the cluster
//     has died, the other clusters detect that until its API server is back. From then on its own
//     kubelet reports the pod, until the kubelet has started the pod again. The roles there are
//     pods, too: Kubernetes may take its grace to start them again.
//   - The process has ended while the clusters are apart, or while the controller, the vkubelets
//     or the API server of one of them are down: one cluster cannot report it to the other.
func explained(e endpoint, during span, runs []run, faults []pastFault) (out []span) {
	node, gone := "", true
	for _, r := range runs {
		if !r.first.After(during.to) {
			node, gone = r.node, !r.last.After(during.from.Add(readyAtMost))
		}
	}
	for _, f := range faults {
		over := span{f.from, f.to.Add(f.recovered())}
		local, remote, abroad := f.isIn(e.cluster), f.isIn(clusterOf(node)), e.cluster != clusterOf(node)
		switch {
		case local && (f.stopsWrites() || abroad && f.stopsWatches()):
			out = append(out, over)
		case local && abroad && f.role() == "gateway":
			out = append(out, span{f.from, f.to.Add(tunnelAfter)})
		case f.kills(node) && f.kind == allKilled:
			out = append(out, span{f.from.Add(f.lasts), later(over.to, earlier(nextRun(runs, f.from), f.to.Add(recovery)).Add(readyAtMost))})
		case f.kills(node):
			out = append(out, span{f.from, earlier(f.from.Add(anarchyGrace+readyAtMost), over.to)})
		case gone && abroad && (local || remote) && (f.stopsWrites() || f.stopsWatches() || f.kind == apiCut || f.kind == partition):
			out = append(out, over)
		}
	}
	return out
}

// nextRun is when the first run began after a time; without one it is in a distant future.
func nextRun(runs []run, after time.Time) time.Time {
	first := after.Add(24 * time.Hour)
	for _, r := range runs {
		if r.first.After(after) {
			first = earlier(first, r.first)
		}
	}
	return first
}

// recovered is how long the parts that it hit need to work again after its end.
func (h pastFault) recovered() time.Duration {
	if h.kind == allKilled {
		return anarchyGrace + readyAtMost
	}
	return recoverAfter
}

// isIn reports whether a fault hits a cluster.
func (h pastFault) isIn(cluster string) bool { return h.cluster == cluster || h.peer == cluster }

// role is the part that a fault hits: the first word of its kind.
func (h pastFault) role() string {
	role, _, _ := strings.Cut(h.kind, "-")
	return role
}

// stopsWrites reports whether nothing can be written in a cluster.
func (h pastFault) stopsWrites() bool {
	return h.kind == apiKilled || h.kind == apiPaused || h.kind == allKilled
}

// stopsWatches reports whether the parts of a cluster may be down that watch other clusters.
func (h pastFault) stopsWatches() bool {
	return slices.Contains([]string{"controller", "vkubelet", "node"}, h.role())
}

// without are the parts of a span that others leave.
func without(whole span, less []span) []span {
	out := []span{whole}
	for _, l := range less {
		var left []span
		for _, s := range out {
			if !s.overlaps(l) {
				left = append(left, s)
				continue
			}
			if s.from.Before(l.from) {
				left = append(left, span{s.from, l.from})
			}
			if l.to.Before(s.to) {
				left = append(left, span{l.to, s.to})
			}
		}
		out = left
	}
	return out
}

func later(a, b time.Time) time.Time { return slices.MaxFunc([]time.Time{a, b}, time.Time.Compare) }

func earlier(a, b time.Time) time.Time {
	return slices.MinFunc([]time.Time{a, b}, time.Time.Compare)
}
