package main

import (
	"context"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// chooser is compiled into the package: MUTANT chooses a mutant. Each mutant that a test reaches is written to the file
// that MUTANTS_REACHED names.
const chooser = `package %s

import ("fmt"; "os"; "strconv"; "sync/atomic")

var (
	mutantNow, _   = strconv.Atoi(os.Getenv("MUTANT"))
	mutantsLog, _  = os.OpenFile(os.Getenv("MUTANTS_REACHED"), os.O_APPEND|os.O_WRONLY, 0)
	mutantsReached [%d]atomic.Bool
)

func mutantIs(n int) bool {
	if mutantsLog != nil && !mutantsReached[n].Swap(true) {
		fmt.Fprintln(mutantsLog, n)
	}
	return n == mutantNow
}

func mutantValue[T any](n int, original, other T) T {
	if mutantIs(n) {
		return other
	}
	return original
}
`

var (
	number = regexp.MustCompile(`^(u?int\d*|byte)$`)
	name   = regexp.MustCompile(`^\w+$`)
	// needed are calls without which a function does not compile, and those that write logs, which tests do not read.
	needed = regexp.MustCompile(`^panic\(|\blog\.\w+\(`)
)

// mutant is a change of the package, and what the tests make of it.
type mutant struct {
	place, what string
	reachedBy   []string // tests
	killers     []string // the tests that fail, or their rows
}

// mutator makes the mutants of a package.
type mutator struct {
	dir           string
	changed       map[string]string // the files with all mutants, by path
	mutants       []mutant
	set           *token.FileSet
	info          types.Info
	text          string         // of the file that is walked
	before, after map[int]string // what is put in at an offset of it, before what begins there and after what ends there
}

// mutate makes the mutants of a package of the module.
func mutate(ctx context.Context, pkg string) (*mutator, error) {
	list := exec.CommandContext(ctx, "go", "list", "-deps", "-export", "-f", "{{.ImportPath}}|{{.Export}}|{{.Dir}}|{{join .GoFiles \",\"}}", pkg)
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", pkg, err)
	}
	exports, last := map[string]string{}, []string(nil)
	for line := range strings.Lines(string(out)) {
		last = strings.Split(strings.TrimSpace(line), "|")
		exports[last[0]] = last[1]
	}
	m := &mutator{dir: last[2], changed: map[string]string{}, set: token.NewFileSet(), info: types.Info{Types: map[ast.Expr]types.TypeAndValue{}}}
	var files []*ast.File
	for name := range strings.SplitSeq(last[3], ",") {
		f, err := parser.ParseFile(m.set, filepath.Join(m.dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	config := types.Config{Importer: importer.ForCompiler(m.set, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })}
	if _, err := config.Check(pkg, m.set, files, &m.info); err != nil {
		return nil, err
	}
	for _, f := range files {
		path := m.set.Position(f.Pos()).Filename
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		m.changed[path] = m.file(f, string(text))
	}
	m.changed[filepath.Join(m.dir, "zz_mutants.go")] = fmt.Sprintf(chooser, files[0].Name.Name, len(m.mutants))
	return m, nil
}

// file returns the text of a file with its mutants.
func (m *mutator) file(f *ast.File, text string) string {
	m.text, m.before, m.after = text, map[int]string{}, map[int]string{}
	ast.Inspect(f, m.visit)
	var out strings.Builder
	for i := range len(text) {
		out.WriteString(m.after[i] + m.before[i] + text[i:i+1])
	}
	return out.String()
}

func (m *mutator) source(n ast.Node) string {
	return m.text[m.set.Position(n.Pos()).Offset:m.set.Position(n.End()).Offset]
}

// add adds a mutant: a text before and one after a node, in which %d is the number of the mutant.
func (m *mutator) add(n ast.Node, what, before, after string) {
	number := fmt.Sprint(len(m.mutants))
	from, to := m.set.Position(n.Pos()), m.set.Position(n.End())
	m.before[from.Offset] += strings.ReplaceAll(before, "%d", number)
	m.after[to.Offset] = strings.ReplaceAll(after, "%d", number) + m.after[to.Offset]
	m.mutants = append(m.mutants, mutant{
		place: fmt.Sprintf("%s:%d", filepath.Base(from.Filename), from.Line), what: strings.Join(strings.Fields(what), " "),
	})
}

func (m *mutator) negate(e ast.Expr) {
	m.add(e, "not "+m.source(e), "((", ") != mutantIs(%d))")
}

// condition negates an expression that is true or false, unless expression does.
func (m *mutator) condition(e ast.Expr) {
	e = ast.Unparen(e)
	switch n := e.(type) {
	case *ast.UnaryExpr:
		m.condition(n.X)
	case *ast.CallExpr, *ast.Ident, *ast.SelectorExpr, *ast.IndexExpr, *ast.StarExpr:
		if m.typeOf(e) == "bool" && m.info.Types[e].Value == nil {
			m.negate(e)
		}
	}
}

func (m *mutator) typeOf(e ast.Expr) string { return fmt.Sprint(m.info.Types[e].Type) }

// visit makes the mutants of a node, and reports whether those within it are made too.
func (m *mutator) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GenDecl:
		return n.Tok == token.VAR
	case *ast.ArrayType, *ast.FuncType:
		return false
	case *ast.IndexExpr: // most tests notice what is out of range
		ast.Inspect(n.X, m.visit)
		return false
	case *ast.KeyValueExpr: // keys of arrays are constant
		ast.Inspect(n.Value, m.visit)
		return false
	case *ast.BlockStmt:
		m.statements(n.List)
	case *ast.CommClause:
		m.statements(n.Body)
	case *ast.CaseClause:
		m.statements(n.Body)
		for _, e := range n.List {
			m.condition(e)
		}
	case *ast.IfStmt:
		m.condition(n.Cond)
	case *ast.ForStmt:
		m.condition(n.Cond)
	case *ast.ReturnStmt:
		for _, e := range n.Results {
			m.condition(e)
			if m.typeOf(e) == "error" {
				m.add(e, "nil for "+m.source(e), "mutantValue[error](%d, ", ", nil)")
			}
		}
	case ast.Expr:
		m.expression(n)
		return m.info.Types[n].Value == nil
	}
	return true
}

