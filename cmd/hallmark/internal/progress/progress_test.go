package progress

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

func TestOnlyOnTerminals(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, w := range []io.Writer{new(bytes.Buffer), null} {
		bar := New(w)
		if bar != nil {
			t.Errorf("a bar on %T", w)
		}
		bar.Set(0.5, "text")
		bar.Clear()
		if bar.Over(w) != w {
			t.Errorf("another writer over %T", w)
		}
	}
}

// TestOnTerminal opens a pseudo-terminal (pty(7)).
func TestOnTerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	if New(tty) == nil {
		t.Error("no bar on a terminal")
	}
	if got := columns(tty); got != 80 {
		t.Errorf("a terminal of no size has %d columns", got)
	}
	if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 5, Col: 33}); err != nil {
		t.Fatal(err)
	}
	if got := columns(tty); got != 33 {
		t.Errorf("a terminal of 33 columns has %d", got)
	}
	t.Setenv("TERM", "dumb")
	if New(tty) != nil {
		t.Error("a bar on a terminal that cannot move its cursor")
	}
}

// terminal is a bar on a buffer, with a clock that the test moves.
func terminal(columns int) (*Bar, *bytes.Buffer, *time.Time) {
	w, now := new(bytes.Buffer), new(time.Time)
	return &Bar{w: w, columns: func() int { return columns }, now: func() time.Time { return *now }}, w, now
}

func TestSet(t *testing.T) {
	bar, w, now := terminal(80)
	bar.Set(0, "at once")
	if w.Len() != 0 {
		t.Errorf("draws at once: %q", w)
	}
	*now = now.Add(interval)
	bar.Set(0.5, "text")
	want := "\r[============            ]  50% text\x1b[K"
	if w.String() != want {
		t.Errorf("draws %q, want %q", w, want)
	}
	bar.Set(0.75, "too soon")
	if w.String() != want {
		t.Errorf("draws too often: %q", w)
	}
	w.Reset()
	bar.Clear()
	bar.Clear()
	if w.String() != "\r\x1b[K" {
		t.Errorf("clears with %q", w)
	}
}

func TestOver(t *testing.T) {
	bar, w, now := terminal(80)
	out := bar.Over(w)
	if _, err := io.WriteString(out, "first\n"); err != nil || w.String() != "first\n" {
		t.Errorf("without a bar: %q, %v", w, err)
	}
	*now = now.Add(interval)
	bar.Set(1, "x")
	drawn := strings.TrimPrefix(w.String(), "first\n")
	w.Reset()
	n, err := io.WriteString(out, "second\n")
	if want := "\r\x1b[Ksecond\n" + drawn; n != 7 || err != nil || w.String() != want {
		t.Errorf("with a bar: %q, want %q", w, want)
	}
}

// TestLineFits checks that no line wraps and that none steers the terminal.
func TestLineFits(t *testing.T) {
	texts := []string{"", "short", strings.Repeat("/very/long/path", 20), "\x1b[2J\r\n\t\u0085ümlaut", "\xff\xfe"}
	for _, text := range texts {
		for columns := range 200 {
			for _, done := range []float64{-1, 0, 0.333, 1, 2} {
				got := line(done, text, columns)
				if utf8.RuneCountInString(got) > max(columns-1, 0) {
					t.Errorf("%d columns, %q: %q", columns, text, got)
				}
				if strings.ContainsAny(got, "\x1b\r\n\t\u0085") {
					t.Errorf("%q becomes %q", text, got)
				}
			}
		}
	}
	if got := line(0.5, "/usr/lib/x86_64-linux-gnu/libc.so.6", 50); !strings.HasSuffix(got, " …ux-gnu/libc.so.6") {
		t.Errorf("the end of the path is not shown: %q", got)
	}
}
