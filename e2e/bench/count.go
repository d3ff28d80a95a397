package main

import (
	"cmp"
	"context"
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
	// Cluster is the one that received it.
	Cluster string `json:"cluster"`
	// Who sent it: "rome vkubelet", "mirror".
	Who      string `json:"who"`
	Verb     string `json:"verb"`
	Resource string `json:"resource"` // with its subresource; a path for what is none
}

// requestCount counts requests of one kind in the steps of a load.
type requestCount struct {
	Contestant string `json:"contestant"`
	request
	Create int `json:"create"`
	Update int `json:"update,omitempty"` // of objects
	Delete int `json:"delete"`
	// PerPod and PerObject are of all steps.
	PerPod    float64 `json:"perPod,omitempty"`
	PerObject float64 `json:"perObject,omitempty"`
}

// The steps of a load.
const (
	stepCreate = "create"
	stepUpdate = "update"
	stepDelete = "delete"
)

// window is a span of time.
type window struct{ begin, end time.Time }

// count runs a round and counts the requests to both API servers.
func (w *world) count(ctx context.Context, c *contestant, l load) ([]requestCount, error) {
	counts := map[string]map[request]int{}
	for i, phase := range []func(context.Context, *contestant, load) (phase, error){w.create, w.delete} {
		within := window{begin: time.Now()}
		if _, err := phase(ctx, c, l); err != nil {
			return nil, err
		}
		// What is still under way belongs to the phase.
		if err := pause(ctx, settle); err != nil {
			return nil, err
		}
		within.end = time.Now()
		found, err := w.requests(within)
		if err != nil {
			return nil, err
		}
		counts[[]string{stepCreate, stepDelete}[i]] = found
	}
	out := countsOf(c, counts)
	for i, x := range out {
		out[i].PerPod = float64(x.all()) / float64(l.pods)
	}
	return out, nil
}

// countsOf puts the counts of all steps together: of the cluster itself and of those who work
// for the contestant.
func countsOf(c *contestant, counts map[string]map[request]int) []requestCount {
	all := map[request]bool{}
	for _, of := range counts {
		for key := range of {
			// Those of the other contestant only idle.
			if !isRole(key.Who) || (key.Who == mirrorName) != c.shadows {
				all[key] = true
			}
		}
	}
	var out []requestCount
	for key := range all {
		out = append(out, requestCount{
			Contestant: c.name, request: key, Create: counts[stepCreate][key], Update: counts[stepUpdate][key], Delete: counts[stepDelete][key],
		})
	}
	slices.SortFunc(out, func(a, b requestCount) int {
		return cmp.Or(strings.Compare(a.Cluster, b.Cluster), strings.Compare(a.Who, b.Who), cmp.Compare(b.all(), a.all()),
			strings.Compare(a.Resource, b.Resource), strings.Compare(a.Verb, b.Verb))
	})
	return out
}

func (c requestCount) all() int { return c.Create + c.Update + c.Delete }

// rare is how few requests for each pod are put together in one line.
const rare = 0.05

// requestRows have a line for each kind of request of a role, and one for all of the rest.
func requestRows(requests []requestCount, contestants ...string) [][]string {
	rows := [][]string{{"WITH", "AT", "WHO", "VERB", "RESOURCE", "CREATION", "UPDATE", "DELETION", "EACH"}}
	for _, name := range contestants {
		sum, rest, others := 0.0, 0.0, map[string]float64{}
		for _, c := range requests {
			each := c.PerPod + c.PerObject // one of them is 0
			switch {
			case c.Contestant != name:
				continue
			case !isRole(c.Who):
				others[c.Who] += each
				continue
			case each < rare:
				rest += each
			default:
				rows = append(rows, []string{name, c.Cluster, c.Who, c.Verb, c.Resource, fmt.Sprint(c.Create), fmt.Sprint(c.Update), fmt.Sprint(c.Delete), fmt.Sprintf("%.2f", each)})
			}
			sum += each
		}
		line := func(who string, of string, each float64) {
			rows = append(rows, []string{name, "both", who, "", of, "", "", "", fmt.Sprintf("%.2f", each)})
		}
		line("", "all that is rarer", rest)
		line("", "all of these", sum)
		for _, who := range slices.Sorted(maps.Keys(others)) {
			if others[who] >= rare {
				line(who, "not counted above", others[who])
			}
		}
	}
	return rows
}

// requests counts the requests that arrived within a window.
func (w *world) requests(within window) (map[request]int, error) {
	counts := map[request]int{}
	for _, s := range []*site.Site{w.rome, w.milan} {
		// A watch is logged when it begins and again when it ends.
		watches := map[string]bool{}
		_, err := s.Audited(func(r lab.AuditRecord) bool {
			at := r.RequestReceivedTimestamp
			if at.Before(within.begin) || !at.Before(within.end) {
				return false
			}
			if r.Verb == "watch" {
				id := at.String() + r.UserAgent + r.RequestURI
				if watches[id] {
					return false
				}
				watches[id] = true
			}
			key := request{Cluster: s.Name, Who: who(s.Name, r), Verb: r.Verb, Resource: r.Resource()}
			if key.Resource == "" {
				key.Resource, _, _ = strings.Cut(r.RequestURI, "?")
			}
			counts[key]++
			return false
		})
		if err != nil {
			return nil, err
		}
	}
	return counts, nil
}

// who returns the sender of a request. A role's name is the end of its user agent; in the
// provider, the consumer's roles have the name of a peer.
func who(cluster string, r lab.AuditRecord) string {
	switch {
	case strings.HasPrefix(r.UserAgent, "liqod/"):
		words := strings.Fields(r.UserAgent)
		if cluster == "milan" && strings.HasPrefix(r.User.Username, corev1beta1.PeerUserPrefix+"rome:") {
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
