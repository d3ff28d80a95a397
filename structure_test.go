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
	mostCore     = 52_992
	mostTools    = 13_803
	mostPackages = 45 // with those of api; one for each larger command, and one for the pods of several
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
// types that stand beside it. A file of Go is called from another one of the page, unless its row
// says that something begins there. The files of the usual case are few.
func TestPathsAreTrue(t *testing.T) {
	sources := map[string]file{}
	for _, f := range files(t) {
		sources[f.path] = f
	}
	for name, path := range paths {
		page := "docs/internals/" + name + ".md"
		usual, calls, begins := map[string]bool{}, map[string]map[string]bool{}, map[string]bool{}
		steps := stepsOf(t, page)
		for _, s := range steps {
			require.FileExists(t, filepath.FromSlash(s.file), page)
			if path.sections == nil || slices.Contains(path.sections, s.section) {
				usual[s.file] = true
			}
			if len(s.names) == 0 {
				continue
			}
			have := declared(sources[s.file].ast)
			for _, n := range s.names {
				require.Truef(t, have[n], "%s: %s has no %s", page, s.file, n)
			}
			if calls[s.file] == nil {
				calls[s.file] = map[string]bool{}
			}
			maps.Copy(calls[s.file], usedBy(sources[s.file].ast, s.names))
			begins[s.file] = begins[s.file] || s.begins
		}
		for _, s := range steps {
			called := slices.ContainsFunc(steps, func(to step) bool { return to.file == s.file && isCalled(calls, to) })
			require.Truef(t, called || begins[s.file] || len(s.names) == 0,
				"%s: no other file of the page calls what it names of %s: name what is called, or say `Begins: `", page, s.file)
		}
		t.Logf("%s: %d files", name, len(usual))
		require.LessOrEqual(t, len(usual), path.most, "files of %s", page)
	}
}

// TestStatesOfAPeer: the page about the states of a peer names functions that exist, and reasons that their files
// use; it has each reason of a ForeignCluster.
func TestStatesOfAPeer(t *testing.T) {
	values, sources := map[string]string{}, map[string]file{}
	var all []string
	for _, f := range files(t) {
		sources[f.path] = f
		ast.Inspect(f.ast, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if ok && under(f.dir, "api") && !f.test && len(spec.Values) > 0 && reasonName.MatchString(spec.Names[0].Name) {
				values[spec.Names[0].Name] = stringOf(spec.Values[0])
				if f.dir == "api/core/v1beta1" {
					all = append(all, stringOf(spec.Values[0]))
				}
			}
			return true
		})
	}
	said := map[string]bool{}
	for _, s := range stepsOf(t, "docs/internals/peer-states.md") {
		used, have := map[string]bool{}, declared(sources[s.file].ast)
		for _, n := range s.names {
			require.Truef(t, have[n], "%s has no %s", s.file, n)
		}
		ast.Inspect(sources[s.file].ast, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				used[cmp.Or(values[sel.Sel.Name], sel.Sel.Name)] = true
			}
			return true
		})
		_, reasons, _ := strings.Cut(s.happens, ": ")
		for _, word := range codeWord.FindAllStringSubmatch(reasons, -1) {
			require.Truef(t, used[word[1]], "%s does not use the reason %s", s.file, word[1])
			said[word[1]] = true
		}
	}
	for _, reason := range all {
		require.Truef(t, said[reason], "docs/internals/peer-states.md lacks the reason %s", reason)
	}
}

// isCalled reports whether what another file names uses a name of the step.
func isCalled(calls map[string]map[string]bool, to step) bool {
	for from, used := range calls {
		near := filepath.Dir(from) == filepath.Dir(to.file)
		if from != to.file && slices.ContainsFunc(to.names, func(n string) bool { return used[n] && (near || ast.IsExported(n)) }) {
			return true
		}
	}
	return false
}

// usedBy returns the identifiers in functions and types with these names, and in the methods of those types.
func usedBy(f *ast.File, names []string) map[string]bool {
	used := map[string]bool{}
	named := func(n ast.Node) (found bool) {
		ast.Inspect(n, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			found = found || ok && slices.Contains(names, id.Name)
			return true
		})
		return found
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if !slices.Contains(names, d.Name.Name) && (d.Recv == nil || !named(d.Recv)) {
				continue
			}
		case *ast.GenDecl:
			if !named(d) {
				continue
			}
		}
		ast.Inspect(d, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				used[id.Name] = true
			}
			return true
		})
	}
	return used
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
