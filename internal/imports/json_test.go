package imports

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// plainJSON are the functions that make JSON and do not pass it to plaintext.JSON, with the
// reasons. JSON lets controls of 8 bits and of direction stand in strings, and a terminal
// executes them.
var plainJSON = map[string]string{
	"cmd/hallmark/internal/addr2line/printer.go:printer.json": "llvm-symbolizer's own bytes for a program; for a terminal it goes through plaintext.JSON below",
	"server/client/client.go:Client.call":                     "a request to a server, which no terminal shows",
	"server/symbols/symbols.go:Indexes.newLease":              "an object of the store, which the server alone reads",
	"server/store/seal.go:encodeSealed":                       "an object of the store, which the server alone reads",
	"server/store/broken.go:Store.noteBrokenAs":               "an object of the store, which the server alone reads",
	"server/store/gc.go:Store.TakeTurn":                       "an object of the store, which the server alone reads",
	"profile/coverage.go:Gap.MarshalJSON":                     "part of a value: the encoder that asks for it escapes",
	"profile/stacks.go:StackGap.MarshalJSON":                  "part of a value: the encoder that asks for it escapes",
}

// encoders are the functions of encoding/json that make JSON.
var encoders = []string{"NewEncoder", "Marshal", "MarshalIndent"}

// TestJSONIsPlain refuses functions that make JSON, do not pass it to plaintext.JSON and are
// not in plainJSON, and entries that nobody needs.
func TestJSONIsPlain(t *testing.T) {
	found := map[string]string{}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel("../..", path)
		if d.IsDir() && (slices.Contains(notProduct, name) || d.Name() == "testdata" || d.Name() == ".git") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		return findEncoders(path, name, found)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, function := range slices.Sorted(maps.Keys(found)) {
		if plainJSON[function] == "" {
			t.Errorf("%s makes JSON (json.%s): pass it to plaintext.JSON, or say here why not", function, found[function])
		}
	}
	for _, function := range slices.Sorted(maps.Keys(plainJSON)) {
		if found[function] == "" {
			t.Errorf("%s may make JSON that is not plain and does not", function)
		}
	}
}

// findEncoders adds the functions of a file that mention one of the encoders other than as
// json.NewEncoder(plaintext.JSON(...)).
func findEncoders(path, name string, found map[string]string) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		return err
	}
	local := localName(file, "encoding/json")
	if local == "" {
		return nil
	}
	for _, d := range file.Decls {
		ast.Inspect(d, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && isEncoder(call.Fun, local) && len(call.Args) == 1 && isPlainWriter(call.Args[0]) {
				return false
			}
			if e, ok := n.(ast.Expr); ok && isEncoder(e, local) {
				found[name+":"+nameOf(d)] = e.(*ast.SelectorExpr).Sel.Name
			}
			return true
		})
	}
	return nil
}

// localName returns the name under which a file imports a package, "" if it does not.
func localName(file *ast.File, path string) string {
	for _, i := range file.Imports {
		if strings.Trim(i.Path.Value, `"`) != path {
			continue
		}
		if i.Name != nil {
			return i.Name.Name
		}
		return path[strings.LastIndexByte(path, '/')+1:]
	}
	return ""
}

func isEncoder(e ast.Expr, json string) bool {
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == json && slices.Contains(encoders, s.Sel.Name)
}

// isPlainWriter reports whether an expression is plaintext.JSON(...).
func isPlainWriter(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	s, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == "plaintext" && s.Sel.Name == "JSON"
}
