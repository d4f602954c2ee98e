package addr2line

import (
	"strings"

	"github.com/ianlancetaylor/demangle"

	"hallmark/internal/readable"
)

// Limits on mangled names, for the reasons of symbol.Demangle. Parameters make names
// longer than those it returns. GNU addr2line has one of its own, which is lifted by
// --no-recurse-limit, here up to maxUnlimited.
const (
	maxMangled   = 2 << 10
	maxGNU       = 1 << 10
	maxUnlimited = 16 << 10
	maxDemangled = 16 // as a power of 2
)

// A demangler returns readable forms of linkage names.
type demangler func(string) string

// demangleGNU returns a C++ or Rust name with its parameters, as c++filt writes it.
func demangleGNU(name string) string { return demangled(name, maxGNU) }

// gnuDemangler returns the demangler that options of GNU addr2line call for: names of
// one language, or of both, up to a length.
func gnuDemangler(style string, unlimited bool) demangler {
	longest := maxGNU
	if unlimited {
		longest = maxUnlimited
	}
	return func(name string) string {
		switch {
		case style == "rust" && !isRust(name):
			return name
		case style == "gnu-v3" && strings.HasPrefix(name, "_R"):
			return name
		case style == "gnu-v3":
			return demangled(name, longest, demangle.NoRust)
		}
		return demangled(name, longest)
	}
}

// demangleLLVM returns a C++ or Rust name with its parameters, as llvm-cxxfilt
// writes it: all suffixes of clones and parts of a function together.
func demangleLLVM(name string) string {
	if at := strings.IndexByte(name, '.'); at > 0 {
		if known := demangled(name[:at], maxMangled, demangle.LLVMStyle); known != name[:at] {
			return known + " (" + name[at:] + ")"
		}
	}
	return demangled(name, maxMangled, demangle.LLVMStyle)
}

func demangled(name string, longest int, options ...demangle.Option) string {
	if !isMangled(name) || len(name) > longest {
		return name
	}
	known, err := readable.String(name, append(options, demangle.MaxLength(maxDemangled))...)
	if err != nil || known == "" {
		return name
	}
	return known
}

func isMangled(name string) bool {
	return strings.HasPrefix(name, "_Z") || strings.HasPrefix(name, "_R")
}

// shortName returns the name of a function alone, as it stands in its source: without
// namespaces, classes and parameters, but with template arguments. Debug information
// has it too, where compilers spell some types in other ways.
func shortName(name string) string {
	if !isMangled(name) || len(name) > maxMangled {
		return name
	}
	if isRust(name) {
		return lastPart(demangled(name, maxMangled))
	}
	tree, err := readable.Tree(name, demangle.NoParams, demangle.NoClones, demangle.MaxLength(maxDemangled))
	if err != nil {
		return name
	}
	return demangle.ASTToString(innermost(tree), demangle.NoParams, demangle.MaxLength(maxDemangled))
}

// innermost returns the part of a demangled name that is the name of the entity itself.
func innermost(tree demangle.AST) demangle.AST {
	switch t := tree.(type) {
	case *demangle.Typed:
		return innermost(t.Name)
	case *demangle.Qualified:
		return innermost(t.Name)
	case *demangle.MethodWithQualifiers:
		return innermost(t.Method)
	case *demangle.Template:
		return &demangle.Template{Name: innermost(t.Name), Args: t.Args}
	}
	return tree
}

// isRust reports whether a mangled name is Rust's: the older form looks like C++ and
// ends with 17h, 16 hexadecimal digits and E.
func isRust(name string) bool {
	at := strings.LastIndex(name, "17h")
	return strings.HasPrefix(name, "_R") || at > 0 && len(name) >= at+20 && name[at+19] == 'E'
}

// lastPart returns the last part of a path in Rust: that of store::Shelf::put::<u8> is
// put::<u8>.
func lastPart(path string) string {
	start, depth := 0, 0
	for i := range len(path) {
		switch {
		case path[i] == '<':
			depth++
		case path[i] == '>':
			depth--
		case depth == 0 && strings.HasPrefix(path[i:], "::") && !strings.HasPrefix(path[i:], "::<"):
			start = i + len("::")
		}
	}
	return path[start:]
}

// nameCache keeps readable names: most addresses are in few functions.
type nameCache struct {
	readable demangler // nil leaves names alone
	names    map[string]string
}

func newNameCache(readable demangler) *nameCache {
	return &nameCache{readable, map[string]string{}}
}

// of returns the readable form of a name.
func (c *nameCache) of(name string) string {
	if c.readable == nil || !isMangled(name) {
		return name
	}
	s, ok := c.names[name]
	if !ok {
		// The name is a part of a file that may be closed before the cache is.
		name = strings.Clone(name)
		s = c.readable(name)
		c.names[name] = s
	}
	return s
}
