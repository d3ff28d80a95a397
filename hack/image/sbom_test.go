package image

import (
	"bytes"
	"encoding/json"
	"os"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSBOM describes the program that runs this test. The Go command writes no modules into
// it: TestDocumentOfModules has them.
func TestSBOM(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	digest := "sha256:" + strings.Repeat("ab", 32)
	var a, b bytes.Buffer
	require.NoError(t, SBOM(&a, "registry.example:5000/liqod:v1", digest, self))
	require.NoError(t, SBOM(&b, "registry.example:5000/liqod:v1", digest, self))
	require.Equal(t, a.Bytes(), b.Bytes())

	var doc spdxDocument
	decoder := json.NewDecoder(&a)
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(&doc))
	require.Equal(t, "SPDX-2.3", doc.Version)
	require.Equal(t, "https://liqod.io/spdx/"+strings.Repeat("ab", 32), doc.Namespace)

	ids, byName := map[string]bool{spdxRoot: true}, map[string]spdxPackage{}
	for _, p := range doc.Packages {
		require.False(t, ids[p.ID], "%s is there twice", p.ID)
		require.Regexp(t, `^SPDXRef-[A-Za-z0-9.-]+$`, p.ID)
		require.NotEmpty(t, p.Name)
		ids[p.ID], byName[p.Name] = true, p
	}
	for _, r := range doc.Relationships {
		require.True(t, ids[r.From] && ids[r.To], "%+v", r)
	}
	require.Equal(t, "v1", byName["registry.example:5000/liqod"].Version)
	require.Equal(t, strings.Repeat("ab", 32), byName["registry.example:5000/liqod"].Checksums[0].Value)
	require.Contains(t, byName, "stdlib")
}

func TestDocumentOfModules(t *testing.T) {
	t.Parallel()
	doc := document("x", "sha256:00", "11", &debug.BuildInfo{
		GoVersion: "go1.2", Main: debug.Module{Path: "example.com/x", Version: "(devel)"},
		Deps: []*debug.Module{
			{Path: "example.com/plain", Version: "v1.0.0"},
			{Path: "example.com/a", Version: "v1.0.0", Replace: &debug.Module{Path: "example.com/b", Version: "v2.0.0+incompatible"}},
		},
		Settings: []debug.BuildSetting{{Key: "vcs.time", Value: "2026-01-02T03:04:05+01:00"}},
	})
	require.Equal(t, "2026-01-02T02:04:05Z", doc.Creation.Created)
	var locators []string
	for _, p := range doc.Packages[2:] {
		locators = append(locators, p.References[0].Locator)
		require.Contains(t, doc.Relationships, spdxRelationship{spdxProgram, "DEPENDS_ON", p.ID})
	}
	require.Equal(t, []string{"pkg:golang/stdlib@1.2", "pkg:golang/example.com/plain@v1.0.0", "pkg:golang/example.com/b@v2.0.0%2Bincompatible"}, locators)
}

func TestSBOMRefuses(t *testing.T) {
	t.Parallel()
	text := t.TempDir() + "/text"
	require.NoError(t, os.WriteFile(text, []byte("no program"), 0o600))
	require.ErrorContains(t, SBOM(&bytes.Buffer{}, "x:1", "sha256:00", text), "build information")
}

func TestSplit(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][2]string{
		"liqod.io/liqod:v1":      {"liqod.io/liqod", "v1"},
		"localhost:5000/liqod":   {"localhost:5000/liqod", "latest"},
		"localhost:5000/liqod:2": {"localhost:5000/liqod", "2"},
		"liqod":                  {"liqod", "latest"},
	} {
		repository, tag := Split(name)
		require.Equal(t, want, [2]string{repository, tag}, name)
	}
}
