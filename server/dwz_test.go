package server

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"hallmark/buildid"
	"hallmark/internal/elffile"
	"hallmark/internal/testenv"
	"hallmark/server/api"
	"hallmark/server/indexer"
	"hallmark/server/store"
	"hallmark/symbol"
)

// shared builds two programs with the same inlined function, and has dwz put what they share into a file.
func shared(t *testing.T) (program, common []byte) {
	t.Helper()
	dir := t.TempDir()
	header := "struct many { int first_of_many; long second_of_many; struct many *next_of_many; char name_of_many[8]; };\n" +
		"static inline __attribute__((always_inline)) long inlined_and_shared(struct many *m, int n) {\n" +
		"	long s = 1;\n	for (int i = 0; i < n; i++, m = m->next_of_many) { s ^= m->first_of_many * n; m->second_of_many += s; }\n	return s;\n}\n"
	source := "#include \"shared.h\"\nstruct many g;\nint main(int argc, char **argv) { return inlined_and_shared(&g, argc); }\n"
	for name, text := range map[string]string{"shared.h": header, "one.c": source, "two.c": source + "int other;\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"gcc", "-g", "-O1", "-Wl,--build-id", "-o", "one", "one.c"},
		{"gcc", "-g", "-O1", "-Wl,--build-id", "-o", "two", "two.c"},
		{"dwz", "-m", "common", "one", "two"},
	} {
		cmd := exec.Command(testenv.Tool(t, args[0]), args[1:]...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	for name, to := range map[string]*[]byte{"one": &program, "common": &common} {
		var err error
		if *to, err = os.ReadFile(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Contains(common, []byte("inlined_and_shared\x00")) || bytes.Contains(program, []byte("inlined_and_shared\x00")) {
		t.Skip("dwz put the name elsewhere")
	}
	return program, common
}

// TestDwz has the file that dwz made come after the index, first from an agent with other names: these get into
// nothing that others sent, and the right ones are there once the right file is.
func TestDwz(t *testing.T) {
	program, common := shared(t)
	forged := bytes.ReplaceAll(common, []byte("inlined_and_shared\x00"), []byte("forged_and_planted\x00"))
	var days atomic.Int64
	s, base := start(t, func(c *Config) {
		withSymbols(t)(c)
		c.Store.Now = func() time.Time { return time.Now().AddDate(0, 0, int(days.Load())) }
		c.CollectEvery = time.Hour
	})
	add := func(b []byte, trust store.Trust) *store.Manifest {
		t.Helper()
		spool, err := s.Store.Spool(t.Context(), bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		defer spool.Close()
		a, err := s.Store.Add(t.Context(), spool, store.Claim{Origin: store.Origin{Trust: trust}})
		if err != nil {
			t.Fatal(err)
		}
		return a.Manifest
	}
	m := add(program, store.CI)
	image, err := elffile.Read(bytes.NewReader(program), "program")
	if err != nil {
		t.Fatal(err)
	}
	question := api.SymbolizeRequest{Files: []api.SymbolizeFile{{ID: m.ID.String(), Virtual: true}}}
	for i := range image.Sections {
		if text := &image.Sections[i]; text.Name == ".text" {
			for a := text.Addr; a < text.Addr+text.Size; a++ {
				question.Files[0].Addresses = append(question.Files[0].Addresses, api.Address(a))
			}
		}
	}
	inlined := func() (name string) {
		t.Helper()
		body, err := json.Marshal(question)
		if err != nil {
			t.Fatal(err)
		}
		answer := read[api.SymbolizeAnswer](t, ask(t, "POST", base+"/v1/symbolize", bytes.NewReader(body)).want(t, 200))
		for _, r := range answer.Files[0].Results {
			for _, f := range r.Frames {
				if f.Inlined {
					name = f.Function
				}
			}
		}
		return name
	}
	found := func(query string) (n int) {
		t.Helper()
		return len(read[api.FunctionsAnswer](t, ask(t, "GET", base+"/v1/functions?q="+query, nil).want(t, 200)).Functions)
	}
	if name := inlined(); name != "" {
		t.Errorf("without the file of dwz: %s", name)
	}
	dwz := m.IndexName().Dwz
	if missing := s.missing.list(); len(missing) != 1 || missing[0].ID != dwz {
		t.Errorf("missing: %v", missing)
	}
	add(forged, store.Agent)
	if name := inlined(); name != "" || found("planted") != 0 {
		t.Errorf("with one that an agent sent: %s", name)
	}
	add(common, store.Upstream)
	for range 2 {
		if name := inlined(); name != "inlined_and_shared" || found("and_shared") != 1 || found("planted") != 0 {
			t.Errorf("with the right one: %s", name)
		}
		// The index that is not needed any more goes, and the other one stays.
		days.Add(9)
		s.collect(t.Context())
	}
	indexes := 0
	for info, err := range s.Store.Blobs.List(t.Context(), "index/") {
		if err != nil {
			t.Fatal(err)
		}
		t.Log(info.Key)
		indexes++
	}
	if indexes != 1 {
		t.Errorf("%d indexes stay", indexes)
	}
	if used, err := s.Store.Manifest(t.Context(), dwz); err != nil || s.asked.of(used.ID) == nil {
		t.Errorf("the file of dwz was not used: %v", err)
	}
}

// TestDwzOfAgent wants what an agent sent to be read with what an agent sent.
func TestDwzOfAgent(t *testing.T) {
	program, common := shared(t)
	s, _ := start(t, withSymbols(t))
	for _, b := range [][]byte{common, program} {
		spool, err := s.Store.Spool(t.Context(), bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		defer spool.Close()
		a, err := s.Store.Add(t.Context(), spool, store.Claim{Origin: store.Origin{Trust: store.Agent}})
		if err != nil {
			t.Fatal(err)
		}
		x, err := s.Symbols.Get(t.Context(), t.Context(), a.Manifest)
		if err != nil {
			t.Fatal(err)
		}
		x.Close()
		if n := a.Manifest.IndexName(); !n.Dwz.IsZero() {
			dwz, err := s.Store.Manifest(t.Context(), n.Dwz)
			if err != nil || !n.Takes(dwz.DwzFile()) {
				t.Errorf("%v: not taken", err)
			}
		}
	}
}

// TestDwzOfAnother has an index made with a file of dwz that the executable does not refer to: its names are not those
// of the executable.
func TestDwzOfAnother(t *testing.T) {
	program, common := shared(t)
	info, err := buildid.Read(bytes.NewReader(common))
	if err != nil {
		t.Fatal(err)
	}
	id := info.ID.Bytes()
	other := bytes.ReplaceAll(common, id, bytes.Repeat([]byte{7}, len(id)))
	other = bytes.ReplaceAll(other, []byte("inlined_and_shared\x00"), []byte("forged_and_planted\x00"))
	for name, c := range map[string]struct {
		dwz  []byte
		want string
	}{"its own": {common, "inlined_and_shared"}, "another": {other, ""}} {
		files := map[string]*os.File{}
		for kind, content := range map[string][]byte{"exe": program, "dwz": c.dwz, "out": nil} {
			f, err := os.Create(filepath.Join(t.TempDir(), kind))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := f.Write(content); err != nil {
				t.Fatal(err)
			}
			files[kind] = f
		}
		if err := indexer.Make(t.Context(), files["out"], indexer.Files{Executable: files["exe"], Dwz: files["dwz"]}, indexer.Limits{}); err != nil {
			t.Fatal(err)
		}
		x, err := symbol.MapIndex(files["out"])
		if err != nil {
			t.Fatal(err)
		}
		defer x.Close()
		got := ""
		for f := range x.Functions() {
			if f.Inlined {
				got = f.Linkage
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
