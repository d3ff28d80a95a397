package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// objectOptions say how reflection is measured.
type objectOptions struct {
	each, pairs             int
	paced, pacedPairs, rate int
	inTurn, inTurnPairs     int
	events, namespaces, few int
	idle                    time.Duration
	noEvents, noPolicies    bool
	// kinds are the names of those that are measured; none: all.
	kinds []string
	out   string
}

// measured are the kinds that were asked for; those that are measured in many namespaces
// only, too, if rated is false.
func (o *objectOptions) measured(rated bool) []objectKind {
	return slices.DeleteFunc(objectKinds(), func(k objectKind) bool {
		return rated && k.namespaces || len(o.kinds) > 0 && !slices.Contains(o.kinds, k.name)
	})
}

// flags are those of reflection.
func (o *objectOptions) flags(flags *flag.FlagSet) {
	flags.IntVar(&o.each, "objects", 1000, "reflected objects of each kind in each round")
	flags.IntVar(&o.paced, "paced-objects", 250, "objects of each kind in each round with few changes a second; 0: no such rounds")
	flags.IntVar(&o.pacedPairs, "paced-pairs", 3, "rounds of each with few changes a second")
	flags.IntVar(&o.rate, "rate", 50, "changes a second in these rounds")
	flags.IntVar(&o.inTurn, "in-turn-objects", 500, fmt.Sprintf("objects of each kind in each round in which each of %d senders waits for its change to arrive, before it sends the next; 0: no such rounds", senders))
	flags.IntVar(&o.inTurnPairs, "in-turn-pairs", 3, "rounds of each in which senders wait")
	flags.IntVar(&o.events, "events", 100, "events a second that the provider tells in one more round; 0: no such round")
	flags.IntVar(&o.namespaces, "namespaces", 100, "namespaces with a few objects of every kind; 0: that is not measured")
	flags.IntVar(&o.few, "few", 3, "objects of each kind in each of these namespaces")
	flags.Func("kinds", "reflected kinds, comma separated; default: all", func(value string) error {
		o.kinds = strings.Split(value, ",")
		return nil
	})
	flags.StringVar(&o.out, "reflection-out", filepath.Join("bin", "bench-reflection.json"), "file for the figures of reflection")
}

func (o *objectOptions) check() error {
	for _, x := range []struct {
		name        string
		value, from int
	}{
		{"objects", o.each, 1}, {"rate", o.rate, 1}, {"paced-pairs", o.pacedPairs, 1}, {"few", o.few, 1}, {"paced-objects", o.paced, 0}, {"in-turn-objects", o.inTurn, 0}, {"in-turn-pairs", o.inTurnPairs, 1}, {"events", o.events, 0}, {"namespaces", o.namespaces, 0},
	} {
		if x.value < x.from {
			return fmt.Errorf("--%s is %d: at least %d is accepted", x.name, x.value, x.from)
		}
	}
	var all []string
	for _, k := range objectKinds() {
		all = append(all, k.name)
	}
	for _, name := range o.kinds {
		if !slices.Contains(all, name) {
			return fmt.Errorf("--kinds has %q: %s are accepted", name, strings.Join(all, ", "))
		}
	}
	return nil
}

// measureObjects measures reflection beside the mirror of objects: in clusters without an
// audit log, then requests in clusters with one, then what many namespaces cost.
func measureObjects(ctx context.Context, o objectOptions) error {
	r := objectReport{Each: o.each, Machine: thisMachine(), Begin: time.Now()}
	for _, k := range o.measured(true) {
		r.Kinds = append(r.Kinds, k.name)
	}
	if err := timeObjects(ctx, o, &r); err != nil {
		return err
	}
	if err := askObjects(ctx, o, &r); err != nil {
		return err
	}
	if o.namespaces > 0 {
		if err := spreadInto(ctx, o, &r); err != nil {
			return err
		}
	}
	r.Took = time.Since(r.Begin).Seconds()
	r.summarize()
	r.print(os.Stdout)
	return writeJSON(o.out, r)
}

