package kernel

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestElsewhereIsTheSame: builds for other systems than Linux have the same functions and methods, with
// the same types, so that packages above compile there.
func TestElsewhereIsTheSame(t *testing.T) {
	t.Parallel()
	const other = "elsewhere.go"
	entries, err := os.ReadDir(".")
	require.NoError(t, err)
	linux := map[string]string{}
	for _, e := range entries {
		data, err := os.ReadFile(e.Name())
		if e.IsDir() || strings.HasSuffix(e.Name(), "_test.go") || !strings.HasSuffix(e.Name(), ".go") {
			continue
		}
		require.NoError(t, err)
		if strings.HasPrefix(string(data), "//go:build linux\n") {
			signatures(t, linux, e.Name())
		}
	}
	have := map[string]string{}
	signatures(t, have, other)
	require.Equal(t, linux, have)
}

// signatures adds the types of the exported functions of a file, and of the exported methods of Kernel.
func signatures(t *testing.T, into map[string]string, file string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	for _, d := range parsed.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || !f.Name.IsExported() || f.Recv != nil && types.ExprString(f.Recv.List[0].Type) != "*Kernel" {
			continue
		}
		var all []string
		for _, fields := range []*ast.FieldList{f.Type.Params, f.Type.Results} {
			for _, field := range fields.List {
				for range max(1, len(field.Names)) {
					all = append(all, types.ExprString(field.Type))
				}
			}
			if fields == f.Type.Params && f.Type.Results == nil {
				break
			}
			all = append(all, "/")
		}
		into[f.Name.Name] = strings.Join(all, " ")
	}
}
