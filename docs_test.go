package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

var (
	codeWord  = regexp.MustCompile("`([^`]+)`")
	comment   = regexp.MustCompile(`<!--(.*?)-->`)
	fieldsOf  = regexp.MustCompile(`^<!-- fields of (\w+) -->$`)
	reference = regexp.MustCompile(`\]\(([^)#]+)(?:#[^)]*)?\)`)
)

// documented are the types whose fields docs/pods.md#what-of-a-pod-crosses-the-border lists, one by one.
var documented = map[string]reflect.Type{
	"PodSpec":          reflect.TypeFor[corev1.PodSpec](),
	"Container":        reflect.TypeFor[corev1.Container](),
	"VolumeSource":     reflect.TypeFor[corev1.VolumeSource](),
	"VolumeProjection": reflect.TypeFor[corev1.VolumeProjection](),
	"EnvVarSource":     reflect.TypeFor[corev1.EnvVarSource](),
	"PodStatus":        reflect.TypeFor[corev1.PodStatus](),
	"ContainerStatus":  reflect.TypeFor[corev1.ContainerStatus](),
}

// row is a row of a table: its cells, and the names in its comments.
type row struct {
	cells    []string
	comments []string
}

// page is a document: its rows, and those under a comment "fields of T" by T.
type page struct {
	rows   []row
	fields map[string][]row
}

// section reads a document, or of PATH#ANCHOR the part of it below the second heading with the anchor.
func section(t *testing.T, path string) string {
	t.Helper()
	path, anchor, part := strings.Cut(path, "#")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	if !part {
		return string(data)
	}
	for _, text := range strings.Split(string(data), "\n## ")[1:] {
		if title, _, _ := strings.Cut(text, "\n"); anchorOf(title) == anchor {
			return text
		}
	}
	require.Failf(t, "there is no such part", "%s#%s", path, anchor)
	return ""
}

func readPage(t *testing.T, path string) page {
	t.Helper()
	p := page{fields: map[string][]row{}}
	about := ""
	for line := range strings.Lines(section(t, path)) {
		line = strings.TrimSpace(line)
		if match := fieldsOf.FindStringSubmatch(line); match != nil {
			about = match[1]
			continue
		}
		if strings.HasPrefix(line, "#") {
			about = ""
		}
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") {
			continue
		}
		var r row
		for _, match := range comment.FindAllStringSubmatch(line, -1) {
			r.comments = append(r.comments, strings.Fields(match[1])...)
		}
		for cell := range strings.SplitSeq(strings.Trim(comment.ReplaceAllString(line, ""), "| "), "|") {
			r.cells = append(r.cells, strings.TrimSpace(cell))
		}
		if isHead(r) {
			continue
		}
		p.rows = append(p.rows, r)
		if about != "" {
			p.fields[about] = append(p.fields[about], r)
		}
	}
	return p
}

// isHead tells whether a row is the head of a table.
func isHead(r row) bool {
	return slices.Contains([]string{"field", "source", "what", "where"}, r.cells[0])
}

func TestPodFidelityIsComplete(t *testing.T) {
	t.Parallel()
	p := readPage(t, "docs/pods.md#what-of-a-pod-crosses-the-border")
	for name, typ := range documented {
		have := map[string]int{}
		for _, r := range p.fields[name] {
			for _, word := range codeWord.FindAllStringSubmatch(r.cells[0], -1) {
				have[word[1]]++
			}
		}
		for i := range typ.NumField() {
			field, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			require.Equalf(t, 1, have[field], "rows of docs/pods.md#what-of-a-pod-crosses-the-border for %s.%s: say what becomes of it, once", name, field)
			delete(have, field)
		}
		require.Empty(t, have, "docs/pods.md#what-of-a-pod-crosses-the-border has rows for fields that %s does not have", name)
	}
}

