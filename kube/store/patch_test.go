package store

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestMapChanges(t *testing.T) {
	for name, tc := range map[string]struct {
		want, have map[string]string
		ours       []string
		patch      Patch
	}{
		"nothing":               {nil, nil, nil, Patch{}},
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
