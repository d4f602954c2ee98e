package view

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"hallmark/internal/proftest"
)

// tree makes files, from names to contents.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// shownLines returns the lines of a function that was compiled from a file, as they are shown with
// the sources in a directory.
func shownLines(t *testing.T, file, dir string) string {
	t.Helper()
	site := startAs(t, compiledFrom(file), Options{}, Server{Sources: dir})
	_, body := site.get(t, site.linesOf(t, "main"))
	return body
}

func TestSourceLines(t *testing.T) {
	p := compiledFrom("/build/app/src/main.c")
	dir := tree(t, map[string]string{"src/main.c": "int main() { <b>\t\x1b[2J\r\nsecond\n", "main.c": "another\n"})
	site := startAs(t, p, Options{}, Server{Sources: dir})
	_, body := site.get(t, site.linesOf(t, "main"))
	for _, want := range []string{`int main() { \u003cb\u003e        ` + "\uFFFD" + `[2J"`, "second", `"shown":"src/main.c"`} {
		if !strings.Contains(body, want) {
			t.Errorf("the answer has no %q:\n%s", want, body)
		}
	}
	for _, bad := range []string{"another", "vfs_read"} {
		if strings.Contains(body, bad) {
			t.Errorf("the answer has %q:\n%s", bad, body)
		}
	}
}

// TestSourcesStayInTheDirectory has what leads out of it, and what is no file.
func TestSourcesStayInTheDirectory(t *testing.T) {
	outside := tree(t, map[string]string{"secret": "root:x\n"})
	dir := tree(t, map[string]string{"sub/a.c": "text of a\n"})
	links := map[string]string{
		"absolute": filepath.Join(outside, "secret"),
		"relative": "../" + filepath.Base(outside) + "/secret",
		"dir":      outside,
		"inside.c": "sub/a.c",
	}
	for name, to := range links {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "sub", "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		filepath.Join(outside, "secret"), "../" + filepath.Base(outside) + "/secret", "absolute", "relative", "/x/dir/secret",
		"pipe", "sub/pipe", "sub", ".", "/", "..", "a\x00b", strings.Repeat("a/", 10_000), strings.Repeat("x", 1<<20),
	} {
		body := shownLines(t, name, dir)
		if strings.Contains(body, "root:") || strings.Contains(body, `"shown"`) {
			t.Errorf("%.80q: a file is shown:\n%.2000s", name, body)
		}
	}
	body := shownLines(t, "inside.c", dir)
	if !strings.Contains(body, "text of a") {
		t.Errorf("a link inside of the directory:\n%s", body)
	}
}

// TestSourcesAreNoFilesOfTheKernel shows a program that was compiled from files that the kernel
// makes up. Reading one may wait, or take messages away from others.
func TestSourcesAreNoFilesOfTheKernel(t *testing.T) {
	own := filepath.Join(t.TempDir(), "a.c")
	if err := os.WriteFile(own, []byte("text of a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"/proc/version", "/proc/self/status", "/sys/kernel/notes", "/sys/kernel/uevent_seqnum"} {
		for _, dir := range []string{"/", filepath.Dir(name)} {
			body := shownLines(t, name, dir)
			if strings.Contains(body, `"shown"`) {
				t.Errorf("%s below %s is shown:\n%.2000s", name, dir, body)
			}
		}
	}
	body := shownLines(t, own, "/")
	if !strings.Contains(body, "text of a") {
		t.Errorf("a file below /:\n%s", body)
	}
}

func TestCandidates(t *testing.T) {
	for _, test := range []struct {
		dir, name string
		want      []string
	}{
		{"/src", "/src/lib/a.c", []string{"lib/a.c", "src/lib/a.c", "lib/a.c", "a.c"}},
		{"/src", "../../etc/./shadow", []string{"etc/shadow", "shadow"}},
		{"/src", "/srcs/a.c", []string{"srcs/a.c", "a.c"}},
		{"/src", "/", nil},
		{"/src", "..", nil},
	} {
		if got := candidates(test.dir, test.name); !slices.Equal(got, test.want) {
			t.Errorf("%s in %s: %q, want %q", test.name, test.dir, got, test.want)
		}
	}
}

// TestLargeSource reads no more of a file than a source has.
func TestLargeSource(t *testing.T) {
	dir := tree(t, map[string]string{"large.c": "", "long.c": strings.Repeat("x", 100_000) + "\n", "many.c": strings.Repeat("\n", maxSource-1)})
	if err := os.Truncate(filepath.Join(dir, "large.c"), 1<<40); err != nil {
		t.Fatal(err)
	}
	body := shownLines(t, "large.c", dir)
	if !strings.Contains(body, errTooLarge.Error()) {
		t.Errorf("a file of 1 TiB:\n%.2000s", body)
	}
	body = shownLines(t, "many.c", dir)
	if !strings.Contains(body, errTooManyLines.Error()) {
		t.Errorf("a file of line feeds:\n%.2000s", body)
	}
	body = shownLines(t, "long.c", dir)
	if n := strings.Count(body, "x"); n < 900 || n > 2000 {
		t.Errorf("of a line of 100,000 characters %d are shown", n)
	}
}

// TestNoLines asks for the lines of a function of which only the name is known.
func TestNoLines(t *testing.T) {
	p := proftest.Mixed()
	for _, l := range p.Location {
		for i := range l.Line {
			l.Line[i].Line = 0
		}
	}
	site := start(t, p, Options{})
	if _, body := site.get(t, site.linesOf(t, "main")); !strings.Contains(body, "debug information of this identity") || strings.Contains(body, "--source") {
		t.Errorf("%s", body)
	}
}
