package main

import "time"

// objectReport is all that was measured of reflection.
type objectReport struct {
	Begin   time.Time     `json:"begin"`
	Took    float64       `json:"tookSeconds"`
	Machine machine       `json:"machine"`
	Kinds   []string      `json:"kinds"`
	Each    int           `json:"objectsOfEachKind"`
	Summary objectSummary `json:"summary"`
	Pairs   []objectPair  `json:"pairs"`
	// Paced are the rounds with Rate changes a second; none if they were not asked for.
	Paced []objectPair `json:"paced,omitempty"`
	Rate  int          `json:"pacedPerSecond,omitempty"`
	// InTurn are the rounds in which senders wait for their changes; none if not asked for.
	InTurn []objectPair `json:"inTurn,omitempty"`
	// Events is one round of each while the provider tells events; nil if not asked for.
	Events *objectPair   `json:"withEvents,omitempty"`
	Stream *streamResult `json:"events,omitempty"`

	Peaks    map[string]float64 `json:"peakMB"`
	Idle     *idleness          `json:"idle"`
	Restart  *restarted         `json:"restart"`
	Requests []objectRequest    `json:"requests"`
	Writes   []objectWrites     `json:"writesPerChange"`
	Spread   *spreadOut         `json:"manyNamespaces,omitempty"`
}

// objectPair is a round of each, one after the other.
type objectPair struct {
	Offloading objectRound `json:"liqod"`
	Mirror     objectRound `json:"mirror"`
}

// objectSummary has what is said about several rounds.
type objectSummary struct {
	// Steps are create, update and delete, each of all kinds and of each.
	Steps []objectComparison `json:"steps"`
	// Paced are the same with few changes a second.
	Paced []objectComparison `json:"paced,omitempty"`
	// InTurn are the same with as many changes under way as there are senders.
	InTurn []objectComparison `json:"inTurn,omitempty"`
	// CPU has the seconds of each process for all three, by contestant.
	CPU map[string]map[string]spread `json:"cpuSeconds"`
	// RequestsPerObject are those of the roles at both API servers, by contestant.
	RequestsPerObject map[string]float64 `json:"requestsPerObject"`
}

// objectComparison is about one step of one kind. A ratio is liqod's figure by the
// mirror's of the same pair.
type objectComparison struct {
	Step       string        `json:"step"`
	Kind       string        `json:"kind"` // empty: all
	Offloading objectSpreads `json:"liqod"`
	Mirror     objectSpreads `json:"mirror"`
	Ratio      objectSpreads `json:"ratio"`
}

type objectSpreads struct {
	PerSecond spread `json:"objectsPerSecond"`
	P50       spread `json:"p50"`
	P99       spread `json:"p99"`
}

// objectStepPhases are the phases of a round by the name of their step.
func objectStepPhases() []struct {
	name string
	of   func(objectRound) objectPhase
} {
	return []struct {
		name string
		of   func(objectRound) objectPhase
	}{
		{"create", func(r objectRound) objectPhase { return r.Create }},
		{"update", func(r objectRound) objectPhase { return r.Update }},
		{"delete", func(r objectRound) objectPhase { return r.Delete }},
	}
}

func (r *objectReport) summarize() {
	r.Summary = objectSummary{CPU: map[string]map[string]spread{}, RequestsPerObject: map[string]float64{}}
	r.Summary.Steps, r.Summary.Paced, r.Summary.InTurn = r.compare(r.Pairs), r.compare(r.Paced), r.compare(r.InTurn)
	for name, of := range map[string]func(objectPair) objectRound{
		"liqod":    func(p objectPair) objectRound { return p.Offloading },
		mirrorName: func(p objectPair) objectRound { return p.Mirror },
	} {
		r.Summary.CPU[name] = objectCPU(r.Pairs, of)
	}
	for _, c := range r.Requests {
		r.Summary.RequestsPerObject[c.Contestant] += c.PerObject
	}
}

// compare is about each step of all kinds and of each; nothing without pairs.
func (r *objectReport) compare(pairs []objectPair) []objectComparison {
	if len(pairs) == 0 {
		return nil
	}
	var out []objectComparison
	for _, step := range objectStepPhases() {
		for _, kind := range append([]string{""}, r.Kinds...) {
			out = append(out, compareObjects(pairs, step.name, kind, step.of))
		}
	}
	return out
}

func objectCPU(pairs []objectPair, of func(objectPair) objectRound) map[string]spread {
	values := map[string][]float64{}
	for _, p := range pairs {
		sums := map[string]float64{}
		for _, step := range objectStepPhases() {
			for process, seconds := range step.of(of(p)).CPU {
				sums[process] += seconds
			}
		}
		for process, seconds := range sums {
			values[process] = append(values[process], seconds)
		}
	}
	out := map[string]spread{}
	for process, v := range values {
		out[process] = newSpread(v)
	}
	return out
}

func compareObjects(pairs []objectPair, step, kind string, of func(objectRound) objectPhase) objectComparison {
	var liqod, mirror []objectFigures
	for _, p := range pairs {
		liqod, mirror = append(liqod, of(p.Offloading).figures(kind)), append(mirror, of(p.Mirror).figures(kind))
	}
	return objectComparison{
		Step: step, Kind: kind, Offloading: spreadObjectFigures(liqod, nil), Mirror: spreadObjectFigures(mirror, nil), Ratio: spreadObjectFigures(liqod, mirror),
	}
}

// figures are those of a kind, or of all.
func (p objectPhase) figures(kind string) objectFigures {
	if kind == "" {
		return p.objectFigures
	}
	return p.Kinds[kind]
}

// spreadObjectFigures divides each by its counterpart in by, if there are any.
func spreadObjectFigures(all, by []objectFigures) objectSpreads {
	over := func(figure func(objectFigures) float64) spread {
		values := make([]float64, 0, len(all))
		for i, f := range all {
			v := figure(f)
			if by != nil {
				v /= figure(by[i])
			}
			values = append(values, v)
		}
		return newSpread(values)
	}
	return objectSpreads{
		PerSecond: over(func(f objectFigures) float64 { return f.PerSecond }),
		P50:       over(func(f objectFigures) float64 { return f.P50 }),
		P99:       over(func(f objectFigures) float64 { return f.P99 }),
	}
}
