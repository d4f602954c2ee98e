package main

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"hallmark/internal/testenv"
)

// TestReadmeSession runs the commands of README.md and compares what they print.
// Numbers and identities differ from machine to machine and from run to run, so
// each of them only has to be there; "…" stands for anything in its line, and
// alone on a line for any number of lines.
func TestReadmeSession(t *testing.T) {
	testenv.Root(t) // others record by perf, which prints more
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := sessionDir(t)
	home := t.TempDir() // of nobody who has recorded before
	commands := 0
	for _, block := range consoleBlocks(string(text)) {
		for _, step := range strings.Split(block, "\n$ ") {
			command, want, _ := strings.Cut(step, "\n")
			cmd := exec.Command("sh", "-c", strings.TrimPrefix(command, "$ "))
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "HOME="+home, "PATH="+dir+":"+os.Getenv("PATH"))
			got, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%s: %v\n%s", command, err, got)
			}
			if !sessionPattern(want).MatchString(blurred(string(got))) {
				t.Errorf("%s\nprints\n%s\nREADME.md has\n%s", command, got, want)
			}
			commands++
		}
	}
	if commands < 3 {
		t.Errorf("README.md has a session of %d commands", commands)
	}
}

// sessionDir makes a directory with what the session needs: hallmark itself, and
// a file that takes gzip a while.
func sessionDir(t *testing.T) string {
	t.Helper()
	testenv.Tool(t, "gzip")
	testenv.Need(t, fileExists("/usr/local/go/bin/go"), "Go in /usr/local/go")
	dir := t.TempDir()
	out, err := exec.Command(testenv.Tool(t, "go"), "build", "-o", filepath.Join(dir, "hallmark"), ".").CombinedOutput()
	if err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	// Digits that do not repeat are what gzip works on longest: half a second and more.
	numbers := make([]byte, 16<<20)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range numbers {
		numbers[i] = '0' + byte(random.UintN(10))
	}
	if err := os.WriteFile(filepath.Join(dir, "numbers"), numbers, 0o666); err != nil {
		t.Fatal(err)
	}
	return dir
}

func fileExists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// consoleBlocks returns the fenced blocks marked as console.
func consoleBlocks(text string) []string {
	var blocks []string
	for _, part := range strings.Split(text, "```console\n")[1:] {
		block, _, _ := strings.Cut(part, "\n```")
		blocks = append(blocks, block)
	}
	return blocks
}

var (
	identities = regexp.MustCompile(`\b[0-9a-f]{16,}\b`)
	quantities = regexp.MustCompile(`<?\d[\d.,:-]*(s|ms|µs|ns|%)?`)
	spaces     = regexp.MustCompile(`[ \t]+`)
	offsets    = regexp.MustCompile(`\b0x[0-9a-f]+\b`)
	waiting    = regexp.MustCompile(`(?m)^hallmark: waiting for the command to end\n`) // where the machine is busy
)

// blurred replaces what differs from run to run.
func blurred(text string) string {
	text = waiting.ReplaceAllString(text, "")
	text = identities.ReplaceAllString(text, "ID")
	text = offsets.ReplaceAllString(text, "N")
	text = quantities.ReplaceAllString(text, "N")
	text = spaces.ReplaceAllString(text, " ")
	return strings.TrimSpace(text)
}

// sessionPattern returns what the blurred output must match.
func sessionPattern(want string) *regexp.Regexp {
	pattern := regexp.QuoteMeta(blurred(want))
	pattern = strings.ReplaceAll(pattern, "\n…\n", `\n(?s:.*\n)?`)
	pattern = regexp.MustCompile(`\n…$`).ReplaceAllString(pattern, `(?s:\n.*)?`)
	return regexp.MustCompile(`\A` + strings.ReplaceAll(pattern, "…", `[^\n]*`) + `\z`)
}
