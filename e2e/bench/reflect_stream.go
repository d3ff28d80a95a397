package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// streamed is an object of the round that the provider tells events about.
const streamed = "eventful"

// streamResult says what became of events that the provider told meanwhile.
type streamResult struct {
	PerSecond int `json:"perSecond"`
	Written   int `json:"written"`
	// Home is how many of them came home.
	Home int `json:"home"`
}

// eventStream has the provider tell events about a reflected object, a number each second.
type eventStream struct {
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	written atomic.Int64
	err     error
}

// startStream makes the object that the events are about, and begins.
func (w *world) startStream(ctx context.Context, perSecond int) (*eventStream, error) {
	k, c := configMapKind(), w.offloading
	patience, done := context.WithTimeout(ctx, phasePatience)
	defer done()
	a, err := w.awaitArrivals(patience, c, []objectKind{k}, 1, 1)
	if err != nil {
		return nil, err
	}
	defer a.stop()
	if err := k.create(ctx, w.atRome.core, c.home, streamed, 1); err != nil {
		return nil, fmt.Errorf("creating what the events are about: %w", err)
	}
	if _, err := a.wait(); err != nil {
		return nil, err
	}
	about, err := w.atMilan.core.CoreV1().ConfigMaps(c.away).Get(ctx, streamed, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading what the events are about: %w", err)
	}
	s := &eventStream{}
	ctx, s.cancel = context.WithCancel(ctx)
	s.wg.Go(func() { s.err = w.tellEvents(ctx, s, about, time.Second/time.Duration(perSecond)) })
	return s, nil
}

func (w *world) tellEvents(ctx context.Context, s *eventStream, about *corev1.ConfigMap, every time.Duration) error {
	events := w.atMilan.core.CoreV1().Events(about.Namespace)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			n, at := s.written.Load(), metav1.NewTime(now)
			_, err := events.Create(ctx, &corev1.Event{
				ObjectMeta:     metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", about.Name, n)},
				InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: about.Namespace, Name: about.Name, UID: about.UID},
				Reason:         "Measured", Message: fmt.Sprintf("event %d", n), Type: corev1.EventTypeNormal,
				FirstTimestamp: at, LastTimestamp: at, Count: 1, Source: corev1.EventSource{Component: "bench"},
			}, metav1.CreateOptions{})
			if err != nil && ctx.Err() == nil {
				return fmt.Errorf("telling events in milan: %w", err)
			}
			s.written.Add(1)
		}
	}
}

// stop ends the stream and tells how much of it came home.
func (s *eventStream) stop(ctx context.Context, w *world, perSecond int) (*streamResult, error) {
	s.cancel()
	s.wg.Wait()
	list, err := w.atRome.core.CoreV1().Events(w.offloading.home).List(ctx, metav1.ListOptions{
		LabelSelector: offloadingv1beta1.OriginLabel + "=" + w.milan.Name,
	})
	if err := errors.Join(s.err, err); err != nil {
		return nil, err
	}
	out := &streamResult{PerSecond: perSecond, Written: int(s.written.Load())}
	for _, e := range list.Items {
		if e.Reason == "Measured" {
			out.Home++
		}
	}
	k := configMapKind()
	return out, k.delete(ctx, w.atRome.core, w.offloading.home, streamed)
}
