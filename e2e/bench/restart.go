package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqod/liqod/e2e/lab"
)

const (
	stopGrace = 40 * time.Second
	look      = 50 * time.Millisecond
	// quiet is how long nothing has happened when all is done.
	quiet           = 5 * time.Second
	restartPatience = 2 * time.Minute
	profileSeconds  = 8
	leases          = "leases"
)

// restarted is what a restart of the vkubelet costs with everything in place.
type restarted struct {
	// Pods is how many pods, or reflected objects, there are.
	Pods int `json:"pods"`
	// Seconds from the start of the process to the last thing that it did for a pod.
	Seconds float64 `json:"seconds"`
	// Writes of the vkubelet in both clusters, but for leases.
	Writes int `json:"writes"`
	// Requests of the vkubelet in both clusters, leases too.
	Requests []idleRequest `json:"requests"`
	// Changed pods of the provider: other UID, gone or new. Of reflected objects those, and
	// those that were written.
	Changed int     `json:"changedPods"`
	PeakMB  float64 `json:"peakMB"`
}

// restart stops the vkubelet as a rollout does, and starts it again.
func (w *world) restart(ctx context.Context, pods int) (*restarted, error) {
	w.lab.Logf("restarting the vkubelet")
	before, err := w.remoteUIDs(ctx)
	if err != nil {
		return nil, err
	}
	took, within, err := w.restartVKubelet(ctx, []string{"pods"}, pods)
	if err != nil {
		return nil, err
	}
	out := &restarted{Pods: pods, Seconds: took.Seconds()}
	if err := w.judge(ctx, out, within, before); err != nil {
		return nil, err
	}
	peaks, err := w.peaks()
	if err != nil {
		return nil, err
	}
	out.PeakMB = peaks["rome vkubelet"]
	return out, nil
}

// restartVKubelet returns how long the new process took until its loops had looked at all
// objects and had nothing left to do, and the window in which that was.
func (w *world) restartVKubelet(ctx context.Context, loops []string, objects int) (took time.Duration, within window, err error) {
	old := *w.vkubelet()
	if err := old.Stop(ctx, stopGrace); err != nil {
		return 0, window{}, err
	}
	within.begin = time.Now()
	p, err := w.lab.Process(old.Options)
	if err != nil {
		return 0, window{}, err
	}
	*w.vkubelet() = p
	took, err = caughtUp(ctx, p, within.begin, loops, objects)
	within.end = time.Now()
	return took, within, err
}

// judge fills in what the restarted vkubelet has asked for, and whether pods have changed.
func (w *world) judge(ctx context.Context, out *restarted, within window, before map[string]string) error {
	counts, err := w.requests(within)
	if err != nil {
		return err
	}
	out.add(counts)
	after, err := w.remoteUIDs(ctx)
	if err != nil {
		return err
	}
	out.compare(before, after)
	return nil
}

// add takes over what the vkubelet has asked for.
func (r *restarted) add(counts map[request]int) {
	for _, x := range ours(counts) {
		if x.Who != "rome vkubelet" {
			continue
		}
		r.Requests = append(r.Requests, x)
		if (lab.AuditRecord{Verb: x.Verb}).Write() && x.Resource != leases {
			r.Writes += x.Count
		}
	}
}

// compare counts what is not the same any more.
func (r *restarted) compare(before, after map[string]string) {
	for name, was := range before {
		if after[name] != was {
			r.Changed++
		}
	}
	for name := range after {
		if _, known := before[name]; !known {
			r.Changed++
		}
	}
}

func (w *world) remoteUIDs(ctx context.Context) (map[string]string, error) {
	list, err := w.atMilan.meta.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(w.offloading.away).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing the pods in milan: %w", err)
	}
	return uids(list), nil
}

// caughtUp returns how long after begin a vkubelet's loops did the last thing. They have
// looked at every object by then, and have nothing left to do.
func caughtUp(ctx context.Context, p *lab.Process, begin time.Time, loops []string, objects int) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, restartPatience)
	defer cancel()
	var syncs float64
	last := time.Now()
	for {
		text, err := fetch(ctx, p, "/metrics")
		var have, busy float64
		for _, l := range loops {
			have += metric(text, fmt.Sprintf(`liqod_loop_sync_seconds_count{loop=%q,result="ok"}`, l))
			busy += metric(text, fmt.Sprintf(`liqod_loop_depth{loop=%q}`, l)) + metric(text, fmt.Sprintf(`liqod_loop_unfinished_seconds{loop=%q}`, l))
		}
		if err == nil && (have != syncs || busy > 0) {
			syncs, last = have, time.Now()
		}
		if err == nil && syncs >= float64(objects) && time.Since(last) > quiet {
			return last.Sub(begin), nil
		}
		if err := pause(ctx, look); err != nil {
			return 0, fmt.Errorf("waiting until the vkubelet has caught up: %w; %.0f looks at %d objects", err, syncs, objects)
		}
	}
}

// metric returns the value of a line of metrics, 0 if it is not there.
func metric(text []byte, name string) float64 {
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				return 0
			}
			return v
		}
	}
	return 0
}

// fetch asks the health and metrics server of a role.
func fetch(ctx context.Context, p *lab.Process, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.Flag("server.address")+path, nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s of %s: %s", path, p.Name, answer.Status)
	}
	return io.ReadAll(answer.Body)
}

// profiled are the roles of which profiles are taken.
func (w *world) profiled() map[string]*lab.Process {
	return map[string]*lab.Process{"vkubelet": *w.vkubelet(), "rome-controller": w.rome.Controller, "milan-controller": w.milan.Controller}
}

// startProfiles begins to record where the roles spend their time, if that was asked for.
// What it returns waits for the end, and adds what memory holds then.
func (w *world) startProfiles(ctx context.Context, c *contestant, phase string) func() error {
	if w.profiles == "" || c != w.offloading {
		return func() error { return nil }
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	var all error
	keep := func(name string, p *lab.Process, path string) {
		text, err := fetch(ctx, p, path)
		if err == nil {
			err = os.MkdirAll(w.profiles, 0o755)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(w.profiles, name), text, 0o644)
		}
		mu.Lock()
		defer mu.Unlock()
		all = errors.Join(all, err)
	}
	for name, p := range w.profiled() {
		wg.Go(func() {
			// The phase begins when all have come to rest.
			_ = pause(ctx, settle)
			keep(phase+"-"+name+".cpu", p, fmt.Sprintf("/debug/pprof/profile?seconds=%d", profileSeconds))
			keep(phase+"-"+name+".heap", p, "/debug/pprof/heap")
		})
	}
	return func() error {
		wg.Wait()
		return all
	}
}
