package store

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
		"none at all":  {},
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
