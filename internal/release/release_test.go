package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"hallmark/internal/testenv"
)

// releaseTag is the tag of the commit that is built.
const releaseTag = "v0.1.0-rc.1"

// copyModule copies this module, without its history, into a directory.
func copyModule(t *testing.T, dir string) {
	t.Helper()
	root := filepath.Join("..", "..")
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() == ".git" || e.Name() == "dist" || strings.HasPrefix(e.Name(), ".dist-") {
			continue
		}
		output(t, "cp", "-R", filepath.Join(root, e.Name()), dir)
	}
}

// TestRelease builds this module twice, in different directories and each time from nothing, compares the
// bytes, and has others' tools look at them.
func TestRelease(t *testing.T) {
	if !testenv.Thorough() {
		t.Skip("minutes: HALLMARK_THOROUGH=1 builds the release twice")
	}
	first, second := filepath.Join(t.TempDir(), "first"), filepath.Join(t.TempDir(), "a/longer/path/to/the/second")
	for _, dir := range []string{first, second} {
		copyModule(t, dir)
		repositoryOf(t, dir, releaseTag)
	}
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	build := func(dir string, env []string, name string, args ...string) {
		t.Helper()
		cmd := exec.Command(testenv.Tool(t, name), args...)
		cmd.Dir, cmd.Env = dir, append(withoutGit(), append(env, "PWD="+dir)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd, err, out)
		}
	}
	build(first, nil, "make", "release")
	// The second one has a cache of its own: it must not consist of code that was compiled for the first one.
	build(second, []string{"GOCACHE=" + t.TempDir(), "HOME=" + homeFor(t), "TZ=Asia/Tokyo"}, "go", "run", "./internal/release", "-o", elsewhere)
	dist := filepath.Join(first, "dist")
	files := filesBelow(t, dist)
	wantSame(t, filesBelow(t, elsewhere), files)
	if len(files) != 6 {
		t.Fatalf("%d files", len(files))
	}
	if got := output(t, "sh", "-c", `cd "$1" && sha256sum --strict -c SHA256SUMS`, "sh", dist); strings.Count(got, ": OK\n") != 5 {
		t.Errorf("sha256sum prints %q", got)
	}

	checkRelease(t, dist, strings.TrimSpace(inGit(t, first, "rev-parse", "HEAD")), []string{first, second, elsewhere})
}

// checkRelease has others' tools look at a release of a commit. No file of it may have one of the places
// in it where it was built.
func checkRelease(t *testing.T, dist, hash string, places []string) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for _, a := range []struct{ name, machine, file string }{
		{"amd64", "Advanced Micro Devices X86-64", "x86-64"}, {"arm64", "AArch64", "ARM aarch64"},
	} {
		t.Run(a.name, func(t *testing.T) {
			archive := filepath.Join(dist, "hallmark-0.1.0-rc.1-linux-"+a.name+".tar.gz")
			checkListing(t, output(t, "tar", "-tvzf", archive), at)
			dir := t.TempDir()
			output(t, "tar", "-xzf", archive, "-C", dir, "--strip-components=1")
			program := filepath.Join(dir, "hallmark")
			if got := output(t, "readelf", "-h", program); !strings.Contains(got, a.machine) {
				t.Errorf("readelf finds another machine than %s:\n%s", a.machine, got)
			}
			if got := output(t, "readelf", "-d", program); !strings.Contains(got, "There is no dynamic section") {
				t.Errorf("readelf finds a dynamic section:\n%s", got)
			}
			if got := output(t, "readelf", "-lW", program); strings.Contains(got, "INTERP") || !strings.Contains(got, "LOAD") {
				t.Errorf("readelf finds an interpreter:\n%s", got)
			}
			if got := output(t, "file", "-b", program); !strings.Contains(got, a.file) || !strings.Contains(got, "statically linked") {
				t.Errorf("file: %s", got)
			}
			if got := output(t, "readelf", "-nW", program); !strings.Contains(got, "NT_GNU_BUILD_ID") {
				t.Errorf("the binary has no build ID:\n%s", got)
			}
			if got := output(t, "go", "version", "-m", program); !strings.Contains(got, "vcs.revision="+hash) || !strings.Contains(got, releaseTag) {
				t.Errorf("go version -m: %s", got)
			}
			for name, text := range filesBelow(t, dir) {
				for _, place := range places {
					if strings.Contains(text, place) {
						t.Errorf("%s has %s in it", name, place)
					}
				}
			}
			checkTexts(t, dir)
			checkInstallation(t, filepath.Join(dist, "hallmark_0.1.0~rc.1_"+a.name+".deb"), a.name, hash)
		})
	}
}

// checkService has lintian judge the package of the service, and dpkg install it beside that of the command.
func checkService(t *testing.T, deb, root string) {
	service := filepath.Join(filepath.Dir(deb), "hallmark-server_0.1.0~rc.1_all.deb")
	output(t, "lintian", "--allow-root", "--fail-on", "error", service)
	installService(t, root, service)
}

