package kernelcode

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hallmark/addr"
	"hallmark/buildid"
)

// fakeProc is a /proc with the files on the kernel's symbols.
type fakeProc struct {
	dir  string
	text addr.Abs // where the image is
	last string   // name of the last function in the image
	boot string
	mods string
}

const fakeFunctions = 500

func (p *fakeProc) write(t *testing.T) {
	t.Helper()
	var lines strings.Builder
	fmt.Fprintf(&lines, "%016x T _text\n", uint64(p.text))
	for i := range fakeFunctions {
		fmt.Fprintf(&lines, "%016x t function_%d\n", uint64(p.text)+16*uint64(i+1), i)
	}
	fmt.Fprintf(&lines, "%016x t %s\n%016x T _etext\n", uint64(p.lastAt()), p.last, uint64(p.lastAt()+16))
	fmt.Fprintf(&lines, "ffffffffc0001000 t in_module\t[mod]\nffffffffc0100000 t bpf_prog_1\t[bpf]\n")
	files := map[string]string{"kallsyms": lines.String(), "modules": p.mods, "sys/kernel/random/boot_id": p.boot}
	for name, content := range files {
		name = filepath.Join(p.dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// privateDir returns a directory that the umask has not opened to others.
func privateDir(t *testing.T) string {
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// lastAt returns where the last function in the image is.
func (p *fakeProc) lastAt() addr.Abs { return p.text + 16*(fakeFunctions+1) }

const (
	fakeText   addr.Abs = 0xffffffff81000000
	inModule   addr.Abs = 0xffffffffc0001008
	inProgram  addr.Abs = 0xffffffffc0100008
	inKnown    addr.Abs = 0xffffffffc0200008
	fakeModule          = "mod 8192 0 - Live 0xffffffffc0001000\n"
)

// TestKernelCache changes what the kernel lists after a copy was made of it. The
// copy answers exactly as long as nothing says that it is of another kernel.
func TestKernelCache(t *testing.T) {
	id, err := buildid.New(buildid.GNU, []byte{1, 2, 3, 4})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name     string
		change   func(p *fakeProc, cache string)
		also     addr.Abs // is asked for as well
		want     string   // the last function of the image: "old" when the copy answers
		wantNext string   // the next time
	}{
		{"nothing", func(*fakeProc, string) {}, 0, "old", "old"},
		{"address in a module", func(*fakeProc, string) {}, inModule, "old", "old"},
		{"address in a program", func(*fakeProc, string) {}, inProgram, "new", "old"},
		{"address in a program that is known", func(*fakeProc, string) {}, inKnown, "old", "old"},
		{"another boot", func(p *fakeProc, _ string) { p.boot = "two" }, 0, "new", "new"},
		{"another place of the image", func(p *fakeProc, _ string) { p.text += 1 << 21 }, 0, "new", "new"},
		{"another module", func(p *fakeProc, _ string) { p.mods += "x 4096 0 - Live 0xffffffffc0200000\n" }, 0, "new", "new"},
		{"module elsewhere", func(p *fakeProc, _ string) { p.mods = strings.Replace(fakeModule, "c0001", "c0002", 1) }, 0, "new", "new"},
		{"copy that others may write", func(_ *fakeProc, c string) { os.Chmod(c, 0o622) }, 0, "new", "new"},
		{"copy cut off", func(_ *fakeProc, c string) { os.Truncate(c, 100) }, 0, "new", "new"},
		{"copy gone", func(_ *fakeProc, c string) { os.Remove(c) }, 0, "new", "new"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := &fakeProc{dir: t.TempDir(), text: fakeText, last: "old", boot: "one", mods: fakeModule}
			dir := filepath.Join(privateDir(t), "made")
			ask := func(also ...addr.Abs) string {
				t.Helper()
				p.write(t)
				c := newKernelCache(dir, p.dir, id, readModules(p.dir))
				c.isKnown = func(a addr.Abs) bool { return a == inKnown }
				k, err := c.read(append(also, p.lastAt()+3))
				if err != nil {
					t.Fatal(err)
				}
				frames := k.Lookup(p.lastAt() + 3).Frames
				if len(frames) != 1 {
					t.Fatalf("the last function is %v", frames)
				}
				return frames[0].Func
			}
			if got := ask(); got != "old" {
				t.Fatalf("the first answer is %q", got)
			}
			p.last = "new"
			test.change(p, filepath.Join(dir, "kallsyms"))
			var also []addr.Abs
			if test.also != 0 {
				also = []addr.Abs{test.also}
			}
			if got := ask(also...); got != test.want {
				t.Errorf("then it is %q, want %q", got, test.want)
			}
			if got := ask(); got != test.wantNext {
				t.Errorf("the next time it is %q, want %q", got, test.wantNext)
			}
		})
	}
}

// TestKernelCacheNotKept wants answers without a copy where there can or must be
// none.
func TestKernelCacheNotKept(t *testing.T) {
	id, err := buildid.New(buildid.GNU, []byte{1, 2, 3, 4})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	free := filepath.Join(privateDir(t), "free")
	shared := privateDir(t)
	if err := os.Chmod(shared, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, dir string
		id        buildid.ID
		zeros     bool
	}{
		{"no directory", "", id, false},
		{"no way to make it", filepath.Join(file, "dir"), id, false},
		{"directory that others can change", filepath.Join(shared, "dir"), id, false},
		{"relative directory", "dir", id, false},
		{"no identity", free, buildid.ID{}, false},
		{"hidden addresses", free, id, true},
	} {
		p := &fakeProc{dir: t.TempDir(), text: fakeText, last: "last", boot: "one"}
		p.write(t)
		if test.zeros {
			zeros := strings.Repeat("0000000000000000 t hidden\n", 1000)
			if err := os.WriteFile(filepath.Join(p.dir, "kallsyms"), []byte(zeros), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		k, err := newKernelCache(test.dir, p.dir, test.id, nil).read([]addr.Abs{p.lastAt()})
		if err != nil || k.Hidden() != test.zeros || (k.Lookup(p.lastAt()).Frames == nil) != test.zeros {
			t.Errorf("%s: %v, hidden %v", test.name, err, k.Hidden())
		}
		if _, err := os.Stat(filepath.Join(test.dir, "kallsyms")); test.dir != "" && err == nil {
			t.Errorf("%s: there is a copy", test.name)
		}
	}
}
