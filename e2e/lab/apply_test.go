package lab

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRenderAndInstall(t *testing.T) {
	if testing.Short() {
		t.Skip("builds Helm's engine: not with -short")
	}
	l := newTestLab(t)
	chart := t.TempDir()
	for name, content := range map[string]string{
		"Chart.yaml":            "apiVersion: v2\nname: example\nversion: 0.1.0\n",
		"values.yaml":           "a: 1\nb: {c: 2, d: 3}\n",
		"templates/NOTES.txt":   "hello",
		"templates/config.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}, namespace: {{ .Release.Namespace }}}\ndata: {a: \"{{ .Values.a }}\", c: \"{{ .Values.b.c }}\", d: \"{{ .Values.b.d }}\"}\n",
		"templates/crd.yaml":    exampleCRD,
	} {
		path := filepath.Join(chart, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
	opts := ChartOptions{Chart: chart, Release: "x", Namespace: "infra", Values: map[string]any{"b": map[string]any{"c": 9}}}
	c, err := l.Start(t.Context(), ClusterOptions{Name: "rome"})
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, c.Install(t.Context(), opts))
	}
	config, err := c.Client().CoreV1().ConfigMaps("infra").Get(t.Context(), "x", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "1", "c": "9", "d": "3"}, config.Data)
	example := []byte("apiVersion: example.com/v1\nkind: Example\nmetadata: {name: e}\n")
	require.NoError(t, c.Apply(t.Context(), example), "the kind is served when Install returns")
	for range 2 {
		require.NoError(t, c.Delete(t.Context(), example))
	}
}

const exampleCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: examples.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Example, plural: examples, singular: example}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
`

func TestParseManifests(t *testing.T) {
	objects, err := parseManifests([]byte("---\n# nothing\n---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n---\n" +
		"{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Secret, metadata: {name: b}}]}\n"))
	require.NoError(t, err)
	require.Len(t, objects, 2)
	require.Equal(t, "b", objects[1].GetName())
	_, err = parseManifests([]byte("a: 1\n"))
	require.ErrorContains(t, err, "document 1 of the manifests has no kind")
}
