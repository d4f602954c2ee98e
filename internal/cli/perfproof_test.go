package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/addr"
	"hallmark/perfdata"
)

// thisMachine is what perf would tell of it.
func thisMachine(t *testing.T) *perfdata.Info {
	t.Helper()
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		t.Fatal(err)
	}
	return &perfdata.Info{
		Hostname: unix.ByteSliceToString(uts.Nodename[:]), OSRelease: unix.ByteSliceToString(uts.Release[:]),
	}
}

// recordedFile is a file as perf would have recorded it now.
func recordedFile(t *testing.T, name string) mappedFile {
	t.Helper()
	var s unix.Stat_t
	if err := unix.Stat(name, &s); err != nil {
		t.Fatal(err)
	}
	return mappedFile{name: name, major: unix.Major(s.Dev), minor: unix.Minor(s.Dev), inode: s.Ino}
}

// TestProver changes one thing after the other that a proof needs.
func TestProver(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(name, data, 0o755); err != nil {
		t.Fatal(err)
	}
	good := recordedFile(t, name)
	later := time.Now().Add(time.Hour)
	for _, test := range []struct {
		what   string
		change func(*prover, *mappedFile)
		want   string // part of the reason, "" for an identity
	}{
		{"nothing", func(*prover, *mappedFile) {}, ""},
		{"host", func(p *prover, _ *mappedFile) { p.info.Hostname += "2" }, "recorded on"},
		{"untold host", func(p *prover, _ *mappedFile) { p.info.Hostname = "" }, ""},
		{"device", func(_ *prover, f *mappedFile) { f.minor++ }, "on device"},
		{"inode", func(_ *prover, f *mappedFile) { f.inode++ }, "another file"},
		{"no inode", func(_ *prover, f *mappedFile) { f.inode = 0 }, "does not tell the inode"},
		{"time", func(p *prover, _ *mappedFile) { p.began = time.Now().Add(-time.Hour) }, "was changed"},
		{"deleted", func(_ *prover, f *mappedFile) { f.name += " (deleted)" }, "deleted"},
		{"path", func(_ *prover, f *mappedFile) { f.name += "2" }, "no such file"},
		{"directory", func(_ *prover, f *mappedFile) { f.name = filepath.Dir(f.name) }, "no regular file"},
	} {
		p, file := &prover{info: thisMachine(t), began: later}, good
		test.change(p, &file)
		v := p.file(file)
		switch {
		case test.want == "" && (v.err != nil || v.id.IsZero() || v.trusted):
			t.Errorf("%s: %+v", test.what, v)
		case test.want != "" && (v.err == nil || !v.id.IsZero() || !strings.Contains(v.err.Error(), test.want)):
			t.Errorf("%s: %+v, want %q", test.what, v, test.want)
		}
	}
}

// TestProveModule takes a module for the one that was loaded where it is now, only.
func TestProveModule(t *testing.T) {
	dir := t.TempDir()
	list := "nf_tables 380928 2 nft_ct,nft_chain_nat, Live 0xffffffffc0800000 (E)\nhidden 16384 0 - Live 0x0000000000000000\nshort line\n"
	if err := os.WriteFile(filepath.Join(dir, "modules"), []byte(list), 0o644); err != nil {
		t.Fatal(err)
	}
	loads, err := readModules(filepath.Join(dir, "modules"))
	if err != nil || len(loads) != 2 || loads["nf_tables"] != 0xffffffffc0800000 || loads["hidden"] != 0 {
		t.Errorf("modules %v, %v", loads, err)
	}
	for file, want := range map[string]string{
		"/lib/modules/6.1.0/kernel/net/netfilter/nf-tables.ko.xz": "nf_tables",
		"/lib/modules/6.1.0/kernel/net/netfilter/nf_tables.ko":    "nf_tables",
		"[nf_tables]": "nf_tables",
	} {
		if got := moduleName(file); got != want {
			t.Errorf("%s is %s, want %s", file, got, want)
		}
	}
	text, err := kernelSymbol("_text")
	if err != nil || text == 0 {
		t.Skip("the kernel hides where it is")
	}
	for _, test := range []struct {
		name  string
		start uint64
		want  string
	}{
		{"nf_tables", 0xffffffffc0800000, ""},
		{"nf_tables", 0xffffffffc0900000, "loaded again"},
		{"hidden", 0, "loaded again"},
		{"gone", 0xffffffffc0800000, "not loaded"},
	} {
		p := &prover{info: thisMachine(t), image: &perfdata.Mmap2{Name: kernelName + "_text", Offset: 0}, proc: dir}
		if err := p.proveModule(test.name, test.start); err == nil {
			t.Errorf("%s: proven with the kernel elsewhere", test.name)
		}
		p.image.Offset = addr.Offset(text)
		err := p.proveModule(test.name, test.start)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s at %#x: %v, want %q", test.name, test.start, err, test.want)
		}
	}
}
