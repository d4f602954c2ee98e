package words

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// refused are words that exported names do not have, each with the word of this module for the same
// concept.
var refused = map[string]string{
	"Area": "VMA", "Region": "VMA", "Vma": "VMA",
	"Place":    "Location (of code), Object (what a mapping shows), MapFile (of a perf map); in debuginfo, where files are looked for",
	"Told":     "the exact verb: Report, Emit, Return, Know",
	"Tell":     "the exact verb: Report, Emit, Return, Know",
	"Tells":    "the exact verb: Report, Emit, Return, Know",
	"Filename": "Path (of a file), File (of source)", "Pathname": "Path", "Fname": "Path",
	"Dso": "Binary", "DSO": "Binary", "Exe": "Program",
	"Cmdline": "Args", "Argv": "Args", "Comm": "Name",
	"Pid": "PID", "Ppid": "PPID", "Tid": "TID", "Tgid": "PID", "TGID": "PID", "Uid": "UID", "Gid": "GID",
	"Id": "ID", "Ids": "IDs", "Buildid": "ID of buildid", "BuildId": "ID of buildid", "Uuid": "ID of buildid", "UUID": "ID of buildid",
	"Off": "Offset", "Ofs": "Offset", "Vaddr": "Virt", "VAddr": "Virt",
	"Lineno": "Line", "Routine": "Function", "Subroutine": "Function", "Procedure": "Function", "Proc": "Process",
	"Cause": "Reason", "Errno": "Reason", "Statistics": "Stats", "Metrics": "Stats",
	"Checksum": "Content", "Digest": "Content", "Fingerprint": "Identity",
	"Backtrace": "Stack", "Stacktrace": "Stack", "Trace": "Stack (of frames), Step (of a search)", "Unwinder": "Walker",
	"Symbolizer": "Symbols", "Symbolicate": "Symbolize", "Resolve": "Symbolize (of addresses), Find (of files)", "Resolver": "Finder",
	"Dwarf": "DWARF", "Elf": "ELF", "Json": "JSON", "Url": "URL", "Cpu": "CPU", "Bpf": "BPF", "Vdso": "VDSO",
	"Util": "the concept", "Utils": "the concept", "Helpers": "the concept", "Manager": "the concept", "Common": "the concept",
}

// allowed are exported names that have a refused word all the same, with the reason.
var allowed = map[string]string{
	"debuginfo.Place":                   "the one meaning of the word",
	"debuginfo.Step.Place":              "the one meaning of the word",
	"debuginfo.Finder.Trace":            "follows a search, step by step",
	"internal/aside.RemoteError.Errno":  "a syscall.Errno",
	"internal/elftest.Segment.Vaddr":    "p_vaddr, by its name in debug/elf",
	"perfdata.Comm":                     "a record of perf, by perf's name",
	"perfdata.TypeComm":                 "a record of perf, by perf's name",
	"perfdata.AttrComm":                 "a flag of perf_event_open(2), by its name",
	"perfdata.AttrCommExec":             "a flag of perf_event_open(2), by its name",
	"perfdata.FeatureCmdline":           "a section of perf.data, by perf's name",
	"perfdata.Info.Cmdline":             "a section of perf.data, by perf's name",
	"procmap.DoorExe":                   "/proc/PID/exe",
	"internal/reach.Key.FromProc":       "the file system /proc",
	"profile/compact.Function.Filename": "pprof's model, by pprof's names",
}

// notProduct are directories of what only measures.
var notProduct = []string{"bench", "tools"}

// inName finds the words of a name.
var inName = regexp.MustCompile(`[A-Z]+[a-z0-9]*|[a-z0-9]+`)

// TestOneWordForOneConcept refuses exported names with a second word for a concept, and entries of
// allowed that no name needs.
func TestOneWordForOneConcept(t *testing.T) {
	names := exportedNames(t)
	if len(names) < 1000 {
		t.Fatalf("only %d exported names were found", len(names))
	}
	needed := map[string]bool{}
	for _, name := range names {
		word, better := refusedIn(name)
		switch {
		case word == "":
		case allowed[name] != "":
			needed[name] = true
		default:
			t.Errorf("%s has the word %s: this module says %s (see the words in ARCHITECTURE.md)", name, word, better)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(allowed)) {
		if !needed[name] {
			t.Errorf("%s may have a second word for a concept and does not", name)
		}
	}
}

// TestRefusedWords finds second words, also where they are part of a name.
func TestRefusedWords(t *testing.T) {
	for name, want := range map[string]string{
		"x.Place": "Place", "x.PlaceOf": "Place", "x.T.MainPlace": "Place", "x.Replace": "", "x.ProcessId": "Id", "x.PIDList": "", "x.PidList": "Pid", "x.Identity": "",
	} {
		if got, _ := refusedIn(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// refusedIn returns a refused word of the last part of a name and the word to take, "" for none.
func refusedIn(name string) (word, better string) {
	for _, word := range inName.FindAllString(name[strings.LastIndexByte(name, '.')+1:], -1) {
		if better := refused[word]; better != "" {
			return word, better
		}
	}
	return "", ""
}

// exportedNames returns the exported names of all packages: "package.Name", "package.Type.Member".
func exportedNames(t *testing.T) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel("../..", path)
		if d.IsDir() && (slices.Contains(notProduct, rel) || d.Name() == "testdata" || d.Name() == ".git") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		pkg := filepath.ToSlash(filepath.Dir(rel))
		for _, d := range file.Decls {
			for _, name := range exportedIn(d) {
				names = append(names, pkg+"."+name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// exportedIn returns the exported names that a declaration has: fields and methods behind their type,
// and not those of types that are not exported.
func exportedIn(d ast.Decl) (names []string) {
	add := func(before string, ids ...*ast.Ident) {
		for _, id := range ids {
			if id.IsExported() {
				names = append(names, before+id.Name)
			}
		}
	}
	switch d := d.(type) {
	case *ast.FuncDecl:
		before := ""
		if d.Recv != nil {
			before = receiver(d.Recv.List[0].Type) + "."
			if !ast.IsExported(before) {
				return nil
			}
		}
		add(before, d.Name)
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.ValueSpec:
				add("", s.Names...)
			case *ast.TypeSpec:
				if !s.Name.IsExported() {
					continue
				}
				add("", s.Name)
				switch of := s.Type.(type) {
				case *ast.StructType:
					for _, f := range of.Fields.List {
						add(s.Name.Name+".", f.Names...)
					}
				case *ast.InterfaceType:
					for _, m := range of.Methods.List {
						add(s.Name.Name+".", m.Names...)
					}
				}
			}
		}
	}
	return names
}

// receiver returns the name of a method's type.
func receiver(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.StarExpr:
		return receiver(of.X)
	case *ast.IndexExpr:
		return receiver(of.X)
	case *ast.IndexListExpr:
		return receiver(of.X)
	case *ast.Ident:
		return of.Name
	}
	return "?"
}
