package imports

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// seeded are what math/rand/v2 has for choices by a seed. All else of it chooses by another seed each
// time, which nobody knows afterwards.
var seeded = []string{"New", "NewPCG", "NewChaCha8", "NewZipf", "Rand", "Source", "PCG", "ChaCha8", "Zipf"}

// TestChoicesAreSeeded wants tests to choose by a number that does not change, or by that of
// testenv.Seed, which a test that fails prints.
func TestChoicesAreSeeded(t *testing.T) {
	files := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		local := ""
		for _, i := range file.Imports {
			if p := strings.Trim(i.Path.Value, `"`); p == "math/rand/v2" || p == "math/rand" {
				if local = "rand"; i.Name != nil {
					local = i.Name.Name
				}
			}
		}
		if local == "" {
			return nil
		}
		files++
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && isOf(call.Fun, local, "NewPCG") {
				for _, seed := range call.Args {
					ast.Inspect(seed, func(n ast.Node) bool {
						if e, ok := n.(ast.Expr); ok && isOf(e, "time", "Now") {
							t.Errorf("%s has the time for a seed: use testenv.Rand", path)
						}
						return true
					})
				}
			}
			if s, ok := n.(*ast.SelectorExpr); ok && !slices.Contains(seeded, s.Sel.Name) && isOf(s, local, s.Sel.Name) {
				t.Errorf("%s uses %s.%s, which has a seed that nobody knows: use testenv.Rand", path, local, s.Sel.Name)
			}
			return true
		})
		return nil
	})
	if err != nil || files < 5 {
		t.Errorf("%d files that choose, %v", files, err)
	}
}

// isOf reports whether an expression is a name of a package.
func isOf(e ast.Expr, pkg, name string) bool {
	s, ok := e.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != name {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == pkg
}
