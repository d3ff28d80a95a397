// Package kubetest helps to test loops against client-go's fake clients: it tells
// exactly what was written, so that a write that nobody expects fails a test.
package kubetest

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	k8stesting "k8s.io/client-go/testing"
)

// Recorder is what every fake clientset is.
type Recorder interface {
	// Actions returns all requests since the last ClearActions.
	Actions() []k8stesting.Action
	// ClearActions forgets them.
	ClearActions()
}

// TakeWrites returns the writes since the last call, in order, and forgets them. Each is
// "verb resource[/subresource] [namespace/]name", and for a patch its body follows.
// Events are left out: they are told by their own assertions.
func TakeWrites(r Recorder) []string {
	var writes []string
	for _, action := range r.Actions() {
		switch action.GetVerb() {
		case "get", "list", "watch":
			continue
		}
		if action.GetResource().Resource != "events" {
			writes = append(writes, describe(action))
		}
	}
	r.ClearActions()
	return writes
}

// RequireWrites fails t unless the writes since the last call are exactly want, in
// order. Of a patch, want may leave out the body.
func RequireWrites(t testing.TB, r Recorder, want ...string) {
	t.Helper()
	got := TakeWrites(r)
	for i := range got {
		if i < len(want) && strings.HasPrefix(got[i], want[i]+" ") {
			got[i] = want[i]
		}
	}
	if len(want) == 0 {
		require.Empty(t, got, "writes")
		return
	}
	require.Equal(t, want, got, "writes")
}

func describe(action k8stesting.Action) string {
	resource := action.GetResource().Resource
	if sub := action.GetSubresource(); sub != "" {
		resource += "/" + sub
	}
	name, tail := "", ""
	switch a := action.(type) {
	case k8stesting.PatchAction:
		name, tail = a.GetName(), " "+string(a.GetPatch())
	case k8stesting.DeleteAction:
		name = a.GetName()
	case k8stesting.DeleteCollectionAction:
		name = "*"
	case k8stesting.CreateAction: // also an update
		name = nameOf(a.GetObject())
		if c, ok := action.(k8stesting.CreateActionImpl); ok && c.Name != "" {
			name = c.Name
		}
	}
	if ns := action.GetNamespace(); ns != "" {
		name = ns + "/" + name
	}
	return fmt.Sprintf("%s %s %s%s", action.GetVerb(), resource, name, tail)
}

func nameOf(obj any) string {
	m, err := meta.Accessor(obj)
	if err != nil {
		return ""
	}
	if m.GetName() == "" {
		return m.GetGenerateName()
	}
	return m.GetName()
}

// Settled lets d pass in a synctest bubble, and returns when all goroutines of the bubble
// wait: nothing is queued, and nothing is in work. A loop that was asked to work again later
// has done so within d. It returns the number of writes that the clients have recorded since
// their last ClearActions; refused writes and events count.
func Settled(d time.Duration, clients ...Recorder) (writes int) {
	time.Sleep(d)
	synctest.Wait()
	for _, c := range clients {
		for _, action := range c.Actions() {
			switch action.GetVerb() {
			case "get", "list", "watch":
			default:
				writes++
			}
		}
	}
	return writes
}

// Bubble runs a test in a synctest bubble, beside other tests. All goroutines that the test
// starts must end with t.Context, or by a function given to t.Cleanup.
func Bubble(t *testing.T, test func(*testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, test)
}

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