func (m *mutator) expression(e ast.Expr) {
	switch n := e.(type) {
	case *ast.Ident:
		if m.info.Types[n].Value != nil && (n.Name == "true" || n.Name == "false") {
			m.negate(n)
		}
	case *ast.BasicLit:
		if n.Kind == token.INT && len(n.Value) == 1 && number.MatchString(m.typeOf(n)) {
			m.add(n, "1 more than "+n.Value, "mutantValue["+m.typeOf(n)+"](%d, ", ", 1+"+n.Value+")")
		}
	case *ast.BinaryExpr:
		if m.info.Types[n].Value != nil {
			return
		}
		if op := map[token.Token]string{
			token.LAND: "||", token.LOR: "&&", token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">",
		}[n.Op]; op != "" {
			other := "(" + m.source(n.X) + op + " " + m.source(n.Y) + ")"
			m.add(n, op+" in "+m.source(n), "(mutantIs(%d) && "+other+" || !mutantIs(%d) && (", "))")
		}
		if n.Op == token.LAND || n.Op == token.LOR {
			m.condition(n.X)
			m.condition(n.Y)
		} else if strings.HasSuffix(m.typeOf(n), "bool") {
			m.negate(n)
		}
	}
}

// statements leaves out each call, and each assignment to a field or an element.
func (m *mutator) statements(list []ast.Stmt) {
	for _, s := range list {
		assign, ok := s.(*ast.AssignStmt)
		if ok && assign.Tok != token.DEFINE && !name.MatchString(m.source(assign.Lhs[0])) {
			m.add(s, "without "+m.source(s), "if !mutantIs(%d) { ", " }")
		}
		if _, call := s.(*ast.ExprStmt); call && !needed.MatchString(m.source(s)) {
			m.add(s, "without "+m.source(s), "if !mutantIs(%d) { ", " }")
		}
	}
}
