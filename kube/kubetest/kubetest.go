// Package kubetest helps to test loops against client-go's fake clients: it tells
// exactly what was written, so that a write that nobody expects fails a test.
package kubetest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
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
