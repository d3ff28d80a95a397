package main

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	module          = "github.com/liqod/liqod"
	longestFunction = 80 // lines, signature included
)

// allowed says which of our folders a folder may import, each with all below it; the
// longest match counts, and what is not listed imports nothing of ours. Domains meet
// through API objects, or through small interfaces that roles joins.
var allowed = map[string][]string{
	".":       {"roles"},
	"roles":   {"roles", "peering", "reflect", "shadow", "netfabric", "health", "kube", "reasons", "api"},
	"health":  {"health", "kube/serve"},
	"kube":    {"kube"},
	"reasons": {},
	"api":     {"api"},
	"e2e":     {"e2e", "kube", "api", "hack", "peering/trust"},

	// The bench measures the fabric without API servers.
	"e2e/bench": {"e2e", "kube", "api", "netfabric/plan", "netfabric/kernel"},

	"peering":   {"peering", "health", "kube", "reasons", "api"},
	"reflect":   {"reflect", "health", "kube", "reasons", "api"},
	"shadow":    {"shadow", "health", "kube", "reasons", "api"},
	"netfabric": {"netfabric", "health", "kube", "reasons", "api"},

	// Commands ask the API server as anybody may: they know no domain but peering by hand,
	// what is free to be offered, and what the hosts of the network make of objects.
	"roles/cmd": {"roles/cmd", "peering/join", "peering/trust", "netfabric/host", "kube", "reasons", "api"},

	// The steps of a move, and the copy of files, of which no other command knows.
	"roles/cmd/move": {"roles/cmd/helper", "roles/cmd/report", "kube/serve", "kube/store", "api"},

	// The pods of the check send the packets of nodes, to the addresses of gateways.
	"roles/cmd/network": {"roles/cmd/helper", "roles/cmd/report", "netfabric/host", "netfabric/kernel", "netfabric/plan", "peering/join", "kube", "reasons", "api"},

	// Pods of commands, of which it knows no purpose.
	"roles/cmd/helper": {},

	// The page shows what report judges, and is told how to read the cluster.
	"roles/cmd/dashboard": {"roles/cmd/report", "kube/serve", "api"},

	// Pure: testable with tables and nothing else.
	"peering/trust":    {"api"},
	"reflect/forge":    {"reasons", "api"},
	"shadow/rules":     {"reasons", "api"},
	"roles/cmd/report": {"reasons", "api", "shadow/rules"},
	"netfabric/plan":   {"api/ipam"},
	"netfabric/ipam":   {"netfabric/plan", "api/ipam"},
	"netfabric/check":  {"netfabric/plan", "netfabric/ipam", "api"},

	// The hosts of a network and the negotiation meet in API objects only.
	"netfabric/host":     {"netfabric/plan", "netfabric/ipam", "netfabric/check", "netfabric/kernel", "health", "kube", "reasons", "api"},
	"netfabric/exchange": {"netfabric/plan", "netfabric/ipam", "netfabric/check", "kube", "reasons", "api"},
}

// forbidden are packages that our code does without, and why. Tests may use those that
// say so.
var forbidden = []struct {
	path   string
	why    string
	except []string // folders where it is allowed
	tests  bool     // allowed in tests
}{
	{path: "sigs.k8s.io/controller-runtime", why: "loops are kube/loop"},
	{path: "github.com/stretchr/testify/assert", why: "a test stops at its first failure: require"},
	{path: "github.com/stretchr/testify/suite", why: "tables and functions are enough"},
	{path: "github.com/onsi", why: "tests are plain Go"},
	{path: "k8s.io/klog", why: "logs go to the *zap.Logger that is passed in", except: []string{"roles"}, tests: true},
	{path: "log", why: "logs go to the *zap.Logger that is passed in", except: []string{"e2e"}, tests: true},
	{path: "log/slog", why: "logs go to the *zap.Logger that is passed in", tests: true},
	{path: "github.com/vishvananda", why: "the network of a host is changed by netfabric/kernel only", except: []string{"netfabric/kernel", "e2e"}},
	{path: "github.com/mdlayher", why: "the network of a host is changed by netfabric/kernel only", except: []string{"netfabric/kernel", "e2e"}},
	{path: "github.com/google/nftables", why: "the network of a host is changed by netfabric/kernel only", except: []string{"netfabric/kernel", "e2e"}},
	{path: "golang.zx2c4.com/wireguard", why: "the network of a host is changed by netfabric/kernel only", except: []string{"netfabric/kernel", "e2e"}},
	{path: "reflect", why: "types are known", except: []string{"kube"}, tests: true},
}

