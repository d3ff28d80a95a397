package main

import (
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// program is the product with its types. All its packages are checked from their sources, in one go: an object is the
// same one wherever it is used.
type program struct {
	set    *token.FileSet
	info   types.Info
	files  map[string]*ast.File // by path
	ours   map[string]*types.Package
	others types.Importer
	types  []types.Type                   // pointers to those of ours, but interfaces
	found  map[*types.Func][]types.Object // what implementations has returned
}

// Import implements types.Importer.
func (p *program) Import(path string) (*types.Package, error) {
	if pkg := p.ours[path]; pkg != nil {
		return pkg, nil
	}
	return p.others.Import(path)
}

// typed returns the program. Functions have bodies in the given folders.
func typed(t *testing.T, folders map[string]bool) *program {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-export", "-f", "{{.ImportPath}}|{{.Export}}|{{join .GoFiles \",\"}}", ".")
	list.Env = append(list.Environ(), "GOOS=linux")
	out, err := list.Output()
	if failed := new(exec.ExitError); errors.As(err, &failed) {
		require.NoError(t, err, string(failed.Stderr))
	}
	require.NoError(t, err)
	exports := map[string]string{}
	p := &program{
		set: token.NewFileSet(), files: map[string]*ast.File{}, ours: map[string]*types.Package{}, found: map[*types.Func][]types.Object{},
		info: types.Info{Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}},
	}
	p.others = importer.ForCompiler(p.set, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for line := range strings.Lines(string(out)) { // a package stands after those that it imports
		fields := strings.Split(strings.TrimSpace(line), "|")
		exports[fields[0]] = fields[1]
		if dir, ours := internalImport(fields[0]); ours {
			p.check(t, dir, fields[0], strings.Split(fields[2], ","), folders[dir])
		}
	}
	return p
}

func (p *program) check(t *testing.T, dir, path string, names []string, bodies bool) {
	t.Helper()
	var parsed []*ast.File
	for _, name := range names {
		f, err := parser.ParseFile(p.set, filepath.Join(dir, name), nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		parsed = append(parsed, f)
		p.files[filepath.ToSlash(filepath.Join(dir, name))] = f
	}
	config := types.Config{Importer: p, IgnoreFuncBodies: !bodies}
	pkg, err := config.Check(path, p.set, parsed, &p.info)
	require.NoError(t, err)
	p.ours[path] = pkg
	for _, name := range pkg.Scope().Names() {
		typ, ok := pkg.Scope().Lookup(name).(*types.TypeName)
		if ok && !typ.IsAlias() && !types.IsInterface(typ.Type()) {
			p.types = append(p.types, types.NewPointer(instance(t, typ.Type().(*types.Named))))
		}
	}
}

// instance returns a type with its own parameters as arguments, as it is within its methods.
func instance(t *testing.T, of *types.Named) types.Type {
	t.Helper()
	var args []types.Type
	for arg := range of.TypeParams().TypeParams() {
		args = append(args, arg)
	}
	if len(args) == 0 {
		return of
	}
	is, err := types.Instantiate(nil, of, args, false)
	require.NoError(t, err)
	return is
}

// declaration is a function, a method or a type.
type declaration struct {
	name *ast.Ident
	of   string // the type of a method
	node ast.Node
}

func declarations(f *ast.File) (out []declaration) {
	if f == nil { // not of Go
		return nil
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			out = append(out, declaration{d.Name, receiver(d), d})
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if spec, ok := s.(*ast.TypeSpec); ok {
					out = append(out, declaration{spec.Name, "", spec})
				}
			}
		}
	}
	return out
}

// receiver returns the name of the type of a method, or "".
func receiver(d *ast.FuncDecl) (name string) {
	if d.Recv == nil {
		return ""
	}
	ast.Inspect(d.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && name == "" {
			name = id.Name
		}
		return true
	})
	return name
}

// named returns the functions, methods and types of a step.
func (p *program) named(t *testing.T, s step) map[types.Object]bool {
	t.Helper()
	out, have := map[types.Object]bool{}, map[string]bool{}
	for _, d := range declarations(p.files[s.file]) {
		if slices.Contains(s.names, d.name.Name) {
			out[p.info.Defs[d.name]], have[d.name.Name] = true, true
		}
	}
	for _, n := range s.names {
		require.Truef(t, have[n], "%s has no %s", s.file, n)
	}
	return out
}

// uses returns what the functions, the methods and the types of a step use, and the methods of those types in the file.
func (p *program) uses(s step) map[types.Object]bool {
	out := map[types.Object]bool{}
	for _, d := range declarations(p.files[s.file]) {
		if !slices.Contains(s.names, d.name.Name) && !slices.Contains(s.names, d.of) {
			continue
		}
		ast.Inspect(d.node, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			if !ok {
				return true
			}
			o := p.info.Uses[id]
			if f, ok := o.(*types.Func); ok {
				o = f.Origin()
			}
			if o != nil && o.Pkg() != nil && p.ours[o.Pkg().Path()] != nil {
				out[o] = true
			}
			return true
		})
	}
	return out
}

// usesOne reports whether a step uses one of the objects. A call of a method of an interface uses this method of each type
// of the module that implements the interface.
func (p *program) usesOne(s step, of map[types.Object]bool) bool {
	for o := range p.uses(s) {
		if of[o] || slices.ContainsFunc(p.implementations(o), func(o types.Object) bool { return of[o] }) {
			return true
		}
	}
	return false
}

// implementations returns the methods that implement one of an interface.
func (p *program) implementations(o types.Object) (out []types.Object) {
	method, ok := o.(*types.Func)
	if !ok || method.Signature().Recv() == nil || !types.IsInterface(method.Signature().Recv().Type()) {
		return nil
	}
	if out, known := p.found[method]; known {
		return out
	}
	for _, typ := range p.types {
		if types.Implements(typ, method.Signature().Recv().Type().Underlying().(*types.Interface)) {
			if o, _, _ := types.LookupFieldOrMethod(typ, true, method.Pkg(), method.Name()); o != nil {
				out = append(out, o.(*types.Func).Origin())
			}
		}
	}
	p.found[method] = out
	return out
}

// opened returns the files with the functions and methods that steps call themselves.
func (p *program) opened(steps []step) map[string]bool {
	out := map[string]bool{}
	for _, s := range steps {
		for o := range p.uses(s) {
			if _, ok := o.(*types.Func); ok {
				out[p.set.Position(o.Pos()).Filename] = true
			}
		}
	}
	maps.DeleteFunc(out, func(name string, _ bool) bool { return under(filepath.ToSlash(name), "api/generated") })
	return out
}