// TestPodFidelityIsTested: each row names tests that exist. A row of a field names a test that walks all fields of a
// type, or one whose package has tests with the field.
func TestPodFidelityIsTested(t *testing.T) {
	t.Parallel()
	folders, words := map[string][]string{}, map[string]map[string]bool{} // of functions; of folders
	for _, f := range files(t) {
		if !f.test {
			continue
		}
		dir := filepath.Dir(f.path)
		if words[dir] == nil {
			words[dir] = map[string]bool{}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if name, ok := n.(*ast.Ident); ok {
				words[dir][name.Name] = true
			}
			return true
		})
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				folders[fn.Name.Name] = append(folders[fn.Name.Name], dir)
			}
		}
	}
	p := readPage(t, "docs/pods.md#what-of-a-pod-crosses-the-border")
	for _, r := range p.rows {
		require.NotEmptyf(t, r.comments, "row %q names no test", r.cells[0])
		for _, name := range r.comments {
			require.NotEmptyf(t, folders[name], "row %q names test %s, which does not exist", r.cells[0], name)
			require.Regexpf(t, `^([Tt]est|full|kubectl)[A-Z]`, name, "row %q", r.cells[0])
		}
	}
	for about, rows := range p.fields {
		fields := map[string]string{}
		for f := range documented[about].Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			fields[name] = f.Name
		}
		for _, r := range rows {
			for _, word := range codeWord.FindAllStringSubmatch(r.cells[0], -1) {
				require.Truef(t, slices.ContainsFunc(r.comments, func(name string) bool {
					return strings.HasPrefix(name, "TestEvery") || slices.ContainsFunc(folders[name], func(dir string) bool { return words[dir][fields[word[1]]] })
				}), "no test that the row of %s.%s names, %v, has the field in its package", about, word[1], r.comments)
			}
		}
	}
}

// TestThreatModelIsTested: each attack that docs/threat-model.md lists has tests, and they
// exist. Rows that share a test with subtests name the subtests that assert them.
func TestThreatModelIsTested(t *testing.T) {
	t.Parallel()
	tests := testNames(t)
	attacks := 0
	whole := map[string]string{} // the row that names a test without a subtest
	for _, r := range readPage(t, "docs/threat-model.md").rows {
		if strings.HasPrefix(r.cells[0], "what a ") {
			require.Equalf(t, "tests", r.cells[len(r.cells)-1], "the last column of the table of %s", r.cells[0])
			continue
		}
		attacks++
		named := codeWord.FindAllStringSubmatch(r.cells[len(r.cells)-1], -1)
		require.NotEmptyf(t, named, "row %q names no test", r.cells[0])
		for _, word := range named {
			name, subtests, _ := strings.Cut(word[1], "/")
			test, exists := tests[name]
			require.Truef(t, exists, "row %q names test %s, which does not exist", r.cells[0], name)
			if subtests == "" && test.runs {
				require.Emptyf(t, whole[name], "row %q and this one name test %s: each names the subtest that asserts it", r.cells[0], name)
				whole[name] = r.cells[0]
			}
			for subtest := range strings.SplitSeq(subtests, "/") {
				require.Truef(t, subtest == "" || test.texts[subtest], "row %q names test %s, and no text of its package is %q", r.cells[0], word[1], subtest)
			}
		}
	}
	require.NotZero(t, attacks)
}

// namedTest is a test or a fuzz target.
type namedTest struct {
	// texts are those in the tests of its package: names of subtests are among them, as go test
	// prints them.
	texts map[string]bool
	runs  bool // it has subtests
}

func testNames(t *testing.T) map[string]namedTest {
	t.Helper()
	tests, texts := map[string]namedTest{}, map[string]map[string]bool{}
	for _, f := range files(t) {
		if !f.test {
			continue
		}
		dir := filepath.Dir(f.path)
		if texts[dir] == nil {
			texts[dir] = map[string]bool{}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if text, err := strconv.Unquote(lit.Value); err == nil {
					texts[dir][strings.ReplaceAll(text, " ", "_")] = true
				}
			}
			return true
		})
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && (strings.HasPrefix(fn.Name.Name, "Test") || strings.HasPrefix(fn.Name.Name, "Fuzz")) {
				tests[fn.Name.Name] = namedTest{texts[dir], hasSubtests(fn)}
			}
		}
	}
	return tests
}

// hasSubtests reports whether a test calls t.Run itself.
func hasSubtests(fn *ast.FuncDecl) (has bool) {
	ast.Inspect(fn, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if ok && sel.Sel.Name == "Run" {
			x, ok := sel.X.(*ast.Ident)
			has = has || ok && x.Name == "t"
		}
		return true
	})
	return has
}

// declared are the functions, methods and types of a file.
func declared(f *ast.File) map[string]bool {
	out := map[string]bool{}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			out[d.Name.Name] = true
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if spec, ok := s.(*ast.TypeSpec); ok {
					out[spec.Name.Name] = true
				}
			}
		}
	}
	return out
}

