package main

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hallmark/internal/testenv"
)

// smallModule has all that a release is made of, and a command that compiles at once.
var smallModule = map[string]string{
	"go.mod": "module hallmark\n\ngo 1.26.0\n", "LICENSE": "Terms\n", "LICENSES/BSD.txt": "More\n", "README.md": "Read\n", "CHANGELOG.md": "Changes\n", "docs/limits.md": "Limits\n",
	"deploy/hallmark-server.service": "[Service]\n", "deploy/hallmark-server.sysusers": "u hallmark-server -\n", "deploy/hallmark-server.default": "FLAGS=\n",
	".gitignore": "/dist/\n/.dist-*/\n",
	"cmd/hallmark/main.go": `package main

import "os"

func main() {
	switch os.Args[1] {
	case "man":
		os.MkdirAll(os.Args[2], 0o777)
		os.WriteFile(os.Args[2]+"/hallmark.1", []byte(".TH HALLMARK 1\n"), 0o666)
	case "completion":
		os.Stdout.WriteString("# " + os.Args[2] + "\n")
	}
}
`,
}

// write writes files below a directory.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// repositoryOf makes a directory a repository of one commit, which is the same in each directory with
// the same files, and tags it.
func repositoryOf(t *testing.T, dir, tag string) {
	t.Helper()
	inGit(t, dir, "init", "--quiet", "--template=", ".")
	inGit(t, dir, "add", "--all")
	inGit(t, dir, "commit", "--quiet", "--no-gpg-sign", "-m", "all: as it is")
	if tag != "" {
		inGit(t, dir, "tag", tag)
	}
}

// inGit runs git in a directory, without settings of the user.
func inGit(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command(testenv.Tool(t, "git"), args...)
	cmd.Dir = dir
	cmd.Env = append(withoutGit(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=A. Maintainer", "GIT_AUTHOR_EMAIL=maintainer@example.org", "GIT_AUTHOR_DATE=2026-03-04T05:06:07Z",
		"GIT_COMMITTER_NAME=A. Maintainer", "GIT_COMMITTER_EMAIL=maintainer@example.org", "GIT_COMMITTER_DATE=2026-03-04T05:06:07Z")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return string(out)
}

// smallRelease returns a release of a new repository with smallModule.
func smallRelease(t *testing.T, below, tag string) *release {
	t.Helper()
	dir := filepath.Join(t.TempDir(), below)
	write(t, dir, smallModule)
	repositoryOf(t, dir, tag)
	return &release{repository: dir, dist: filepath.Join(dir, "dist"), architectures: []string{"amd64", "arm64"}}
}

// wantSame wants two directories to have the same files.
func wantSame(t *testing.T, got, want map[string]string) {
	t.Helper()
	if g, w := slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)); !slices.Equal(g, w) {
		t.Errorf("files %q, want %q", g, w)
	}
	for name := range want {
		if got[name] != want[name] {
			t.Errorf("%s has other bytes", name)
		}
	}
}

// wantNothingBeside wants nothing beside a release to be left.
func wantNothingBeside(t *testing.T, r *release) {
	t.Helper()
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(r.dist), ".dist-*")); err != nil || len(left) > 0 {
		t.Errorf("%q is left: %v", left, err)
	}
}

