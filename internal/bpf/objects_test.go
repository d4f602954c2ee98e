package bpf

import (
	"bytes"
	"cmp"
	"debug/elf"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"hallmark/internal/testenv"
)

//go:generate sh -c "clang-19 --version | head -n 1 >testdata/clang.txt"

// TestObjectsAreCurrent compiles the programs again and compares: what is committed
// is what the C says.
func TestObjectsAreCurrent(t *testing.T) {
	testenv.Tool(t, "clang-19")
	testenv.Tool(t, "llvm-strip-19")
	_, err := os.Stat("/usr/include/bpf/bpf_helpers.h")
	testenv.Need(t, err == nil, "libbpf-dev")
	dir := t.TempDir()
	// bpf2go writes into the directory that it is called in.
	if out, err := exec.Command("cp", "-r", "../../internal", "../../tools", "../../go.mod", "../../go.sum", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	copied := filepath.Join(dir, "internal", "bpf")
	generate := exec.Command("go", "generate", ".")
	generate.Dir = copied
	if out, err := generate.CombinedOutput(); err != nil {
		t.Fatalf("go generate: %v\n%s", err, out)
	}
	generated, err := filepath.Glob("*_bpfel.*")
	if err != nil {
		t.Fatal(err)
	}
	if sources, err := filepath.Glob("c/*.bpf.c"); err != nil || len(generated) != 2*len(sources) {
		t.Fatalf("of %v these files are generated: %v, %v", sources, generated, err)
	}
	for _, name := range generated {
		have, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join(copied, name))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(have, want) {
			continue
		}
		needSameCompiler(t, filepath.Join(copied, "testdata", "clang.txt"))
		difference := "it is text"
		if filepath.Ext(name) == ".o" {
			if difference = differenceOf(t, have, want); difference == "" {
				continue
			}
		}
		t.Errorf("%s is not what the C gives: run go generate ./internal/bpf: %s", name, difference)
	}
}

// differenceOf returns how two objects differ but for the numbers of their types. LLVM 19 gives
// numbers to types that are completed late in the order of their addresses in its memory (FixupDerivedTypes in
// BTFDebug.h), so that they change with the length of a path. The types themselves, and the fields that programs
// ask for, have to be the same.
func differenceOf(t *testing.T, one, other []byte) string {
	t.Helper()
	a, b := textOf(t, one), textOf(t, other)
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("%q, and now %q", a[i], b[i])
		}
	}
	if len(a) != len(b) {
		return fmt.Sprintf("%d parts, and now %d", len(a), len(b))
	}
	return ""
}

// textOf returns what is in an object: its sections, the instructions with the fields that they ask for, and the types.
func textOf(t *testing.T, object []byte) (parts []string) {
	t.Helper()
	file, err := elf.NewFile(bytes.NewReader(object))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range file.Sections {
		if s.Type == elf.SHT_NOBITS {
			parts = append(parts, fmt.Sprintf("section %s: %d bytes", s.Name, s.Size))
			continue
		}
		data, err := s.Data()
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(s.Name, ".BTF") {
			data = nil
		}
		parts = append(parts, fmt.Sprintf("section %s: %x", s.Name, data))
	}
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(object))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(spec.Programs)) {
		for i, ins := range spec.Programs[name].Instructions {
			parts = append(parts, fmt.Sprintf("%s, instruction %d: %v %v %v", name, i, ins, btf.CORERelocationMetadata(&ins), ins.Source()))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(spec.Maps)) {
		m := spec.Maps[name]
		parts = append(parts, fmt.Sprintf("map %v, of %v to %v", m, m.Key, m.Value))
	}
	var types []string
	for typ, err := range spec.Types.All() {
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprint(typ)
		if s, ok := typ.(*btf.Struct); ok {
			for _, m := range s.Members {
				text += fmt.Sprintf(", %s at %d: %v", m.Name, m.Offset, m.Type)
			}
		}
		types = append(types, text)
	}
	slices.Sort(types)
	return append(parts, types...)
}

// needSameCompiler ends a test that compares what different compilers made.
func needSameCompiler(t *testing.T, ours string) {
	t.Helper()
	here, err := os.ReadFile(ours)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := os.ReadFile(filepath.Join("testdata", "clang.txt"))
	if err != nil {
		t.Fatal(err)
	}
	testenv.Need(t, bytes.Equal(here, theirs), fmt.Sprintf("%q, which compiled what is committed, instead of %q", theirs, here))
}

// subsystems are the beginnings of the names of functions in a file, where these are not its own
// name: of list and its parts, for instance.
var subsystems = map[string]string{
	"filesettle": "filever",
	"listcode":   "list",
	"listfiles":  "list",
	"mapleleaf":  "maple",
	"maplenext":  "maple",
	"state":      "state|frame", // frame_where
}

// TestNamesSayTheFile wants every function in C, but for the programs themselves, to have the
// file that it is in at the beginning of its name.
func TestNamesSayTheFile(t *testing.T) {
	files, err := filepath.Glob("c/*.[ch]")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	function := regexp.MustCompile(`(?m)^(?:static|__noinline) [^;={(]*?(\w+)\(`)
	found := 0
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		own, _, _ := strings.Cut(filepath.Base(file), ".")
		begins := regexp.MustCompile("^(" + cmp.Or(subsystems[own], own) + ")_")
		for _, m := range function.FindAllSubmatch(b, -1) {
			found++
			if !begins.Match(m[1]) {
				t.Errorf("%s of %s does not begin with %s", m[1], file, begins)
			}
		}
	}
	if found < 200 {
		t.Errorf("only %d functions were found", found)
	}
}

// TestLicences wants the licence on every source that goes into the kernel.
func TestLicences(t *testing.T) {
	for _, pattern := range []string{"c/*.h", "c/events/*.h", "c/*.c"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		for _, name := range files {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(b), "SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause") {
				t.Errorf("%s does not say its licence", name)
			}
		}
	}
}
