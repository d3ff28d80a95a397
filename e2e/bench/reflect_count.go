package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqod/liqod/e2e/lab"
)

// objectRequest counts requests of a contestant's roles in one round.
type objectRequest struct {
	Contestant string `json:"contestant"`
	request
	Create int `json:"create"`
	Update int `json:"update"`
	Delete int `json:"delete"`
	// PerObject is that of all three phases.
	PerObject float64 `json:"perObject"`
}

// objectWrites are the writes in the provider for one change of one object of a kind.
type objectWrites struct {
	Contestant string `json:"contestant"`
	Kind       string `json:"kind"`
	// Create, Update and Delete are writes of the object itself, of the shadow for
	// EndpointSlices, by whoever comes from the consumer.
	Create float64 `json:"create"`
	Update float64 `json:"update"`
	Delete float64 `json:"delete"`
	// Real are those of the provider's controller: the EndpointSlices themselves.
	RealCreate float64 `json:"realCreate,omitempty"`
	RealUpdate float64 `json:"realUpdate,omitempty"`
	RealDelete float64 `json:"realDelete,omitempty"`
}

// countObjects runs a round and counts the requests to both API servers. between is
// called while all objects are there, if it is not nil.
func (w *world) countObjects(ctx context.Context, c *contestant, l objectLoad, between func(context.Context) error) ([]objectRequest, error) {
	counts := map[string]map[request]int{}
	begin := time.Now()
	_, err := w.objectRound(ctx, c, l, func(ctx context.Context, step objectStep) error {
		// What is still under way belongs to the step.
		if err := pause(ctx, settle); err != nil {
			return err
		}
		var err error
		if counts[step.name], err = w.requests(window{begin, time.Now()}); err != nil {
			return err
		}
		if step.name == "update" && between != nil {
			if err := between(ctx); err != nil {
				return err
			}
		}
		begin = time.Now()
		return nil
	})
	if err != nil {
		return nil, err
	}
	return perObject(c, l.size(), counts), nil
}

func perObject(c *contestant, objects int, counts map[string]map[request]int) []objectRequest {
	all := map[request]bool{}
	for _, of := range counts {
		for key := range of {
			if isRole(key.Who) && (key.Who == mirrorName) != c.shadows {
				all[key] = true
			}
		}
	}
	var out []objectRequest
	for key := range all {
		r := objectRequest{Contestant: c.name, request: key, Create: counts["create"][key], Update: counts["update"][key], Delete: counts["delete"][key]}
		r.PerObject = float64(r.Create+r.Update+r.Delete) / float64(objects)
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b objectRequest) int {
		return cmp.Or(strings.Compare(a.Cluster, b.Cluster), strings.Compare(a.Who, b.Who), cmp.Compare(b.PerObject, a.PerObject),
			strings.Compare(a.Resource, b.Resource), strings.Compare(a.Verb, b.Verb))
	})
	return out
}

// writesOf sums the requests that change something in the provider, for one change of one
// object of each kind.
func writesOf(contestant string, requests []objectRequest, kinds []objectKind, each int) []objectWrites {
	var out []objectWrites
	n := float64(each)
	for _, k := range kinds {
		written := k.written
		if contestant == mirrorName {
			written = k.resource
		}
		sum := objectWrites{Contestant: contestant, Kind: k.name}
		for _, r := range requests {
			resource, _, _ := strings.Cut(r.Resource, "/")
			if r.Contestant != contestant || r.Cluster != "milan" || !(lab.AuditRecord{Verb: r.Verb}).Write() {
				continue
			}
			switch {
			case r.Who == "milan controller" && (resource == k.resource || resource == written):
				sum.RealCreate, sum.RealUpdate, sum.RealDelete = sum.RealCreate+float64(r.Create)/n, sum.RealUpdate+float64(r.Update)/n, sum.RealDelete+float64(r.Delete)/n
			case r.Who != "milan controller" && resource == written:
				sum.Create, sum.Update, sum.Delete = sum.Create+float64(r.Create)/n, sum.Update+float64(r.Update)/n, sum.Delete+float64(r.Delete)/n
			}
		}
		out = append(out, sum)
	}
	return out
}

// reflectLoops are the vkubelet's loops of the kinds.
func reflectLoops(kinds []objectKind) []string {
	var out []string
	for _, k := range kinds {
		out = append(out, "reflect-"+k.name)
	}
	return out
}

// restartObjects restarts the vkubelet with objects in place.
func (w *world) restartObjects(ctx context.Context, kinds []objectKind, objects int) (*restarted, error) {
	w.lab.Logf("restarting the vkubelet")
	before, err := w.objectVersions(ctx, kinds)
	if err != nil {
		return nil, err
	}
	took, within, err := w.restartVKubelet(ctx, reflectLoops(kinds), objects)
	if err != nil {
		return nil, err
	}
	out := &restarted{Pods: objects, Seconds: took.Seconds()}
	counts, err := w.requests(within)
	if err != nil {
		return nil, err
	}
	out.add(counts)
	after, err := w.objectVersions(ctx, kinds)
	if err != nil {
		return nil, err
	}
	out.compare(before, after)
	peaks, err := w.peaks()
	if err != nil {
		return nil, err
	}
	out.PeakMB = peaks["rome vkubelet"]
	return out, nil
}

// objectVersions has the resource version of each object in the provider: any write
// changes it.
func (w *world) objectVersions(ctx context.Context, kinds []objectKind) (map[string]string, error) {
	out := map[string]string{}
	for _, k := range kinds {
		list, err := k.source(w.atMilan.core, w.offloading.away).list(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("listing %s in milan: %w", k.resource, err)
		}
		each(list, func(o metav1.Object) { out[objectKey(k, o.GetName())] = o.GetResourceVersion() })
	}
	return out, nil
}
