package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// report is all that was measured.
type report struct {
	Begin   time.Time `json:"begin"`
	Took    float64   `json:"tookSeconds"`
	Machine machine   `json:"machine"`
	Guards  []guards  `json:"guards"`
	Pods    int       `json:"pods"`
	Summary summary   `json:"summary"`
	Pairs   []pair    `json:"pairs"`
	// Peaks are the highest resident memory of each process.
	Peaks    map[string]float64 `json:"peakMB"`
	Requests []requestCount     `json:"requests"`
	// Large is the same with more pods; nil without --large.
	Large *report `json:"large,omitempty"`
}

// pair is a round of each, one after the other.
type pair struct {
	Offloading round `json:"liqod"`
	Mirror     round `json:"mirror"`
}

// summary has what is said about several rounds.
type summary struct {
	Create comparison `json:"create"`
	Delete comparison `json:"delete"`
	// CPU has the seconds of each process for creation and deletion, by contestant.
	CPU map[string]map[string]spread `json:"cpuSeconds"`
	// RequestsPerPod are those of the roles at both API servers, by contestant.
	RequestsPerPod map[string]float64 `json:"requestsPerPod"`
}

// comparison has the figures of one phase, by name. A ratio is liqod's figure by the mirror's
// of the same pair.
type comparison struct {
	Offloading map[string]spread `json:"liqod"`
	Mirror     map[string]spread `json:"mirror"`
	Ratio      map[string]spread `json:"ratio"`
}

// figure is one of a phase.
type figure struct {
	name          string // in JSON
	title, format string // in tables
	of            func(phase) float64
}

func figures() []figure {
	return []figure{
		{"podsPerSecond", "pods/s", "%.0f", func(p phase) float64 { return p.PodsPerSecond }},
		{"seconds", "seconds", "%.2f", func(p phase) float64 { return p.Seconds }},
		{"p50", "p50 ms", "%.0f", func(p phase) float64 { return p.P50 }},
		{"p99", "p99 ms", "%.0f", func(p phase) float64 { return p.P99 }},
		{"cpuSeconds", "CPU s", "%.2f", phase.cpu},
	}
}

func (r *report) summarize() {
	r.Summary = summary{
		Create: compare(r.Pairs, func(x round) phase { return x.Create }),
		Delete: compare(r.Pairs, func(x round) phase { return x.Delete }),
		CPU:    map[string]map[string]spread{}, RequestsPerPod: map[string]float64{},
	}
	for name, of := range map[string]func(pair) round{
		"liqod":    func(p pair) round { return p.Offloading },
		mirrorName: func(p pair) round { return p.Mirror },
	} {
		values := map[string][]float64{}
		for _, p := range r.Pairs {
			for process, seconds := range of(p).Create.CPU {
				values[process] = append(values[process], seconds+of(p).Delete.CPU[process])
			}
		}
		r.Summary.CPU[name] = map[string]spread{}
		for process, v := range values {
			r.Summary.CPU[name][process] = newSpread(v)
		}
	}
	for _, c := range r.Requests {
		if isRole(c.Who) {
			r.Summary.RequestsPerPod[c.Contestant] += c.PerPod
		}
	}
}

func compare(pairs []pair, of func(round) phase) comparison {
	c := comparison{map[string]spread{}, map[string]spread{}, map[string]spread{}}
	for _, f := range figures() {
		var liqod, mirror, ratio []float64
		for _, p := range pairs {
			a, b := f.of(of(p.Offloading)), f.of(of(p.Mirror))
			liqod, mirror, ratio = append(liqod, a), append(mirror, b), append(ratio, a/b)
		}
		c.Offloading[f.name], c.Mirror[f.name], c.Ratio[f.name] = newSpread(liqod), newSpread(mirror), newSpread(ratio)
	}
	return c
}

// print writes the report for people.
func (r *report) print(out io.Writer) {
	fmt.Fprintf(out, "\n%d pods, %d pairs; %s; medians, and from least to most\n", r.Pods, len(r.Pairs), r.Machine)
	printGuards(out, r.Guards)
	table(out, r.speedRows())
	fmt.Fprintf(out, "\nCPU seconds for the creation and deletion of %d pods\n", r.Pods)
	table(out, cpuRows(r.Summary.CPU))
	fmt.Fprintln(out, "\nPeak memory (VmHWM), MB")
	var rows [][]string
	for _, name := range slices.Sorted(maps.Keys(r.Peaks)) {
		rows = append(rows, []string{name, fmt.Sprintf("%.1f", r.Peaks[name])})
	}
	table(out, rows)
	fmt.Fprintln(out, "\nRequests per pod, creation to end, at both API servers")
	table(out, requestRows(r.Requests, "liqod", mirrorName))
	if r.Large != nil {
		r.Large.print(out)
	}
}

func (r *report) speedRows() [][]string {
	rows := [][]string{{"", "LIQOD", "MIRROR", "LIQOD / MIRROR"}}
	for _, f := range figures() {
		for _, p := range []struct {
			name string
			c    comparison
		}{{"creation", r.Summary.Create}, {"deletion", r.Summary.Delete}} {
			rows = append(rows, []string{p.name + " " + f.title, p.c.Offloading[f.name].text(f.format), p.c.Mirror[f.name].text(f.format), p.c.Ratio[f.name].text("%.2f")})
		}
	}
	return rows
}

// cpuRows begin with the processes that use most.
func cpuRows(cpu map[string]map[string]spread) [][]string {
	liqod, mirror := cpu["liqod"], cpu[mirrorName]
	names := slices.SortedFunc(maps.Keys(liqod), func(a, b string) int {
		return cmp.Or(cmp.Compare(liqod[b].Median, liqod[a].Median), strings.Compare(a, b))
	})
	rows := [][]string{{"", "WITH LIQOD", "WITH MIRROR"}}
	sums := [2]float64{}
	for _, name := range names {
		rows = append(rows, []string{name, liqod[name].text("%.2f"), mirror[name].text("%.2f")})
		sums[0] += liqod[name].Median
		sums[1] += mirror[name].Median
	}
	return append(rows, []string{"all", fmt.Sprintf("%.2f", sums[0]), fmt.Sprintf("%.2f", sums[1])})
}
