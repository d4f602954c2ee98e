// Setmodule gives this module another path, under which other modules can import it: in go.mod files,
// in imports, and in what else names a package by its path. The module is called "hallmark" here, which
// no Go command can fetch: where it is published is for its owner to say.
//
//	go run ./internal/setmodule example.org/you/hallmark
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"hallmark/internal/atomicfile"
	"hallmark/internal/plaintext"
)

func main() {
	dir := flag.String("C", ".", "the `DIRECTORY` of the module")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: setmodule [-C DIRECTORY] MODULE-PATH")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	changed, err := rename(*dir, flag.Arg(0))
	if err != nil {
		fmt.Fprintf(os.Stderr, "setmodule: %v\n", err)
		os.Exit(1)
	}
	fmt.Printf("%s changed; the module is %s now\n", plaintext.Plural(int64(changed), "file"), flag.Arg(0))
}

// renaming gives a module another path.
type renaming struct {
	root     string
	from, to string
	packages map[string]bool // directories with Go files, below the root
	inText   *regexp.Regexp  // matches a package's path in text; see ofPackage
}

// rename gives the module in the directory root the path to. It returns how many files it changed. All
// of them are read before the first one is written.
func rename(root, to string) (changed int, err error) {
	if !isModulePath.MatchString(to) {
		return 0, fmt.Errorf("%q is no path of a module: its first element needs a dot, as in example.org/you/hallmark", to)
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return 0, err
	}
	declared := regexp.MustCompile(`(?m)^module (\S+)$`).FindSubmatch(mod)
	if declared == nil {
		return 0, errors.New("go.mod declares no module")
	}
	r := &renaming{root: root, from: string(declared[1]), to: to}
	if r.packages, err = packagesIn(root); err != nil {
		return 0, err
	}
	if err := r.compile(); err != nil {
		return 0, err
	}
	contents := map[string][]byte{}
	err = walk(root, func(name string, entry fs.DirEntry) error {
		old, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		renamed, err := r.file(name, old)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if !bytes.Equal(old, renamed) {
			contents[name] = renamed
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	for name, content := range contents {
		if err := write(filepath.Join(root, name), content); err != nil {
			return changed, err
		}
		changed++
	}
	return changed, nil
}

// compile makes the pattern of paths in text.
func (r *renaming) compile() (err error) {
	r.inText, err = regexp.Compile(`(^|[\s("'` + "`" + `=])` + regexp.QuoteMeta(r.from) + `/([a-z0-9_/]+)`)
	return err
}

// isModulePath is the form of paths that the Go command fetches: https://go.dev/ref/mod#go-mod-file-ident.
var isModulePath = regexp.MustCompile(`^[a-z0-9-]+(\.[a-z0-9-]+)+(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*$`)

// walk calls each with the regular files below a directory, but for those of git, by their names from
// there.
func walk(root string, each func(name string, entry fs.DirEntry) error) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && entry.Name() == ".git":
			return fs.SkipDir
		case !entry.Type().IsRegular():
			return nil
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		return each(name, entry)
	})
}

// packagesIn returns the directories below root that have Go files.
func packagesIn(root string) (map[string]bool, error) {
	found := map[string]bool{}
	err := walk(root, func(name string, _ fs.DirEntry) error {
		if filepath.Ext(name) == ".go" {
			found[filepath.ToSlash(filepath.Dir(name))] = true
		}
		return nil
	})
	return found, err
}

// file returns the content of a file with the other path in it.
func (r *renaming) file(name string, old []byte) ([]byte, error) {
	switch {
	case filepath.Base(name) == "go.mod":
		return regexp.MustCompile(`(?m)^(module |\s*|require |replace )`+regexp.QuoteMeta(r.from)+`(\s|/|$)`).ReplaceAll(old, []byte("${1}"+r.to+"${2}")), nil
	case filepath.Ext(name) == ".go":
		return r.source(name, old)
	case filepath.Base(name) == "Makefile", filepath.Ext(name) == ".md", filepath.Ext(name) == ".sh":
		// In text a path below the module's name may be one of a cache: options and commands alone are clear.
		return regexp.MustCompile(`(coverpkg=|go get |go install )`+regexp.QuoteMeta(r.from)+`(/|\s|$)`).ReplaceAll(old, []byte("${1}"+r.to+"${2}")), nil
	}
	return old, nil
}

// source returns the content of a Go file with the other path: in imports, in other strings that are the
// path of a package, of all packages, or what all of these begin with, and in comments.
func (r *renaming) source(name string, old []byte) ([]byte, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, old, parser.ParseComments)
	if err != nil {
		if strings.Contains(name, "testdata") {
			return old, nil
		}
		return nil, err
	}
	type edit struct {
		start, end int
		text       string
	}
	var edits []edit
	replace := func(n ast.Node, text string) {
		edits = append(edits, edit{files.Position(n.Pos()).Offset, files.Position(n.End()).Offset, text})
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
			if path, err := strconv.Unquote(l.Value); err == nil {
				if below, found := strings.CutPrefix(path, r.from+"/"); found && (r.packages[below] || below == "" || below == "...") {
					replace(l, strconv.Quote(r.to+"/"+below))
				}
			}
		}
		return true
	})
	for _, group := range file.Comments {
		for _, c := range group.List {
			if text := r.inText.ReplaceAllStringFunc(c.Text, r.ofPackage); text != c.Text {
				replace(c, text)
			}
		}
	}
	if len(edits) == 0 {
		return old, nil
	}
	slices.SortFunc(edits, func(a, b edit) int { return a.start - b.start })
	var renamed bytes.Buffer
	at := 0
	for _, e := range edits {
		renamed.Write(old[at:e.start])
		renamed.WriteString(e.text)
		at = e.end
	}
	renamed.Write(old[at:])
	return format.Source(renamed.Bytes()) // which puts the imports in their order
}

// ofPackage returns a match of inText with the other path, if it is that of a package.
func (r *renaming) ofPackage(match string) string {
	parts := r.inText.FindStringSubmatch(match)
	if !r.packages[strings.TrimSuffix(strings.TrimRight(parts[2], "/"), "_test")] {
		return match
	}
	return parts[1] + r.to + "/" + parts[2]
}

// write replaces a file, with the same mode.
func write(path string, content []byte) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return atomicfile.Write(path, info.Mode().Perm(), func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
}
