package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/liqod/liqod/e2e/lab"
)

const (
	// calmFor is how long all has to be well before a fault: as long as the probes that are
	// remembered of the time before.
	calmFor = 6 * time.Second
	// quietFor is for how long no request of the client has failed then.
	quietFor = 2 * time.Second
	// aftermath is how long clients are looked at after all has come that is to come.
	aftermath = 3 * time.Second
	// notOver is how close to the end a request that failed says that others would.
	notOver = time.Second
	// recovery is the most that is waited until all is well again.
	recovery = 4 * time.Minute
	// lookTimeout bounds each look at a cluster: one that is hit may never answer.
	lookTimeout = 20 * time.Second
)

// continuityCase is one kind of round.
type continuityCase struct {
	Way   string `json:"peering"`
	Fault string `json:"fault"`
	Hit   string `json:"hit"`
}

// continuityRound is what was seen of one fault, from the cluster that lives. Delays are
// from the beginning of the fault, and those of the return from the beginning of its undoing.
type continuityRound struct {
	Condition delay `json:"condition"`
	Node      delay `json:"nodeNotReady"`
	// Pod is when the offloaded pod was not Ready at home, if it is seen from there.
	Pod      delay `json:"podNotReady"`
	Endpoint delay `json:"endpointOut"`
	// After is from the condition to the endpoint.
	After delay `json:"endpointAfterCondition"`
	// LastFailed is when the last request of the client began that failed.
	LastFailed delay          `json:"lastFailedRequest"`
	Requests   int            `json:"requests"`
	Failed     int            `json:"failedRequests"`
	Failures   map[string]int `json:"failures,omitempty"`
	Return     recovered      `json:"return"`
	// Changed are the pods that were made or started again, other than those of a node that died.
	Changed []string `json:"changedPods,omitempty"`
	// Restarted are the pods of the node that died.
	Restarted int `json:"restartedPods"`
}

// recovered is how all became well again.
type recovered struct {
	Undone     float64 `json:"undoneSeconds"` // how long it took to undo the fault
	Condition  delay   `json:"condition"`
	Node       delay   `json:"nodeReady"`
	Endpoint   delay   `json:"endpointReady"`
	LastFailed delay   `json:"lastFailedRequest"`
	Whole      delay   `json:"whole"` // the last of these
}

// String is the round in one line.
func (r continuityRound) String() string {
	b := r.Return
	return fmt.Sprintf("condition %s, node %s, pod %s, endpoint %s, last failed request %s (%d of %d failed); back: condition %s, node %s, endpoint %s, last failed request %s; %d pods changed",
		r.Condition, r.Node, r.Pod, r.Endpoint, r.LastFailed, r.Failed, r.Requests, b.Condition, b.Node, b.Endpoint, b.LastFailed, len(r.Changed))
}

// String is what tables show.
func (d delay) String() string {
	switch d.State {
	case came:
		return fmt.Sprintf("%.2f", d.Seconds)
	case none:
		return "-"
	}
	return d.State
}

// sides returns the cluster that is hit and the one that lives.
func (w *continuity) sides(c continuityCase) (hit, living *victim) {
	if c.Hit == hitProvider {
		return w.milan, w.rome
	}
	return w.rome, w.milan
}

// round inflicts one fault, undoes it, and waits until all is well again.
func (w *continuity) round(ctx context.Context, c continuityCase) (r continuityRound, err error) {
	if err := w.peered(ctx, c.Way); err != nil {
		return r, err
	}
	f := faultOf(c.Fault)
	hit, living := w.sides(c)
	o, err := newLookout(ctx, living, hit, living == w.rome || c.Way == twoWay)
	if err != nil {
		return r, err
	}
	defer o.stop()
	before, _, err := w.settled(ctx, o, living)
	if err != nil {
		return r, err
	}
	if err := w.breaks(ctx, f, hit, living, o, &r); err != nil {
		return r, errors.Join(err, f.undo(context.WithoutCancel(ctx), hit))
	}
	begin := time.Now()
	if err := f.undo(ctx, hit); err != nil {
		return r, fmt.Errorf("undoing the fault: %w", err)
	}
	r.Return.Undone = time.Since(begin).Seconds()
	after, said, err := w.settled(ctx, o, living)
	if err != nil {
		return r, fmt.Errorf("after the fault was undone: %w", err)
	}
	r.Return.of(o, begin, said)
	r.Changed, r.Restarted = lifeChanges(before, after, f, hit)
	return r, nil
}

// settled waits until all has been well for a while, and no request of the client has
// failed in that time. It returns the lives of the pods, and what became of the requests.
func (w *continuity) settled(ctx context.Context, o *lookout, living *victim) (lives map[string]life, said asked, err error) {
	ctx, cancel := context.WithTimeout(ctx, recovery)
	defer cancel()
	err = lab.Eventually(ctx, func(ctx context.Context) error {
		earlier, err := living.asked(ctx)
		if err != nil {
			return err
		}
		said = said.and(earlier)
		if err := waitUntil(ctx, time.Now().Add(quietFor), func() bool { return false }); err != nil {
			return err
		}
		last, err := living.asked(ctx)
		if err != nil {
			return err
		}
		said = said.and(last)
		if last.Failed > 0 || last.Requests == 0 {
			return fmt.Errorf("of %d requests %d failed: %v", last.Requests, last.Failed, last.Failures)
		}
		if err := errors.Join(o.calm(calmFor), w.running(ctx)); err != nil {
			return err
		}
		lives, err = w.lives(ctx)
		return err
	})
	if err != nil {
		return nil, said, fmt.Errorf("waiting for all to be well, seen from %s: %w", living.site.Name, err)
	}
	return lives, said, nil
}

