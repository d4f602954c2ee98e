package symbolize

import (
	"strings"

	"hallmark/buildid"
	"hallmark/symbol"
)

// android knows the stacks of tombstones and of logcat, as libunwindstack formats
// them (Unwinder::FormatFrame):
//
//	#01 pc 0000000000012345  /system/lib64/libc.so (offset 0x1000) (abort+164) (BuildId: ab12…)
//
// pc is a virtual address of the file, and of a caller the byte before the return
// address already. Source lines follow what Android prints.
type android struct{ *resolver }

func (a *android) rewrite(line string) ([]string, bool) {
	before, _, rest, ok := cutFrameNumber(line)
	if !ok {
		return nil, false
	}
	digits, ok := strings.CutPrefix(strings.TrimLeft(rest, " "), "pc ")
	if !ok {
		return nil, false
	}
	at, file, ok := cutHex(digits)
	if !ok || !strings.HasPrefix(file, "  ") {
		return nil, false
	}
	head := line[:len(line)-len(file)]
	if id := strings.LastIndex(before, "(BuildId: "); id >= 0 {
		return nil, false // of another frame before it
	}
	f := parseAndroid(file)
	p := place{module: f.path, id: f.id, at: at}
	var r symbol.Result
	if f.function == "" {
		r = a.lookup(p)
	} else if checked, keep := a.check(p, f.function, false); !keep {
		r = checked
	}
	if len(r.Frames) == 0 {
		return []string{line}, true
	}
	return f.lines(head, r.Frames), true
}

// androidFile is what follows pc in a line.
type androidFile struct {
	path     string
	file     string // the path and the rest that says which file it is
	function string // "" if not known, without the offset in it
	named    string // the function, as the text has it
	buildID  string // as the text has it
	after    string
	id       buildid.ID
}

func parseAndroid(s string) *androidFile {
	f := new(androidFile)
	if at := strings.Index(s, " (BuildId: "); at >= 0 {
		f.id, f.after = cutBuildID(s[at:])
		f.buildID = s[at : len(s)-len(f.after)]
		s = s[:at]
	}
	path, _, _ := strings.Cut(s, " (")
	f.file, f.named = path, s[len(path):]
	f.path = strings.TrimSpace(path)
	if strings.HasPrefix(f.named, " (offset 0x") {
		offset, _, _ := strings.Cut(f.named, ")")
		end := min(len(offset)+1, len(f.named))
		f.file, f.named = f.file+f.named[:end], f.named[end:]
	}
	if strings.HasPrefix(f.named, " (") && strings.HasSuffix(f.named, ")") {
		f.function = f.named[2 : len(f.named)-1]
		if plus := strings.LastIndexByte(f.function, '+'); plus > 0 {
			f.function = f.function[:plus]
		}
	}
	return f
}

// lines writes the functions at a frame, each in a line like it.
func (f *androidFile) lines(head string, frames []symbol.Frame) []string {
	var lines []string
	for i := range frames {
		fn := &frames[i]
		named := f.named
		if fn.Inlined || f.function == "" {
			named = " (" + clean(fn.Func) + ")"
		}
		line := head + f.file + named + f.buildID
		if at := sourceLine(fn); at != "" {
			line += " " + at
		}
		if fn.Inlined {
			line += " (inlined)"
		}
		lines = append(lines, line+f.after)
	}
	return lines
}