// file is one parsed file of ours; generated code and other modules are left out.
type file struct {
	path, dir string
	test      bool
	ast       *ast.File
	set       *token.FileSet
}

func files(t *testing.T) []file {
	t.Helper()
	var out []file
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		p = filepath.ToSlash(p)
		if d.IsDir() {
			if p != "." && skipped(p, d.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(p, ".go") || strings.HasPrefix(d.Name(), "zz_") {
			return nil
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, p, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		out = append(out, file{p, path.Dir(p), strings.HasSuffix(p, "_test.go"), parsed, set})
		return nil
	})
	require.NoError(t, err)
	require.NotEmpty(t, out)
	return out
}

func skipped(p, name string) bool {
	return p == "api/generated" || p == "e2e/tools" || p == "hack" || name == "testdata" || name == "bin" || strings.HasPrefix(name, ".")
}

func under(dir, root string) bool {
	return dir == root || strings.HasPrefix(dir, root+"/") || root == "."
}

// rule returns the entry of allowed that counts for dir.
func rule(dir string) []string {
	best := ""
	for root := range allowed {
		if root != "." && under(dir, root) && len(root) > len(best) {
			best = root
		}
	}
	if dir == "." {
		best = "."
	}
	return allowed[best]
}

func imports(f file) (out []string) {
	for _, spec := range f.ast.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		out = append(out, name)
	}
	return out
}

// internalImport reports whether name is a package of this module, and its folder.
func internalImport(name string) (dir string, ours bool) {
	if name == module {
		return ".", true
	}
	return strings.CutPrefix(name, module+"/")
}

func mayImport(from, to string) bool {
	return from == to || slices.ContainsFunc(rule(from), func(root string) bool { return under(to, root) })
}

func TestImportRules(t *testing.T) {
	for _, f := range files(t) {
		for _, name := range imports(f) {
			if dir, ours := internalImport(name); ours && !mayImport(f.dir, dir) && !f.test {
				t.Errorf("%s imports %s: %s may import %v of ours", f.path, dir, f.dir, rule(f.dir))
			}
		}
	}
}

// TestImportTable: the last column of the table in CONTRIBUTING.md is the rules above, each
// folder itself left out.
func TestImportTable(t *testing.T) {
	listed := map[string]bool{}
	for _, r := range readPage(t, "CONTRIBUTING.md").rows {
		for _, word := range codeWord.FindAllStringSubmatch(r.cells[0], -1) {
			folder := strings.Replace(word[1], "main.go", ".", 1)
			others, known := allowed[folder]
			if !known {
				continue
			}
			listed[folder] = true
			others = slices.DeleteFunc(slices.Clone(others), func(root string) bool { return root == folder })
			require.Equal(t, cmp.Or(strings.Join(others, ", "), "–"), r.cells[2], "CONTRIBUTING.md, what %s may import", folder)
		}
	}
	require.Equal(t, slices.Sorted(maps.Keys(allowed)), slices.Sorted(maps.Keys(listed)), "folders in CONTRIBUTING.md")
}

// Tests may also use the fakes and the test servers of kube, and nothing more.
func TestImportRulesOfTests(t *testing.T) {
	for _, f := range files(t) {
		for _, name := range imports(f) {
			dir, ours := internalImport(name)
			if ours && f.test && !mayImport(f.dir, dir) && !under(dir, "kube") && !under(dir, "api") {
				t.Errorf("%s imports %s: tests of %s may import %v, kube and api", f.path, dir, f.dir, rule(f.dir))
			}
		}
	}
}

func TestForbiddenImports(t *testing.T) {
	for _, f := range files(t) {
		for _, name := range imports(f) {
			for _, no := range forbidden {
				outside := !slices.ContainsFunc(no.except, func(root string) bool { return under(f.dir, root) })
				hit := name == no.path || strings.Contains(no.path, ".") && strings.HasPrefix(name, no.path+"/")
				if hit && outside && !(f.test && no.tests) {
					t.Errorf("%s imports %s: %s", f.path, name, no.why)
				}
			}
		}
	}
}

