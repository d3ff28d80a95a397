package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
)

const (
	// costlier is the least ratio of CPU, this tree to the earlier one, that counts as a rise.
	costlier = 1.05
	// measurable is the least CPU of a process in a round, in seconds: /proc counts hundredths.
	measurable = 0.2
	// moreRequests is the least difference of requests per pod that counts as a rise: what is
	// repeated after a conflict differs from run to run.
	moreRequests = 0.05
)

// versus compares what pods cost in this tree and at an earlier commit.
type versus struct {
	Commit string   `json:"commit"`
	Pods   int      `json:"pods"`
	Pairs  []turns  `json:"pairs"`
	This   requests `json:"requestsPerPod"`
	That   requests `json:"requestsPerPodBefore"`
}

// turns are a round of each, one after the other.
type turns struct {
	This round `json:"this"`
	That round `json:"before"`
}

// requests are those of each role for a pod, at both API servers.
type requests map[string]float64

// measureAgainst runs rounds of this tree and of the earlier commit in turns, each in clusters of
// its own, and prints what each costs. It returns an error if this tree costs more.
func measureAgainst(ctx context.Context, o options) error {
	commit, err := commitOf(ctx, o.against)
	if err != nil {
		return err
	}
	v := &versus{Commit: commit, Pods: o.pods}
	// The audit log costs CPU: requests are counted in other clusters.
	err = v.inBoth(ctx, o, false, func(this, that *world) error {
		for i := range o.pairs {
			var t turns
			order := []func() error{
				func() (err error) { t.This, err = this.offer(ctx, o.pods, i); return err },
				func() (err error) { t.That, err = that.offer(ctx, o.pods, i); return err },
			}
			if i%2 == 1 {
				slices.Reverse(order)
			}
			logf("pair %d of %d", i+1, o.pairs)
			if err := errors.Join(order[0](), order[1]()); err != nil {
				return err
			}
			v.Pairs = append(v.Pairs, t)
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = v.inBoth(ctx, o, true, func(this, that *world) (err error) {
		if v.This, err = this.requestsPerPod(ctx, o.pods); err != nil {
			return err
		}
		v.That, err = that.requestsPerPod(ctx, o.pods)
		return err
	})
	if err != nil {
		return err
	}
	v.print(os.Stdout)
	return errors.Join(writeJSON(o.out, v), v.judge())
}

// commitOf returns the full hash of a commit of this repository.
func commitOf(ctx context.Context, name string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", "rev-parse", "--verify", "--quiet", name+"^{commit}").Output()
	if err != nil {
		return "", fmt.Errorf("--against is %q: a commit of this repository is accepted", name)
	}
	return strings.TrimSpace(string(out)), nil
}

// inBoth calls run with clusters of this tree and clusters of the commit.
func (v *versus) inBoth(ctx context.Context, o options, audit bool, run func(this, that *world) error) (err error) {
	var worlds [2]*world
	for i, commit := range []string{"", v.Commit} {
		w, err := newWorld(ctx, worldOptions{pods: o.pods, audit: audit, noPolicies: o.noPolicies, commit: commit})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, w.close()) }()
		worlds[i] = w
	}
	return run(worlds[0], worlds[1])
}

// offer puts a round of pods on the virtual node.
func (w *world) offer(ctx context.Context, pods, number int) (round, error) {
	return w.round(ctx, w.offloading, load{pods: pods, name: fmt.Sprintf("pair-%d", number+1)})
}

func (w *world) requestsPerPod(ctx context.Context, pods int) (requests, error) {
	counts, err := w.count(ctx, w.offloading, load{pods: pods, name: "counted"})
	sums := requests{}
	for _, c := range counts {
		if isRole(c.Who) {
			sums[c.Who] += c.PerPod
		}
	}
	return sums, err
}

func (r requests) sum() (n float64) {
	for _, each := range r {
		n += each
	}
	return n
}

// cost is a process in one phase of a round.
type cost struct{ phase, process string }

// ratios returns the CPU of this tree by that of the commit, for each process that uses enough to
// be measured, and for all together ("").
func (v *versus) ratios() map[cost]spread {
	values := map[cost][]float64{}
	for _, t := range v.Pairs {
		for name, p := range map[string][2]phase{stepCreate: {t.This.Create, t.That.Create}, stepDelete: {t.This.Delete, t.That.Delete}} {
			values[cost{name, ""}] = append(values[cost{name, ""}], p[0].cpu()/p[1].cpu())
			for process, that := range p[1].CPU {
				if this := p[0].CPU[process]; process != benchProcess && that >= measurable && this >= measurable {
					values[cost{name, process}] = append(values[cost{name, process}], this/that)
				}
			}
		}
	}
	out := map[cost]spread{}
	for c, v := range values {
		out[c] = newSpread(v)
	}
	return out
}

// judge returns what costs more than at the commit. CPU has risen if it was more in every pair,
// and the median is above the noise.
func (v *versus) judge() error {
	var errs []error
	ratios := v.ratios()
	for _, c := range sortedCosts(ratios) {
		if r := ratios[c]; r.Min > 1 && r.Median >= costlier {
			errs = append(errs, fmt.Errorf("%s: CPU of %s is %s times that of %.12s", c.phase, cmp.Or(c.process, "all processes"), r.text("%.2f"), v.Commit))
		}
	}
	if this, that := v.This.sum(), v.That.sum(); this > that+moreRequests {
		errs = append(errs, fmt.Errorf("%.2f requests per pod, and %.2f at %.12s", this, that, v.Commit))
	}
	return errors.Join(errs...)
}

func sortedCosts(ratios map[cost]spread) []cost {
	return slices.SortedFunc(maps.Keys(ratios), func(a, b cost) int {
		return cmp.Or(strings.Compare(a.phase, b.phase), strings.Compare(a.process, b.process))
	})
}

// print writes the comparison for people.
func (v *versus) print(out io.Writer) {
	fmt.Fprintf(out, "\n%d pods, %d pairs of this tree and %.12s; %s; medians, and from least to most\n", v.Pods, len(v.Pairs), v.Commit, thisMachine())
	rows := [][]string{{"", "THIS TREE", "BEFORE", "RATIO"}}
	for _, step := range []string{stepCreate, stepDelete} {
		for _, f := range figures() {
			var this, that, ratio []float64
			for _, t := range v.Pairs {
				a, b := f.of(t.This.of(step)), f.of(t.That.of(step))
				this, that, ratio = append(this, a), append(that, b), append(ratio, a/b)
			}
			rows = append(rows, []string{step + " " + f.title, newSpread(this).text(f.format), newSpread(that).text(f.format), newSpread(ratio).text("%.2f")})
		}
	}
	table(out, rows)
	fmt.Fprintln(out, "\nCPU by process, this tree by the earlier one")
	ratios := v.ratios()
	rows = nil
	for _, c := range sortedCosts(ratios) {
		rows = append(rows, []string{c.phase, cmp.Or(c.process, "all but the bench"), ratios[c].text("%.2f")})
	}
	table(out, rows)
	fmt.Fprintln(out, "\nRequests per pod of the roles, creation to end, at both API servers")
	rows = [][]string{{"", "THIS TREE", "BEFORE"}}
	for _, role := range slices.Sorted(maps.Keys(v.This)) {
		rows = append(rows, []string{role, fmt.Sprintf("%.2f", v.This[role]), fmt.Sprintf("%.2f", v.That[role])})
	}
	table(out, append(rows, []string{"all", fmt.Sprintf("%.2f", v.This.sum()), fmt.Sprintf("%.2f", v.That.sum())}))
}

// of returns the phase of a step.
func (r round) of(step string) phase {
	if step == stepDelete {
		return r.Delete
	}
	return r.Create
}