// running says whether both pods of the Service are Ready.
func (w *continuity) running(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	for _, name := range []string{"here", "there"} {
		if _, err := w.readyPod(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// breaks inflicts a fault and notes what is seen of it.
func (w *continuity) breaks(ctx context.Context, f fault, hit, living *victim, o *lookout, r *continuityRound) error {
	if _, err := living.asked(ctx); err != nil { // the requests before
		return err
	}
	begin := time.Now()
	inflicted := make(chan error, 1)
	go func() { inflicted <- f.inflict(ctx, hit) }()
	expected := func() bool {
		_, condition := o.down(f.condition, begin)
		_, endpoint := o.endpoint.turned(begin, false)
		node := true
		if f.node && o.node != nil {
			_, node = o.node.turned(begin, false)
		}
		return (condition || f.condition == "") && endpoint && node
	}
	if err := waitUntil(ctx, begin.Add(w.opts.patience+f.slow), expected); err != nil {
		return err
	}
	if err := <-inflicted; err != nil {
		return fmt.Errorf("inflicting the fault: %w", err)
	}
	if err := waitUntil(ctx, time.Now().Add(aftermath), func() bool { return false }); err != nil {
		return err
	}
	said, err := living.asked(ctx)
	if err != nil {
		return err
	}
	r.saw(f, o, begin, said)
	return nil
}

// saw fills in what has been seen since a fault began.
func (r *continuityRound) saw(f fault, o *lookout, begin time.Time, said asked) {
	condition, told := o.down(f.condition, begin)
	r.Condition = delayOf(begin, condition, told, f.condition != "")
	r.Node = delay{State: none}
	if o.node != nil {
		at, found := o.node.turned(begin, false)
		r.Node = delayOf(begin, at, found, f.node)
	}
	r.Pod = delay{State: none}
	if o.pod != nil {
		at, found := o.pod.turned(begin, false)
		r.Pod = delayOf(begin, at, found, true)
	}
	at, found := o.endpoint.turned(begin, false)
	r.Endpoint = delayOf(begin, at, found, true)
	r.After = delay{State: none}
	if told {
		r.After = delayOf(condition, at, found, true)
	}
	r.LastFailed = said.lastFailed(begin, time.Now())
	r.Requests, r.Failed, r.Failures = said.Requests, said.Failed, said.Failures
}

// lastFailed is the time until the last request that failed; never if they still fail.
func (a asked) lastFailed(begin, now time.Time) delay {
	over, last := now.Sub(a.LastFailed) > askedDeadline+notOver, a.LastFailed
	if last.Before(begin) { // it was on its way
		last = begin
	}
	return delayOf(begin, last, a.Failed > 0 && over, a.Failed > 0)
}

// of fills in how all became well.
func (r *recovered) of(o *lookout, begin time.Time, said asked) {
	set := func(into *delay, things ...*series) {
		at, found := back(begin, things...)
		*into = delayOf(begin, at, found, false)
		if found && at.Sub(begin).Seconds() > r.Whole.Seconds {
			r.Whole = *into
		}
	}
	r.Whole = delay{State: none}
	set(&r.Condition, &o.api, &o.network)
	set(&r.Node, o.node)
	set(&r.Endpoint, &o.endpoint)
	r.LastFailed = said.lastFailed(begin, time.Now())
	if r.LastFailed.State == never || r.LastFailed.Seconds > r.Whole.Seconds {
		r.Whole = r.LastFailed
	}
}

// waitUntil returns when something holds, at a time at the latest.
func waitUntil(ctx context.Context, end time.Time, holds func() bool) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for time.Now().Before(end) && !holds() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// lifeChanges lists the pods that were made or started again. Those of a node that died
// are started again by it, which is counted, and never made again.
func lifeChanges(before, after map[string]life, f fault, hit *victim) (changed []string, restarted int) {
	for _, name := range slices.Sorted(maps.Keys(after)) {
		was, known := before[name]
		is := after[name]
		switch {
		case !known:
			changed = append(changed, name+" is new")
		case was.uid != is.uid:
			changed = append(changed, name+" was made again")
		case was.restarts == is.restarts:
		case f.dies && hit.hosts(name):
			restarted++
		default:
			changed = append(changed, fmt.Sprintf("%s was restarted %d times", name, is.restarts-was.restarts))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, left := after[name]; !left {
			changed = append(changed, name+" is gone")
		}
	}
	return changed, restarted
}

// hosts says whether a pod, as lives names it, runs on the node of a cluster: here, or
// offloaded from the other cluster.
func (v *victim) hosts(name string) bool {
	cluster, pod, _ := strings.Cut(name, " ")
	_, pod, _ = strings.Cut(pod, "/")
	if pod == v.pod {
		return true
	}
	return cluster == v.site.Name && !strings.HasPrefix(pod, "there-")
}
