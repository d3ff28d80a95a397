package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"
)

// podPairs are the pairs without --pairs.
const podPairs = 5

// podOptions say how offloading is measured beside the mirror.
type podOptions struct {
	pods int
	// large and largePairs are of the second table.
	large, largePairs int
	// against is an earlier commit, which is measured in place of the mirror; empty: none.
	against string
}

func (o *podOptions) flags(flags *flag.FlagSet) {
	flags.IntVar(&o.pods, "pods", 1000, "pods of each round")
	flags.StringVar(&o.against, "against", "", "with --only pods: a commit that is measured in place of the mirror; fails if this tree costs more CPU or requests")
	flags.IntVar(&o.large, "large", 3000, "pods of each round of the second table; 0: no such table")
	flags.IntVar(&o.largePairs, "large-pairs", podPairs, "timed rounds of each for the second table")
}

func (o *podOptions) check() error {
	return errors.Join(atLeast("pods", o.pods, 1), atLeast("large", o.large, 0), atLeast("large-pairs", o.largePairs, 1))
}

// measurePods makes the tables: of --pods, and of --large.
func measurePods(ctx context.Context, o options) error {
	o.pairs = cmp.Or(o.pairs, podPairs)
	if o.against != "" {
		return measureAgainst(ctx, o)
	}
	r, err := podTable(ctx, o)
	if err != nil {
		return err
	}
	if o.large > 0 {
		more := o
		more.pods, more.pairs = o.large, o.largePairs
		if r.Large, err = podTable(ctx, more); err != nil {
			return err
		}
	}
	r.print(os.Stdout)
	return writeJSON(o.out, r)
}

// podTable makes one table, in clusters without an audit log, and then counts in clusters
// with one.
func podTable(ctx context.Context, o options) (*report, error) {
	r := &report{Pods: o.pods, Machine: thisMachine(), Begin: time.Now()}
	if err := timed(ctx, o, r); err != nil {
		return nil, err
	}
	if err := counted(ctx, o, r); err != nil {
		return nil, err
	}
	r.Took = time.Since(r.Begin).Seconds()
	r.summarize()
	return r, nil
}

// timed runs the pairs; the first contestant changes from one to the next.
func timed(ctx context.Context, o options, r *report) (err error) {
	w, err := newWorld(ctx, worldOptions{pods: o.pods, mirror: true, noPolicies: o.noPolicies})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	r.Guards = w.guards
	for i := range o.pairs {
		var p pair
		order := []*contestant{w.offloading, w.mirroring}
		if i%2 == 1 {
			slices.Reverse(order)
		}
		for _, c := range order {
			w.lab.Logf("pair %d of %d: %s", i+1, o.pairs, c.name)
			into := map[*contestant]*round{w.offloading: &p.Offloading, w.mirroring: &p.Mirror}[c]
			if *into, err = w.round(ctx, c, load{pods: o.pods, name: fmt.Sprintf("pair-%d", i+1)}); err != nil {
				return err
			}
		}
		r.Pairs = append(r.Pairs, p)
	}
	r.Peaks, err = w.memory(peakLine)
	return err
}

// counted counts requests; times are not looked at.
func counted(ctx context.Context, o options, r *report) (err error) {
	w, err := newWorld(ctx, worldOptions{pods: o.pods, mirror: true, audit: true, noPolicies: o.noPolicies})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	w.lab.Logf("counting requests")
	for _, c := range []*contestant{w.mirroring, w.offloading} {
		counts, err := w.count(ctx, c, load{pods: o.pods, name: "counted"})
		if err != nil {
			return err
		}
		r.Requests = append(counts, r.Requests...)
	}
	return nil
}
