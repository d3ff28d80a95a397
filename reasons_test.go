package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// looseReasons are the places that name a reason without package reasons or api. The list only
// becomes shorter.
//
// The answers to a request for an identity are no reasons of objects.
var looseReasons = []string{
	"peering/trust/wire.go: Busy", "peering/trust/wire.go: Conflict", "peering/trust/wire.go: Invalid", "peering/trust/wire.go: Refused", "peering/trust/wire.go: Unauthorized",
}

// reasonName matches the names of constants that are reasons.
var reasonName = regexp.MustCompile(`^[rR]eason[A-Z]|Reason$`)

// camel matches codes that are no words of other things, as Failed or Peer are.
var camel = regexp.MustCompile(`^[A-Z][a-z]+[A-Z]`)

// readReasons returns the kinds that have each reason of reasons.yaml.
func readReasons(t *testing.T) map[string][]string {
	t.Helper()
	data, err := os.ReadFile("reasons/reasons.yaml")
	require.NoError(t, err)
	var all map[string]map[string]any
	require.NoError(t, yaml.Unmarshal(data, &all))
	codes := map[string][]string{}
	for kind, of := range all {
		for code := range of {
			codes[code] = append(codes[code], kind)
		}
	}
	maps.DeleteFunc(codes, func(code string, _ []string) bool { return strings.HasPrefix(code, "*") })
	return codes
}

// TestReasonsAreRegistered: a reason of a condition, of an event or of a pod is a constant of package
// reasons, which has an entry for each, or one of api with such an entry. A literal elsewhere is a copy
// that a change of the name would leave behind.
func TestReasonsAreRegistered(t *testing.T) {
	codes := readReasons(t)
	var loose []string
	used := map[string]bool{}
	all := files(t)
	takes, phases := reasonParameters(all), phasesOf(all)
	for _, f := range all {
		if f.test || under(f.dir, "e2e") || f.dir == "reasons" {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if pkg, ok := s.X.(*ast.Ident); ok && pkg.Name == "reasons" {
					used[s.Sel.Name] = true
				}
			}
			for _, code := range reasonsIn(n, f.dir, takes, phases) {
				if used[code] = true; !under(f.dir, "api") {
					loose = append(loose, fmt.Sprintf("%s: %s", f.path, code))
				} else if codes[code] == nil {
					t.Errorf("%s: %q has no entry in reasons/reasons.yaml", f.set.Position(n.Pos()), code)
				}
			}
			if lit := stringOf(n); codes[lit] != nil && camel.MatchString(lit) && !under(f.dir, "api") {
				loose = append(loose, fmt.Sprintf("%s: %s", f.path, lit))
			}
			return true
		})
	}
	slices.Sort(loose)
	require.Equal(t, looseReasons, slices.Compact(loose), "use a constant of package reasons, or remove the line from the list")
	for _, code := range slices.Sorted(maps.Keys(codes)) {
		require.Truef(t, used[code], "reasons/reasons.yaml: nothing gives or reads %s", code)
	}
}

// reasonParameters returns the places of the parameters named reason of each function, method and function in a
// field. The key is the name, with the folder before it if it is not exported.
func reasonParameters(all []file) map[string][]int {
	out := map[string][]int{}
	for _, f := range all {
		add := func(name string, of *ast.FuncType) {
			place := 0
			for _, field := range of.Params.List {
				for _, parameter := range field.Names {
					if parameter.Name == "reason" && !f.test {
						out[functionKey(f.dir, name)] = append(out[functionKey(f.dir, name)], place)
					}
					place++
				}
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				add(n.Name.Name, n.Type)
			case *ast.Field:
				if of, ok := n.Type.(*ast.FuncType); ok {
					for _, name := range n.Names {
						add(name.Name, of)
					}
				}
			case *ast.AssignStmt:
				for i, left := range n.Lhs {
					id, named := left.(*ast.Ident)
					if i < len(n.Rhs) && named {
						if lit, ok := n.Rhs[i].(*ast.FuncLit); ok {
							add(id.Name, lit.Type)
						}
					}
				}
			}
			return true
		})
	}
	return out
}

