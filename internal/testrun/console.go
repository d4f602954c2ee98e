package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// A console is what people read: lines, and on a terminal one line below them that says how
// far the run is.
type console struct {
	mu     sync.Mutex
	out    io.Writer
	tty    bool
	width  func() int
	status func() string // set by whoever knows; asked every second
	shown  bool
	done   chan struct{}
	once   sync.Once
}

func newConsole(f *os.File) *console {
	c := &console{out: f, tty: term.IsTerminal(int(f.Fd())), done: make(chan struct{})}
	c.width = func() int {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
			return w
		}
		return 80
	}
	if c.tty {
		go c.redraw()
	}
	return c
}

func (c *console) redraw() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-c.done:
			return
		case <-tick.C:
			c.mu.Lock()
			c.clear()
			c.draw()
			c.mu.Unlock()
		}
	}
}

// setStatus sets what makes the line; nil takes it away.
func (c *console) setStatus(f func() string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status = f
	c.clear()
}

// printf prints above the line.
func (c *console) printf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clear()
	fmt.Fprintf(c.out, format, args...)
	c.draw()
}

func (c *console) clear() {
	if c.shown {
		fmt.Fprint(c.out, "\r\x1b[K")
		c.shown = false
	}
}

func (c *console) draw() {
	if !c.tty || c.status == nil {
		return
	}
	if line := []rune(c.status()); len(line) > 0 {
		fmt.Fprint(c.out, string(line[:min(len(line), c.width()-1)]))
		c.shown = true
	}
}

func (c *console) close() {
	c.setStatus(nil)
	c.once.Do(func() { close(c.done) })
}
