package store

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	ktesting "k8s.io/client-go/testing"
)

func TestSetCondition(t *testing.T) {
	long := time.Unix(1000, 0)
	have := metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Well", LastTransitionTime: metav1.NewTime(long)}
	for name, tc := range map[string]struct {
		mutate        func(*metav1.Condition)
		changed, kept bool
	}{
		"the same":         {func(*metav1.Condition) {}, false, true},
		"another reason":   {func(c *metav1.Condition) { c.Reason = "Better" }, true, true},
		"another message":  {func(c *metav1.Condition) { c.Message = "hello" }, true, true},
		"a new generation": {func(c *metav1.Condition) { c.ObservedGeneration = 7 }, true, true},
		"another status":   {func(c *metav1.Condition) { c.Status = metav1.ConditionFalse }, true, false},
		"another type":     {func(c *metav1.Condition) { c.Type = "Other" }, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			conds := []metav1.Condition{have}
			want := have
			want.LastTransitionTime = metav1.Time{}
			tc.mutate(&want)
			require.Equal(t, tc.changed, SetCondition(&conds, want))
			require.Equal(t, tc.kept, meta.FindStatusCondition(conds, "Ready").LastTransitionTime.Time.Equal(long))
			require.Equal(t, want.Reason, meta.FindStatusCondition(conds, want.Type).Reason)
			require.False(t, SetCondition(&conds, want))
		})
	}
}

func TestSetConditionCutsMessages(t *testing.T) {
	var conds []metav1.Condition
	cond := metav1.Condition{Type: "Ready", Status: metav1.ConditionFalse, Reason: "Long", Message: "x" + strings.Repeat("é", longestMessage)}
	require.True(t, SetCondition(&conds, cond))
	require.Len(t, conds[0].Message, longestMessage-1)
	require.False(t, SetCondition(&conds, cond))
}

func TestClipMessage(t *testing.T) {
	for name, tc := range map[string]struct{ message, want string }{
		"just fits":              {strings.Repeat("a", 1024), strings.Repeat("a", 1024)},
		"long":                   {strings.Repeat("a", 1025), strings.Repeat("a", 1000) + " …"},
		"cut through a letter":   {"a" + strings.Repeat("ä", 800), "a" + strings.Repeat("ä", 499) + " …"},
		"what is no text at all": {strings.Repeat("\xff", 2000), " …"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, ClipMessage(tc.message))
			require.Equal(t, tc.want, ClipMessage(tc.want), "cut once")
		})
	}
}

// patched records the patch that it is sent.
type patched struct{ data []byte }

func (p *patched) Patch(_ context.Context, _ string, _ types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string) (*corev1.Pod, error) {
	p.data = data
	return &corev1.Pod{}, nil
}

func TestSetFinalizer(t *testing.T) {
	deleted := metav1.Now()
	for name, tc := range map[string]struct {
		have    []string
		deleted *metav1.Time
		want    bool
		patch   []string // nil: none
	}{
		"added to none":                {nil, nil, true, []string{"f"}},
		"added to others":              {[]string{"a"}, nil, true, []string{"a", "f"}},
		"there already":                {[]string{"f"}, nil, true, nil},
		"not added to what is deleted": {nil, &deleted, true, nil},
		"removed from the middle":      {[]string{"a", "f", "b"}, nil, false, []string{"a", "b"}},
		"removed as the last":          {[]string{"f"}, &deleted, false, []string{}},
		"removed where it is not":      {[]string{"a"}, nil, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u", ResourceVersion: "7", Finalizers: tc.have, DeletionTimestamp: tc.deleted}}
			client := &patched{}
			written, err := SetFinalizer(t.Context(), client, pod, "f", tc.want, "")
			require.NoError(t, err)
			if tc.patch == nil {
				require.Nil(t, client.data)
				require.Same(t, pod, written)
				return
			}
			var got struct{ Metadata metav1.ObjectMeta }
			require.NoError(t, json.Unmarshal(client.data, &got))
			require.Equal(t, metav1.ObjectMeta{UID: "u", ResourceVersion: "7", Finalizers: tc.patch}, got.Metadata)
			require.Equal(t, tc.have, pod.Finalizers)
		})
	}
	require.True(t, HasFinalizer(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{"f"}}}, "f"))
}

func TestReferencesAndPreconditions(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u"}}
	ref := ControllerReference(pod, corev1.SchemeGroupVersion.WithKind("Pod"))
	yes := true
	require.Equal(t, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "u", Controller: &yes}, ref)
	require.Equal(t, types.UID("u"), *DeleteUID(pod).Preconditions.UID)
}

func TestIgnore(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	other := errors.New("x")
	notFound, conflict := apierrors.NewNotFound(pods, "p"), apierrors.NewConflict(pods, "p", other)
	require.NoError(t, IgnoreNotFound(notFound))
	pod, err := OrNil(&corev1.Pod{}, notFound)
	require.NoError(t, err)
	require.Nil(t, pod)
	pod, err = OrNil(&corev1.Pod{}, conflict)
	require.Equal(t, error(conflict), err)
	require.NotNil(t, pod)
	require.Equal(t, error(conflict), IgnoreNotFound(conflict))
	require.NoError(t, IgnoreGone(notFound))
	require.NoError(t, IgnoreGone(conflict))
	require.Equal(t, other, IgnoreGone(other))
	require.NoError(t, IgnoreGone(nil))
}

