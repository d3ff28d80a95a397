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
// The texts of a probe, and the answers to a request for an identity, are no reasons of objects.
var looseReasons = []string{
	"health/window.go: no probe has finished yet",
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
	for _, f := range files(t) {
		if f.test || under(f.dir, "e2e") || f.dir == "reasons" {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if pkg, ok := s.X.(*ast.Ident); ok && pkg.Name == "reasons" {
					used[s.Sel.Name] = true
				}
			}
			for _, code := range reasonsIn(n) {
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

// reasonsIn returns the literals that a node has in the place of a reason.
func reasonsIn(n ast.Node) (out []string) {
	add := func(expr ast.Node) {
		if lit := stringOf(expr); lit != "" {
			out = append(out, lit)
		}
	}
	isReason := func(expr ast.Expr) bool {
		s, ok := expr.(*ast.SelectorExpr)
		return ok && s.Sel.Name == "Reason"
	}
	switch n := n.(type) {
	case *ast.ValueSpec:
		for i, name := range n.Names {
			if reasonName.MatchString(name.Name) && i < len(n.Values) && n.Type == nil {
				add(n.Values[i])
			}
		}
	case *ast.KeyValueExpr:
		if id, ok := n.Key.(*ast.Ident); ok && id.Name == "Reason" {
			add(n.Value)
		}
	case *ast.AssignStmt:
		for i, left := range n.Lhs {
			if isReason(left) && i < len(n.Rhs) {
				add(n.Rhs[i])
			}
		}
	case *ast.BinaryExpr:
		if isReason(n.X) && (n.Op == token.EQL || n.Op == token.NEQ) {
			add(n.Y)
		}
	case *ast.SwitchStmt:
		if n.Tag != nil && isReason(n.Tag) {
			for _, clause := range n.Body.List {
				for _, value := range clause.(*ast.CaseClause).List {
					add(value)
				}
			}
		}
	case *ast.CallExpr:
		if s, ok := n.Fun.(*ast.SelectorExpr); ok && strings.HasPrefix(s.Sel.Name, "Event") && len(n.Args) > 3 {
			add(n.Args[2])
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
