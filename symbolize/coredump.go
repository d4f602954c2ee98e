package symbolize

import (
	"strings"

	"hallmark/buildid"
	"hallmark/symbol"
)

// coredump knows the stacks of systemd-coredump (systemd, src/shared/elf-util.c), which
// reports the build IDs of the files before, and those of eu-stack --build-id (elfutils,
// src/stack.c):
//
//	Module libfoo.so with build-id 93ac61ec5a8eb1396f9fbd350e3169a558528a40
//	#1  0x00007f8b2b4e2a7c n/a (libfoo.so + 0x88a7c)
//
//	    [93ac61ec5a8eb1396f9fbd350e3169a558528a40]@0x7faa7f608000+0xd3e52
//
// Offsets count from where the start of the file is in memory. systemd-coredump prints
// return addresses, eu-stack the byte before.
type coredump struct {
	*resolver
	ids         map[string]buildid.ID // of the modules by their names
	interrupted bool                  // the next frame did not call anything
}

var (
	coredumpModule = pattern(`[Mm]odule (\S+) (?:with build-id:? |from .*, build-id=)([0-9a-f]+)`)
	coredumpFrame  = pattern(`^( +0x[0-9a-f]{16}) (.+) \((\S.*) \+ 0x([0-9a-f]{1,16})\)`)
	euStackFrame   = pattern(`^ +\[([0-9a-f]{2,})\]@0x[0-9a-f]{1,16}\+0x([0-9a-f]{1,16})`)
)

func (c *coredump) rewrite(line string) ([]string, bool) {
	switch {
	case strings.Contains(line, "build-id"):
		c.readModule(line)
	case strings.Contains(line, "]@0x"):
		return c.rewriteEuStack(line)
	case strings.Contains(line, " + 0x"):
		return c.rewriteFrame(line)
	case strings.Contains(line, "Stack trace of thread"):
		c.interrupted = false
	}
	return nil, false
}

// readModule reads the line that reports the build ID of a file.
func (c *coredump) readModule(line string) {
	m := coredumpModule().FindStringSubmatch(line)
	if m == nil || len(m[1]) > maxPath {
		return
	}
	id, err := parseID(m[2])
	if err != nil {
		return
	}
	if c.ids == nil || len(c.ids) >= maxFiles {
		c.ids = map[string]buildid.ID{}
	}
	c.ids[strings.Clone(m[1])] = id
}

func (c *coredump) rewriteFrame(line string) ([]string, bool) {
	_, number, rest, ok := cutFrameNumber(line)
	if !ok {
		return nil, false
	}
	m := coredumpFrame().FindStringSubmatch(rest)
	if m == nil {
		return nil, false
	}
	exact := number == 0 || c.interrupted
	at, _, _ := cutHex(m[4])
	p := place{module: m[3], id: c.ids[m[3]], at: at, start: true, caller: !exact}
	var r symbol.Result
	if m[2] == "n/a" {
		r = c.lookup(p)
	} else if checked, keep := c.check(p, m[2], false); !keep {
		r = checked
	}
	c.interrupted = isSignalReturn(m[2], r.Frames)
	if len(r.Frames) == 0 {
		return []string{line}, true
	}
	before := line[:len(line)-len(rest)] + m[1] + " "
	tail := m[0][len(m[1])+1+len(m[2]):]
	return coredumpLines(before, tail, rest[len(m[0]):], r.Frames), true
}

// coredumpLines writes the functions at a frame, each in a line like it.
func coredumpLines(before, tail, after string, frames []symbol.Frame) []string {
	var lines []string
	for i := range frames {
		f := &frames[i]
		line := before + clean(f.Func) + tail
		if at := sourceLine(f); at != "" {
			line += " " + at
		}
		if f.Inlined {
			line += " (inlined)"
		}
		lines = append(lines, line+after)
	}
	return lines
}

func (c *coredump) rewriteEuStack(line string) ([]string, bool) {
	m := euStackFrame().FindStringSubmatch(line)
	if m == nil {
		return nil, false
	}
	id, err := parseID(m[1])
	if err != nil {
		return nil, false
	}
	at, _, _ := cutHex(m[2])
	r := c.lookup(place{module: m[1], id: id, at: at, start: true})
	if len(r.Frames) == 0 {
		return []string{line}, true
	}
	return annotated(m[0], line[len(m[0]):], r), true
}
