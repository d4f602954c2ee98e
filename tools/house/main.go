// Command house measures the structure of this module: how many packages, how deep, how much of
// what, and which files of a package lean on each other.
//
//	cd tools && go run ./house [DIR]
//
// DIR is the root of a checkout, .. when it is missing. The definitions:
//
//   - packages: those of the module hallmark, with commands and internal ones. Modules of their own
//     (bench, tools) do not count.
//   - import depth: the packages on the longest chain of imports, tests left out.
//   - with one importer: packages but commands that exactly one package imports, tests left out.
//   - small: packages of less than 300 lines, tests left out.
//   - test support: packages that only tests and other test support import, and commands in internal.
//   - product Go: lines of all other files without _test in their name. Files that bpf2go wrote do not count anywhere.
//   - most methods: methods of one type, exported or not, tests left out.
//   - helpers used once: unexported functions and methods with exactly one use in files that are no
//     tests, for each 1,000 lines of product Go. Uses in their own bodies do not count.
//   - file arrows: pairs of files of a package, of which the first uses what the second declares at
//     the level of the package, methods and fields included. They point upward if the second is before the first in the
//     order that a greedy search finds (Eades, Lin and Smyth, 1993: a feedback arc set of about the least size). With no
//     upward arrows the files can be read in one order.
//   - places: files that name a thing, tests left out.
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
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
	"slices"
	"strings"
)

// module is the path of the module that is measured.
const module = "hallmark"

func main() {
	dir := ".."
	if len(os.Args) > 1 {
		dir = os.Args[1]
	}
	if err := run(dir); err != nil {
		fmt.Fprintln(os.Stderr, "house:", err)
		os.Exit(1)
	}
}

// pkg is a package as 'go list' knows it.
type pkg struct {
	ImportPath, Dir, Name, Export      string
	GoFiles                            []string
	Imports, TestImports, XTestImports []string
	Module                             *struct{ Path string }

	lines int
	info  *types.Info
	files []*ast.File
	types *types.Package
}

// isCommand reports whether a package is a command for users. Those in internal are for tests and releases.
func (p *pkg) isCommand() bool {
	return p.Name == "main" && !strings.Contains(p.ImportPath, "/internal/")
}

// short is the path of a package below the module.
func (p *pkg) short() string { return strings.TrimPrefix(p.ImportPath, module+"/") }

func run(dir string) error {
	all, exports, err := list(dir)
	if err != nil {
		return err
	}
	fset := token.NewFileSet()
	lookup := func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("%s: no export data", path)
		}
		return os.Open(exports[path])
	}
	imp := importer.ForCompiler(fset, "gc", lookup)
	for _, p := range all {
		if err := p.load(fset, imp); err != nil {
			return err
		}
	}
	h := &house{fset: fset, packages: all}
	return h.write(os.Stdout, dir)
}

// list returns the packages of the module, and where the export data of all that they need is.
func list(dir string) (own []*pkg, exports map[string]string, err error) {
	cmd := exec.Command("go", "list", "-deps", "-export", "-json=ImportPath,Dir,Name,Export,GoFiles,Imports,TestImports,XTestImports,Module", "./...")
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("%v: %w", cmd, err)
	}
	exports = map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		p := new(pkg)
		if err := d.Decode(p); errors.Is(err, io.EOF) {
			return own, exports, nil
		} else if err != nil {
			return nil, nil, err
		}
		exports[p.ImportPath] = p.Export
		if p.Module != nil && p.Module.Path == module {
			own = append(own, p)
		}
	}
}

// isGenerated reports whether bpf2go wrote a file.
func isGenerated(name string) bool {
	return strings.HasSuffix(name, "_bpfel.go") || strings.HasSuffix(name, "_bpfeb.go")
}

