package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

const (
	// senders is how many creations and deletions the bench has under way.
	senders = 32
	// settle lets the processes come to rest before each phase.
	settle        = 4 * time.Second
	phasePatience = 10 * time.Minute
	podPatience   = 200 * time.Millisecond
)

// load is what a round puts on a contestant.
type load struct {
	pods  int
	every time.Duration // between two creations; 0: as fast as they go
	name  string        // begins the names of the pods
}

func (l load) names() []string {
	out := make([]string, l.pods)
	for i := range out {
		out[i] = l.name + "-" + strconv.Itoa(i)
	}
	return out
}

// patience is how long a phase may take.
func (l load) patience() time.Duration { return phasePatience + time.Duration(l.pods)*podPatience }

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

// round creates the pods, waits until they run, and deletes them.
func (w *world) round(ctx context.Context, c *contestant, l load) (r round, err error) {
	if r.Create, err = w.create(ctx, c, l); err != nil {
		return r, err
	}
	r.Delete, err = w.delete(ctx, c, l)
	return r, err
}

func (w *world) create(ctx context.Context, c *contestant, l load) (phase, error) {
	pods := w.home.CoreV1().Pods(c.home)
	return w.phase(ctx, c, l, stepCreate, []*view{newView("running pods", objectsOf(pods), running)}, l.pods, func(ctx context.Context, name string) error {
		_, err := pods.Create(ctx, c.pod(name), metav1.CreateOptions{})
		return err
	})
}

func (w *world) delete(ctx context.Context, c *contestant, l load) (phase, error) {
	pods := w.home.CoreV1().Pods(c.home)
	l.every = 0
	views := []*view{newView("pods at home", objectsOf(pods), one), newView("pods away", w.inMilan(c, corev1.SchemeGroupVersion.WithResource("pods")), one)}
	if c.shadows {
		views = append(views, newView("ShadowPods", w.inMilan(c, offloadingv1beta1.SchemeGroupVersion.WithResource("shadowpods")), one))
	}
	return w.phase(ctx, c, l, stepDelete, views, 0, func(ctx context.Context, name string) error {
		return pods.Delete(ctx, name, metav1.DeleteOptions{})
	})
}

// phase sends a request for each pod and waits until each view has the sum that is wanted.
// The first view is that of the pods at home.
func (w *world) phase(ctx context.Context, c *contestant, l load, step string, views []*view, want int, send func(context.Context, string) error) (p phase, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %s of %d pods: %w", c.name, step, l.pods, err)
		}
	}()
	if err := pause(ctx, settle); err != nil {
		return p, err
	}
	ctx, cancel := context.WithTimeout(ctx, l.patience())
	defer cancel()
	t, err := follow(ctx, views...)
	if err != nil {
		return p, err
	}
	defer t.stop()
	before, err := w.usage()
	if err != nil {
		return p, err
	}
	begin := time.Now()
	sent, err := sendAll(ctx, l.names(), l.every, send)
	if err != nil {
		return p, err
	}
	if err := t.wait(ctx, slices.Repeat([]int{want}, len(views))...); err != nil {
		return p, err
	}
	now, err := w.usage()
	if err != nil {
		return p, err
	}
	t.stop() // nothing writes to the views any more
	return newPhase(begin, sent, views, since(before, now))
}

func newPhase(begin time.Time, sent map[string]time.Time, views []*view, cpu map[string]float64) (phase, error) {
	latencies := make([]float64, 0, len(sent))
	for name, at := range sent {
		there, ok := views[0].at[name]
		if !ok {
			return phase{}, fmt.Errorf("pod %s has not arrived", name)
		}
		latencies = append(latencies, float64(there.Sub(at).Microseconds())/1000)
	}
	last := begin
	for _, v := range views {
		if v.last.After(last) {
			last = v.last
		}
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
		if every > 0 && pause(ctx, time.Until(begin.Add(time.Duration(i)*every))) != nil {
			break
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
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
