package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// senders is how many creations and deletions the bench has under way.
	senders   = 32
	pacedRate = 5 // pods a second
	// settle lets the processes come to rest before each phase.
	settle        = 4 * time.Second
	phasePatience = 10 * time.Minute
	podPatience   = 200 * time.Millisecond
)

// round is what one contestant did with the pods of one load.
type round struct {
	Create phase `json:"create"`
	Delete phase `json:"delete"`
}

// phase is the time from the first request to the last pod's arrival: at Running, or at
// its end in both clusters.
type phase struct {
	Seconds       float64 `json:"seconds"`
	PodsPerSecond float64 `json:"podsPerSecond"`
	// From the request for one pod to that pod's arrival at home, in milliseconds.
	P50 float64 `json:"p50Milliseconds"`
	P99 float64 `json:"p99Milliseconds"`
	Max float64 `json:"maxMilliseconds"`
	// CPU has the seconds of each process.
	CPU map[string]float64 `json:"cpuSeconds"`
}

// benchProcess is the name of the bench itself among the processes.
const benchProcess = "bench"

// cpu is what all processes but the bench have used.
func (p phase) cpu() (seconds float64) {
	for name, used := range p.CPU {
		if name != benchProcess {
			seconds += used
		}
	}
	return seconds
}

// patience is how long a phase may take with so many pods.
func patience(pods int) time.Duration {
	return phasePatience + time.Duration(pods)*podPatience
}

// round creates the pods, waits until they run, and deletes them.
func (w *world) round(ctx context.Context, c *contestant, l load) (round, error) {
	return w.roundWith(ctx, c, l, nil)
}

// roundWith is round that does something while all pods run.
func (w *world) roundWith(ctx context.Context, c *contestant, l load, between func(context.Context) error) (round, error) {
	var r round
	var err error
	if r.Create, err = w.create(ctx, c, l); err != nil {
		return r, fmt.Errorf("%s: creating %d pods: %w", c.name, l.pods, err)
	}
	if between != nil {
		if err := between(ctx); err != nil {
			return r, err
		}
	}
	if r.Delete, err = w.delete(ctx, c, l); err != nil {
		return r, fmt.Errorf("%s: deleting %d pods: %w", c.name, l.pods, err)
	}
	return r, nil
}

func (w *world) create(ctx context.Context, c *contestant, l load) (phase, error) {
	pods := w.atRome.core.CoreV1().Pods(c.home)
	return w.phase(ctx, c, l, func(t *tracker) bool { return t.runningNow() == l.pods }, func(ctx context.Context, name string) error {
		_, err := pods.Create(ctx, c.pod(name), metav1.CreateOptions{})
		return err
	})
}

func (w *world) delete(ctx context.Context, c *contestant, l load) (phase, error) {
	pods := w.atRome.core.CoreV1().Pods(c.home)
	l.every = 0
	return w.phase(ctx, c, l, (*tracker).empty, func(ctx context.Context, name string) error {
		return pods.Delete(ctx, name, metav1.DeleteOptions{})
	})
}

// phase sends a request for each pod and waits until all have arrived.
func (w *world) phase(ctx context.Context, c *contestant, l load, over func(*tracker) bool, send func(context.Context, string) error) (phase, error) {
	if err := pause(ctx, settle); err != nil {
		return phase{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience(l.pods))
	defer cancel()
	t, err := w.track(ctx, c)
	if err != nil {
		return phase{}, err
	}
	defer t.stop()
	before, err := w.usage()
	if err != nil {
		return phase{}, err
	}
	begin := time.Now()
	sent, err := sendAll(ctx, l.names(), l.every, send)
	if err != nil {
		return phase{}, err
	}
	if err := t.wait(ctx, over); err != nil {
		return phase{}, err
	}
	after, err := w.usage()
	if err != nil {
		return phase{}, err
	}
	return newPhase(begin, sent, t, after.since(before))
}

func newPhase(begin time.Time, sent map[string]time.Time, t *tracker, cpu map[string]float64) (phase, error) {
	arrived, last := t.arrivals()
	latencies := make([]float64, 0, len(sent))
	for name, at := range sent {
		there, ok := arrived[name]
		if !ok {
			return phase{}, fmt.Errorf("pod %s has not arrived", name)
		}
		latencies = append(latencies, float64(there.Sub(at).Microseconds())/1000)
	}
	took := last.Sub(begin).Seconds()
	return phase{
		Seconds: took, PodsPerSecond: float64(len(sent)) / took,
		P50: quantile(latencies, 0.5), P99: quantile(latencies, 0.99), Max: quantile(latencies, 1), CPU: cpu,
	}, nil
}

// sendAll sends a request for each name, with a time between two of them (0: as fast as
// they go), and returns when each was sent.
func sendAll(ctx context.Context, all []string, every time.Duration, send func(context.Context, string) error) (map[string]time.Time, error) {
	names := make(chan string)
	sent, failed := map[string]time.Time{}, error(nil)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range senders {
		wg.Go(func() {
			for name := range names {
				at := time.Now()
				err := send(ctx, name)
				mu.Lock()
				sent[name] = at
				if err != nil && failed == nil {
					failed = fmt.Errorf("%s: %w", name, err)
				}
				mu.Unlock()
			}
		})
	}
	begin := time.Now()
	for i, name := range all {
		if every > 0 {
			if pause(ctx, time.Until(begin.Add(time.Duration(i)*every))) != nil {
				break
			}
		}
		names <- name
	}
	close(names)
	wg.Wait()
	if failed == nil {
		failed = ctx.Err()
	}
	return sent, failed
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
