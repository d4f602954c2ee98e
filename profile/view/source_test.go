package view

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	pprof "github.com/google/pprof/profile"

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

func TestSourceLines(t *testing.T) {
	p := compiledFrom("/build/app/src/main.c")
	dir := tree(t, map[string]string{"src/main.c": "int main() { <b>\t\x1b[2J\r\nsecond\n", "main.c": "another\n"})
	site := start(t, p, Options{Sources: dir})
	_, body := site.get(t, "source?f=^main$")
	for _, want := range []string{"int main() { &lt;b&gt;        \uFFFD[2J\n", "second", "Text from src/main.c", "nothing proves"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page has no %q:\n%s", want, body)
		}
	}
	for _, bad := range []string{"another", "vfs_read"} {
		if strings.Contains(body, bad) {
			t.Errorf("the page has %q:\n%s", bad, body)
		}
	}
	if _, body := site.get(t, "source?f=no_such_function"); !strings.Contains(body, "No function has this name") {
		t.Errorf("without a function:\n%s", body)
	}
	for _, query := range []string{"f=(", "f=main&si=nonsense"} {
		if status, _ := site.get(t, "source?"+query); status != http.StatusBadRequest {
			t.Errorf("%s: status %d", query, status)
		}
	}
}

// TestSourceCosts counts a function that calls itself once in each stack.
func TestSourceCosts(t *testing.T) {
	p := compiledFrom("a.c")
	s := &source{shown: p}
	got := map[string]cost{}
	for _, l := range s.listings(regexp.MustCompile(""), 0) {
		got[l.function] = l.cost
		if l.lines[1] != l.cost {
			t.Errorf("%s: its only line costs %v, and it costs %v", l.function, l.lines[1], l.cost)
		}
	}
	for name, want := range map[string]cost{"walk": {3, 3}, "step": {5, 5}, "loop": {0, 5}, "vfs_read": {2, 3}} {
		if got[name] != want {
			t.Errorf("%s costs %v, want %v", name, got[name], want)
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
		_, body := start(t, compiledFrom(name), Options{Sources: dir}).get(t, "source?f=main")
		if strings.Contains(body, "root:") || strings.Contains(body, "Text from") {
			t.Errorf("%.80q: a file is shown:\n%.2000s", name, body)
		}
	}
	_, body := start(t, compiledFrom("inside.c"), Options{Sources: dir}).get(t, "source?f=main")
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
			_, body := start(t, compiledFrom(name), Options{Sources: dir}).get(t, "source?f=main")
			if strings.Contains(body, "Text from") {
				t.Errorf("%s below %s is shown:\n%.2000s", name, dir, body)
			}
		}
	}
	_, body := start(t, compiledFrom(own), Options{Sources: "/"}).get(t, "source?f=main")
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
	dir := tree(t, map[string]string{"large.c": "", "long.c": strings.Repeat("x", 100_000) + "\n"})
	if err := os.Truncate(filepath.Join(dir, "large.c"), 1<<40); err != nil {
		t.Fatal(err)
	}
	_, body := start(t, compiledFrom("large.c"), Options{Sources: dir}).get(t, "source?f=main")
	if !strings.Contains(body, errTooLarge.Error()) {
		t.Errorf("a file of 1 TiB:\n%.2000s", body)
	}
	_, body = start(t, compiledFrom("long.c"), Options{Sources: dir}).get(t, "source?f=main")
	if n := strings.Count(body, "x"); n < maxSourceLine || n > 2*maxSourceLine {
		t.Errorf("of a line of 100,000 characters %d are shown", n)
	}
}

// TestNamesAreHidden wants equal names to stay equal, and all of them back.
func TestNamesAreHidden(t *testing.T) {
	make := func() *pprof.Profile {
		p := proftest.Mixed()
		p.Mapping[1].BuildID = "../../../*/*"
		p.Mapping[2].File = p.Mapping[0].File
		return p
	}
	var names tokens
	hidden, again := make(), make()
	names.hide(hidden)
	names.hide(again)
	for i, m := range hidden.Mapping {
		if strings.ContainsAny(m.File+m.BuildID, "/.*[") {
			t.Errorf("mapping %d is of %q, %q", i, m.File, m.BuildID)
		}
		if m.File != again.Mapping[i].File || m.BuildID != again.Mapping[i].BuildID || (m.File == "") != (make().Mapping[i].File == "") {
			t.Errorf("mapping %d is of %q and %q", i, m.File, again.Mapping[i].File)
		}
	}
	names.restore(hidden)
	for i, m := range hidden.Mapping {
		if want := make().Mapping[i]; m.File != want.File || m.BuildID != want.BuildID {
			t.Errorf("mapping %d is of %q, %q again, want %q, %q", i, m.File, m.BuildID, want.File, want.BuildID)
		}
	}
}

// TestLabelsThatBecomeEqual has labels that differ in what is replaced, with units in one of them.
func TestLabelsThatBecomeEqual(t *testing.T) {
	for range 20 { // maps have many orders
		p := proftest.Mixed()
		s := p.Sample[0]
		s.NumLabel = map[string][]int64{"a\x01": {1, 2}, "a\x02": {1}, "a\uFFFD": {1, 2, 3}}
		s.NumUnit = map[string][]string{"a\x01": {"x", "y"}, "a\x02": {"x"}, "a\uFFFD": {"x", "y", "z"}}
		clean(p)
		for key, values := range s.NumLabel {
			if n := len(s.NumUnit[key]); n != 0 && n != len(values) {
				t.Fatalf("%q has %d numbers and %d units", key, len(values), n)
			}
		}
		if err := p.CheckValid(); err != nil {
			t.Fatal(err)
		}
		p.Copy() // panics where units are missing
	}
}
