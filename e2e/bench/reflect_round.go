package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// objectRound is what one contestant did with the objects of one load.
type objectRound struct {
	Create objectPhase `json:"create"`
	Update objectPhase `json:"update"`
	Delete objectPhase `json:"delete"`
}

// objectPhase is the time from the first request at home to the last arrival in the provider.
type objectPhase struct {
	objectFigures
	// Kinds has the same of each kind: all are under way at once.
	Kinds map[string]objectFigures `json:"kinds"`
	// CPU has the seconds of each process.
	CPU map[string]float64 `json:"cpuSeconds"`
}

type objectFigures struct {
	Seconds   float64 `json:"seconds"`
	PerSecond float64 `json:"objectsPerSecond"`
	// From the request for one object to its arrival, in milliseconds.
	P50 float64 `json:"p50Milliseconds"`
	P99 float64 `json:"p99Milliseconds"`
	Max float64 `json:"maxMilliseconds"`
}

// objectLoad is what a round puts on a contestant.
type objectLoad struct {
	kinds []objectKind
	each  int           // objects of each kind
	every time.Duration // between two changes; 0: as fast as they go
	// inTurn says that a sender waits until its change has arrived, before it sends the next:
	// as many are under way as there are senders.
	inTurn bool
	name   string // begins the names of the objects
}

func (l objectLoad) size() int { return l.each * len(l.kinds) }

// keys take turns among the kinds.
func (l objectLoad) keys() []string {
	out := make([]string, 0, l.size())
	for i := range l.each {
		for _, k := range l.kinds {
			out = append(out, objectKey(k, l.name+"-"+strconv.Itoa(i)))
		}
	}
	return out
}

// split is the inverse of objectKey.
func (l objectLoad) split(key string) (objectKind, string) {
	kind, name, _ := strings.Cut(key, "/")
	for _, k := range l.kinds {
		if k.name == kind {
			return k, name
		}
	}
	return objectKind{}, name
}

// objectStep is one of the three phases.
type objectStep struct {
	name    string
	version int32 // that arrives
	send    func(ctx context.Context, k objectKind, name string) error
	into    *objectPhase
}

func (w *world) objectSteps(c *contestant, r *objectRound) []objectStep {
	rome := w.atRome.core
	return []objectStep{
		{"create", 1, func(ctx context.Context, k objectKind, name string) error {
			return k.create(ctx, rome, c.home, name, 1)
		}, &r.Create},
		{"update", 2, func(ctx context.Context, k objectKind, name string) error {
			return k.update(ctx, rome, c.home, name, 2)
		}, &r.Update},
		{"delete", gone, func(ctx context.Context, k objectKind, name string) error { return k.delete(ctx, rome, c.home, name) }, &r.Delete},
	}
}

// objectRound creates the objects, updates each once and deletes them, waiting each time
// until the provider has followed. After each step after is called, if it is not nil.
func (w *world) objectRound(ctx context.Context, c *contestant, l objectLoad, after func(context.Context, objectStep) error) (objectRound, error) {
	var r objectRound
	for _, step := range w.objectSteps(c, &r) {
		var err error
		if *step.into, err = w.objectPhase(ctx, c, l, step); err != nil {
			return r, fmt.Errorf("%s: %s of %d objects: %w", c.name, step.name, l.size(), err)
		}
		if after != nil {
			if err := after(ctx, step); err != nil {
				return r, err
			}
		}
	}
	return r, nil
}

func (w *world) objectPhase(ctx context.Context, c *contestant, l objectLoad, step objectStep) (objectPhase, error) {
	if err := pause(ctx, settle); err != nil {
		return objectPhase{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, phasePatience)
	defer cancel()
	a, err := w.awaitArrivals(ctx, c, l.kinds, step.version, l.size())
	if err != nil {
		return objectPhase{}, err
	}
	defer a.stop()
	before, err := w.usage()
	if err != nil {
		return objectPhase{}, err
	}
	begin := time.Now()
	sent, err := sendAll(ctx, l.keys(), l.every, func(ctx context.Context, key string) error {
		k, name := l.split(key)
		if err := step.send(ctx, k, name); err != nil || !l.inTurn {
			return err
		}
		return a.waitFor(key)
	})
	if err != nil {
		return objectPhase{}, err
	}
	arrived, err := a.wait()
	if err != nil {
		return objectPhase{}, err
	}
	after, err := w.usage()
	if err != nil {
		return objectPhase{}, err
	}
	return newObjectPhase(begin, sent, arrived, after.since(before))
}

func newObjectPhase(begin time.Time, sent, arrived map[string]time.Time, cpu map[string]float64) (objectPhase, error) {
	byKind := map[string][]string{}
	all := make([]string, 0, len(sent))
	for key := range sent {
		if _, ok := arrived[key]; !ok {
			return objectPhase{}, fmt.Errorf("%s has not arrived", key)
		}
		kind, _, _ := strings.Cut(key, "/")
		byKind[kind] = append(byKind[kind], key)
		all = append(all, key)
	}
	p := objectPhase{objectFigures: newObjectFigures(begin, all, sent, arrived), Kinds: map[string]objectFigures{}, CPU: cpu}
	for kind, keys := range byKind {
		p.Kinds[kind] = newObjectFigures(begin, keys, sent, arrived)
	}
	return p, nil
}

func newObjectFigures(begin time.Time, keys []string, sent, arrived map[string]time.Time) objectFigures {
	latencies, last := make([]float64, 0, len(keys)), begin
	for _, key := range keys {
		latencies = append(latencies, float64(arrived[key].Sub(sent[key]).Microseconds())/1000)
		if arrived[key].After(last) {
			last = arrived[key]
		}
	}
	took := last.Sub(begin).Seconds()
	return objectFigures{
		Seconds: took, PerSecond: float64(len(keys)) / took,
		P50: quantile(latencies, 0.5), P99: quantile(latencies, 0.99), Max: quantile(latencies, 1),
	}
}
