package scan

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"hallmark/buildid"
	"hallmark/internal/testenv"
	"hallmark/server/store"
)

// makeRPMs has rpmbuild and find-debuginfo, as Fedora uses them, make packages of two programs. One of them is there three
// times: once more as a hard link, and once as a copy.
func makeRPMs(t *testing.T, out string) []buildid.ID {
	t.Helper()
	find := testenv.Tool(t, "find-debuginfo")
	top := t.TempDir()
	for name, text := range map[string]string{"a.c": "int main(int c, char **v) { return c * 2; }\n", "b.c": "int main(int c, char **v) { return c * 3; }\n"} {
		write(t, filepath.Join(top, name), []byte(text))
	}
	spec := "Name: two\nVersion: 1.0\nRelease: 2\nSummary: s\nLicense: l\n%define __find_debuginfo " + find + "\n%{debug_package}\n%description\nd\n" +
		"%build\ngcc -g -Wl,--build-id -o a " + top + "/a.c\ngcc -g -Wl,--build-id -o b " + top + "/b.c\n" +
		"%install\ninstall -D -m 755 a %{buildroot}/usr/bin/a\ninstall -D -m 755 b %{buildroot}/usr/bin/b\nln %{buildroot}/usr/bin/a %{buildroot}/usr/bin/a2\n" +
		"install -D -m 755 a %{buildroot}/usr/sbin/a3\n%files\n/usr/bin/a\n/usr/bin/a2\n/usr/bin/b\n/usr/sbin/a3\n"
	write(t, filepath.Join(top, "two.spec"), []byte(spec))
	must(t, top, "rpmbuild", "-bb", "--define", "_topdir "+top, "--define", "_rpmdir "+out, "two.spec")
	debug, err := filepath.Glob(filepath.Join(out, "*", "two-debuginfo-*.rpm"))
	if err != nil || len(debug) != 1 {
		t.Fatalf("%q, %v", debug, err)
	}
	says, err := exec.Command(testenv.Tool(t, "rpm"), "-qp", "--provides", debug[0]).Output()
	if err != nil {
		t.Fatal(err)
	}
	var ids []buildid.ID // that debugedit gave them
	for line := range strings.Lines(string(says)) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "debuginfo(build-id) = "); ok && text != "nilnil" {
			id, err := buildid.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
	}
	if len(ids) != 2 {
		t.Fatalf("%s", says)
	}
	return ids
}

// ofElfutils returns the SHA-256 and the time of a file that elfutils' server has.
func ofElfutils(t *testing.T, url string) (sum string, modified time.Time) {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	h := sha256.New()
	if _, err := io.Copy(h, r.Body); err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", url, r.Status, err)
	}
	modified, err = http.ParseTime(r.Header.Get("Last-Modified"))
	if err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(h.Sum(nil)), modified
}