func TestFirst(t *testing.T) {
	names := []string{"a", "b", "c"}
	require.Equal(t, "a, b, c", First(names, 3, ", ", " and %d more"))
	require.Equal(t, "a, b and 1 more", First(names, 2, ", ", " and %d more"))
	require.Empty(t, First(nil, 2, ", ", " and %d more"))
}

func TestRecords(t *testing.T) {
	type record struct{ Keys []string }
	annotations := map[string]string{"good": Record(record{[]string{"a"}}), "edited": `{"Keys":["a",1]}`}
	require.Equal(t, record{[]string{"a"}}, Recorded[record](annotations, "good"))
	require.Zero(t, Recorded[record](annotations, "edited"))
	require.Zero(t, Recorded[record](nil, "missing"))
	require.Panics(t, func() { Record(func() {}) })
}

func TestExists(t *testing.T) {
	t.Parallel()
	away := errors.New("the API server is away")
	for name, tc := range map[string]struct {
		live []string
		err  error
		want bool
	}{
		"there":        {live: []string{"a", "web"}, want: true},
		"gone":         {live: []string{"a", "b"}},
		"not answered": {live: []string{"web"}, err: away},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Exists(t.Context(), "pod web", func(context.Context, metav1.ListOptions) (*corev1.PodList, error) {
				list := &corev1.PodList{}
				for _, name := range tc.live {
					list.Items = append(list.Items, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}})
				}
				return list, tc.err
			}, func(p *corev1.Pod) bool { return p.Name == "web" })
			require.ErrorIs(t, err, tc.err)
			require.Equal(t, tc.want, got)
			if tc.err != nil {
				require.ErrorContains(t, err, "confirming that pod web is gone")
			}
		})
	}
}

// TestMissingKind: an API server that does not serve a kind says nothing about the objects.
func TestMissingKind(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	kube, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	pods := kube.CoreV1().Pods("shop")
	_, err = OrNil(pods.Get(t.Context(), "web", metav1.GetOptions{}))
	require.True(t, apierrors.IsNotFound(err), "%v", err)
	_, err = Live(t.Context(), "pod", pods, "web")
	require.ErrorContains(t, err, "reading pod web")
	require.ErrorContains(t, ConfirmGone(t.Context(), "pod", pods, "web"), "confirming that pod web is gone")
}

func TestSweep(t *testing.T) {
	t.Parallel()
	ending := metav1.Now()
	kube := fake.NewClientset()
	for name, deleted := range map[string]*metav1.Time{"web": nil, "db": nil, "old": &ending} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, DeletionTimestamp: deleted}}
		require.NoError(t, kube.Tracker().Add(pod))
	}
	goes := func(p *corev1.Pod) bool { return p.Name != "db" }
	left, err := Sweep(t.Context(), "pod", kube.CoreV1().Pods("shop"), metav1.ListOptions{}, goes)
	require.NoError(t, err)
	require.Len(t, left, 2)
	var sent []string
	for _, action := range kube.Actions() {
		if deletion, ok := action.(ktesting.DeleteAction); ok {
			sent = append(sent, deletion.GetName())
		}
	}
	require.Equal(t, []string{"web"}, sent, "what is being deleted is not deleted again")
	left, err = Sweep[*corev1.Pod](t.Context(), "pod", kube.CoreV1().Pods("shop"), metav1.ListOptions{}, nil)
	require.NoError(t, err)
	require.Len(t, left, 2)
	away := errors.New("the API server is away")
	kube.PrependReactor("list", "pods", func(ktesting.Action) (bool, runtime.Object, error) { return true, &corev1.PodList{}, away })
	_, err = Sweep[*corev1.Pod](t.Context(), "pod", kube.CoreV1().Pods("shop"), metav1.ListOptions{}, nil)
	require.ErrorIs(t, err, away)
}

func TestMapChanges(t *testing.T) {
	for name, tc := range map[string]struct {
		want, have map[string]string
		ours       []string
		patch      Patch
	}{
		"the same":              {map[string]string{"a": "1"}, map[string]string{"a": "1"}, []string{"a"}, Patch{}},
		"missing":               {map[string]string{"a": "1"}, nil, nil, Patch{"a": "1"}},
		"missing, and empty":    {map[string]string{"a": ""}, nil, nil, Patch{"a": ""}},
		"another value":         {map[string]string{"a": "1"}, map[string]string{"a": "2"}, nil, Patch{"a": "1"}},
		"of others":             {nil, map[string]string{"b": "1"}, nil, Patch{}},
		"ours, and not wanted":  {nil, map[string]string{"a": "1", "b": "1"}, []string{"a"}, Patch{"a": nil}},
		"ours, and gone before": {nil, map[string]string{"b": "1"}, []string{"a"}, Patch{}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.patch, MapChanges(tc.want, tc.have, tc.ours))
		})
	}
}

func TestEncodePatch(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u"}}
	patch := Patch{"spec": Patch{"x": 1}}
	Put(patch, "metadata", Patch{"labels": Patch{"a": nil}})
	Put(patch, "status", Patch{})
	body, err := EncodePatch(patch, pod)
	require.NoError(t, err)
	require.JSONEq(t, `{"metadata":{"uid":"u","labels":{"a":null}},"spec":{"x":1}}`, string(body))
	require.Equal(t, Patch{"spec": Patch{"x": 1}, "metadata": Patch{"labels": Patch{"a": nil}}}, patch, "left as it was")

	body, err = EncodePatch(nil, pod)
	require.NoError(t, err)
	require.JSONEq(t, `{"metadata":{"uid":"u"}}`, string(body))
	_, err = EncodePatch(Patch{"spec": func() {}}, pod)
	require.ErrorContains(t, err, "shop/web")
}
