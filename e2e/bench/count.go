package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
)

// Who sent a request, where it is not a role.
const (
	whoBench      = "bench"
	whoKubernetes = "kubernetes " // begins a cluster's own components
)

// request is what requests have in common that are counted together.
type request struct {
	// Cluster is the one that was asked.
	Cluster string `json:"cluster"`
	// Who asked: "rome vkubelet", "mirror".
	Who      string `json:"who"`
	Verb     string `json:"verb"`
	Resource string `json:"resource"` // with its subresource; a path for what is none
}

// requestCount counts requests in one contestant's round.
type requestCount struct {
	Contestant string `json:"contestant"`
	request
	// Create and Delete are counts of the two phases, PerPod of both.
	Create int     `json:"create"`
	Delete int     `json:"delete"`
	PerPod float64 `json:"perPod"`
}

// window is a span of time.
type window struct{ begin, end time.Time }

func (w window) has(t time.Time) bool { return !t.Before(w.begin) && t.Before(w.end) }

// count runs a round and counts the requests to both API servers.
func (w *world) count(ctx context.Context, c *contestant, l load, between func(context.Context) error) ([]requestCount, error) {
	creating, deleting := window{begin: time.Now()}, window{}
	stopProfiles := w.startProfiles(ctx, c, "create")
	_, err := w.roundWith(ctx, c, l, func(ctx context.Context) error {
		// What is still under way belongs to the creation.
		if err := errors.Join(stopProfiles(), pause(ctx, settle)); err != nil {
			return err
		}
		creating.end = time.Now()
		if between != nil {
			if err := between(ctx); err != nil {
				return err
			}
		}
		deleting.begin = time.Now()
		stopProfiles = w.startProfiles(ctx, c, "delete")
		return nil
	})
	if err := errors.Join(err, stopProfiles(), pause(ctx, settle)); err != nil {
		return nil, err
	}
	deleting.end = time.Now()
	created, err := w.requests(creating)
	if err != nil {
		return nil, err
	}
	deleted, err := w.requests(deleting)
	if err != nil {
		return nil, err
	}
	return perPod(c, l.pods, created, deleted), nil
}

// perPod puts the counts of both phases together: of the cluster itself and of those who
// work for the contestant.
func perPod(c *contestant, pods int, created, deleted map[request]int) []requestCount {
	all := maps.Clone(created)
	for key, n := range deleted {
		all[key] += n
	}
	var out []requestCount
	for key, n := range all {
		if isRole(key.Who) && (key.Who == mirrorName) == c.shadows {
			continue // the other contestant's, which only idles
		}
		out = append(out, requestCount{Contestant: c.name, request: key, Create: created[key], Delete: deleted[key], PerPod: float64(n) / float64(pods)})
	}
	slices.SortFunc(out, func(a, b requestCount) int {
		return cmp.Or(strings.Compare(a.Cluster, b.Cluster), strings.Compare(a.Who, b.Who), cmp.Compare(b.PerPod, a.PerPod),
			strings.Compare(a.Resource, b.Resource), strings.Compare(a.Verb, b.Verb))
	})
	return out
}

// requests counts the requests that arrived within a window.
func (w *world) requests(within window) (map[request]int, error) {
	counts := map[request]int{}
	for _, s := range []*site.Site{w.rome, w.milan} {
		// A watch is logged when it begins and again when it ends.
		watches := map[string]bool{}
		_, err := s.Audited(func(r lab.AuditRecord) bool {
			if !within.has(r.RequestReceivedTimestamp) {
				return false
			}
			if r.Verb == "watch" {
				id := r.RequestReceivedTimestamp.String() + r.UserAgent + r.RequestURI
				if watches[id] {
					return false
				}
				watches[id] = true
			}
			counts[requestOf(s.Name, r)]++
			return false
		})
		if err != nil {
			return nil, err
		}
	}
	return counts, nil
}

func requestOf(cluster string, r lab.AuditRecord) request {
	out := request{Cluster: cluster, Who: who(cluster, r), Verb: r.Verb, Resource: r.Resource()}
	if out.Resource == "" {
		out.Resource, _, _ = strings.Cut(r.RequestURI, "?")
	}
	return out
}