// TestRPMs wants what elfutils' server has of packages whose files are behind links, with the times that these have there.
func TestRPMs(t *testing.T) {
	dir := t.TempDir()
	ids := makeRPMs(t, dir)
	var paths []string
	for _, id := range ids {
		paths = append(paths, "/buildid/"+id.String()+"/executable", "/buildid/"+id.String()+"/debuginfo")
	}
	theirs := testenv.Debuginfod(t, dir, paths...)
	s := newScanner(t, dir)
	if err := s.Scan(t.Context()); err != nil {
		t.Fatal(err)
	}
	for path, f := range s.files {
		if strings.Contains(path, "debuginfo") && (!f.Lazy || len(f.ELF) < 3) {
			t.Errorf("%s: %+v", path, f)
		}
	}
	var names []string
	for _, id := range ids {
		s.Names(id, func(kind string, _ buildid.ID, file, _ string) bool {
			names = append(names, kind+" "+file)
			return true
		})
	}
	for _, want := range []string{"executable /usr/sbin/a3", "debuginfo /usr/lib/debug/usr/bin/a-1.0-2.x86_64.debug", "debuginfo /usr/lib/debug/usr/sbin/a3-1.0-2.x86_64.debug"} {
		if !slices.Contains(names, want) {
			t.Errorf("%q is not in %q", want, names)
		}
	}
	for i, path := range paths {
		id := ids[i/2]
		if _, err := s.Publish(t.Context(), id, i%2 == 1, nil); err != nil {
			t.Fatal(err)
		}
		m, err := s.Store.Manifest(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		f := m.Executable()
		if i%2 == 1 {
			f = m.DebugInfo()
		}
		if f == nil {
			t.Errorf("%s is not there: %+v", path, m.Files)
			continue
		}
		sum, modified := ofElfutils(t, theirs+path)
		if f.Object != sum || !f.LastModified().Equal(modified) {
			t.Errorf("%s: %s of %v, and %s of %v of elfutils' server", path, f.Object, f.LastModified(), sum, modified)
		}
	}
}

// TestMembers wants the same to be known of files in packages and outside, whatever is where in them.
func TestMembers(t *testing.T) {
	work, dir := t.TempDir(), t.TempDir()
	makeProgram(t, work)
	noise := make([]byte, 3<<20)
	for i := range noise {
		noise[i] = byte(i * i >> 3)
	}
	write(t, filepath.Join(work, "noise"), noise)
	must(t, work, "objcopy", "--add-section", ".noise=noise", "full", "large") // its section headers are at its end
	b, err := os.ReadFile(filepath.Join(work, "large"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(work, "longer"), append(b, make([]byte, 3<<20)...)) // and of this one inside
	files := map[string]string{}
	for _, name := range []string{"full", "prog", "debug", "large", "longer"} {
		files["usr/bin/"+name] = filepath.Join(work, name)
		b, err := os.ReadFile(filepath.Join(work, name))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "plain", name), b)
	}
	makeDeb(t, filepath.Join(dir, "p.deb"), control("p", ""), files)
	s := newScanner(t, dir)
	if err := s.Scan(t.Context()); err != nil {
		t.Fatal(err)
	}
	packed := s.files[filepath.Join(dir, "p.deb")].ELF
	if len(packed) != len(files) {
		t.Fatalf("%+v", packed)
	}
	for _, m := range packed {
		plain := s.files[filepath.Join(dir, "plain", filepath.Base(m.Path))].ELF
		if m.Path = ""; len(plain) != 1 || plain[0] != m {
			t.Errorf("%+v in the package, %+v outside", m, plain)
		}
	}
	if m := s.files[filepath.Join(dir, "plain", "debug")].ELF[0]; m.Executable || !m.Debug || m.Segments == "" {
		t.Errorf("%+v", m)
	}
	out, err := exec.Command(testenv.Tool(t, "readelf"), "-lW", filepath.Join(work, "prog")).Output()
	if err != nil || !bytes.Contains(out, []byte("R E")) {
		t.Errorf("%v: %s", err, out)
	}
}

// TestEarly reads files while they are taken into the store.
func TestEarly(t *testing.T) {
	work, dir := t.TempDir(), t.TempDir()
	id := makeProgram(t, work)
	hex := id.String()
	debug := map[string]string{"usr/lib/debug/.build-id/" + hex[:2] + "/" + hex[2:] + ".debug": filepath.Join(work, "debug")}
	makeDeb(t, filepath.Join(dir, "prog.deb"), control("prog", ""), map[string]string{"usr/bin/prog": filepath.Join(work, "prog")})
	makeDeb(t, filepath.Join(dir, "prog-dbgsym.deb"), control("prog-dbgsym", "Build-Ids: "+hex+"\n"), debug)
	want := map[string][]byte{}
	for _, name := range []string{"prog", "debug"} {
		b, err := os.ReadFile(filepath.Join(work, name))
		if err != nil {
			t.Fatal(err)
		}
		want[name] = b
	}
	// publish returns what came early, and whether all of it could be read.
	publish := func(s *Scanner, debugFirst bool) (order []string) {
		t.Helper()
		type read struct {
			name string
			b    []byte
			err  error
		}
		reads := make(chan read, 9)
		n := 0
		_, err := s.Publish(t.Context(), id, debugFirst, func(a *store.Arriving) {
			name := "prog"
			if a.Debug {
				name = "debug"
			}
			order = append(order, name)
			r, err := a.Open(t.Context()) // here, as all of it may be in the store before a goroutine runs
			if err != nil {
				t.Error(err)
				return
			}
			n++
			go func() {
				defer r.Close()
				b, err := io.ReadAll(r.Stream())
				reads <- read{name, b, err}
			}()
		})
		if err != nil {
			t.Fatal(err)
		}
		for range n {
			if r := <-reads; r.err != nil || !bytes.Equal(r.b, want[r.name]) {
				t.Errorf("%s: %d bytes of %d, %v", r.name, len(r.b), len(want[r.name]), r.err)
			}
		}
		return order
	}
	for _, debugFirst := range []bool{false, true} {
		s := newScanner(t, dir)
		if err := s.Scan(t.Context()); err != nil {
			t.Fatal(err)
		}
		order := publish(s, debugFirst)
		if len(order) != 2 || (order[0] == "debug") != debugFirst {
			t.Errorf("debug first %t: %v", debugFirst, order)
		}
		if again := publish(s, debugFirst); again != nil {
			t.Errorf("from the store: %v", again)
		}
	}
	// Where several files could be served, all of them are looked at first.
	must(t, dir, "cp", filepath.Join(work, "full"), "full")
	s := newScanner(t, dir)
	if err := s.Scan(t.Context()); err != nil {
		t.Fatal(err)
	}
	if order := publish(s, true); len(order) != 0 {
		t.Errorf("of several: %v", order)
	}
}

