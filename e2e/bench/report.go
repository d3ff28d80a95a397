package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
	// Paced is one round of each with a few pods a second; nil if it was not asked for.
	Paced    *pair              `json:"paced,omitempty"`
	Peaks    map[string]float64 `json:"peakMB"`
	Idle     *idleness          `json:"idle"`
	Restart  *restarted         `json:"restart"`
	Requests []requestCount     `json:"requests"`
	// Large is the same with more pods; nil if it was not asked for.
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
	Statuses       statuses           `json:"statuses"`
}

// statuses are how often, per pod, a status came about with liqod.
type statuses struct {
	// Remote are the changes of the provider's pod by its scheduler and its kubelet.
	Remote float64 `json:"remote"`
	// Home are the writes of the local pod's status.
	Home float64 `json:"home"`
}

// comparison is about one phase. A ratio is liqod's figure by the mirror's of the same pair.
type comparison struct {
	Offloading figures `json:"liqod"`
	Mirror     figures `json:"mirror"`
	Ratio      figures `json:"ratio"`
}

type figures struct {
	PodsPerSecond spread `json:"podsPerSecond"`
	Seconds       spread `json:"seconds"`
	P50           spread `json:"p50"`
	P99           spread `json:"p99"`
	// CPU is that of all processes but the bench.
	CPU spread `json:"cpuSeconds"`
}

// spread is what several measurements of the same come to.
type spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func newSpread(values []float64) spread {
	return spread{quantile(values, 0.5), quantile(values, 0), quantile(values, 1)}
}

// quantile interpolates between neighbours; 0 for no values. It leaves values as they are.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	at := q * float64(len(sorted)-1)
	below := int(at)
	above := min(below+1, len(sorted)-1)
	return sorted[below] + (at-float64(below))*(sorted[above]-sorted[below])
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
		r.Summary.Statuses.add(c)
	}
}

func (s *statuses) add(c requestCount) {
	switch {
	case c.Contestant == mirrorName:
	case c.Cluster == "rome" && c.Resource == "pods/status":
		s.Home += c.PerPod
	case c.Cluster == "milan" && !isRole(c.Who) && (c.Resource == "pods/status" || c.Resource == "pods/binding"):
		s.Remote += c.PerPod
	}
}

func compare(pairs []pair, of func(round) phase) comparison {
	var liqod, mirror []phase
	for _, p := range pairs {
		liqod, mirror = append(liqod, of(p.Offloading)), append(mirror, of(p.Mirror))
	}
	return comparison{Offloading: figuresOf(liqod, nil), Mirror: figuresOf(mirror, nil), Ratio: figuresOf(liqod, mirror)}
}

// figuresOf spreads the figures of phases, each divided by that of its counterpart in by
// if there are any.
func figuresOf(phases, by []phase) figures {
	over := func(figure func(phase) float64) spread {
		values := make([]float64, 0, len(phases))
		for i, p := range phases {
			v := figure(p)
			if by != nil {
				v /= figure(by[i])
			}
			values = append(values, v)
		}
		return newSpread(values)
	}
	return figures{
		PodsPerSecond: over(func(p phase) float64 { return p.PodsPerSecond }),
		Seconds:       over(func(p phase) float64 { return p.Seconds }),
		P50:           over(func(p phase) float64 { return p.P50 }),
		P99:           over(func(p phase) float64 { return p.P99 }),
		CPU:           over(phase.cpu),
	}
}

// write keeps the report for machines.
func (r *report) write(path string) error { return writeJSON(path, r) }

func writeJSON(path string, report any) error {
	text, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the report: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("making the directory of the report: %w", err)
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}