// Each role holds in memory the pages of the program that it touches. One package whose
// templates call methods by name (golang.org/x/net/trace, which gRPC brings) makes the
// linker keep every method of every type: the program nearly doubles.
func TestTheProgramIsLean(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	require.NoError(t, err)
	linked := strings.Fields(string(out))
	for _, heavy := range []string{"google.golang.org/grpc", "golang.org/x/net/trace", "github.com/google/cel-go/cel"} {
		require.NotContains(t, linked, heavy, "go list -deps -f '{{.ImportPath}}: {{.Imports}}' tells who imports it")
	}
}

// The libraries that change the network of a host do not build for macOS, for which a release has the
// commands.
func TestTheCommandsBuildElsewhere(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", ".")
	cmd.Env = append(cmd.Environ(), "GOOS=darwin", "CGO_ENABLED=0")
	out, err := cmd.Output()
	require.NoError(t, err)
	for of := range strings.FieldsSeq(string(out)) {
		require.NotRegexp(t, "^(github.com/(google/nftables|vishvananda|mdlayher/netlink)|golang.zx2c4.com/wireguard/(tun|conn|device))", of, "a file of Linux has no //go:build linux")
	}
}

func TestEveryPackageHasOneComment(t *testing.T) {
	comments := map[string][]string{}
	for _, f := range files(t) {
		if f.test {
			continue
		}
		if _, ok := comments[f.dir]; !ok {
			comments[f.dir] = nil
		}
		if f.ast.Doc != nil {
			comments[f.dir] = append(comments[f.dir], f.path)
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(comments)) {
		if n := len(comments[dir]); n != 1 {
			t.Errorf("package %s has %d package comments %v, not one", dir, n, comments[dir])
		}
	}
}

func TestExportedNamesHaveComments(t *testing.T) {
	for _, f := range files(t) {
		if f.test {
			continue
		}
		for _, decl := range f.ast.Decls {
			for _, name := range undocumented(decl) {
				t.Errorf("%s: %s has no comment", f.path, name)
			}
		}
	}
}

func undocumented(decl ast.Decl) (names []string) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && d.Doc == nil && exportedReceiver(d) {
			names = append(names, d.Name.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			if s, ok := spec.(*ast.TypeSpec); ok && s.Name.IsExported() && s.Doc == nil && d.Doc == nil {
				names = append(names, s.Name.Name)
			}
		}
	}
	return names
}

func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	exported := false
	ast.Inspect(d.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && id.IsExported() {
			exported = true
		}
		return true
	})
	return exported
}

func TestFunctions(t *testing.T) {
	for _, f := range files(t) {
		for _, decl := range f.ast.Decls {
			d, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if d.Recv == nil && d.Name.Name == "init" && !under(f.dir, "api") {
				t.Errorf("%s has an init function: what runs is called by main", f.path)
			}
			lines := f.set.Position(d.End()).Line - f.set.Position(d.Pos()).Line + 1
			if lines > longestFunction && !f.test {
				t.Errorf("%s: %s has %d lines, more than %d", f.path, d.Name.Name, lines, longestFunction)
			}
		}
	}
}

// A context is an argument: kept in a struct it outlives the call that it was for.
func TestNoContextInStructs(t *testing.T) {
	for _, f := range files(t) {
		if f.test {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			s, ok := n.(*ast.StructType)
			if !ok {
				return true
			}
			for _, field := range s.Fields.List {
				sel, ok := field.Type.(*ast.SelectorExpr)
				if !ok || sel.Sel.Name != "Context" {
					continue
				}
				if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "context" {
					t.Errorf("%s: a struct holds a context.Context", f.set.Position(field.Pos()))
				}
			}
			return true
		})
	}
}

// TestListenersAreBounded: every server and every listener of the product is one of kube/serve,
// which limits the connections and the time of its clients.
func TestListenersAreBounded(t *testing.T) {
	for _, f := range files(t) {
		if f.test || f.dir == "kube/serve" || under(f.dir, "e2e") {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if what := listens(n); what != "" {
				t.Errorf("%s: %s: use kube/serve", f.set.Position(n.Pos()), what)
			}
			return true
		})
	}
}

