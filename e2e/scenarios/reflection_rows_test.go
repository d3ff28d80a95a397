package scenarios

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
)

// row is a kind that is reflected object by object.
type row struct {
	// resource as the settings name it.
	resource, kind string
	local          schema.GroupVersionResource
	// content of an object, with a number that may change.
	content func(n int64) map[string]any
}

// shadowed says that the consumer writes another kind in the provider.
func (r row) shadowed() bool { return r.resource == "endpointslice" }

// written is the resource that the consumer writes in the provider.
func (r row) written() schema.GroupVersionResource {
	if r.shadowed() {
		return offloadingv1beta1.SchemeGroupVersion.WithResource("shadowendpointslices")
	}
	return r.local
}

func rows() []row {
	return []row{
		{resource: "configmap", kind: "ConfigMap", local: corev1.SchemeGroupVersion.WithResource("configmaps"), content: func(n int64) map[string]any {
			return map[string]any{"data": map[string]any{"n": fmt.Sprint(n)}}
		}},
		{resource: "secret", kind: "Secret", local: corev1.SchemeGroupVersion.WithResource("secrets"), content: func(n int64) map[string]any {
			return map[string]any{"data": map[string]any{"n": base64.StdEncoding.EncodeToString(fmt.Append(nil, n))}}
		}},
		{resource: "service", kind: "Service", local: corev1.SchemeGroupVersion.WithResource("services"), content: func(n int64) map[string]any {
			return map[string]any{"spec": map[string]any{"ports": []any{map[string]any{"port": 80 + n}}}}
		}},
		{resource: "ingress", kind: "Ingress", local: networkingv1.SchemeGroupVersion.WithResource("ingresses"), content: func(n int64) map[string]any {
			backend := map[string]any{"name": "web", "port": map[string]any{"number": 80 + n}}
			paths := []any{map[string]any{"path": "/", "pathType": "Prefix", "backend": map[string]any{"service": backend}}}
			return map[string]any{"spec": map[string]any{"rules": []any{map[string]any{"host": fmt.Sprintf("app-%d.example.com", n), "http": map[string]any{"paths": paths}}}}}
		}},
		{resource: "endpointslice", kind: "EndpointSlice", local: discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), content: func(n int64) map[string]any {
			address := fmt.Sprintf("10.100.9.%d", n)
			return map[string]any{"addressType": "IPv4", "endpoints": []any{map[string]any{"addresses": []any{address}}}}
		}},
	}
}

// kindsFixture is an offloaded namespace in which there is one object of every kind of a name.
type kindsFixture struct {
	*world
	home, remote    dynamic.Interface
	namespace, twin string
}

func (w *world) kindsFixture(t *testing.T, namespace string) kindsFixture {
	t.Helper()
	home := must(dynamic.NewForConfig(w.rome.Config()))(t)
	remote := must(dynamic.NewForConfig(w.milan.Config()))(t)
	return kindsFixture{w, home, remote, namespace, namespace + "-rome"}
}

// object returns one to be created. An EndpointSlice belongs to the Service of its name.
func (r row) object(name string, n int64, annotations map[string]string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: r.content(n)}
	u.SetAPIVersion(r.local.GroupVersion().String())
	u.SetKind(r.kind)
	u.SetName(name)
	if r.shadowed() {
		u.SetLabels(map[string]string{discoveryv1.LabelServiceName: name})
	} else {
		u.SetAnnotations(annotations)
	}
	return u
}

// foreign returns one of the provider's own, as the consumer would write it there.
func (r row) foreign(name string, n int64) *unstructured.Unstructured {
	u := r.object(name, n, nil)
	if r.shadowed() {
		u = &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": r.content(n)}}}
		u.SetAPIVersion(r.written().GroupVersion().String())
		u.SetKind("Shadow" + r.kind)
		u.SetName(name)
	}
	return u
}

func (s kindsFixture) create(t *testing.T, name string, n int64, annotations map[string]string) (made []*unstructured.Unstructured) {
	t.Helper()
	for _, r := range rows() {
		obj, err := s.home.Resource(r.local).Namespace(s.namespace).Create(t.Context(), r.object(name, n, annotations), metav1.CreateOptions{})
		require.NoError(t, err, r.resource)
		made = append(made, obj)
	}
	return made
}

func (s kindsFixture) change(t *testing.T, name string, n int64) {
	t.Helper()
	for _, r := range rows() {
		patch(t, s.home.Resource(r.local).Namespace(s.namespace), name, r.content(n))
	}
}

func patch(t *testing.T, in dynamic.ResourceInterface, name string, content map[string]any) {
	t.Helper()
	delete(content, "addressType") // immutable
	body := must(json.Marshal(content))(t)
	kubetest.Patch(t, in, name, types.MergePatchType, body)
}

func (s kindsFixture) delete(t *testing.T, name string) {
	t.Helper()
	for _, r := range rows() {
		require.NoError(t, s.home.Resource(r.local).Namespace(s.namespace).Delete(t.Context(), name, metav1.DeleteOptions{}), r.resource)
	}
}

