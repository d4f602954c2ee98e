package readable

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/ianlancetaylor/demangle"
)

// A linkage name abbreviates parts of itself: S_ is the first one that it has named, S0_
// the second, and so on to base 36. The library counts one too many for each qualifier
// with template arguments in an unresolved name. The references behind it that are meant
// for this one, or a later one, are therefore increased.
//
// No second reader of linkage names is needed for that. The library itself reports how
// many parts there are at a place: it refuses a reference to a part that is not there,
// and its message has the number.

const (
	farAway       = "ZZZZ" // a reference to no part
	farAwayNumber = 36 * 36 * 36 * 36
	maxProbed     = 256 << 10 // bytes that the library reads for one name at most
)

// prober asks the library about beginnings of a name.
type prober struct{ left int }

// parts returns how many parts a reference can mean that stands behind a beginning of a
// name, or -1 where no reference can stand.
func (p *prober) parts(beginning string) int {
	if p.left -= len(beginning); p.left < 0 {
		return -1
	}
	_, err := demangle.ToAST(beginning + "S" + farAway + "_")
	if err == nil {
		return -1
	}
	_, counts, _ := strings.Cut(err.Error(), "substitution index out of range (")
	var index, parts int
	if n, _ := fmt.Sscanf(counts, "%d >= %d)", &index, &parts); n != 2 || index != farAwayNumber {
		return -1
	}
	return parts
}

// extra returns the number of the part that the library takes the name at a place for,
// though it is none. It is -1 where the library makes no mistake.
func (p *prober) extra(name string, at int) int {
	counted := p.parts(name[:at] + "1aI")
	if counted < 0 {
		return -1
	}
	before := -1
	if strings.HasSuffix(name[:at], "sr") {
		before = p.parts(name[:at])
	} else {
		before = p.parts(name[:at] + "E1aI") // the name after the qualifiers is not counted
	}
	if before < 0 || counted != before+1 {
		return -1
	}
	return before
}

// resolve returns a name that the library reads as the name is meant.
func resolve(name string) (string, error) {
	at := strings.Index(name, "sr")
	if at < 0 || !strings.HasPrefix(name, "_Z") || !strings.Contains(name[at:], "S") {
		return name, nil
	}
	p := &prober{maxProbed}
	for at += len("sr"); at < len(name) && p.left >= 0; at++ {
		end := sourceName(name, at)
		if end < 0 || end == len(name) || isDigit(name[end]) || name[end] == 'E' {
			continue
		}
		extra := p.extra(name, at)
		if extra < 0 {
			continue
		}
		shifted := p.shift(name, end, extra)
		if shifted != name && (name[end] != 'I' || isNested(name[:at])) {
			return "", errUncertain
		}
		name = shifted
	}
	if p.left < 0 {
		return "", errUncertain
	}
	return name, nil
}

// Older versions of GCC write an unresolved name without an end of the qualifiers, and
// qualifiers count for parts in it. The library, which counts others, reads it where
// another letter than E comes next. Such a name is left alone if it matters.

// sourceName returns where the name that starts at a place ends, or -1 if there is none.
func sourceName(name string, at int) int {
	if name[at] < '1' || name[at] > '9' || isDigit(name[at-1]) {
		return -1
	}
	digits := at
	for digits < len(name) && isDigit(name[digits]) {
		digits++
	}
	length, err := strconv.Atoi(name[at:digits])
	if err != nil || length > len(name)-digits {
		return -1
	}
	return digits + length
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// isNested reports whether a qualifier stands behind "srN" and a reference, which older
// versions of GCC write as well.
func isNested(beginning string) bool {
	at := strings.LastIndex(beginning, "srN")
	return at >= 0 && reference(beginning, at+len("srN")) == len(beginning)
}

// shift increases the references from a place on that mean the part with a number, or a
// later one.
func (p *prober) shift(name string, from, number int) string {
	for at := from; at < len(name); at++ {
		end := reference(name, at)
		if end < 0 {
			continue
		}
		meant := seqID(name[at+1 : end-1])
		if meant < number || p.parts(name[:at]) < 0 {
			continue
		}
		next := "S" + strings.ToUpper(strconv.FormatInt(int64(meant), 36)) + "_"
		name = name[:at] + next + name[end:]
		at += len(next) - 1
	}
	return name
}

// reference returns where the reference that starts at a place ends, or -1 if none does.
func reference(name string, at int) int {
	if name[at:] == "" || name[at] != 'S' {
		return -1
	}
	end := at + 1
	for end < len(name) && end < at+6 && (isDigit(name[end]) || 'A' <= name[end] && name[end] <= 'Z') {
		end++
	}
	if end == len(name) || name[end] != '_' {
		return -1
	}
	return end + 1
}

// seqID returns the number of the part that a reference means.
func seqID(digits string) int {
	if digits == "" {
		return 0
	}
	n, _ := strconv.ParseInt(digits, 36, 64)
	return int(n) + 1
}