// documents are the pages for users and for contributors.
func documents(t *testing.T) (pages []string) {
	t.Helper()
	for _, folder := range []string{"docs", "docs/internals"} {
		found, err := filepath.Glob(filepath.Join(folder, "*.md"))
		require.NoError(t, err)
		require.NotEmpty(t, found, folder)
		pages = append(pages, found...)
	}
	return pages
}

// TestLinksBetweenDocuments: what our documents refer to in this repository exists.
func TestLinksBetweenDocuments(t *testing.T) {
	t.Parallel()
	for _, doc := range append(documents(t), "README.md", "CONTRIBUTING.md", "CHANGELOG.md") {
		data, err := os.ReadFile(doc)
		require.NoError(t, err)
		for _, link := range reference.FindAllStringSubmatch(string(data), -1) {
			if strings.Contains(link[1], "://") {
				continue
			}
			_, err := os.Stat(filepath.Join(filepath.Dir(doc), filepath.FromSlash(link[1])))
			require.NoError(t, err, "%s refers to it", doc)
		}
	}
}

// TestContinuityDefaults: the defaults in docs/continuity.md are those of config.yaml.
func TestContinuityDefaults(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("config.yaml")
	require.NoError(t, err)
	var settings map[string]any
	require.NoError(t, yaml.Unmarshal(data, &settings))
	checked := 0
	for _, r := range readPage(t, "docs/continuity.md").rows {
		name := codeWord.FindStringSubmatch(r.cells[0])
		if name == nil || name[0] != r.cells[0] {
			continue
		}
		value := any(settings)
		for key := range strings.SplitSeq(name[1], ".") {
			section, ok := value.(map[string]any)
			require.Truef(t, ok, "config.yaml has no %s", name[1])
			value = section[key]
		}
		require.NotNilf(t, value, "config.yaml has no %s", name[1])
		require.Equalf(t, fmt.Sprintf("`%v`", value), r.cells[1], "the default of %s", name[1])
		checked++
	}
	require.NotZero(t, checked)
}

// readable are the pages whose lines outside of tables fit a screen.
var readable = []string{
	"README.md", "compatibility.md", "continuity.md#high-availability", "install.md", "liqo.md", "networking.md#ports-and-reachability",
	"troubleshooting.md",
}

const (
	longestLine = 120
	longestCell = 160
)

func TestReadablePages(t *testing.T) {
	t.Parallel()
	for _, name := range readable {
		number := 0
		for line := range strings.Lines(section(t, "docs/"+name)) {
			number++
			if strings.HasPrefix(line, "|") {
				continue
			}
			require.LessOrEqualf(t, utf8.RuneCountInString(strings.TrimRight(line, "\n")), longestLine, "docs/%s:%d is too long", name, number)
		}
	}
}

// TestCells: no cell of a table is longer than a line or two.
func TestCells(t *testing.T) {
	t.Parallel()
	for _, name := range append(documents(t), "README.md", "CONTRIBUTING.md") {
		for _, r := range readPage(t, name).rows {
			for _, cell := range r.cells {
				require.LessOrEqualf(t, utf8.RuneCountInString(shownText(cell)), longestCell, "%s has a cell that is too long: %s", name, cell)
			}
		}
	}
}

// shownText is a cell without the targets of its links.
func shownText(cell string) string { return target.ReplaceAllString(cell, "]") }

var target = regexp.MustCompile(`\]\([^)]*\)`)

// TestIndexIsComplete: docs/README.md leads to every page.
func TestIndexIsComplete(t *testing.T) {
	t.Parallel()
	index, err := os.ReadFile("docs/README.md")
	require.NoError(t, err)
	for _, page := range documents(t) {
		if name := strings.TrimPrefix(filepath.ToSlash(page), "docs/"); name != "README.md" {
			require.Containsf(t, string(index), "]("+name+")", "docs/README.md lacks a line for %s", page)
		}
	}
}

// TestAnchors: a link to a section leads to a heading that exists.
func TestAnchors(t *testing.T) {
	t.Parallel()
	for _, page := range append(documents(t), "README.md") {
		data, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, link := range anchored.FindAllStringSubmatch(string(data), -1) {
			target := filepath.Join(filepath.Dir(page), filepath.FromSlash(link[1]))
			if link[1] == "" {
				target = page
			}
			require.Containsf(t, headings(t, target), link[2], "%s links to a section of %s", page, target)
		}
	}
}

