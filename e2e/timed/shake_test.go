package timed

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

const (
	// names is how many names each kind has in a namespace: few, so that they meet again.
	names = 16
	// taken is how many of them belong to the provider itself.
	taken        = 2
	hands        = 24
	answerWithin = 5 * time.Second
	// soft begins the keys that a user sets, theirs those that somebody sets in the provider.
	soft   = "soak.example.com/"
	theirs = "theirs.example.com/"
)

// kept remembers what was done to objects in the provider that must outlast everything.
type kept struct {
	mu sync.Mutex
	// foreign has the resource versions of the provider's own objects.
	foreign map[string]string
	// labels has the values of labels that were added in the provider, by UID.
	labels map[types.UID]string
}

// shaker makes random changes at a rate.
type shaker struct {
	w     *shaken
	kinds []kind
	kept  *kept
	// done and refused count the changes that were made, and those that could not be.
	done, refused atomic.Int64
}

// errNotOurs: the provider's own stays as it is.
var errNotOurs = errors.New("not of the consumer")

func nameOf(i int) string { return fmt.Sprintf("o-%d", i) }

// occupy makes the provider's own objects, under names that the consumer uses too.
func (s *shaker) occupy(t *testing.T) {
	t.Helper()
	r := rand.New(rand.NewPCG(*seed, 1))
	for _, ns := range s.w.namespaces {
		for _, k := range s.kinds {
			for i := range taken {
				obj := k.make(r)
				obj.SetName(nameOf(i))
				obj.SetLabels(map[string]string{theirs + "own": "yes"})
				obj.SetAnnotations(nil)
				made, err := k.at(s.w.away, twinOf(ns)).create(t.Context(), obj, stranger)
				require.NoError(t, err)
				s.kept.foreign[key(k, ns, nameOf(i))] = made.GetResourceVersion()
			}
		}
	}
}

func key(k kind, namespace, name string) string { return k.name + " " + namespace + "/" + name }

// shake makes rate changes a second until ctx ends. Those that came to nothing, because an
// API server stood still or something was not there any more, are made up for.
func (s *shaker) shake(ctx context.Context) {
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(*seed, 2))
	next := func() func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		return s.something(r)
	}
	var wg sync.WaitGroup
	due := s.due(ctx)
	for range hands {
		wg.Go(func() {
			for range due {
				for ctx.Err() == nil && !s.change(ctx, next()) {
				}
			}
		})
	}
	wg.Wait()
}

// due returns a channel that has as many elements as changes are due, and is closed when
// ctx ends.
func (s *shaker) due(ctx context.Context) <-chan struct{} {
	out := make(chan struct{})
	begin := time.Now()
	go func() {
		defer close(out)
		tick := time.NewTicker(time.Second / time.Duration(*rate))
		defer tick.Stop()
		for n := 0; ctx.Err() == nil; {
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
			for ; n < int(time.Since(begin).Seconds()*float64(*rate)) && ctx.Err() == nil; n++ {
				select {
				case <-ctx.Done():
				case out <- struct{}{}:
				}
			}
		}
	}()
	return out
}

// change reports whether a change could be made.
func (s *shaker) change(ctx context.Context, do func(context.Context) error) bool {
	// A change that was begun is ended: it is never half known.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerWithin)
	defer cancel()
	if do(ctx) != nil {
		s.refused.Add(1)
		return false
	}
	s.done.Add(1)
	return true
}

