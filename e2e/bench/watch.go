package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/liqod/liqod/e2e/site"
)

// view counts objects: a number for each, 0 for one that is not there.
type view struct {
	name   string // for errors
	source *cache.ListWatch
	of     func(metav1.Object) int

	values map[string]int       // by the names of the objects
	at     map[string]time.Time // when the number of an object changed last
	sum    int
	last   time.Time // when a number changed last
}

func newView(name string, source *cache.ListWatch, of func(metav1.Object) int) *view {
	return &view{name: name, source: source, of: of, values: map[string]int{}, at: map[string]time.Time{}}
}

// objectsOf is a kind in a namespace, or of a cluster.
func objectsOf[L runtime.Object](client interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) },
		WatchFuncWithContext: client.Watch,
	}
}

// inMilan is the metadata of a kind in the namespace of a contestant.
func (w *world) inMilan(c *contestant, kind schema.GroupVersionResource) *cache.ListWatch {
	return objectsOf(w.away.Resource(kind).Namespace(c.away))
}

func (v *view) see(object metav1.Object, deleted bool, now time.Time) {
	name, value := object.GetName(), 0
	if !deleted {
		value = v.of(object)
	}
	if was := v.values[name]; was != value {
		v.sum += value - was
		v.values[name], v.at[name], v.last = value, now, now
	}
}

// watcher follows views by watches of its own.
type watcher struct {
	mu      sync.Mutex
	views   []*view
	watches []*site.Watch
	news    chan struct{} // has a value when something has changed since it was read
}

// follow returns when the views show all that is there.
func follow(ctx context.Context, views ...*view) (*watcher, error) {
	w := &watcher{views: views, news: make(chan struct{}, 1)}
	for _, v := range views {
		each, err := site.NewWatch(ctx, v.source, func(event watch.EventType, object runtime.Object) { w.note(v, object, event == watch.Deleted) })
		if err != nil {
			w.stop()
			return nil, fmt.Errorf("%s: %w", v.name, err)
		}
		w.watches = append(w.watches, each)
	}
	return w, nil
}

// stop returns when nothing is followed any more.
func (w *watcher) stop() {
	for _, each := range w.watches {
		each.Stop()
	}
}

func (w *watcher) note(v *view, object runtime.Object, deleted bool) {
	now := time.Now()
	o, ok := object.(metav1.Object)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	v.see(o, deleted, now)
	select {
	case w.news <- struct{}{}:
	default:
	}
}

// anything is a sum that is not waited for.
const anything = -1

// wait returns when the sums of the views are as wanted.
func (w *watcher) wait(ctx context.Context, want ...int) error {
	for {
		w.mu.Lock()
		var missing []string
		for i, v := range w.views {
			if want[i] != anything && want[i] != v.sum {
				missing = append(missing, fmt.Sprintf("%s: %d, not %d", v.name, v.sum, want[i]))
			}
		}
		w.mu.Unlock()
		if missing == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			for _, each := range w.watches {
				if err := each.Err(); err != nil {
					missing = append(missing, err.Error())
				}
			}
			return fmt.Errorf("waiting (%w): %s", ctx.Err(), strings.Join(missing, ", "))
		case <-w.news:
		}
	}
}

// one is the number of each object.
func one(metav1.Object) int { return 1 }

// running is 1 for a pod that runs.
func running(o metav1.Object) int {
	if pod, ok := o.(*corev1.Pod); ok && pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
		return 1
	}
	return 0
}

// ready is 1 for a pod that is ready.
func ready(o metav1.Object) int {
	if pod, ok := o.(*corev1.Pod); ok {
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				return 1
			}
		}
	}
	return 0
}

// The numbers of a node's readiness.
const (
	nodeReady    = 1
	nodeNotReady = 2
)

// readinessOf numbers the readiness of the node of that name; 0 if it is unknown.
func readinessOf(name string) func(metav1.Object) int {
	return func(o metav1.Object) int {
		if node, ok := o.(*corev1.Node); ok && node.Name == name {
			for _, c := range node.Status.Conditions {
				if c.Type == corev1.NodeReady {
					return map[corev1.ConditionStatus]int{corev1.ConditionTrue: nodeReady, corev1.ConditionFalse: nodeNotReady}[c.Status]
				}
			}
		}
		return 0
	}
}

// endpoints counts the ready endpoints of a slice that the cluster itself has made.
func endpoints(o metav1.Object) (n int) {
	if slice, ok := o.(*discoveryv1.EndpointSlice); ok {
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				n++
			}
		}
	}
	return n
}
