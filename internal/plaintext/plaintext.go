// Package plaintext makes text harmless that came from somebody else: names of functions,
// files, processes and builds, and errors that mention them.
//
// A terminal executes control characters: an escape sequence moves the cursor, repaints what
// was printed before, or puts text into the input. A line feed in a name makes a line that
// the program never printed, and controls of the bidirectional algorithm show characters in
// another order than they have. All of them are replaced by U+FFFD, one for one. Every verb
// that prints for people prints names through this package. In JSON they are escaped, and
// formats that programs read have rules of their own (see profile/folded and cmd/hallmark/internal/addr2line).
package plaintext

import (
	"strconv"
	"strings"
	"unicode"
)

// Line returns s as it can stand in a line: everything is replaced that is no graphic
// character and no plain space. Line feeds are.
func Line(s string) string {
	if isPlain(s) {
		return s
	}
	return strings.Map(Rune, s)
}

// Rune returns r, or U+FFFD if Line replaces it.
func Rune(r rune) rune {
	if r == ' ' || unicode.IsGraphic(r) && !unicode.IsSpace(r) {
		return r
	}
	return unicode.ReplacementChar
}

// Quote returns s where Line leaves it alone, and otherwise as a string of Go: it is for
// paths and other names that a reader may need as they are.
func Quote(s string) string {
	if isPlain(s) || Line(s) == s {
		return s
	}
	return strconv.Quote(s)
}

// Name returns a name as it stands in a table or before a mark. It is Quote, and makes a string of
// Go also of a name whose start or end nobody would see, that ends in what could be a mark
// ("x [deleted]"), or that begins as such a string does.
func Name(s string) string {
	if isClear(s) {
		return Quote(s)
	}
	return strconv.Quote(s)
}

// isClear reports whether a reader sees where a name begins and ends.
func isClear(s string) bool {
	switch {
	case s == "", s[0] == ' ', s[0] == '"', s[len(s)-1] == ' ', strings.Contains(s, "  "):
		return false
	case s[len(s)-1] == ']':
		return !strings.Contains(s, " [")
	case s[len(s)-1] == ')':
		return !strings.Contains(s, " (")
	}
	return true
}

// Text returns a message of several lines. All but the first are indented, so that no
// part of a name can pass for a message of its own. Tabs become spaces, and line feeds at
// the end are cut off.
func Text(s string) string {
	s = strings.TrimRight(strings.ReplaceAll(s, "\t", "    "), "\n")
	if isPlain(s) {
		return s
	}
	var text strings.Builder
	for line := range strings.SplitSeq(s, "\n") {
		switch {
		case text.Len() > 0 && line != "":
			text.WriteString("\n  ")
		case text.Len() > 0:
			text.WriteString("\n")
		}
		text.WriteString(Line(line))
	}
	return text.String()
}

// isPlain reports whether s is printable ASCII, as nearly all names are.
func isPlain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
