package lab

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseManifests(t *testing.T) {
	objects, err := parseManifests([]byte("---\n# nothing\n---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n---\n" +
		"{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Secret, metadata: {name: b}}]}\n"))
	require.NoError(t, err)
	require.Len(t, objects, 2)
	require.Equal(t, "b", objects[1].GetName())
	_, err = parseManifests([]byte("a: 1\n"))
	require.ErrorContains(t, err, "document 1 of the manifests has no kind")
}