var (
	anchored   = regexp.MustCompile(`\]\(([^)#:]*)#([^)]*)\)`)
	notInASlug = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchorOf is the anchor of a heading, as GitHub makes it.
func anchorOf(title string) string {
	slug := notInASlug.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
	return strings.ReplaceAll(slug, " ", "-")
}

// headings are the anchors of a page.
func headings(t *testing.T, path string) (out []string) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	for line := range strings.Lines(string(data)) {
		if text := strings.TrimLeft(line, "#"); text != line && strings.HasPrefix(text, " ") {
			out = append(out, anchorOf(text))
		}
	}
	return out
}

// TestCompatibilityIsTested: each row of docs/compatibility.md, and of the table of README.md, names tests that exist.
func TestCompatibilityIsTested(t *testing.T) {
	t.Parallel()
	functions := map[string]bool{}
	for _, f := range files(t) {
		if f.test {
			maps.Copy(functions, declared(f.ast))
		}
	}
	for _, r := range slices.Concat(readPage(t, "README.md").rows, readPage(t, "docs/compatibility.md").rows) {
		if r.cells[0] == "works" || strings.HasPrefix(r.cells[0], "what ") {
			continue
		}
		require.NotEmptyf(t, r.comments, "row %q names no test", r.cells[0])
		for _, name := range r.comments {
			require.Truef(t, functions[name], "row %q names test %s, which does not exist", r.cells[0], name)
		}
	}
}

// kubernetesReasons are the words there that are no reasons of liqod: of Kubernetes, or types of conditions.
var kubernetesReasons = []string{
	"ContainersNotReady", "DenyList", "OutgoingPeering", "Remote", "WaitForFirstConsumer",
}

// TestReasonsExist: a reason in the first column of docs/troubleshooting.md is one that liqod writes.
func TestReasonsExist(t *testing.T) {
	t.Parallel()
	codes := readReasons(t)
	checked := 0
	for _, r := range readPage(t, "docs/troubleshooting.md").rows {
		for _, word := range codeWord.FindAllStringSubmatch(r.cells[0], -1) {
			if !reason.MatchString(word[1]) || slices.Contains(kubernetesReasons, word[1]) || word[1] == string(corev1.PodReasonUnschedulable) {
				continue
			}
			require.NotEmptyf(t, codes[word[1]], "docs/troubleshooting.md has the reason %s, which no part of liqod writes", word[1])
			checked++
		}
	}
	require.NotZero(t, checked)
}

var reason = regexp.MustCompile(`^[A-Z][a-z]+([A-Z][A-Za-z]*)+$`)

var (
	setValue   = regexp.MustCompile(`--set[= ]"?([A-Za-z.]+)=`)
	makeTarget = regexp.MustCompile(`(?m)^make ([a-z-]+)`)
)

// TestValuesInDocuments: what pages give to helm with --set are values of the chart, and what
// they give to make are targets.
func TestValuesInDocuments(t *testing.T) {
	t.Parallel()
	values := settings(t, "charts/liqod/values.yaml")
	values["config"] = settings(t, "config.yaml")
	makefile, err := os.ReadFile("Makefile")
	require.NoError(t, err)
	for _, page := range append(documents(t), "README.md", "CONTRIBUTING.md") {
		data, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, match := range setValue.FindAllStringSubmatch(string(data), -1) {
			require.Truef(t, has(values, match[1]), "%s sets %s, which is no value of the chart", page, match[1])
		}
		for _, match := range makeTarget.FindAllStringSubmatch(string(data), -1) {
			require.Containsf(t, string(makefile), "\n"+match[1]+":", "%s runs make %s", page, match[1])
		}
	}
}

func settings(t *testing.T, path string) map[string]any {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	out := map[string]any{}
	require.NoError(t, yaml.Unmarshal(data, &out))
	return out
}

// has says whether there is a value under a name such as networking.enabled.
func has(values map[string]any, name string) bool {
	key, below, more := strings.Cut(name, ".")
	value, ok := values[key]
	if !ok || !more {
		return ok
	}
	section, ok := value.(map[string]any)
	return ok && has(section, below)
}
