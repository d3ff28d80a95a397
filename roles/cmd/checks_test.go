package cmd

import (
	"bufio"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"go/types"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/liqod/liqod/roles/cmd/report"
)

// idsIn returns the constants of type ID that a file has, in its order.
func idsIn(t *testing.T, name string) (ids []report.ID) {
	t.Helper()
	file := must(parser.ParseFile(gotoken.NewFileSet(), name, nil, 0))
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && spec.Type != nil && len(spec.Values) == 1 {
			if value, ok := spec.Values[0].(*ast.BasicLit); ok && value.Kind == gotoken.STRING && strings.HasSuffix(types.ExprString(spec.Type), "ID") {
				id := must(strconv.Unquote(value.Value))
				ids = append(ids, report.ID(id))
			}
		}
		return true
	})
	return ids
}

// Each check has one section in docs/checks.md, in the order of the code, and the page has no
// other. Each section says the cause, the meaning and the fix.
func TestChecksAreDocumented(t *testing.T) {
	t.Parallel()
	ids := slices.Concat(idsIn(t, "report/findings.go"), idsIn(t, "pre_judge.go"))
	seen := map[report.ID]bool{}
	for _, id := range ids {
		require.False(t, seen[id], "%s is there twice", id)
		seen[id] = true
		require.Regexp(t, regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`), string(id))
		require.Equal(t, "https://github.com/liqod/liqod/blob/main/docs/checks.md#"+string(id), id.Docs())
	}
	page := must(os.Open("../../docs/checks.md"))
	t.Cleanup(func() { _ = page.Close() })
	var sections []report.ID
	words := map[report.ID][]string{}
	lines := bufio.NewScanner(page)
	for lines.Scan() {
		if id, found := strings.CutPrefix(lines.Text(), "### "); found {
			sections = append(sections, report.ID(id))
			continue
		}
		if word, _, found := strings.Cut(lines.Text(), ": "); found && len(sections) > 0 && slices.Contains([]string{"Cause", "Meaning", "Fix"}, word) {
			id := sections[len(sections)-1]
			words[id] = append(words[id], word)
		}
	}
	require.NoError(t, lines.Err())
	require.Equal(t, ids, sections)
	for _, id := range ids {
		require.Equal(t, []string{"Cause", "Meaning", "Fix"}, words[id], "%s", id)
	}
}

// TestCausesAreChecks: what explains a reason is a check, or all of a peer.
func TestCausesAreChecks(t *testing.T) {
	t.Parallel()
	var all map[string]map[string]struct{ Because map[report.ID]report.Level }
	require.NoError(t, yaml.Unmarshal(must(os.ReadFile("../../reasons/reasons.yaml")), &all))
	checks := append(idsIn(t, "report/findings.go"), "peer")
	for kind, of := range all {
		for code, r := range of {
			for check := range r.Because {
				require.Contains(t, checks, check, "%s: %s", kind, code)
			}
		}
	}
}

// requireIDs: the findings before an installation and about a token have ids, and the pages of those.
func requireIDs(t *testing.T, findings []report.Finding) {
	t.Helper()
	ids := idsIn(t, "pre_judge.go")
	for _, f := range findings {
		require.Contains(t, ids, f.ID, "%s", f.Subject)
		require.Equal(t, f.ID.Docs(), f.Docs)
	}
}
