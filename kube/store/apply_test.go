package store

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

var errForeign = errors.New("somebody else has made it")

// secretKind writes Secrets with the label by=us. Apply deletes a Secret of another type and creates it again.
func secretKind(client *fake.Clientset) Kind[*corev1.Secret] {
	return Kind[*corev1.Secret]{
		Name: "Secret", Client: client.CoreV1().Secrets("ns"),
		Ours: func(have *corev1.Secret) error {
			if have.Labels["by"] != "us" {
				return errForeign
			}
			return nil
		},
		Set: func(next, want *corev1.Secret) bool {
			AddLabels(next, want)
			next.Data = want.Data
			return next.Type == want.Type
		},
	}
}

func TestApply(t *testing.T) {
	t.Parallel()
	want := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s", Labels: map[string]string{"by": "us"}}, Type: "t", Data: map[string][]byte{"k": []byte("v")}}
	change := func(f func(*corev1.Secret)) *corev1.Secret {
		s := want.DeepCopy()
		s.UID = "1"
		f(s)
		return s
	}
	for name, tc := range map[string]struct {
		have   *corev1.Secret
		cached bool
		verbs  []string
		err    error
	}{
		"absent":                 {nil, false, []string{"create"}, nil},
		"right":                  {change(func(*corev1.Secret) {}), true, nil, nil},
		"with further labels":    {change(func(s *corev1.Secret) { s.Labels["x"] = "y" }), true, nil, nil},
		"other":                  {change(func(s *corev1.Secret) { s.Data = nil }), true, []string{"update"}, nil},
		"not cached yet":         {change(func(*corev1.Secret) {}), false, []string{"create", "get"}, nil},
		"not cached, and other":  {change(func(s *corev1.Secret) { s.Data = nil }), false, []string{"create", "get", "update"}, nil},
		"foreign":                {change(func(s *corev1.Secret) { s.Labels = nil }), true, nil, errForeign},
		"not cached, foreign":    {change(func(s *corev1.Secret) { s.Labels = nil }), false, []string{"create", "get"}, errForeign},
		"what cannot be changed": {change(func(s *corev1.Secret) { s.Type = "u" }), true, []string{"delete", "create"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := fake.NewClientset()
			if tc.have != nil {
				client = fake.NewClientset(tc.have)
			}
			var cached *corev1.Secret
			if tc.cached {
				cached = tc.have.DeepCopy()
			}
			err := secretKind(client).Apply(t.Context(), cached, want)
			require.ErrorIs(t, err, tc.err)
			require.Equal(t, tc.verbs, verbs(client))
			if tc.cached {
				require.Equal(t, tc.have, cached, "what a cache has stays as it is")
			}
			if tc.err != nil {
				return
			}
			got, err := client.CoreV1().Secrets("ns").Get(t.Context(), "s", metav1.GetOptions{})
			require.NoError(t, err)
			require.Equal(t, want.Data, got.Data)
			require.Equal(t, want.Type, got.Type)
		})
	}
}

// TestApplyNothing: an object that is not wanted is deleted, and that of another client is not.
func TestApplyNothing(t *testing.T) {
	t.Parallel()
	ours := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s", UID: "1", Labels: map[string]string{"by": "us"}}}
	foreign := ours.DeepCopy()
	foreign.Labels = nil
	for name, tc := range map[string]struct {
		have  *corev1.Secret
		verbs []string
	}{
		"none": {nil, nil}, "ours": {ours, []string{"delete"}}, "another's": {foreign, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := fake.NewClientset(ours.DeepCopy())
			require.NoError(t, secretKind(client).Apply(t.Context(), tc.have, nil))
			require.Equal(t, tc.verbs, verbs(client))
		})
	}
}

// TestWriteAnswers: the answers of the API server stay recognizable, and name the object.
func TestWriteAnswers(t *testing.T) {
	t.Parallel()
	have := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s", UID: "1", ResourceVersion: "7"}}
	next := have.DeepCopy()
	next.Data = map[string][]byte{"k": nil}
	client := fake.NewClientset(have)
	secrets := client.CoreV1().Secrets("ns")

	written, err := Write(t.Context(), "secret", secrets, "us", have, have.DeepCopy())
	require.NoError(t, err)
	require.Same(t, have, written)
	require.Empty(t, verbs(client))

	_, err = Write(t.Context(), "secret", secrets, "us", nil, have)
	require.True(t, apierrors.IsAlreadyExists(err), err)
	require.ErrorContains(t, err, "creating secret ns/s: ")

	_, err = Merge(t.Context(), "secret", secrets, "us", have, Patch{"metadata": Patch{"labels": Patch{"a": "b"}}})
	require.NoError(t, err)
	actions := client.Actions()
	patch, ok := actions[len(actions)-1].(clienttesting.PatchAction)
	require.True(t, ok)
	require.JSONEq(t, `{"metadata":{"uid":"1","labels":{"a":"b"}}}`, string(patch.GetPatch()))

	require.NoError(t, secrets.Delete(t.Context(), "s", metav1.DeleteOptions{}))
	_, err = Write(t.Context(), "secret", secrets, "us", have, next)
	require.True(t, apierrors.IsNotFound(err), err)
	require.ErrorContains(t, err, "updating secret ns/s: ")
	require.NoError(t, IgnoreGone(err))
	_, err = Merge(t.Context(), "secret", secrets, "us", have, Patch{})
	require.NoError(t, IgnoreNotFound(err))
	require.ErrorContains(t, err, "patching secret ns/s: ")
}

func TestWriteStatus(t *testing.T) {
	t.Parallel()
	have := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}}
	client := fake.NewClientset(have)
	pods := client.CoreV1().Pods("ns")
	require.NoError(t, WriteStatus(t.Context(), "pod", pods, "", have, have.DeepCopy()))
	require.Empty(t, verbs(client))
	next := have.DeepCopy()
	next.Status.Phase = corev1.PodFailed
	require.NoError(t, WriteStatus(t.Context(), "pod", pods, "", have, next))
	require.Equal(t, []string{"update"}, verbs(client))
	require.Equal(t, "status", client.Actions()[0].GetSubresource())
	next.Name = "q"
	require.True(t, apierrors.IsNotFound(WriteStatus(t.Context(), "pod", pods, "", have, next)))
}
