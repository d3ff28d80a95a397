package site

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// Watch is a watch that goes on where it was when an API server ends it.
type Watch struct {
	stop context.CancelFunc
	done sync.WaitGroup

	mu  sync.Mutex
	err error
}

// Pods lists and watches the pods of a namespace, or of all.
func Pods(client kubernetes.Interface, namespace string) *cache.ListWatch {
	pods := client.CoreV1().Pods(namespace)
	return &cache.ListWatch{
		ListWithContextFunc:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return pods.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return pods.Watch(ctx, o) },
	}
}

// WatchPods calls see for each pod of a namespace, or of all: as Added for each that is there
// now, and then for each change, one after the other, until Stop is called or ctx is done.
func WatchPods(ctx context.Context, client kubernetes.Interface, namespace string, see func(watch.EventType, *corev1.Pod)) (*Watch, error) {
	return NewWatch(ctx, Pods(client, namespace), func(event watch.EventType, object runtime.Object) { see(event, object.(*corev1.Pod)) })
}

// NewWatch is WatchPods for any source.
func NewWatch(ctx context.Context, source cache.ListerWatcherWithContext, see func(watch.EventType, runtime.Object)) (*Watch, error) {
	list, err := source.ListWithContext(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing what is there: %w", err)
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return nil, fmt.Errorf("reading the version of a list: %w", err)
	}
	if err := meta.EachListItem(list, func(o runtime.Object) error { see(watch.Added, o); return nil }); err != nil {
		return nil, fmt.Errorf("reading a list: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	events, err := watchtools.NewRetryWatcherWithContext(ctx, accessor.GetResourceVersion(), source)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("watching: %w", err)
	}
	w := &Watch{stop: cancel}
	w.done.Go(func() {
		for event := range events.ResultChan() {
			if event.Type == watch.Error {
				w.fail(apierrors.FromObject(event.Object))
				continue
			}
			see(event.Type, event.Object)
		}
	})
	return w, nil
}

func (w *Watch) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = fmt.Errorf("the watch has ended: %w", err)
}

// Err is nil while no event has been missed.
func (w *Watch) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Stop ends the watch. It returns when see has returned for the last time.
func (w *Watch) Stop() {
	w.stop()
	w.done.Wait()
}
