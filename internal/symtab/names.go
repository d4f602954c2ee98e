package symtab

import (
	"cmp"
	"strings"
)

// PLTSuffix is what a function's name has behind it where the code is the entry that
// jumps to the function, as objdump and perf write it.
const PLTSuffix = "@plt"

// Unversioned returns the name without the symbol version that linkers append
// in .symtab: "memcpy" for "memcpy@@GLIBC_2.14". What an entry of a procedure linkage
// table is called has none.
func Unversioned(name string) string {
	if i := strings.IndexByte(name, '@'); i > 0 && name[i:] != PLTSuffix {
		return name[:i]
	}
	return name
}

// CompareNames orders names of the same thing, the one for people first.
func CompareNames(a, b string) int {
	a, b = Unversioned(a), Unversioned(b)
	return cmp.Or(
		cmp.Compare(underscores(a), underscores(b)),
		cmp.Compare(len(a), len(b)),
		cmp.Compare(a, b),
	)
}

// underscores returns how many underscores a name starts with. That of mangled
// names says nothing about the name, and counts as none.
func underscores(name string) int {
	if IsMangled(name) {
		return 0
	}
	return len(name) - len(strings.TrimLeft(name, "_"))
}

// IsMangled reports whether a name looks mangled: _Z is C++ and the older Rust,
// _R the newer Rust.
func IsMangled(name string) bool {
	return strings.HasPrefix(name, "_Z") || strings.HasPrefix(name, "_R")
}

// IsAssemblers reports whether a symbol without type is the assembler's own: a
// mapping symbol ($x, $d.7: Arm and RISC-V) or a local label (.L12: RISC-V).
func IsAssemblers(name string) bool {
	return strings.HasPrefix(name, "$") || strings.HasPrefix(name, ".L")
}

// Names collect names, each ended by a NUL, to be kept as one string.
type Names struct{ strings.Builder }

// Add appends a name and returns where it is.
func (t *Names) Add(name []byte) uint32 {
	at := t.Len()
	if t.Cap()-at <= len(name) {
		t.Grow(len(name) + 1) // doubles the room, where Write adds a quarter to what is long
	}
	t.Write(name)
	t.WriteByte(0)
	return uint32(at)
}
