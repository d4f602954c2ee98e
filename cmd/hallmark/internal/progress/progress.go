// Package progress draws a progress bar on a terminal, and nothing anywhere else.
package progress

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"hallmark/internal/plaintext"
)

// interval is the least time between two drawings.
const interval = 100 * time.Millisecond

// A Bar is one line at the bottom of a terminal. Its methods may be called by
// several goroutines at once. A nil Bar draws nothing.
type Bar struct {
	mu      sync.Mutex
	w       io.Writer
	columns func() int // of the terminal
	now     func() time.Time
	last    time.Time // of the last Set that drew
	shown   string    // what is on the terminal
}

// New returns a bar on w, which is standard error in most cases, or nil if w is
// not a terminal that can move its cursor.
func New(w io.Writer) *Bar {
	f, ok := w.(*os.File)
	if !ok || columns(f) == 0 || os.Getenv("TERM") == "dumb" {
		return nil
	}
	start := time.Now() // what is over at once needs no bar
	return &Bar{w: w, columns: func() int { return columns(f) }, now: time.Now, last: start}
}

// Set shows how much is done, from 0 to 1, and what is going on. Calls that
// follow one another too fast are ignored.
func (b *Bar) Set(done float64, text string) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	if now.Sub(b.last) < interval {
		return
	}
	b.last = now
	b.shown = line(done, text, b.columns())
	b.draw()
}

func (b *Bar) draw() { fmt.Fprint(b.w, "\r"+b.shown+eraseLine) }

// eraseLine clears from the cursor to the end of the line (ECMA-48, EL).
const eraseLine = "\x1b[K"

// line is the bar as it fits a terminal of that many columns.
func line(done float64, text string, columns int) string {
	const cells = 24
	done = min(max(done, 0), 1)
	full := int(done * cells)
	bar := fmt.Sprintf("[%s%s] %3.0f%% ", strings.Repeat("=", full), strings.Repeat(" ", cells-full), 100*done)
	room := columns - 1 - len(bar) // a full last column would wrap
	if room < 0 {
		return bar[:max(columns-1, 0)]
	}
	return bar + shorten(printable(text), room)
}

// shorten keeps the end of s, which says more in a path.
func shorten(s string, room int) string {
	r := []rune(s)
	switch {
	case len(r) <= room:
		return s
	case room == 0:
		return ""
	default:
		return "…" + string(r[len(r)-room+1:])
	}
}

// printable keeps what a file name contains from steering the terminal, and from
// being wider than its number of characters, which CJK and emoji are.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 0x1100 || plaintext.Rune(r) != r {
			return '?'
		}
		return r
	}, s)
}

// Clear removes the bar from the terminal until the next Set.
func (b *Bar) Clear() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shown != "" {
		b.shown = ""
		b.draw()
	}
}

// Over returns a writer for what may go to the same terminal: the bar makes room
// for it. Each Write should be whole lines.
func (b *Bar) Over(w io.Writer) io.Writer {
	if b == nil {
		return w
	}
	return &over{b, w}
}

type over struct {
	bar *Bar
	w   io.Writer
}

func (o *over) Write(p []byte) (int, error) {
	b := o.bar
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shown == "" {
		return o.w.Write(p)
	}
	fmt.Fprint(b.w, "\r"+eraseLine)
	n, err := o.w.Write(p)
	b.draw()
	return n, err
}

// columns returns the width of the terminal f, 0 if it is none.
func columns(f *os.File) int {
	fd := int(f.Fd())
	if !term.IsTerminal(fd) {
		return 0
	}
	width, _, err := term.GetSize(fd)
	if err != nil || width == 0 { // a terminal that does not know its size
		return 80
	}
	return width
}