// load reads and checks the files of a package.
func (p *pkg) load(fset *token.FileSet, imp types.Importer) error {
	for _, name := range p.GoFiles {
		path := filepath.Join(p.Dir, name)
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !isGenerated(name) {
			p.lines += bytes.Count(src, []byte("\n"))
		}
		f, err := parser.ParseFile(fset, path, src, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		p.files = append(p.files, f)
	}
	p.info = &types.Info{Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{}}
	var err error
	p.types, err = (&types.Config{Importer: imp}).Check(p.ImportPath, fset, p.files, p.info)
	return err
}

// house is the module.
type house struct {
	fset     *token.FileSet
	packages []*pkg
}

func (h *house) write(w io.Writer, dir string) error {
	importers := h.importers()
	support := h.support(importers)
	var product, supportLines, edges, single, small int
	for _, p := range h.packages {
		for _, path := range p.Imports {
			if isOwn(path) {
				edges++
			}
		}
		if support[p.ImportPath] {
			supportLines += p.lines
			continue
		}
		product += p.lines
		if p.lines < 300 {
			small++
		}
		if !p.isCommand() && len(importers[p.ImportPath]) == 1 {
			single++
		}
	}
	fmt.Fprintf(w, "packages · import edges · import depth    %d · %d · %d\n", len(h.packages), edges, h.depth())
	fmt.Fprintf(w, "with one importer · small                 %d · %d\n", single, small)
	bench, err := linesBelow(filepath.Join(dir, "bench"))
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "product Go · test support · bench (lines) %d · %d · %d\n", product, supportLines, bench)
	counts := h.methods()
	fmt.Fprintf(w, "most methods on a type                    ")
	for i, m := range counts[:min(5, len(counts))] {
		fmt.Fprintf(w, "%s%s %d", strings.Repeat(" · ", min(i, 1)), m.name, m.n)
	}
	fmt.Fprintln(w)
	once := 0
	for _, p := range h.packages {
		if !support[p.ImportPath] {
			once += len(p.usedOnce())
		}
	}
	fmt.Fprintf(w, "helpers used once, per 1,000 lines        %.1f (%d)\n", 1000*float64(once)/float64(product), once)
	fmt.Fprintln(w, "upward arrows between files")
	for _, p := range h.packages {
		if up, n := p.upward(h.fset); n >= 60 {
			fmt.Fprintf(w, "  %-39s %d of %d (%d %%)\n", p.short(), up, n, 100*up/n)
		}
	}
	for _, text := range []string{"/proc/kallsyms", "mountinfo"} {
		fmt.Fprintf(w, "%-41s ", "places of "+text)
		fmt.Fprintln(w, strings.Join(h.naming(text), " "))
	}
	return nil
}

func isOwn(path string) bool { return path == module || strings.HasPrefix(path, module+"/") }

// importers returns by which packages each is imported, tests left out.
func (h *house) importers() map[string][]string {
	by := map[string][]string{}
	for _, p := range h.packages {
		for _, path := range p.Imports {
			if isOwn(path) {
				by[path] = append(by[path], p.ImportPath)
			}
		}
	}
	return by
}

// support returns the packages that only tests need.
func (h *house) support(importers map[string][]string) map[string]bool {
	tested := map[string]bool{}
	for _, p := range h.packages {
		for _, path := range slices.Concat(p.TestImports, p.XTestImports) {
			tested[path] = true
		}
	}
	found := map[string]bool{}
	for again := true; again; {
		again = false
		for _, p := range h.packages {
			isUsed := p.Name == "main" || tested[p.ImportPath] || len(importers[p.ImportPath]) > 0
			if found[p.ImportPath] || p.isCommand() || !isUsed {
				continue
			}
			if !slices.ContainsFunc(importers[p.ImportPath], func(by string) bool { return !found[by] }) {
				found[p.ImportPath], again = true, true
			}
		}
	}
	return found
}

// depth returns how many packages are on the longest chain of imports.
func (h *house) depth() int {
	depths := map[string]int{}
	deepest := 0
	for _, p := range h.packages { // 'go list -deps' has what is imported before what imports it
		for _, path := range p.Imports {
			depths[p.ImportPath] = max(depths[p.ImportPath], depths[path])
		}
		depths[p.ImportPath]++
		deepest = max(deepest, depths[p.ImportPath])
	}
	return deepest
}

// linesBelow counts the lines of Go below a directory, tests left out.
func linesBelow(dir string) (n int, err error) {
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		src, err := os.ReadFile(path)
		n += bytes.Count(src, []byte("\n"))
		return err
	})
	return n, err
}

type counted struct {
	name string
	n    int
}

