package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"hallmark/internal/testenv"
)

// small is a pack whose files have sizes that are odd and even, and a name that ustar splits.
var small = pack{
	commit:       commit{hash: strings.Repeat("ab", 20), at: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), committer: "A. Maintainer <maintainer@example.org>"},
	version:      "1.2.0-rc.1",
	architecture: "arm64",
	program:      []byte("\x7fELF\x00"),
	contents: contents{
		pages:       []file{{"hallmark.1", 0o644, []byte(".TH HALLMARK 1\n")}, {"hallmark-id.1", 0o644, []byte(".TH HALLMARK-ID 1\n")}},
		completions: map[string][]byte{"bash": []byte("bash"), "zsh": []byte("zsh"), "fish": []byte("fish\n")},
		documents:   []file{{"LICENSE", 0o644, []byte("Terms\n")}, {"README.md", 0o644, nil}, {"docs/limits.md", 0o644, []byte("limits\n")}},
	},
	licenses: []file{{"go/LICENSE", 0o644, []byte("Go's\n")}, {"example.org/" + strings.Repeat("long/", 12) + "LICENSE", 0o644, []byte("long\n")}},
}

// output runs a command and returns what it prints. Times are in UTC.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(testenv.Tool(t, name), args...)
	cmd.Env = append(os.Environ(), "TZ=UTC", "LC_ALL=C.UTF-8", "TAR_OPTIONS=")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// written has write write a new file, and returns its path.
func written(t *testing.T, name string, write func(*bytes.Buffer) error) string {
	t.Helper()
	var out bytes.Buffer
	if err := write(&out); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, out.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// filesBelow returns the regular files below a directory, by their paths from there.
func filesBelow(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		below, _ := filepath.Rel(dir, path)
		found[below] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// listed matches a line of tar's for one of root's files or directories at the time of a pack's commit.
func listed(at time.Time) *regexp.Regexp {
	return regexp.MustCompile(`^(-rw-r--r--|-rwxr-xr-x|drwxr-xr-x) root/root +\d+ ` + at.Format("2006-01-02 15:04") + ` (\S+)$`)
}

// isProgram matches the path of the command in a package and in an archive.
var isProgram = regexp.MustCompile(`^(\./usr/bin|[^/]+)/hallmark$`)

// checkListing wants each line of tar's to be as listed has it, and a directory before what is in it.
func checkListing(t *testing.T, listing string, at time.Time) {
	t.Helper()
	seen := map[string]bool{}
	for line := range strings.Lines(listing) {
		m := listed(at).FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			t.Errorf("%q is not root's, or of another time", line)
			continue
		}
		name := m[2]
		if executable := isProgram.MatchString(name) || strings.HasSuffix(name, "/"); executable != strings.Contains(m[1], "x") {
			t.Errorf("%q: can be executed, or cannot", line)
		}
		above := name[:strings.LastIndexByte(strings.TrimSuffix(name, "/"), '/')+1]
		if above != "" && !seen[above] {
			t.Errorf("%s comes before its directory", name)
		}
		if seen[name] {
			t.Errorf("%s is there twice", name)
		}
		seen[name] = true
	}
	if len(seen) < 10 {
		t.Errorf("%d files and directories in\n%s", len(seen), listing)
	}
}

// TestDeb has dpkg-deb, tar and md5sum read a package.
func TestDeb(t *testing.T) {
	deb := written(t, small.debName(), small.writeDeb)
	if want := "hallmark_1.2.0~rc.1_arm64.deb"; filepath.Base(deb) != want {
		t.Errorf("the name is %s, want %s", filepath.Base(deb), want)
	}
	for field, want := range map[string]string{
		"Package": "hallmark", "Version": "1.2.0~rc.1", "Architecture": "arm64", "Maintainer": "A. Maintainer <maintainer@example.org>", "Depends": "",
	} {
		if got := strings.TrimSpace(output(t, "dpkg-deb", "-f", deb, field)); got != want {
			t.Errorf("%s is %q, want %q", field, got, want)
		}
	}
	if got := output(t, "ar", "t", deb); got != "debian-binary\ncontrol.tar.gz\ndata.tar.gz\n" {
		t.Errorf("ar lists %q", got)
	}
	checkListing(t, output(t, "dpkg-deb", "-c", deb), small.commit.at)

	dir := filepath.Join(t.TempDir(), "all")
	output(t, "dpkg-deb", "-R", deb, dir)
	sums := filepath.Join(dir, "DEBIAN/md5sums")
	output(t, "sh", "-c", `cd "$1" && md5sum --strict -c DEBIAN/md5sums`, "sh", dir)
	text, err := os.ReadFile(sums)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "DEBIAN")); err != nil {
		t.Fatal(err)
	}
	found := filesBelow(t, dir)
	if n := strings.Count(string(text), "\n"); n != len(found) {
		t.Errorf("md5sums has %d lines for %d files", n, len(found))
	}
	for name, want := range map[string]string{
		"usr/bin/hallmark": "\x7fELF\x00",
		"usr/share/bash-completion/completions/hallmark":            "bash",
		"usr/share/zsh/vendor-completions/_hallmark":                "zsh",
		"usr/share/fish/vendor_completions.d/hallmark.fish":         "fish\n",
		"usr/share/doc/hallmark/docs/limits.md":                     "limits\n",
		"usr/share/doc/hallmark/licenses/go/LICENSE":                "Go's\n",
		"usr/share/doc/hallmark/licenses/" + small.licenses[1].name: "long\n",
	} {
		if found[name] != want {
			t.Errorf("%s is %q, want %q", name, found[name], want)
		}
	}
	page := filepath.Join(dir, "usr/share/man/man1/hallmark-id.1.gz")
	if got := output(t, "gzip", "-dc", page); got != ".TH HALLMARK-ID 1\n" {
		t.Errorf("the page is %q", got)
	}
	if header := found["usr/share/man/man1/hallmark-id.1.gz"]; header[3] != 0 || header[4:8] != "\x00\x00\x00\x00" {
		t.Errorf("gzip's header has a name or a time: % x", header[:10])
	}
	if got := output(t, "dpkg-parsechangelog", "-l", unzipped(t, filepath.Join(dir, "usr/share/doc/hallmark/changelog.gz")), "-S", "Version"); got != "1.2.0~rc.1\n" {
		t.Errorf("the changelog has the version %q", got)
	}
}