// listens returns what a node names that listens for connections, or "". Packets are no
// connections.
func listens(n ast.Node) string {
	switch n := n.(type) {
	case *ast.SelectorExpr:
		if pkg, ok := n.X.(*ast.Ident); ok {
			name := pkg.Name + "." + n.Sel.Name
			if listening.MatchString(name) {
				return name
			}
		}
	case *ast.CallExpr: // of a net.ListenConfig
		if sel, ok := n.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "Listen" && len(n.Args) == 3 {
			return sel.Sel.Name
		}
	}
	return ""
}

var listening = regexp.MustCompile(`^(http\.(Server|Serve|ServeTLS|ListenAndServe|ListenAndServeTLS)|httptest\..*|net\.(Listen|ListenTCP|ListenUnix|FileListener)|tls\.(Listen|NewListener))$`)

func TestListensIsFound(t *testing.T) {
	for code, found := range map[string]bool{
		"&http.Server{}": true, "http.ListenAndServe(a, nil)": true, `net.Listen("tcp", a)`: true, `tls.Listen("tcp", a, nil)`: true,
		`(&net.ListenConfig{}).Listen(ctx, "tcp", a)`: true, `config.Listen(ctx, "tcp", a)`: true,
		"serve.Listen(ctx, serve.Config{})": false, "page.Listen(ctx, cfg)": false, `net.ListenUDP("udp", a)`: false, "net.ListenConfig{}": false,
	} {
		expr, err := parser.ParseExpr(code)
		require.NoError(t, err)
		hit := false
		ast.Inspect(expr, func(n ast.Node) bool {
			hit = hit || listens(n) != ""
			return true
		})
		require.Equal(t, found, hit, code)
	}
}

func TestTheRulesThemselves(t *testing.T) {
	for name, tc := range map[string]struct {
		from, to string
		want     bool
	}{
		"main wires roles":             {".", "roles", true},
		"main wires nothing else":      {".", "kube/loop", false},
		"roles know all":               {"roles", "shadow/virtualnode", true},
		"a domain uses kube":           {"shadow/virtualnode", "kube/loop", true},
		"domains do not meet":          {"shadow/virtualnode", "reflect/kinds", false},
		"nor the other way":            {"reflect/kinds", "shadow/virtualnode", false},
		"forge is pure":                {"reflect/forge", "kube/store", false},
		"forge knows the API":          {"reflect/forge", "api/offloading/v1beta1", true},
		"kube knows nothing of ours":   {"kube/loop", "api/core/v1beta1", false},
		"health is told":               {"health", "kube/loop", false},
		"health has a server":          {"health", "kube/serve", true},
		"hosts do not negotiate":       {"netfabric/host", "netfabric/exchange", false},
		"negotiation changes no host":  {"netfabric/exchange", "netfabric/host", false},
		"plan imports nothing":         {"netfabric/plan", "api/core/v1beta1", false},
		"commands know no domain":      {"roles/cmd", "shadow/virtualnode", false},
		"reports are pure":             {"roles/cmd/report", "kube/client", false},
		"nobody imports roles":         {"shadow/virtualnode", "roles/config", false},
		"an unlisted folder is alone":  {"misc", "kube/loop", false},
		"a name that begins the same":  {"kubernetes", "kube/loop", false},
		"a folder below is not itself": {"roles", "e2e/lab", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, mayImport(tc.from, tc.to))
		})
	}
}

// TestDocCommentsNameWhatTheyDescribe: a doc comment that begins with a name and a verb, as most
// do, begins with the name that it is about. Else the name was changed, and the comment was not.
func TestDocCommentsNameWhatTheyDescribe(t *testing.T) {
	for _, f := range files(t) {
		for _, decl := range f.ast.Decls {
			var name, doc string
			switch d := decl.(type) {
			case *ast.FuncDecl:
				name, doc = d.Name.Name, d.Doc.Text()
			case *ast.GenDecl:
				if spec, ok := d.Specs[0].(*ast.TypeSpec); ok {
					name, doc = spec.Name.Name, d.Doc.Text()
				}
			}
			words := append(strings.Fields(doc), "", "")
			if !f.test && words[0] != name && describes.MatchString(words[1]) && ast.IsExported(words[0]) == ast.IsExported(name) {
				t.Errorf("%s: the comment of %s is about %s", f.set.Position(decl.Pos()), name, words[0])
			}
		}
	}
}

// describes matches the verbs of doc comments.
var describes = regexp.MustCompile(`^(is|has|[a-z]+s)$`)
