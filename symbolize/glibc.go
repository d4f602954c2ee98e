package symbolize

import "strings"

// glibc knows what backtrace_symbols(3) and backtrace_symbols_fd(3) print
// (debug/backtracesyms.c), and musl's libexecinfo after it:
//
//	/bin/prog(+0x11cf) [0x563ec6d7c1cf]
//	/bin/prog(main+0x9) [0x558d39dea1dd]
//	/bin/prog() [0x4011ca]
//
// An offset without a name counts from where address 0 of the file is; that of a
// program without position-independence is 0, and then none is printed. From such a
// frame follows where others of the file are that have a name, which is that of
// another function if the call was the last instruction. All are return addresses, save
// that of the instruction which a signal interrupted.
type glibc struct {
	*resolver
	interrupted bool              // the next frame did not call anything
	bias        map[string]uint64 // of the files in this stack: where address 0 is
}

func (g *glibc) rewrite(line string) ([]string, bool) {
	f, ok := parseGlibc(line)
	if !ok {
		g.interrupted, g.bias = false, nil
		return nil, false
	}
	exact := g.interrupted
	g.interrupted = isSignalReturn(f.name, nil)
	if !g.place(&f) {
		g.tally.named++
		return []string{line}, true
	}
	r := g.lookup(place{module: f.module, at: f.at, caller: !exact})
	if len(r.Frames) == 0 {
		return []string{line}, true
	}
	g.interrupted = isSignalReturn(f.name, r.Frames)
	return annotated(f.frame, f.after, r), true
}

// place finds out where in its file a frame is that has a name, if another frame showed
// where the file is.
func (g *glibc) place(f *glibcFrame) bool {
	if f.name != "" {
		bias, ok := g.bias[f.module]
		f.at = f.address - bias
		return ok
	}
	if g.bias == nil || len(g.bias) >= maxSources {
		g.bias = map[string]uint64{}
	}
	if len(f.module) <= maxPath {
		g.bias[strings.Clone(f.module)] = f.address - f.at
	}
	return true
}

// glibcFrame is a frame in a line.
type glibcFrame struct {
	frame, after string // the line
	module, name string
	at           uint64 // in the file, or in the function of this name
	address      uint64 // in the process
}

func parseGlibc(line string) (f glibcFrame, ok bool) {
	opening := strings.Index(line, "[0x")
	if opening < 0 {
		return f, false
	}
	address, after, ok := cutHex(line[opening+3:])
	if !ok || !strings.HasPrefix(after, "]") {
		return f, false
	}
	f.after = after[1:]
	f.frame = line[:len(line)-len(f.after)]
	file, ok := strings.CutSuffix(strings.TrimSuffix(line[:opening], " "), ")")
	if !ok {
		return f, false
	}
	paren := strings.LastIndexByte(file, '(')
	if paren <= 0 {
		return f, false
	}
	f.module = file[strings.LastIndexByte(file[:paren], ' ')+1 : paren]
	name, offset, found := strings.Cut(file[paren+1:], "+0x")
	f.name, f.at, f.address = name, address, address
	if !found { // glibc prints main+0 without 0x
		name, ok = strings.CutSuffix(name, "+0")
		f.name = name
		return f, (ok || name == "") && f.module != ""
	}
	f.at, offset, ok = cutHex(offset)
	return f, ok && offset == "" && f.module != ""
}
