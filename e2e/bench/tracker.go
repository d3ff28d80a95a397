package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

const watchSeconds = 3600

// tracker follows, by watches of its own, the pods of one contestant in both clusters.
type tracker struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup
	// news has a value when something has changed since it was read.
	news chan struct{}

	mu sync.Mutex
	// there are the objects of each watch, by name.
	there []map[string]bool
	// running and gone say when a pod at home got there.
	running, gone map[string]time.Time
	last          time.Time // of all that was seen
	err           error
}

// source is one kind of objects in one namespace.
type source struct {
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// sources begin with the pods at home.
func (w *world) sources(c *contestant) []source {
	home := w.atRome.core.CoreV1().Pods(c.home)
	all := []source{{
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return home.List(ctx, o) }, home.Watch,
	}}
	kinds := []schema.GroupVersionResource{corev1.SchemeGroupVersion.WithResource("pods")}
	if c.shadows {
		kinds = append(kinds, offloadingv1beta1.SchemeGroupVersion.WithResource("shadowpods"))
	}
	for _, kind := range kinds {
		away := w.atMilan.meta.Resource(kind).Namespace(c.away)
		all = append(all, source{
			func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return away.List(ctx, o) }, away.Watch,
		})
	}
	return all
}

// track begins with what is there now.
func (w *world) track(ctx context.Context, c *contestant) (*tracker, error) {
	ctx, cancel := context.WithCancel(ctx)
	t := &tracker{cancel: cancel, news: make(chan struct{}, 1), running: map[string]time.Time{}, gone: map[string]time.Time{}}
	for i, s := range w.sources(c) {
		list, err := s.list(ctx, metav1.ListOptions{})
		if err != nil {
			t.stop()
			return nil, fmt.Errorf("listing what is there: %w", err)
		}
		t.there = append(t.there, names(list))
		version, err := resourceVersion(list)
		if err != nil {
			t.stop()
			return nil, err
		}
		t.wg.Go(func() { t.follow(ctx, i, s, version) })
	}
	return t, nil
}

func (t *tracker) follow(ctx context.Context, index int, s source, version string) {
	err := s.follow(ctx, version, func(object metav1.Object, deleted bool) { t.see(index, object, deleted, time.Now()) })
	if err != nil {
		t.fail(err)
	}
}

// follow watches from a version on until ctx ends. An API server ends the watches of who
// is slow for a moment: they go on where they were.
func (s source) follow(ctx context.Context, version string, see func(object metav1.Object, deleted bool)) error {
	for ctx.Err() == nil {
		stream, err := s.watch(ctx, metav1.ListOptions{ResourceVersion: version, TimeoutSeconds: ptr.To[int64](watchSeconds)})
		if err == nil {
			version, err = drain(stream, version, see)
		}
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("watching: %w", err)
		}
	}
	return nil
}

// drain sees what a watch tells until it ends, and returns the version of the last of it.
func drain(stream watch.Interface, version string, see func(object metav1.Object, deleted bool)) (string, error) {
	defer stream.Stop()
	for event := range stream.ResultChan() {
		object, ok := event.Object.(metav1.Object)
		if !ok {
			return version, apierrors.FromObject(event.Object)
		}
		version = object.GetResourceVersion()
		see(object, event.Type == watch.Deleted)
	}
	return version, nil
}

func (t *tracker) see(source int, object metav1.Object, deleted bool, now time.Time) {
	name := object.GetName()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = now
	if deleted {
		delete(t.there[source], name)
	} else {
		t.there[source][name] = true
	}
	if pod, ok := object.(*corev1.Pod); ok {
		switch _, ran := t.running[name]; {
		case deleted:
			t.gone[name] = now
		case !ran && pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil:
			t.running[name] = now
		}
	}
	t.tell()
}

func (t *tracker) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err = err
	t.tell()
}

func (t *tracker) tell() {
	select {
	case t.news <- struct{}{}:
	default:
	}
}

// wait returns when over says so, which is called with the tracker locked.
func (t *tracker) wait(ctx context.Context, over func(*tracker) bool) error {
	for {
		t.mu.Lock()
		err, done := t.err, over(t)
		t.mu.Unlock()
		if err != nil || done {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting (%w): %s", ctx.Err(), t)
		case <-t.news:
		}
	}
}

func (t *tracker) runningNow() int { return len(t.running) }

func (t *tracker) empty() bool {
	for _, names := range t.there {
		if len(names) > 0 {
			return false
		}
	}
	return true
}

// arrivals says when each pod arrived, and when the last event was that counted. A pod
// that both ran and went has gone.
func (t *tracker) arrivals() (map[string]time.Time, time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.gone) > 0 {
		return t.gone, t.last
	}
	var last time.Time
	for _, at := range t.running {
		if at.After(last) {
			last = at
		}
	}
	return t.running, last
}

// String says what is there, for errors.
func (t *tracker) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	counts := make([]int, len(t.there))
	for i, names := range t.there {
		counts[i] = len(names)
	}
	return fmt.Sprintf("pods at home, pods and ShadowPods away: %v; %d have been running", counts, len(t.running))
}

func (t *tracker) stop() {
	t.cancel()
	t.wg.Wait()
}