// homeFor returns another home with the same modules, so that none is fetched.
func homeFor(t *testing.T) string {
	t.Helper()
	home := t.TempDir()
	modules := strings.TrimSpace(output(t, "go", "env", "GOMODCACHE"))
	if err := os.MkdirAll(filepath.Join(home, "go/pkg"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(modules, filepath.Join(home, "go/pkg/mod")); err != nil {
		t.Fatal(err)
	}
	return home
}

// checkTexts has mandoc and man read the pages of an archive, and shells its completions.
func checkTexts(t *testing.T, dir string) {
	pages, err := filepath.Glob(filepath.Join(dir, "man/man1/*.1"))
	if err != nil || len(pages) < 20 {
		t.Fatalf("%d pages: %v", len(pages), err)
	}
	if got := output(t, "mandoc", append([]string{"-T", "lint", "-W", "warning"}, pages...)...); got != "" {
		t.Errorf("mandoc reports\n%s", got)
	}
	for _, page := range pages {
		cmd := exec.Command(testenv.Tool(t, "man"), "--warnings", "-E", "UTF-8", "-l", "-Tutf8", page)
		cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "MANROFFOPT=", "MANPAGER=cat", "MANWIDTH=80")
		var warnings strings.Builder
		cmd.Stderr = &warnings
		if text, err := cmd.Output(); err != nil || warnings.Len() > 0 || !strings.Contains(string(text), "hallmark") {
			t.Errorf("man of %s: %v: %s%s", filepath.Base(page), err, warnings.String(), text)
		}
	}
	completions := filepath.Join(dir, "completions")
	if got := output(t, "bash", "-c", `source "$1" && complete -p hallmark`, "bash", filepath.Join(completions, "bash/hallmark")); !strings.Contains(got, "__start_hallmark") {
		t.Errorf("bash completes by %q", got)
	}
	output(t, "zsh", "-n", filepath.Join(completions, "zsh/_hallmark"))
	if got := output(t, "fish", "--no-config", "-c", `source $argv[1]; complete hallmark`, filepath.Join(completions, "fish/hallmark.fish")); !strings.Contains(got, "hallmark") {
		t.Errorf("fish completes by %q", got)
	}
	for _, name := range []string{"LICENSE", "LICENSES/BSD-2-Clause.txt", "README.md", "docs/support.md", "licenses/go/LICENSE", "licenses/github.com/cilium/ebpf/LICENSE", "licenses/golang.org/x/sys/LICENSE"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s is missing or empty: %v", name, err)
		}
	}
}

// checkInstallation has lintian judge a package, and dpkg install it below a directory that has nothing
// else. A package for this machine runs there.
func checkInstallation(t *testing.T, deb, architecture, hash string) {
	output(t, "lintian", "--allow-root", "--fail-on", "error", deb)
	checkListing(t, output(t, "dpkg-deb", "-c", deb), time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC))
	if got := output(t, "dpkg-deb", "-I", deb); !strings.Contains(got, " Version: 0.1.0~rc.1\n Architecture: "+architecture+"\n") {
		t.Errorf("dpkg-deb prints\n%s", got)
	}
	testenv.Root(t)
	root := t.TempDir()
	for _, dir := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "var/log"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, root, map[string]string{"var/lib/dpkg/status": "", "var/lib/dpkg/available": ""})
	output(t, "dpkg", "--root="+root, "--force-architecture", "-i", deb)
	if got := output(t, "dpkg-query", "--admindir="+filepath.Join(root, "var/lib/dpkg"), "-W", "-f", "${Package} ${Version} ${Architecture} ${Status}"); got != "hallmark 0.1.0~rc.1 "+architecture+" install ok installed" {
		t.Errorf("dpkg installed %q", got)
	}
	if got := output(t, "dpkg", "--root="+root, "--verify", "hallmark:"+architecture); got != "" {
		t.Errorf("dpkg --verify prints %q", got)
	}
	if got := output(t, "man", "-M", filepath.Join(root, "usr/share/man"), "-w", "hallmark-record"); !strings.HasSuffix(got, "/man1/hallmark-record.1.gz\n") {
		t.Errorf("man finds the page %q", got)
	}
	if architecture == runtime.GOARCH {
		got := output(t, "chroot", root, "/usr/bin/hallmark", "version")
		if want := "hallmark v0.1.0-rc.1, commit " + hash + " (" + strings.TrimSpace(output(t, "go", "env", "GOVERSION")) + ", linux/" + architecture + ")\n"; got != want {
			t.Errorf("the command prints %q, want %q", got, want)
		}
	}
	checkService(t, deb, root)
	output(t, "dpkg", "--root="+root, "--purge", "hallmark:"+architecture)
	if _, err := os.Stat(filepath.Join(root, "usr")); !os.IsNotExist(err) {
		t.Errorf("files are left when the package is removed: %v", err)
	}
}