// TestEarlySlow has a reader of a file on its way that is slow. When the store has the file nothing else of it is on the disk,
// and the reader gets the rest from there.
func TestEarlySlow(t *testing.T) {
	work, dir := t.TempDir(), t.TempDir()
	id := makeProgram(t, work)
	makeDeb(t, filepath.Join(dir, "prog.deb"), control("prog", ""), map[string]string{"usr/bin/prog": filepath.Join(work, "prog")})
	want, err := os.ReadFile(filepath.Join(work, "prog"))
	if err != nil {
		t.Fatal(err)
	}
	s := newScanner(t, dir)
	if err := s.Scan(t.Context()); err != nil {
		t.Fatal(err)
	}
	var slow *store.ArrivingReader
	var content io.Reader
	got := make([]byte, 1)
	if _, err := s.Publish(t.Context(), id, false, func(a *store.Arriving) {
		if slow, err = a.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		content = slow.Stream()
	}); err != nil || slow == nil {
		t.Fatal("nothing came early", err)
	}
	defer slow.Close()
	if _, err := io.ReadFull(content, got); err != nil {
		t.Fatal(err)
	}
	open, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range open {
		if to, _ := os.Readlink(fd); strings.HasPrefix(to, s.Store.Scratch+"/") {
			t.Errorf("%s is open still", to)
		}
	}
	rest, err := io.ReadAll(content)
	if got = append(got, rest...); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes of %d, %v", len(got), len(want), err)
	}
}

// TestEarlyDamage has files that begin as what they are said to be, and are refused in the end: nobody reads all of them.
func TestEarlyDamage(t *testing.T) {
	work := t.TempDir()
	id := makeProgram(t, work)
	b, err := os.ReadFile(filepath.Join(work, "full"))
	if err != nil {
		t.Fatal(err)
	}
	for name, damaged := range map[string][]byte{"cut": b[:len(b)-100], "shorter than scanned": b[:len(b)/2]} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "full"), b)
		s := newScanner(t, dir)
		if err := s.Scan(t.Context()); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "full"), damaged)
		var readers sync.WaitGroup
		n := 0
		added, err := s.Publish(t.Context(), id, false, func(a *store.Arriving) {
			n++
			r, err := a.Open(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			readers.Go(func() {
				defer r.Close()
				got, err := io.ReadAll(r.Stream())
				if err == nil || int64(len(got)) >= a.Size {
					t.Errorf("%s: %d bytes of %d, %v", name, len(got), a.Size, err)
				}
			})
		})
		if added || err != nil || n != 1 {
			t.Errorf("%s: %t, %v, %d came early", name, added, err, n)
		}
		readers.Wait()
	}
}

// TestArchive has the sources of its own files in an archive, and no others.
func TestArchive(t *testing.T) {
	work, dir := t.TempDir(), t.TempDir()
	id := makeProgram(t, work)
	write(t, filepath.Join(work, "etc/secret"), []byte("secret"))
	must(t, work, "tar", "-c", "-z", "-f", filepath.Join(dir, "a.tar.gz"), "full", "p.c", "etc/secret")
	write(t, filepath.Join(work, "q.c"), []byte("int q;"))
	must(t, work, "tar", "-c", "-f", filepath.Join(dir, "b.tar"), "q.c")
	s := newScanner(t, dir)
	if err := s.Scan(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Publish(t.Context(), id, false, nil); err != nil {
		t.Fatal(err)
	}
	m, err := s.Store.Manifest(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"/p.c": true, "/etc/secret": false, "/q.c": false} {
		r, o, ok, err := s.Source(t.Context(), m, name, func() (func(), error) { return func() {}, nil })
		if err != nil || ok != want {
			t.Errorf("%s: %t, %v", name, ok, err)
		}
		if r != nil {
			info, err := os.Stat(filepath.Join(work, "p.c"))
			if err != nil || o.Modified.Unix() != info.ModTime().Unix() {
				t.Errorf("%v, %v", o.Modified, err)
			}
			r.Close()
		}
	}
}