// methods returns the types by their methods, most first.
func (h *house) methods() (all []counted) {
	for _, p := range h.packages {
		scope := p.types.Scope()
		for _, name := range scope.Names() {
			if t, ok := scope.Lookup(name).(*types.TypeName); ok && !t.IsAlias() {
				if named, ok := t.Type().(*types.Named); ok && named.NumMethods() > 0 {
					all = append(all, counted{p.Name + "." + name, named.NumMethods()})
				}
			}
		}
	}
	slices.SortStableFunc(all, func(a, b counted) int { return cmp.Compare(b.n, a.n) })
	return all
}

// usedOnce returns the unexported functions and methods of a package that are used once.
func (p *pkg) usedOnce() (found []*types.Func) {
	bodies := map[types.Object]*ast.FuncDecl{}
	for _, f := range p.files {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && !fn.Name.IsExported() {
				bodies[p.info.Defs[fn.Name]] = fn
			}
		}
	}
	uses := map[types.Object]int{}
	for ident, o := range p.info.Uses {
		if fn, ok := o.(*types.Func); ok {
			o = fn.Origin()
		}
		if body := bodies[o]; body != nil && (ident.Pos() < body.Pos() || ident.Pos() >= body.End()) {
			uses[o]++
		}
	}
	for o, n := range uses {
		if n == 1 {
			found = append(found, o.(*types.Func))
		}
	}
	return found
}

// upward returns how many of the arrows between the files of a package point upward, and how many
// there are.
func (p *pkg) upward(fset *token.FileSet) (up, all int) {
	files := len(p.files)
	at := map[string]int{}
	for i, f := range p.files {
		at[fset.File(f.Pos()).Name()] = i
	}
	arrow := make([][]bool, files)
	for i := range arrow {
		arrow[i] = make([]bool, files)
	}
	for ident, o := range p.info.Uses {
		if o.Pkg() != p.types || !p.isDeclared(o) {
			continue
		}
		from, to := at[fset.Position(ident.Pos()).Filename], at[fset.Position(o.Pos()).Filename]
		if from != to {
			arrow[from][to] = true
		}
	}
	place := order(arrow)
	for from := range arrow {
		for to, is := range arrow[from] {
			if is {
				all++
				if place[to] < place[from] {
					up++
				}
			}
		}
	}
	return up, all
}

// isDeclared reports whether an object is one of the package's, and not of a function.
func (p *pkg) isDeclared(o types.Object) bool {
	switch o := o.(type) {
	case *types.PkgName:
		return false
	case *types.Func:
		return true
	case *types.Var:
		return o.IsField() || o.Parent() == p.types.Scope()
	}
	return o.Parent() == p.types.Scope()
}

// order returns the place of each of n nodes in an order with few arrows to those before.
func order(arrow [][]bool) []int {
	n := len(arrow)
	in, out := make([]int, n), make([]int, n)
	for from := range arrow {
		for to, is := range arrow[from] {
			if is {
				out[from]++
				in[to]++
			}
		}
	}
	place, gone := make([]int, n), make([]bool, n)
	first, last := 0, n-1
	take := func(i int, front bool) {
		gone[i] = true
		if front {
			place[i], first = first, first+1
		} else {
			place[i], last = last, last-1
		}
		for j := range n {
			if arrow[i][j] {
				in[j]--
			}
			if arrow[j][i] {
				out[j]--
			}
		}
	}
	for first <= last {
		best := -1
		for i := range n {
			switch {
			case gone[i]:
			case out[i] == 0:
				take(i, false)
			case in[i] == 0:
				take(i, true)
			case best < 0 || out[i]-in[i] > out[best]-in[best]:
				best = i
			}
		}
		if best >= 0 && !gone[best] && in[best] > 0 && out[best] > 0 {
			take(best, true)
		}
	}
	return place
}

// naming returns the files that have a text in a string.
func (h *house) naming(text string) (found []string) {
	for _, p := range h.packages {
		for _, f := range p.files {
			has := false
			ast.Inspect(f, func(n ast.Node) bool {
				if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING && strings.Contains(l.Value, text) && !strings.Contains(l.Value, " ") {
					has = true
				}
				return true
			})
			if has {
				found = append(found, p.short()+"/"+filepath.Base(h.fset.File(f.Pos()).Name()))
			}
		}
	}
	return found
}
