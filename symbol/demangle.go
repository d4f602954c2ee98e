package symbol

import (
	"strings"

	"github.com/ianlancetaylor/demangle"

	"hallmark/internal/readable"
	"hallmark/internal/symtab"
)

// Limits on mangled names. A few bytes of them can stand for gigabytes, so the
// length of the answer is bounded too; and what it takes to read a hostile one
// grows with the square of its length. The longest of 360,000 names in the
// libraries of a Debian system has 613 bytes.
const (
	maxMangled   = 2 << 10
	maxDemangled = 14 // as a power of 2
)

// Demangle returns the readable form of a C++ or Rust linkage name, and any other
// name unchanged, a damaged or absurdly long one too.
//
// Template arguments are kept, because instantiations differ in what they do and
// cost; parameter lists, return types and the suffixes of clones (.cold, .part.0)
// are left out, as perf does and people write.
//
// The entry of a procedure linkage table, "NAME@plt", stays one.
func Demangle(name string) string {
	if function, ok := strings.CutSuffix(name, symtab.PLTSuffix); ok && symtab.IsMangled(name) {
		return demangled(function) + symtab.PLTSuffix
	}
	return demangled(name)
}

func demangled(name string) (shown string) {
	if !symtab.IsMangled(name) || len(name) > maxMangled {
		return name
	}
	defer containName(&shown, name)
	known, err := readable.String(name, demangle.NoParams, demangle.NoEnclosingParams, demangle.MaxLength(maxDemangled))
	if err != nil || known == "" {
		return name
	}
	return known
}

// readableNames are names for people that were made. A nil one remembers nothing.
type readableNames map[linkageName]string

// linkageName is what a name for people is made of.
type linkageName struct {
	name string
	isGo bool
}

func (f *Frame) linkageName() linkageName { return linkageName{f.Linkage, f.Lang == LangGo} }

func (n linkageName) readable() string {
	f := Frame{Linkage: n.name}
	if n.isGo {
		f.Lang = LangGo
	}
	return f.Readable()
}

// set sets Func of frames.
func (known readableNames) set(frames []Frame) {
	for i := range frames {
		if known == nil {
			frames[i].Func = frames[i].Readable()
			continue
		}
		key := frames[i].linkageName()
		name, ok := known[key]
		if !ok {
			name = key.readable()
			known[key] = name
		}
		frames[i].Func = name
	}
}
