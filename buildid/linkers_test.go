package buildid_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"hallmark/buildid"
	"hallmark/internal/testenv"
)

// A recipe makes an ELF file with somebody's tools, from main.go and main.c in
// the working directory.
type recipe struct {
	file  string
	tool  string
	args  string
	env   string
	kind  buildid.Kind
	where buildid.Where
}

var recipes = []recipe{
	{"go", "go", "build -o go main.go", "", buildid.GNU, buildid.AfterSegment},
	{"go.386", "go", "build -o go.386 main.go", "GOARCH=386", buildid.GNU, buildid.AfterSegment},
	{"go.s390x", "go", "build -o go.s390x main.go", "GOARCH=s390x", buildid.GNU, buildid.AfterSegment},
	{"go.mips", "go", "build -o go.mips main.go", "GOARCH=mips", buildid.GNU, buildid.AfterSegment},
	{"go.pie", "go", "build -buildmode=pie -o go.pie main.go", "", buildid.GNU, buildid.AfterSegment},
	{"go.stripped", "go", "build -ldflags=-s -o go.stripped main.go", "", buildid.GNU, buildid.AfterSegment},
	{"go.short", "go", "build -ldflags=-B=0x0102030405060708 -o go.short main.go", "", buildid.GNU, buildid.AfterSegment},
	{"go.only", "go", "build -ldflags=-B=none -o go.only main.go", "", buildid.Go, buildid.InSegment},
	{"go.without", "go", "build -ldflags=-B=none\x00-buildid= -o go.without main.go", "", buildid.ByContent, buildid.Hashed},

	{"c", "gcc", "-Wl,--build-id -o c main.c", "", buildid.GNU, buildid.InSegment},
	{"c.md5", "gcc", "-Wl,--build-id=md5 -o c.md5 main.c", "", buildid.GNU, buildid.InSegment},
	{"c.short", "gcc", "-Wl,--build-id=0x01020304 -o c.short main.c", "", buildid.GNU, buildid.InSegment},
	{"c.odd", "gcc", "-Wl,--build-id=0x01020304050607 -o c.odd main.c", "", buildid.GNU, buildid.InSegment},
	{"c.static", "gcc", "-static -Wl,--build-id -o c.static main.c", "", buildid.GNU, buildid.InSegment},
	{"c.none", "gcc", "-Wl,--build-id=none -o c.none main.c", "", buildid.ByContent, buildid.Hashed},
	{"c.o", "gcc", "-c -o c.o main.c", "", buildid.ByContent, buildid.Hashed},
	{"c.none.stripped", "strip", "-o c.none.stripped c.none", "", buildid.ByContent, buildid.Hashed},
	{"c.none.debug", "objcopy", "--only-keep-debug c.none c.none.debug", "", buildid.None, buildid.Nowhere},
	{"c.merged", "ld", "-r --build-id -o c.merged c.o", "", buildid.GNU, buildid.InSection},

	{"c.stripped", "strip", "-o c.stripped c", "", buildid.GNU, buildid.InSegment},
	{"c.debug", "objcopy", "--only-keep-debug c c.debug", "", buildid.GNU, buildid.InSegment},
	{"c.eudebug", "eu-strip", "-f c.eudebug -o c.eustripped c", "", buildid.GNU, buildid.InSection},
}

// unlikeReadelf are the files in which readelf finds something else, and why that
// is right. The list is complete for the recipes and for the files of a Debian.
var unlikeReadelf = map[string]string{
	"c.odd": "ld does not pad the last note of the section to 4 bytes, for which readelf and eu-readelf drop the note; " +
		"the kernel, which looks at the segment, has it",
}

// TestLinkers asks readelf about what linkers and their relatives make.
func TestLinkers(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"main.go": "package main\n\nfunc main() {}\n",
		"main.c":  "int main(void) { return 0; }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range recipes {
		t.Run(r.file, func(t *testing.T) {
			r.cook(t, dir)
			name := filepath.Join(dir, r.file)
			info, err := buildid.ReadFile(name)
			if err != nil || info.ID.Kind() != r.kind || info.Where != r.where {
				t.Errorf("got %v at %v of the %v, %v; want kind %v of the %v", info.ID, info.Offset, info.Where, err, r.kind, r.where)
			}
			answer := witnesses[0].ask(t, []string{name})[name]
			why := disagreement(info, answer)
			if explanation := unlikeReadelf[r.file]; explanation != "" {
				t.Logf("unlike readelf (%s): %s", why, explanation)
			} else if why != "" {
				t.Error(why)
			}
		})
	}
}

// cook runs the tool. A NUL in the arguments stands for a space in one of them.
func (r recipe) cook(t *testing.T, dir string) {
	t.Helper()
	cmd := exec.Command(testenv.Tool(t, r.tool), strings.Fields(r.args)...)
	for i, arg := range cmd.Args {
		cmd.Args[i] = strings.ReplaceAll(arg, "\x00", " ")
	}
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", r.env)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", r.tool, r.args, err, out)
	}
}