func newObjectWorld(ctx context.Context, o objectOptions, audit bool) (*world, error) {
	w, err := newWorld(ctx, worldOptions{pods: 1, objects: true, audit: audit, noEvents: o.noEvents, noPolicies: o.noPolicies})
	if err != nil {
		return nil, err
	}
	for _, c := range []*contestant{w.offloading, w.mirroring} {
		if err := w.createService(ctx, c.home); err != nil {
			return nil, errors.Join(err, w.close())
		}
	}
	return w, nil
}

// timeObjects runs the pairs.
func timeObjects(ctx context.Context, o objectOptions, r *objectReport) (err error) {
	w, err := newObjectWorld(ctx, o, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	if r.Pairs, err = w.objectPairs(ctx, o.pairs, objectLoad{kinds: o.measured(true), each: o.each, name: "pair"}); err != nil {
		return err
	}
	if r.Peaks, err = w.peaks(); err != nil {
		return err
	}
	if o.paced > 0 {
		slow := objectLoad{kinds: o.measured(true), each: o.paced, every: time.Second / time.Duration(o.rate), name: "paced"}
		if r.Paced, err = w.objectPairs(ctx, o.pacedPairs, slow); err != nil {
			return err
		}
		r.Rate = o.rate
	}
	if o.inTurn > 0 {
		l := objectLoad{kinds: o.measured(true), each: o.inTurn, inTurn: true, name: "in-turn"}
		if r.InTurn, err = w.objectPairs(ctx, o.inTurnPairs, l); err != nil {
			return err
		}
	}
	if o.events == 0 {
		return nil
	}
	return w.timeWithEvents(ctx, o, r)
}

// timeWithEvents runs one pair more while the provider tells events.
func (w *world) timeWithEvents(ctx context.Context, o objectOptions, r *objectReport) error {
	s, err := w.startStream(ctx, o.events)
	if err != nil {
		return err
	}
	p, err := w.objectPair(ctx, objectLoad{kinds: o.measured(true), each: o.each, name: "events"}, false)
	stream, stopErr := s.stop(ctx, w, o.events)
	r.Events, r.Stream = &p, stream
	return errors.Join(err, stopErr)
}

// objectPairs runs several pairs of one load; who begins changes from one to the next.
func (w *world) objectPairs(ctx context.Context, pairs int, l objectLoad) ([]objectPair, error) {
	var out []objectPair
	name := l.name
	for i := range pairs {
		l.name = fmt.Sprintf("%s-%d", name, i+1)
		p, err := w.objectPair(ctx, l, i%2 == 1)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// objectPair is a round of each contestant.
func (w *world) objectPair(ctx context.Context, l objectLoad, mirrorFirst bool) (p objectPair, err error) {
	order := []*contestant{w.offloading, w.mirroring}
	into := []*objectRound{&p.Offloading, &p.Mirror}
	if mirrorFirst {
		order[0], order[1], into[0], into[1] = order[1], order[0], into[1], into[0]
	}
	for i, c := range order {
		w.lab.Logf("%s: %s", l.name, c.name)
		if *into[i], err = w.objectRound(ctx, c, l, nil); err != nil {
			return p, err
		}
	}
	return p, nil
}

// askObjects counts requests; times are not looked at, but for those of the restart.
func askObjects(ctx context.Context, o objectOptions, r *objectReport) (err error) {
	w, err := newObjectWorld(ctx, o, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	l := objectLoad{kinds: o.measured(true), each: o.each, name: "counted"}
	w.lab.Logf("counting requests")
	mirror, err := w.countObjects(ctx, w.mirroring, l, nil)
	if err != nil {
		return err
	}
	liqod, err := w.countObjects(ctx, w.offloading, l, func(ctx context.Context) (err error) {
		if r.Idle, err = w.idle(ctx, l.size(), o.idle); err != nil {
			return err
		}
		r.Restart, err = w.restartObjects(ctx, l.kinds, l.size())
		return err
	})
	r.Requests = append(liqod, mirror...)
	r.Writes = append(writesOf(w.offloading.name, r.Requests, l.kinds, l.each), writesOf(w.mirroring.name, r.Requests, l.kinds, l.each)...)
	return err
}

// spreadInto measures in clusters of its own what many namespaces cost.
func spreadInto(ctx context.Context, o objectOptions, r *objectReport) (err error) {
	w, err := newObjectWorld(ctx, o, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	r.Spread, err = w.spreadObjects(ctx, o)
	return err
}
