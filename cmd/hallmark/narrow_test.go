package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// TestNarrowTerminal wants no line of a table to be wrapped on a terminal of 60 columns, whether the
// terminal knows its width or COLUMNS has it.
func TestNarrowTerminal(t *testing.T) {
	dir := t.TempDir()
	if err := writeProfiles(dir); err != nil {
		t.Fatal(err)
	}
	mixed := filepath.Join(dir, "mixed.pb.gz")
	for _, args := range [][]string{
		{"ps", "--libs", fmt.Sprint(os.Getpid())},
		{"report", mixed},
		{"report", "--tree", mixed},
	} {
		for _, known := range []bool{true, false} {
			out := onTerminal(t, known, args...)
			table, _, _ := strings.Cut(out, "Coverage:") // prose is wrapped by the terminal
			if !strings.Contains(table, "…") || regexp.MustCompile("[0-9a-f]{40}").MatchString(table) {
				t.Errorf("%v, known %v: nothing is cut:\n%s", args, known, out)
			}
			for line := range strings.Lines(table) {
				if n := utf8.RuneCountInString(strings.TrimSpace(line)); n > 60 {
					t.Errorf("%v, known %v: %d characters: %s", args, known, n, line)
				}
			}
		}
	}
}

// onTerminal returns what a command prints on a terminal of 60 columns.
func onTerminal(t *testing.T, known bool, args ...string) string {
	t.Helper()
	terminal, line := openTerminal(t)
	cmd := exec.Command("hallmark", args...)
	size := unix.Winsize{Row: 24, Col: 60}
	if !known {
		size, cmd.Env = unix.Winsize{}, append(os.Environ(), "COLUMNS=60")
	}
	if err := unix.IoctlSetWinsize(int(line.Fd()), unix.TIOCSWINSZ, &size); err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = line, line
	err := cmd.Start()
	line.Close()
	out, _ := io.ReadAll(terminal) // EIO once nobody has the other end
	if err != nil || cmd.Wait() != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return string(out)
}