// shows looks for every kind's object in the provider, with the content of that number.
func (s kindsFixture) shows(name string, n int64) func(context.Context) error {
	return func(ctx context.Context) error {
		var errs []error
		for _, r := range rows() {
			have, err := s.remote.Resource(r.local).Namespace(s.twin).Get(ctx, name, metav1.GetOptions{})
			if err == nil && !includes(have.Object, r.content(n)) {
				err = fmt.Errorf("%s %s is not as wanted: %v", r.resource, name, have.Object)
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	}
}

// gone looks for no object of a name in the provider.
func (s kindsFixture) gone(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		var errs []error
		for _, r := range rows() {
			errs = append(errs, absent(s.remote.Resource(r.local).Namespace(s.twin).Get(ctx, name, metav1.GetOptions{})))
		}
		return errors.Join(errs...)
	}
}

// includes tells whether have has everything that want has.
func includes(have, want any) bool {
	switch w := want.(type) {
	case map[string]any:
		h, ok := have.(map[string]any)
		for key, value := range w {
			ok = ok && includes(h[key], value)
		}
		return ok
	case []any:
		h, ok := have.([]any)
		return ok && slices.EqualFunc(h, w, includes)
	default:
		return have == want
	}
}

// testRows: every kind is created, changed, put right and deleted.
func testRows(t *testing.T, w *world) {
	w.offload(t, "rows", offloadingv1beta1.NamespaceOffloadingSpec{})
	s := w.kindsFixture(t, "rows")
	s.create(t, "app", 1, nil)
	within(t, quickly, "created", s.shows("app", 1))
	s.change(t, "app", 2)
	within(t, quickly, "changed", s.shows("app", 2))
	for _, r := range rows() {
		patch(t, s.remote.Resource(r.local).Namespace(s.twin), "app", r.content(3))
	}
	within(t, quickly, "put right", s.shows("app", 2))
	for _, r := range rows() {
		require.NoError(t, s.remote.Resource(r.local).Namespace(s.twin).Delete(t.Context(), "app", metav1.DeleteOptions{}))
	}
	within(t, quickly, "back again", s.shows("app", 2))
	s.delete(t, "app")
	within(t, quickly, "deleted", s.gone("app"))
}

// testRowsTaken: an object of the provider is left as it is, whatever happens to the one
// of its name at home, of which somebody is told.
func testRowsTaken(t *testing.T, w *world) {
	w.offload(t, "taken", offloadingv1beta1.NamespaceOffloadingSpec{})
	s := w.kindsFixture(t, "taken")
	theirs := map[string]types.UID{}
	for _, r := range rows() {
		obj := must(s.remote.Resource(r.written()).Namespace(s.twin).Create(t.Context(), r.foreign("app", 9), metav1.CreateOptions{}))(t)
		theirs[r.resource] = obj.GetUID()
	}
	for _, local := range s.create(t, "app", 2, nil) {
		w.eventAbout(t, local, "FailedReflection", "taken-rome/app")
	}
	s.change(t, "app", 3)
	for _, r := range rows() {
		in := s.remote.Resource(r.written()).Namespace(s.twin)
		now := must(in.Get(t.Context(), "app", metav1.GetOptions{}))(t)
		require.Equal(t, theirs[r.resource], now.GetUID())
		require.True(t, includes(now.Object, r.foreign("app", 9).Object), "%v", now.Object)
		require.NoError(t, in.Delete(t.Context(), "app", metav1.DeleteOptions{}))
	}
	within(t, 2*quickly, "reflected when the name is free", s.shows("app", 3))
}

// changes is the verb by which a change is written: as a whole where the type gets no more
// fields.
func (r row) changes() string {
	if slices.Contains([]string{"configmap", "secret", "endpointslice"}, r.resource) {
		return "update"
	}
	return "patch"
}

// missed makes, changes and deletes an object of every kind while nobody can reflect it,
// and requires that all is caught up by one write each.
func (s kindsFixture) missed(t *testing.T, what string, patience time.Duration, stop, resume func()) {
	t.Helper()
	changed, deleted, created := what+"-changed", what+"-deleted", what+"-created"
	s.create(t, changed, 1, nil)
	s.create(t, deleted, 1, nil)
	within(t, quickly, "created", s.shows(changed, 1))
	within(t, quickly, "created", s.shows(deleted, 1))
	stop()
	s.change(t, changed, 2)
	s.delete(t, deleted)
	s.create(t, created, 3, nil)
	require.NoError(t, s.shows(changed, 1)(t.Context()), "nothing arrives")
	require.NoError(t, s.shows(deleted, 1)(t.Context()), "nothing arrives")
	begin := time.Now()
	resume()
	by(t, begin, patience, "caught up", func(ctx context.Context) error {
		return errors.Join(s.shows(changed, 2)(ctx), s.gone(deleted)(ctx), s.shows(created, 3)(ctx))
	})
	var want []string
	for _, r := range rows() {
		at := r.written().Resource + " " + s.twin + "/"
		want = append(want, "create "+at+created+": 201", r.changes()+" "+at+changed+": 200", "delete "+at+deleted+": 200")
	}
	require.ElementsMatch(t, want, effective(writes(t, s.milan.Cluster, peer, begin)))
}