// TestFromTheCommit wants the same bytes of a commit from a clean directory, and from one with changes,
// files that git does not know, and a user with other settings.
func TestFromTheCommit(t *testing.T) {
	clean := smallRelease(t, "clean", "v1.2.0-rc.1")
	if _, err := clean.make(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := filesBelow(t, clean.dist)
	names := []string{"SHA256SUMS", "hallmark-1.2.0-rc.1-linux-amd64.tar.gz", "hallmark-1.2.0-rc.1-linux-arm64.tar.gz",
		"hallmark-server_1.2.0~rc.1_all.deb", "hallmark_1.2.0~rc.1_amd64.deb", "hallmark_1.2.0~rc.1_arm64.deb"}
	if got := slices.Sorted(maps.Keys(want)); !slices.Equal(got, names) {
		t.Fatalf("the release has %q, want %q", got, names)
	}
	output(t, "sh", "-c", `cd "$1" && sha256sum --strict -c SHA256SUMS`, "sh", clean.dist)
	wantNothingBeside(t, clean)

	changed := smallRelease(t, "a/longer/path", "v1.2.0-rc.1")
	write(t, changed.repository, map[string]string{
		"README.md": "Changed\n", "docs/untracked.md": "Untracked\n", "cmd/hallmark/untracked.go": "package main\n\nfunc init() { panic(0) }\n",
		"go.work": "go 1.26.0\n\nuse ./elsewhere\n", "gitconfig": "[core]\n\tautocrlf = true\n[log]\n\tshowSignature = true\n",
	})
	t.Setenv("GIT_CONFIG_GLOBAL", filepath.Join(changed.repository, "gitconfig"))
	t.Setenv("GOFLAGS", "-buildvcs=false -tags=other")
	t.Setenv("GOAMD64", "v3")
	t.Setenv("TZ", "Asia/Tokyo")
	_, err := changed.make(t.Context())
	if err == nil || !strings.Contains(err.Error(), "README.md") || !strings.Contains(err.Error(), "docs/untracked.md") {
		t.Fatalf("changes were not refused: %v", err)
	}
	if _, err := os.Stat(changed.dist); !os.IsNotExist(err) {
		t.Errorf("what was refused has a directory: %v", err)
	}
	changed.dirty = true
	if _, err := changed.make(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantSame(t, filesBelow(t, changed.dist), want)
}

// TestFailedBuild wants a build that fails, and one that is interrupted, to leave the release before it as
// it was, and nothing else.
func TestFailedBuild(t *testing.T) {
	r := smallRelease(t, "module", "")
	if _, err := r.make(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := filesBelow(t, r.dist)
	if hash := strings.TrimSpace(inGit(t, r.repository, "rev-parse", "--short=12", "HEAD")); before["hallmark_0.0.0~20260304050607."+hash+"_amd64.deb"] == "" {
		t.Errorf("no file is named by the commit %s: %q", hash, slices.Sorted(maps.Keys(before)))
	}

	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.make(interrupted); err == nil {
		t.Error("an interrupted build has no error")
	}
	for name, text := range map[string]string{
		"cmd/hallmark/arm64_arm64.go": "package main\n\nvar x int = \"\"\n",                                     // after the other architecture was built
		"cmd/hallmark/main.go":        "package main\n\nfunc main() { println(`no pages`); panic(`defect`) }\n", // after both were
	} {
		write(t, r.repository, map[string]string{name: text})
		inGit(t, r.repository, "add", "--all")
		inGit(t, r.repository, "commit", "--quiet", "--no-gpg-sign", "-m", "all: broken")
		if _, err := r.make(t.Context()); err == nil {
			t.Errorf("%s is wrong, and the build has no error", name)
		}
		inGit(t, r.repository, "reset", "--quiet", "--hard", "HEAD~1")
	}
	outside := filepath.Join(t.TempDir(), "outside.md")
	write(t, filepath.Dir(outside), map[string]string{"outside.md": "of no commit\n"})
	if err := os.Symlink(outside, filepath.Join(r.repository, "docs/link.md")); err != nil {
		t.Fatal(err)
	}
	inGit(t, r.repository, "add", "--all")
	inGit(t, r.repository, "commit", "--quiet", "--no-gpg-sign", "-m", "docs: a link")
	if _, err := r.make(t.Context()); err == nil || !strings.Contains(err.Error(), "link.md") {
		t.Errorf("a link out of the commit was followed: %v", err)
	}
	inGit(t, r.repository, "reset", "--quiet", "--hard", "HEAD~1")
	wantSame(t, filesBelow(t, r.dist), before)
	wantNothingBeside(t, r)

	// A new release takes the place of the last one, and of no other files.
	write(t, r.repository, map[string]string{"README.md": "Read again\n"})
	inGit(t, r.repository, "commit", "--quiet", "--no-gpg-sign", "--all", "-m", "README: new")
	if _, err := r.make(t.Context()); err != nil {
		t.Fatal(err)
	}
	after := filesBelow(t, r.dist)
	for name := range before {
		if name != sumsName && after[name] != "" {
			t.Errorf("%s of the release before is still there", name)
		}
	}
	write(t, r.dist, map[string]string{"thesis.txt": "mine"})
	if _, err := r.make(t.Context()); err == nil || !strings.Contains(err.Error(), "thesis.txt") {
		t.Errorf("files of others were replaced: %v", err)
	}
}
