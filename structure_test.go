package main

import (
	"cmp"
	"go/ast"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Bounds of the product: Go outside of api, e2e and hack, without tests. The core is what runs in a
// cluster, the tools are roles/cmd. A line of code is neither blank nor a comment of its own. A
// change may lower these bounds and never raises them: a feature takes its lines from elsewhere.
const (
	mostCore     = 54_045
	mostTools    = 14_015
	mostPackages = 47 // with those of api; one for each larger command, and one for the pods of several
)

// paths are the pages that list, file by file, what a reader opens to follow one thing; sections
// are those of the usual case (none: all), and most bounds the files in them.
var paths = map[string]struct {
	sections []string
	most     int
}{
	"pod-path":      {[]string{"Out", "Back"}, 11},
	"peer-path":     {[]string{"Published", "Across", "Answered", "Applied"}, 19}, // to become 18
	"endpoint-path": {nil, 12},
}

func TestSizeOfTheProduct(t *testing.T) {
	core, tools, packages := 0, 0, map[string]bool{}
	for _, f := range files(t) {
		if f.test || under(f.dir, "e2e") {
			continue
		}
		packages[f.dir] = true
		if under(f.dir, "api") {
			continue
		}
		data, err := os.ReadFile(f.path)
		require.NoError(t, err)
		lines := &core
		if under(f.dir, "roles/cmd") {
			lines = &tools
		}
		for line := range strings.Lines(string(data)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
				*lines++
			}
		}
	}
	t.Logf("%d lines of code in the core, %d in the tools, %d packages", core, tools, len(packages))
	require.LessOrEqual(t, core, mostCore, "lines of code of the core")
	require.LessOrEqual(t, tools, mostTools, "lines of code of the tools")
	require.LessOrEqual(t, len(packages), mostPackages, "packages of the product")
}

// TestPathsAreTrue: every file that the page of a path names exists, and has the functions and
// types that stand beside it. The files of the usual case are few.
func TestPathsAreTrue(t *testing.T) {
	names := map[string]map[string]bool{}
	for _, f := range files(t) {
		names[f.path] = declared(f.ast)
	}
	for name, path := range paths {
		page := "docs/internals/" + name + ".md"
		data, err := os.ReadFile(page)
		require.NoError(t, err)
		usual := map[string]bool{}
		for _, part := range strings.Split(string(data), "\n## ")[1:] {
			title, _, _ := strings.Cut(part, "\n")
			for line := range strings.Lines(part) {
				cells := strings.Split(strings.TrimSpace(line), "|")
				if len(cells) < 2 || !strings.HasPrefix(cells[1], " `") {
					continue
				}
				require.Len(t, cells, 5, "%s: where, what it is called, what happens: %s", page, line)
				place := codeWord.FindStringSubmatch(cells[1])[1]
				require.FileExists(t, filepath.FromSlash(place), page)
				for _, word := range codeWord.FindAllStringSubmatch(cells[2], -1) {
					require.Truef(t, names[place][word[1]], "%s: %s has no %s", page, place, word[1])
				}
				if path.sections == nil || slices.Contains(path.sections, title) {
					usual[place] = true
				}
			}
		}
		t.Logf("%s: %d files", name, len(usual))
		require.NotEmpty(t, usual, page)
		require.LessOrEqual(t, len(usual), path.most, "files of %s", page)
	}
}

// mostBackArrows bounds the arrows that run back up within a package.
const mostBackArrows = 20

// moreBackArrows are to become mostBackArrows.
var moreBackArrows = map[string]int{
	"netfabric/host": 25, "reflect/kinds": 24, "roles": 45, "roles/cmd": 41, "roles/cmd/report": 35,
}

// TestBackArrows counts them. An arrow leads from a file to another of its package that alone
// declares a name which the first one uses. The files are put into the order in which few arrows
// run back: next is a file that no other one uses, else the one that uses more than it is used.
func TestBackArrows(t *testing.T) {
	packages := map[string][]file{}
	for _, f := range files(t) {
		if !f.test && !under(f.dir, "e2e") {
			packages[f.dir] = append(packages[f.dir], f)
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(packages)) {
		arrows := arrowsOf(packages[dir])
		n := backArrows(arrows)
		t.Logf("%s: %d arrows, %d back up", dir, len(arrows), n)
		require.LessOrEqual(t, n, max(mostBackArrows, moreBackArrows[dir]), dir)
	}
}

type arrow struct{ from, to string }

func arrowsOf(all []file) map[arrow]bool {
	places, arrows := map[string][]string{}, map[arrow]bool{}
	for _, f := range all {
		for name := range declared(f.ast) {
			places[name] = append(places[name], f.path)
		}
	}
	for _, f := range all {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok && len(places[id.Name]) == 1 && places[id.Name][0] != f.path {
				arrows[arrow{f.path, places[id.Name][0]}] = true
			}
			return true
		})
	}
	return arrows
}

func backArrows(arrows map[arrow]bool) (back int) {
	for left := maps.Clone(arrows); len(left) > 0; {
		uses, used := map[string]int{}, map[string]int{}
		for a := range left {
			uses[a.from]++
			used[a.to]++
		}
		next := slices.MaxFunc(slices.Sorted(maps.Keys(uses)), func(a, b string) int {
			return cmp.Or(cmp.Compare(min(used[b], 1), min(used[a], 1)), cmp.Compare(uses[a]-used[a], uses[b]-used[b]))
		})
		back += used[next]
		maps.DeleteFunc(left, func(a arrow, _ bool) bool { return a.from == next || a.to == next })
	}
	return back
}
