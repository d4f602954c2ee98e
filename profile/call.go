package profile

import (
	"fmt"
	"iter"
	"path/filepath"
	"strings"

	pprof "github.com/google/pprof/profile"

	"hallmark/reason"
)

// Call is one function of a stack: that of a Location, or one of those inlined
// there.
type Call struct {
	Location *pprof.Location
	Function *pprof.Function // nil when the location has no symbol
	Line     int64           // 0 when not known
}

// Calls yields the functions on the stack of s, leaf first, with those inlined.
func Calls(s *pprof.Sample) iter.Seq[Call] {
	return func(yield func(Call) bool) {
		for _, l := range s.Location {
			for c := range CallsAt(l) {
				if !yield(c) {
					return
				}
			}
		}
	}
}

// CallsAt yields the function at l, after those inlined there.
func CallsAt(l *pprof.Location) iter.Seq[Call] {
	return func(yield func(Call) bool) {
		if len(l.Line) == 0 {
			yield(Call{Location: l})
			return
		}
		for _, line := range l.Line {
			c := Call{Location: l}
			if named(line.Function) {
				c.Function, c.Line = line.Function, line.Line
			}
			if !yield(c) {
				return
			}
		}
	}
}

func named(f *pprof.Function) bool { return f != nil && (f.Name != "" || f.SystemName != "") }

// symbolized reports whether any function is known at l.
func symbolized(l *pprof.Location) bool {
	for _, line := range l.Line {
		if named(line.Function) && !IsUnnamed(line.Function) {
			return true
		}
	}
	return false
}

// hasSource reports whether a source file or a line is known at l.
func hasSource(l *pprof.Location) bool {
	for _, line := range l.Line {
		if line.Line != 0 || line.Function != nil && line.Function.Filename != "" {
			return true
		}
	}
	return false
}

// Name returns the function's name. Where it is not known, that is the binary
// and the file offset, "[libc.so.6+0x9a1d0]", or, where there is no binary
// either, the reason: "[not-mapped]".
func (c Call) Name() string {
	if c.Function != nil {
		if c.Function.Name != "" {
			return c.Function.Name
		}
		return c.Function.SystemName
	}
	m := c.Location.Mapping
	if m == nil {
		return fmt.Sprintf("[%#x]", c.Location.Address)
	}
	if _, _, ok := pseudo(m.File); ok {
		return m.File
	}
	return fmt.Sprintf("[%s+%v]", strings.Trim(ShortName(m.File), "[]"), FileOffset(c.Location))
}

// Kernel reports whether it is code of the kernel or one of its modules.
func (c Call) Kernel() bool { return c.Location.Mapping != nil && isKernel(c.Location.Mapping) }

// isKernel goes by the name: "[kernel]", and "[NAME]" of a module. perf and
// tools built on it write "[kernel.kallsyms]" with a suffix.
func isKernel(m *pprof.Mapping) bool {
	file := m.File
	if r, path, ok := pseudo(m.File); ok {
		if r == reason.KernelHidden || r == reason.ModuleUnknown {
			return true
		}
		file = path
	}
	return strings.HasPrefix(file, "[") && !isUserArea(file)
}

// isUserArea reports whether name is what the kernel calls an area of a process
// that has no file (proc(5), /proc/PID/maps).
func isUserArea(name string) bool {
	switch name {
	case "[vdso]", "[vsyscall]", "[vvar]", "[vvar_vclock]", "[uprobes]", "[heap]", "[stack]":
		return true
	}
	return strings.HasPrefix(name, "[anon")
}

// ShortName returns the name by which people know a Mapping.File: the last
// element of a path, without the kernel's " (deleted)". Names in brackets stay
// as they are, and no name is "[unknown]".
func ShortName(file string) string {
	if r, path, ok := pseudo(file); ok && path != "" {
		return PseudoFile(r, ShortName(path))
	}
	switch {
	case file == "":
		return "[unknown]"
	case file[0] == '[':
		return Cut(file)
	}
	return Cut(filepath.Base(strings.TrimSuffix(file, " (deleted)")))
}

// maxName is how long a name can be: that of a file has at most 255 bytes (NAME_MAX), that of
// a thread 15.
const maxName = 255

// Cut returns a name of a file, a process or a thread that is no longer than these can be. An
// ellipsis stands for what it cuts off: a name is shown very often, and whoever wrote the
// profile chose it.
func Cut(name string) string {
	if len(name) <= maxName {
		return name
	}
	return strings.ToValidUTF8(name[:maxName], "") + "…"
}

// UnknownName returns a name for all functions of m that are not known by their
// own: "libc.so.6 [unknown]", or the reason why there is no binary: "[not-mapped]".
func UnknownName(m *pprof.Mapping) string {
	var file string
	if m != nil {
		file = m.File
	}
	name := ShortName(file)
	if _, _, ok := pseudo(file); ok || file == "" {
		return name
	}
	return name + " [unknown]"
}