// who says whose request it is. A role's name is the end of its user agent; in the
// provider, the consumer's roles have an account of their tenant namespace.
func who(cluster string, r lab.AuditRecord) string {
	switch {
	case strings.HasPrefix(r.UserAgent, "liqod/"):
		words := strings.Fields(r.UserAgent)
		if cluster == "milan" && strings.Contains(r.User.Username, ":"+corev1beta1.TenantNamespace("rome")+":") {
			cluster = "rome"
		}
		return cluster + " " + words[len(words)-1]
	case strings.HasPrefix(r.UserAgent, mirrorName):
		return mirrorName
	case r.User.Username == "admin":
		return whoBench
	default:
		return whoKubernetes + r.User.Username[strings.LastIndex(r.User.Username, ":")+1:]
	}
}

// isRole says whether it is one of liqod's roles, or the mirror.
func isRole(who string) bool { return who != whoBench && !strings.HasPrefix(who, whoKubernetes) }

// idleness is what goes on while nothing happens.
type idleness struct {
	Seconds float64 `json:"seconds"`
	Pods    int     `json:"pods"`
	// Settled is how many seconds before that the roles still wrote what was left of the
	// load: events come home slowly on purpose.
	Settled float64 `json:"settledSeconds"`
	// CPU is the share of one core that each process has used, in percent.
	CPU      map[string]float64 `json:"cpuPercent"`
	Requests []idleRequest      `json:"requests"`
}

type idleRequest struct {
	request
	Count int `json:"count"`
}

const (
	// settleLook is how long no role must have written anything when a load is over.
	settleLook     = 10 * time.Second
	settlePatience = 10 * time.Minute
)

// settled waits until the roles write nothing but leases, and returns how long that took.
func (w *world) settled(ctx context.Context) (time.Duration, error) {
	w.lab.Logf("waiting until nothing is written any more")
	for begin := time.Now(); ; {
		within := window{begin: time.Now()}
		if err := pause(ctx, settleLook); err != nil {
			return 0, err
		}
		within.end = time.Now()
		counts, err := w.requests(within)
		if err != nil {
			return 0, err
		}
		written := 0
		for _, x := range ours(counts) {
			if (lab.AuditRecord{Verb: x.Verb}).Write() && x.Resource != leases {
				written += x.Count
			}
		}
		took := within.begin.Sub(begin)
		switch {
		case written == 0:
			return took, nil
		case took > settlePatience:
			return 0, fmt.Errorf("the roles still wrote %d times in %s, %s after the load", written, settleLook, took.Round(time.Second))
		}
	}
}

// idle lets time pass while all pods run and nothing is left to do.
func (w *world) idle(ctx context.Context, pods int, d time.Duration) (*idleness, error) {
	took, err := w.settled(ctx)
	if err != nil {
		return nil, err
	}
	w.lab.Logf("idle for %s", d)
	before, err := w.usage()
	if err != nil {
		return nil, err
	}
	within := window{begin: time.Now()}
	if err := pause(ctx, d); err != nil {
		return nil, err
	}
	within.end = time.Now()
	after, err := w.usage()
	if err != nil {
		return nil, err
	}
	counts, err := w.requests(within)
	if err != nil {
		return nil, err
	}
	out := &idleness{Seconds: within.end.Sub(within.begin).Seconds(), Pods: pods, Settled: took.Seconds(), CPU: after.since(before), Requests: ours(counts)}
	for name := range out.CPU {
		out.CPU[name] *= 100 / out.Seconds
	}
	return out, nil
}

// ours are the requests of the roles, the most frequent first.
func ours(counts map[request]int) []idleRequest {
	var out []idleRequest
	for key, n := range counts {
		if isRole(key.Who) && key.Who != mirrorName {
			out = append(out, idleRequest{key, n})
		}
	}
	slices.SortFunc(out, func(a, b idleRequest) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Cluster, b.Cluster), strings.Compare(a.Who, b.Who),
			strings.Compare(a.Resource, b.Resource), strings.Compare(a.Verb, b.Verb))
	})
	return out
}