// something is a random change of a random object.
func (s *shaker) something(r *rand.Rand) func(context.Context) error {
	k, ns, name := one(r, s.kinds...), one(r, s.w.namespaces...), nameOf(r.IntN(names))
	home, away := k.at(s.w.home, ns), k.at(s.w.away, twinOf(ns))
	obj, patch := s.object(r, k, name), k.change(r)
	note := annotation(r)
	label := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, soft+one(r, "a", "b", "stays"), word(r))
	value := word(r)
	// What is not there cannot be changed: it is made then.
	change := func(body string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := home.patch(ctx, name, []byte(body), user)
			if apierrors.IsNotFound(err) {
				err = errorOf(home.create(ctx, obj, user))
			}
			return err
		}
	}
	switch n := r.IntN(100); {
	case n < 50:
		return change(patch)
	case n < 62:
		return change(label)
	case n < 77:
		return change(note)
	case n < 87:
		return func(ctx context.Context) error { return home.delete(ctx, name) }
	case n < 90:
		return func(ctx context.Context) error { // another object of the name, at once
			return errors.Join(home.delete(ctx, name), errorOf(home.create(ctx, obj, user)))
		}
	case n < 93 && !k.lasting:
		return func(ctx context.Context) error { return s.remote(ctx, away, name, nil) }
	case n < 96:
		return func(ctx context.Context) error { return s.addLabel(ctx, away, name, value) }
	default:
		return func(ctx context.Context) error { return s.remote(ctx, away, name, []byte(k.spoil)) }
	}
}

func errorOf(_ metav1.Object, err error) error { return err }

// object is a random object with random metadata.
func (s *shaker) object(r *rand.Rand, k kind, name string) metav1.Object {
	obj := k.make(r)
	obj.SetName(name)
	labels := map[string]string{soft + "a": word(r)}
	if _, ok := obj.(*discoveryv1.EndpointSlice); ok && r.IntN(10) > 0 {
		labels[discoveryv1.LabelServiceName] = nameOf(r.IntN(names))
	}
	obj.SetLabels(labels)
	notes := map[string]string{soft + "b": word(r), corev1.LastAppliedConfigAnnotation: "{}"}
	maps.Copy(notes, obj.GetAnnotations())
	if r.IntN(5) == 0 {
		notes[offloadingv1beta1.SkipReflectionAnnotation] = "true"
	}
	if r.IntN(2) == 0 {
		notes[offloadingv1beta1.AllowReflectionAnnotation] = "true"
	}
	obj.SetAnnotations(notes)
	return obj
}

func annotation(r *rand.Rand) string {
	name := one(r, offloadingv1beta1.SkipReflectionAnnotation, offloadingv1beta1.AllowReflectionAnnotation, soft+"b", soft+"stays")
	return fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, name, one(r, `"true"`, `"false"`, "null", "null"))
}

// remote deletes, or spoils by a patch, an object of ours in the provider.
func (s *shaker) remote(ctx context.Context, away client, name string, patch []byte) error {
	obj, err := away.get(ctx, name)
	switch {
	case err != nil:
		return err
	case !reflected(obj):
		return errNotOurs
	case patch != nil:
		return errorOf(away.patch(ctx, name, withUID(patch, obj.GetUID()), stranger))
	}
	return away.delete(ctx, name)
}

// withUID has a patch refused that would meet another object.
func withUID(patch []byte, uid types.UID) []byte {
	return append([]byte(fmt.Sprintf(`{"metadata":{"uid":%q},`, uid)), patch[1:]...)
}

// addLabel adds a label in the provider, which has to stay.
func (s *shaker) addLabel(ctx context.Context, away client, name, value string) error {
	obj, err := away.get(ctx, name)
	switch {
	case err != nil:
		return err
	case !reflected(obj):
		return errNotOurs
	}
	s.kept.mu.Lock()
	defer s.kept.mu.Unlock()
	body := fmt.Sprintf(`{"metadata":{"uid":%q,"labels":{%q:%q}}}`, obj.GetUID(), theirs+"added", value)
	if _, err := away.patch(ctx, name, []byte(body), stranger); err != nil {
		s.kept.labels[obj.GetUID()] = "" // it may be there or not
		return err
	}
	s.kept.labels[obj.GetUID()] = value
	return nil
}

// reflected tells whether an object in the provider came from the consumer. Kubernetes
// gives its own EndpointSlices the labels of their Service.
func reflected(obj metav1.Object) bool {
	labels := obj.GetLabels()
	if _, ok := obj.(*discoveryv1.EndpointSlice); ok && labels[discoveryv1.LabelManagedBy] != offloadingv1beta1.ManagedByShadowEndpointSlice {
		return false
	}
	return labels[offloadingv1beta1.OriginLabel] == consumer
}
