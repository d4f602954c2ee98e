package symbolize

import (
	"strconv"
	"strings"

	"hallmark/symbol"
)

// gdb knows the backtraces of gdb without symbols (print_frame in gdb/stack.c), and where files are mapped, which "info
// proc mappings" prints before (gdb/linux-tdep.c):
//
//	      0x555555555000     0x555555556000     0x1000     0x1000  r-xp   /tmp/prog
//
//	#0  0x0000555555555131 in ?? ()
//	#1  0x00007ffff7c2a1ca in ?? () from /lib/x86_64-linux-gnu/libc.so.6
//	#2  <signal handler called>
//
// An address is in the file that is mapped there. Without mappings it is one of the program that [Filter.Binaries] names
// alone, if that has chosen its addresses itself. All are return addresses but that of the first frame, and that of one
// which a signal interrupted.
type gdb struct {
	*resolver
	mapped      []gdbMapping
	interrupted bool
}

type gdbMapping struct {
	start, end, offset uint64
	path               string
}

var (
	gdbFrame = pattern(`^(#(\d+) +0x([0-9a-f]+) in )\?\? \(\)( from (\S.*))?$`)
	gdbMap   = pattern(`^\s*0x([0-9a-f]+)\s+0x([0-9a-f]+)\s+0x[0-9a-f]+\s+0x([0-9a-f]+)\s+(?:[r-][w-][x-][ps-]\s+)?(/.*)$`)
)

func (g *gdb) rewrite(line string) ([]string, bool) {
	switch {
	case strings.HasPrefix(line, "#"):
	case strings.Contains(line, "Start Addr "): // the head of the table
		g.mapped = nil
		return nil, false
	default:
		g.readMapping(line)
		return nil, false
	}
	m := gdbFrame().FindStringSubmatch(line)
	if m == nil {
		g.interrupted = strings.HasSuffix(line, " <signal handler called>")
		return nil, false
	}
	exact := m[2] == "0" || g.interrupted
	g.interrupted = false
	address, _, ok := cutHex(m[3])
	if !ok {
		return nil, false
	}
	p := g.place(address, m[5])
	p.caller = !exact
	r := g.lookup(p)
	if len(r.Frames) == 0 {
		return []string{line}, true
	}
	var lines []string
	for i := range r.Frames {
		f := &r.Frames[i]
		text := m[1] + clean(f.Func) + " ()"
		if at := sourceLine(f); at != "" {
			text += " at " + at
		}
		if f.Inlined {
			text += " (inlined)"
		}
		lines = append(lines, text+m[4])
	}
	return lines, true
}

func (g *gdb) readMapping(line string) {
	if !strings.Contains(line, "0x") || len(g.mapped) >= maxFiles {
		return
	}
	m := gdbMap().FindStringSubmatch(line)
	if m == nil || len(m[4]) > maxPath {
		return
	}
	var v gdbMapping
	for i, to := range []*uint64{&v.start, &v.end, &v.offset} {
		n, err := strconv.ParseUint(m[i+1], 16, 64)
		if err != nil {
			return
		}
		*to = n
	}
	v.path = strings.Clone(strings.TrimRight(m[4], " "))
	g.mapped = append(g.mapped, v)
}

// place returns the place at an address of the process, of a file that gdb names, if it does.
func (g *gdb) place(address uint64, file string) place {
	for i := range g.mapped {
		if v := &g.mapped[i]; v.start <= address && address < v.end {
			return place{module: v.path, at: address - v.start + v.offset, offset: true}
		}
	}
	if file == "" && len(g.mapped) == 0 && len(g.binaries) == 1 {
		p := place{module: g.binaries[0], at: address}
		if start, ok := g.source(p).startOfFile(); ok && start > 0 && g.holds(p, address) {
			return p
		}
	}
	if file == "" {
		file = "?"
	}
	return place{module: file, at: address, unplaced: true}
}

// holds reports whether the code of a place's file has an address.
func (g *gdb) holds(p place, address uint64) bool {
	file, ok := g.source(p).symbols.(interface{ Segments() []symbol.Segment })
	if !ok {
		return false
	}
	for _, s := range file.Segments() {
		if s.Executable() && uint64(s.Virt) <= address && address-uint64(s.Virt) < s.MemSize {
			return true
		}
	}
	return false
}