// unzipped returns the path of a copy without compression.
func unzipped(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "unzipped")
	if err := os.WriteFile(path, []byte(output(t, "gzip", "-dc", name)), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestArchive has tar read an archive.
func TestArchive(t *testing.T) {
	archive := written(t, small.archiveName(), small.writeArchive)
	checkListing(t, output(t, "tar", "-tvzf", archive), small.commit.at)
	dir := t.TempDir()
	output(t, "tar", "-xzf", archive, "-C", dir)
	want := map[string]string{
		"hallmark": "\x7fELF\x00", "LICENSE": "Terms\n", "README.md": "", "docs/limits.md": "limits\n",
		"man/man1/hallmark.1": ".TH HALLMARK 1\n", "man/man1/hallmark-id.1": ".TH HALLMARK-ID 1\n",
		"completions/bash/hallmark": "bash", "completions/zsh/_hallmark": "zsh", "completions/fish/hallmark.fish": "fish\n",
		"licenses/go/LICENSE": "Go's\n", "licenses/" + small.licenses[1].name: "long\n",
	}
	found := filesBelow(t, filepath.Join(dir, "hallmark-1.2.0-rc.1-linux-arm64"))
	for name, text := range want {
		if got, ok := found[name]; !ok || got != text {
			t.Errorf("%s is %q, want %q", name, got, text)
		}
	}
	if len(found) != len(want) {
		t.Errorf("the archive has %d files, want %d", len(found), len(want))
	}
}

// TestUnwritable refuses what neither format can store.
func TestUnwritable(t *testing.T) {
	var out bytes.Buffer
	if err := writeTarGz(&out, "./", []file{{name: "a"}, {name: "a"}}, time.Unix(0, 0)); err == nil {
		t.Error("one name was written twice")
	}
	if err := writeTarGz(&out, "./", []file{{name: strings.Repeat("long", 100)}}, time.Unix(0, 0)); err == nil {
		t.Error("a name was written that ustar has no room for")
	}
	if err := writeAr(&out, time.Unix(0, 0), []file{{name: "seventeen-letters"}}); err == nil {
		t.Error("a name was written that ar has no room for")
	}
}

// TestDebVersions has dpkg sort versions that Go sorts in this order:
// https://go.dev/ref/mod#versions, https://go.dev/ref/mod#pseudo-versions.
func TestDebVersions(t *testing.T) {
	ascending := []string{
		"0.0.0-20261124010203-ffffffffffff", "0.0.0-20261125010203-000000000000", "0.1.0-alpha", "0.1.0-alpha.1", "0.1.0-alpha.beta", "0.1.0-beta.2",
		"0.1.0-beta.11", "0.1.0-rc.1", "0.1.0-rc.1.0.20261125010203-abcdefabcdef", "0.1.0", "0.1.1-0.20261125010203-abcdefabcdef", "0.1.1", "0.10.0",
	}
	for i, earlier := range ascending {
		for _, later := range ascending[i+1:] {
			output(t, "dpkg", "--validate-version", debVersion(later))
			if err := exec.Command(testenv.Tool(t, "dpkg"), "--compare-versions", debVersion(earlier), "lt", debVersion(later)).Run(); err != nil {
				t.Errorf("dpkg does not sort %s before %s: %v", debVersion(earlier), debVersion(later), err)
			}
		}
	}
}
