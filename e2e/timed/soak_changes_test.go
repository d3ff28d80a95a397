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
	// names is how many names each kind has in a namespace: few, so that objects reuse them.
	names = 16
	// taken is how many of them belong to the provider's own objects.
	taken        = 2
	writers      = 24
	answerWithin = 5 * time.Second
	// homePrefix begins the keys that a user sets at home, remotePrefix those set in the provider.
	homePrefix   = "soak.example.com/"
	remotePrefix = "remote.example.com/"
)

// preserved has the changes in the provider that must stay.
type preserved struct {
	mu sync.Mutex
	// own has the resource versions of the provider's own objects.
	own map[string]string
	// labels has the values of labels that were added in the provider, by UID.
	labels map[types.UID]string
}

// changer makes random changes at a rate.
type changer struct {
	w         *soakWorld
	kinds     []kind
	preserved *preserved
	// done and refused count the changes that were made, and those that failed.
	done, refused atomic.Int64
}

// errNotReflected: the provider's own objects are not changed.
var errNotReflected = errors.New("not of the consumer")

func nameOf(i int) string { return fmt.Sprintf("o-%d", i) }

// createOwn creates the provider's own objects, with names that the consumer uses too.
func (c *changer) createOwn(t *testing.T) {
	t.Helper()
	r := rand.New(rand.NewPCG(*seed, 1))
	for _, ns := range c.w.namespaces {
		for _, k := range c.kinds {
			for i := range taken {
				obj := k.make(r)
				obj.SetName(nameOf(i))
				obj.SetLabels(map[string]string{remotePrefix + "own": "yes"})
				obj.SetAnnotations(nil)
				made, err := k.at(c.w.remote, twinOf(ns)).create(t.Context(), obj, providerUser)
				require.NoError(t, err)
				c.preserved.own[key(k, ns, nameOf(i))] = made.GetResourceVersion()
			}
		}
	}
}

func key(k kind, namespace, name string) string { return k.name + " " + namespace + "/" + name }

// run makes -rate changes a second until ctx ends. For a change that fails, because an API server
// is paused or an object does not exist, it makes another one.
func (c *changer) run(ctx context.Context) {
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(*seed, 2))
	next := func() func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		return c.randomChange(r)
	}
	var wg sync.WaitGroup
	var started atomic.Int64
	begin := time.Now()
	for range writers {
		wg.Go(func() {
			for ctx.Err() == nil {
				due := begin.Add(time.Duration(started.Add(1)) * time.Second / time.Duration(*rate))
				select {
				case <-ctx.Done():
				case <-time.After(time.Until(due)):
				}
				for ctx.Err() == nil && !c.change(ctx, next()) {
				}
			}
		})
	}
	wg.Wait()
}

// change reports whether a change could be made.
func (c *changer) change(ctx context.Context, do func(context.Context) error) bool {
	// A change that has begun is not cancelled: its outcome has to be known.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerWithin)
	defer cancel()
	if do(ctx) != nil {
		c.refused.Add(1)
		return false
	}
	c.done.Add(1)
	return true
}

// randomChange is a random change of a random object.
func (c *changer) randomChange(r *rand.Rand) func(context.Context) error {
	k, ns, name := one(r, c.kinds...), one(r, c.w.namespaces...), nameOf(r.IntN(names))
	home, remote := k.at(c.w.home, ns), k.at(c.w.remote, twinOf(ns))
	obj, patch := c.object(r, k, name), k.change(r)
	note := annotation(r)
	label := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, homePrefix+one(r, "a", "b", "stays"), word(r))
	value := word(r)
	// An object that does not exist is created instead.
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
		return func(ctx context.Context) error { // another object of the name
			return errors.Join(home.delete(ctx, name), errorOf(home.create(ctx, obj, user)))
		}
	case n < 93 && !k.notRecreated:
		return func(ctx context.Context) error { return c.changeRemote(ctx, remote, name, nil) }
	case n < 96:
		return func(ctx context.Context) error { return c.addLabel(ctx, remote, name, value) }
	default:
		return func(ctx context.Context) error { return c.changeRemote(ctx, remote, name, []byte(k.overwrite)) }
	}
}

func errorOf(_ metav1.Object, err error) error { return err }

// object is a random object with random metadata.
func (c *changer) object(r *rand.Rand, k kind, name string) metav1.Object {
	obj := k.make(r)
	obj.SetName(name)
	labels := map[string]string{homePrefix + "a": word(r)}
	if _, ok := obj.(*discoveryv1.EndpointSlice); ok && r.IntN(10) > 0 {
		labels[discoveryv1.LabelServiceName] = nameOf(r.IntN(names))
	}
	obj.SetLabels(labels)
	notes := map[string]string{homePrefix + "b": word(r), corev1.LastAppliedConfigAnnotation: "{}"}
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
	name := one(r, offloadingv1beta1.SkipReflectionAnnotation, offloadingv1beta1.AllowReflectionAnnotation, homePrefix+"b", homePrefix+"stays")
	return fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, name, one(r, `"true"`, `"false"`, "null", "null"))
}

// changeRemote deletes or patches a reflected object in the provider.
func (c *changer) changeRemote(ctx context.Context, remote client, name string, patch []byte) error {
	obj, err := remote.get(ctx, name)
	switch {
	case err != nil:
		return err
	case !reflected(obj):
		return errNotReflected
	case patch != nil:
		return errorOf(remote.patch(ctx, name, withUID(patch, obj.GetUID()), providerUser))
	}
	return remote.delete(ctx, name)
}

// withUID adds a UID to a patch, so that it is refused for another object of the name.
func withUID(patch []byte, uid types.UID) []byte {
	return append([]byte(fmt.Sprintf(`{"metadata":{"uid":%q},`, uid)), patch[1:]...)
}

// addLabel adds a label in the provider, which has to stay.
func (c *changer) addLabel(ctx context.Context, remote client, name, value string) error {
	obj, err := remote.get(ctx, name)
	switch {
	case err != nil:
		return err
	case !reflected(obj):
		return errNotReflected
	}
	c.preserved.mu.Lock()
	defer c.preserved.mu.Unlock()
	body := fmt.Sprintf(`{"metadata":{"uid":%q,"labels":{%q:%q}}}`, obj.GetUID(), remotePrefix+"added", value)
	if _, err := remote.patch(ctx, name, []byte(body), providerUser); err != nil {
		c.preserved.labels[obj.GetUID()] = "" // it was added or not
		return err
	}
	c.preserved.labels[obj.GetUID()] = value
	return nil
}

// reflected reports whether an object in the provider was reflected from the consumer. Kubernetes
// gives its own EndpointSlices the labels of their Service.
func reflected(obj metav1.Object) bool {
	labels := obj.GetLabels()
	if _, ok := obj.(*discoveryv1.EndpointSlice); ok && labels[discoveryv1.LabelManagedBy] != offloadingv1beta1.ManagedByShadowEndpointSlice {
		return false
	}
	return labels[offloadingv1beta1.OriginLabel] == consumer
}
