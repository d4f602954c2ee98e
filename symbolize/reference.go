package symbolize

import (
	"strconv"
	"strings"

	"hallmark/buildid"
	"hallmark/internal/plaintext"
	"hallmark/symbol"
)

// reference is a file and an offset in the midst of a line:
// "(/lib/libc.so.6+0x27249) (BuildId: 93ac…)".
type reference struct {
	before, text, after string // the line
	module              string
	offset              uint64
	id                  buildid.ID // zero if there is none
}

// cutReference finds the last reference in a line.
func cutReference(line string) (ref reference, ok bool) {
	plus := strings.LastIndex(line, "+0x")
	if plus < 0 {
		return ref, false
	}
	offset, rest, ok := cutHex(line[plus+3:])
	if !ok || !strings.HasPrefix(rest, ")") {
		return ref, false
	}
	start := openingBefore(line[:plus])
	if start < 0 || start+1 == plus {
		return ref, false
	}
	ref.id, ref.after = cutBuildID(rest[1:])
	ref.before, ref.module, ref.offset = line[:start], line[start+1:plus], offset
	ref.text = line[start : len(line)-len(ref.after)]
	return ref, true
}

// openingBefore returns where the parenthesis opens that the name of a file, which s
// ends in, stands in. Names and the functions before them may have parentheses and
// spaces themselves.
func openingBefore(s string) int {
	for _, opening := range []string{" (/", " ([", " ("} {
		if at := strings.LastIndex(s, opening); at >= 0 {
			return at + 1
		}
	}
	return -1
}

// cutBuildID takes " (BuildId: 93ac…)" off the start of s.
func cutBuildID(s string) (id buildid.ID, rest string) {
	inside, ok := strings.CutPrefix(s, " (BuildId: ")
	if !ok {
		return id, s
	}
	digits, rest, ok := strings.Cut(inside, ")")
	if !ok {
		return id, s
	}
	id, err := parseID(digits)
	if err != nil {
		return buildid.ID{}, s
	}
	return id, rest
}

// parseID reads the hexadecimal digits of a build ID.
func parseID(digits string) (buildid.ID, error) {
	if strings.Contains(digits, ":") {
		return buildid.ID{}, strconv.ErrSyntax // an identity that only this project writes
	}
	return buildid.Parse(digits)
}

// cutHex takes a hexadecimal number of at most 64 bits off the start of s.
func cutHex(s string) (n uint64, rest string, ok bool) {
	end := 0
	for end < len(s) && isHex(s[end]) {
		end++
	}
	n, err := strconv.ParseUint(s[:end], 16, 64)
	return n, s[end:], err == nil
}

func isHex(c byte) bool { return isDigit(c) || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// cutFrameNumber finds the first "#12 " in a line.
func cutFrameNumber(line string) (before string, n int, after string, ok bool) {
	for at := 0; at < len(line); at++ {
		if line[at] != '#' {
			continue
		}
		end := at + 1
		for end < len(line) && isDigit(line[end]) {
			end++
		}
		n, err := strconv.ParseUint(line[at+1:end], 10, 31)
		if err == nil && end < len(line) && line[end] == ' ' {
			return line[:at], int(n), line[end:], true
		}
		at = end - 1
	}
	return "", 0, "", false
}

// sourceLine returns "file:line:column" as far as it is known, "" without a file.
// Nothing in it can break a line or steer a terminal.
func sourceLine(f *symbol.Frame) string {
	if f.File == "" {
		return ""
	}
	place := clean(f.File)
	if f.Line == 0 {
		return place
	}
	place += ":" + strconv.Itoa(f.Line)
	if f.Column != 0 {
		place += ":" + strconv.Itoa(f.Column)
	}
	return place
}

// noName stands for the name of a function that has none.
const noName = "??"

// clean replaces what is no plain text: names come from files that nobody vouches for.
func clean(name string) string {
	if name == "" {
		return noName
	}
	return strings.Map(func(r rune) rune {
		if plaintext.Rune(r) != r {
			return '?'
		}
		return r
	}, name)
}

// agrees reports whether a function is the one that text names, with the parameters
// or without.
func agrees(f *symbol.Frame, name string) bool {
	for _, known := range []string{f.Func, f.Linkage, f.Symbol} {
		if known == "" {
			continue
		}
		rest, ok := strings.CutPrefix(name, known)
		if ok && (rest == "" || rest[0] == '(' || rest[0] == '@') {
			return true
		}
	}
	// A symbol of C++ that is named without its template arguments.
	rest, ok := strings.CutPrefix(f.Func, name)
	return ok && name != "" && (rest[0] == '<' || rest[0] == '(')
}

// annotated returns what a line becomes that has no form of its own for functions:
// they follow the text up to the end of the frame, in lines of their own for those
// inlined.
func annotated(frame, after string, r symbol.Result) []string {
	var lines []string
	for i := range r.Frames {
		f := &r.Frames[i]
		line := frame + " in " + clean(f.Func)
		if at := sourceLine(f); at != "" {
			line += " at " + at
		}
		if f.Inlined {
			line += " (inlined)"
		}
		lines = append(lines, line+after)
	}
	return lines
}
