package main

import (
	"cmp"
	"go/ast"
	"go/constant"
	"go/types"
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
	mostCore     = 52_979
	mostTools    = 13_760
	mostPackages = 44 // with those of api; one for each larger command, and one for the pods of several
)

// paths are the pages that list, file by file, what a reader opens to follow one thing; sections
// are those of the usual case (none: all), and most bounds the files in them.
var paths = map[string]struct {
	sections []string
	most     int
}{
	"pod-path":      {[]string{"Out", "Back"}, 12},
	"peer-path":     {[]string{"Published", "Across", "Answered", "Applied"}, 19}, // to become 18
	"endpoint-path": {nil, 12},
	"verdict-path":  {[]string{"Judged", "Obeyed"}, 7},
	"volume-path":   {[]string{"In a provider", "On a node of home", "Both", "Used, and gone"}, 8},
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

// step is a row of the page of a path: a file, and what a reader looks at there.
type step struct {
	section, file string
	names         []string
	happens       string
	begins        bool // a loop, or something else that no other step calls
}

// stepsOf returns the rows of the page of a path.
func stepsOf(t *testing.T, page string) (steps []step) {
	t.Helper()
	data, err := os.ReadFile(page)
	require.NoError(t, err)
	for _, part := range strings.Split(string(data), "\n## ")[1:] {
		title, _, _ := strings.Cut(part, "\n")
		for line := range strings.Lines(part) {
			cells := strings.Split(strings.TrimSpace(line), "|")
			if len(cells) < 2 || !strings.HasPrefix(cells[1], " `") {
				continue
			}
			require.Len(t, cells, 5, "%s: where, what it is called, what happens: %s", page, line)
			next := step{section: title, file: codeWord.FindStringSubmatch(cells[1])[1], happens: cells[3], begins: strings.HasPrefix(cells[3], " Begins: ")}
			for _, word := range codeWord.FindAllStringSubmatch(cells[2], -1) {
				next.names = append(next.names, word[1])
			}
			steps = append(steps, next)
		}
	}
	require.NotEmpty(t, steps, page)
	return steps
}

// TestPathsAreTrue: every file that the page of a path names exists, and has the functions and
// types that stand beside it. What the page names of another file uses one of them, unless the
// row says that something begins there. The files of the usual case are few.
func TestPathsAreTrue(t *testing.T) {
	pages, folders := map[string][]step{}, map[string]bool{}
	for _, name := range append(slices.Collect(maps.Keys(paths)), "peer-states") {
		pages[name] = stepsOf(t, "docs/internals/"+name+".md")
		for _, s := range pages[name] {
			folders[filepath.Dir(s.file)] = true
		}
	}
	p := typed(t, folders)
	for name, path := range paths {
		usual, called := map[string]bool{}, map[string]bool{}
		var opened []step
		for _, s := range pages[name] {
			require.FileExists(t, filepath.FromSlash(s.file), name)
			if path.sections == nil || slices.Contains(path.sections, s.section) {
				usual[s.file] = true
				opened = append(opened, s)
			}
			if len(s.names) > 0 {
				named := p.named(t, s)
				called[s.file] = called[s.file] || s.begins || slices.ContainsFunc(pages[name], func(from step) bool {
					return from.file != s.file && p.usesOne(from, named)
				})
			}
		}
		for file, is := range called {
			if !is {
				t.Errorf("%s: nothing that the page names of another file uses what it names of %s: name what is used, or say `Begins: `", name, file)
			}
		}
		t.Logf("%s: %d files; what it names of them calls functions in %d files", name, len(usual), len(p.opened(opened)))
		require.LessOrEqual(t, len(usual), path.most, "files of %s", name)
	}
	t.Run("peer-states", func(t *testing.T) { statesOfAPeer(t, p, pages["peer-states"]) })
}

// statesOfAPeer: the page about the states of a peer names functions that exist, and the reasons that these use; it has
// each reason of a ForeignCluster.
func statesOfAPeer(t *testing.T, p *program, steps []step) {
	t.Helper()
	said := map[string]bool{}
	for _, s := range steps {
		used := map[string]bool{}
		p.named(t, s)
		for o := range p.uses(s) {
			used[textOf(o)] = true
		}
		_, reasons, _ := strings.Cut(s.happens, ": ")
		for _, word := range codeWord.FindAllStringSubmatch(reasons, -1) {
			if said[word[1]] = true; !used[word[1]] {
				t.Errorf("%s: %v do not use the reason %s", s.file, s.names, word[1])
			}
		}
	}
	api := p.ours[module+"/api/core/v1beta1"].Scope()
	for _, name := range api.Names() {
		if reason := textOf(api.Lookup(name)); reason != "" && reasonName.MatchString(name) && !said[reason] {
			t.Errorf("docs/internals/peer-states.md lacks the reason %s", reason)
		}
	}
}

// textOf returns the value of a constant, or "".
func textOf(o types.Object) string {
	if c, ok := o.(*types.Const); ok && c.Val().Kind() == constant.String {
		return constant.StringVal(c.Val())
	}
	return ""
}

// mostBackArrows bounds the arrows that run back up within a package.
const mostBackArrows = 20

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
		require.LessOrEqual(t, n, mostBackArrows, dir)
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