// functionKey is the key of a function that a file of a folder has or calls.
func functionKey(dir, name string) string {
	if ast.IsExported(name) {
		return name
	}
	return dir + "." + name
}

// phasesOf returns the types in api whose values are converted to reasons, as in Reason == string(PhaseReady): each of
// their constants is one.
func phasesOf(all []file) map[string]bool {
	converted, types := map[string]bool{}, map[string]bool{}
	each := func(is func(ast.Node)) {
		for _, f := range all {
			if !f.test {
				ast.Inspect(f.ast, func(n ast.Node) bool { is(n); return true })
			}
		}
	}
	each(func(n ast.Node) {
		for _, value := range besideReasons(n) {
			if call, ok := value.(*ast.CallExpr); ok && len(call.Args) == 1 && calledName(call) == "string" {
				if constant, ok := call.Args[0].(*ast.SelectorExpr); ok {
					converted[constant.Sel.Name] = true
				}
			}
		}
	})
	each(func(n ast.Node) {
		if spec, ok := n.(*ast.ValueSpec); ok && converted[spec.Names[0].Name] {
			if of, ok := spec.Type.(*ast.Ident); ok {
				types[of.Name] = true
			}
		}
	})
	return types
}

// calledName returns the name of the function that a call has, without its package or object.
func calledName(call *ast.CallExpr) string {
	switch fun := call.Fun.(type) {
	case *ast.Ident:
		return fun.Name
	case *ast.SelectorExpr:
		return fun.Sel.Name
	}
	return ""
}

// isReason reports whether an expression is a field Reason, or a variable reason.
func isReason(expr ast.Expr) bool {
	switch expr := expr.(type) {
	case *ast.SelectorExpr:
		return expr.Sel.Name == "Reason"
	case *ast.Ident:
		return expr.Name == "reason"
	}
	return false
}

// besideReasons returns the expressions that a node assigns to reasons, or compares with them.
func besideReasons(n ast.Node) (out []ast.Expr) {
	switch n := n.(type) {
	case *ast.KeyValueExpr:
		if id, ok := n.Key.(*ast.Ident); ok && id.Name == "Reason" {
			out = append(out, n.Value)
		}
	case *ast.AssignStmt:
		for i, left := range n.Lhs {
			if isReason(left) && i < len(n.Rhs) {
				out = append(out, n.Rhs[i])
			}
		}
	case *ast.BinaryExpr:
		if isReason(n.X) && (n.Op == token.EQL || n.Op == token.NEQ) {
			out = append(out, n.Y)
		}
	case *ast.SwitchStmt:
		if n.Tag != nil && isReason(n.Tag) {
			for _, clause := range n.Body.List {
				out = append(out, clause.(*ast.CaseClause).List...)
			}
		}
	}
	return out
}

// reasonsIn returns the literals that a node in a folder has in the place of a reason.
func reasonsIn(n ast.Node, dir string, takes map[string][]int, phases map[string]bool) (out []string) {
	add := func(expr ast.Node) {
		if lit := stringOf(expr); lit != "" && !strings.Contains(lit, " ") { // a sentence is none
			out = append(out, lit)
		}
	}
	for _, value := range besideReasons(n) {
		add(value)
	}
	switch n := n.(type) {
	case *ast.ValueSpec:
		of, typed := n.Type.(*ast.Ident)
		for i, name := range n.Names {
			if i < len(n.Values) && (reasonName.MatchString(name.Name) && n.Type == nil || typed && phases[of.Name]) {
				add(n.Values[i])
			}
		}
	case *ast.CallExpr:
		if s, ok := n.Fun.(*ast.SelectorExpr); ok && strings.HasPrefix(s.Sel.Name, "Event") && len(n.Args) > 3 {
			add(n.Args[2])
		}
		for _, place := range takes[functionKey(dir, calledName(n))] {
			if place < len(n.Args) {
				add(n.Args[place])
			}
		}
	}
	return out
}

// stringOf returns the value of a literal, or "".
func stringOf(n ast.Node) string {
	lit, ok := n.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return ""
	}
	value, err := strconv.Unquote(lit.Value)
	if err != nil {
		return ""
	}
	return value
}
