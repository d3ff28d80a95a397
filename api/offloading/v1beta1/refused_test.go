package v1beta1

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRefusedText: the message has an object of each namespace, is bounded, and is read as it was written. A
// cause cannot add a line.
func TestRefusedText(t *testing.T) {
	t.Parallel()
	require.Empty(t, RefusedText(nil))
	lab := RefusedObject{"secret", "lab", "key", "cluster milan refuses it: no"}
	shop := RefusedObject{"service", "shop", "ext", "no\nservice other/web: yes"}
	require.Equal(t, "secret lab/key: cluster milan refuses it: no\nservice shop/ext: no service other/web: yes", RefusedText([]RefusedObject{shop, lab}))

	objects := []RefusedObject{shop}
	for i := range 30 {
		objects = append(objects, RefusedObject{"configmap", "lab", fmt.Sprintf("c-%02d", i), strings.Repeat("é", 1000)})
	}
	text := RefusedText(objects)
	require.Less(t, len(text), 16*800)
	got, more := RefusedIn(text)
	require.Len(t, got, 16)
	require.Equal(t, 15, more)
	require.Equal(t, "c-00", got[0].Name)
	require.Equal(t, RefusedObject{"service", "shop", "ext", "no service other/web: yes"}, got[1])

	got, more = RefusedIn("service shop/$(id): x\nservice shop/a b: x\nservice shop/--all: x\nservice -shop/web: x\nprose")
	require.Empty(t, got)
	require.Zero(t, more)
}
