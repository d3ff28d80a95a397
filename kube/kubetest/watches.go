package kubetest

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	k8stesting "k8s.io/client-go/testing"
)

// Tracked is a fake clientset that keeps its objects in a tracker.
type Tracked interface {
	PrependReactor(verb, resource string, reaction k8stesting.ReactionFunc)
	PrependWatchReactor(resource string, reaction k8stesting.WatchReactionFunc)
	Tracker() k8stesting.ObjectTracker
}

// WatchFromList lets the watch of an informer begin where its list ends, as an API server
// does. The watch of a fake clientset begins when it is opened, so that a deletion between
// the list and the watch never reaches the informer.
func WatchFromList(c Tracked) {
	w := &watches{tracker: c.Tracker(), open: map[watched][]watch.Interface{}}
	c.PrependReactor("list", "*", w.list)
	c.PrependWatchReactor("*", w.watch)
}

// watched is what a watch is of.
type watched struct {
	resource  schema.GroupVersionResource
	namespace string
}

// watches are those that are open before an informer asks for them.
type watches struct {
	tracker k8stesting.ObjectTracker
	mu      sync.Mutex
	open    map[watched][]watch.Interface
}

// list opens the watch that follows the first list of an informer: no other list accepts
// any version.
func (w *watches) list(a k8stesting.Action) (bool, runtime.Object, error) {
	list, ok := a.(k8stesting.ListActionImpl)
	if !ok || list.ListOptions.ResourceVersion != "0" {
		return false, nil, nil
	}
	opened, err := w.tracker.Watch(a.GetResource(), a.GetNamespace())
	if err != nil {
		return true, nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	key := watched{a.GetResource(), a.GetNamespace()}
	w.open[key] = append(w.open[key], opened)
	return false, nil, nil
}

func (w *watches) watch(a k8stesting.Action) (bool, watch.Interface, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := watched{a.GetResource(), a.GetNamespace()}
	if len(w.open[key]) == 0 {
		return false, nil, nil
	}
	first := w.open[key][0]
	w.open[key] = w.open[key][1:]
	return true, first, nil
}
