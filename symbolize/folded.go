package symbolize

import (
	"slices"
	"strings"

	"hallmark/internal/plaintext"
	"hallmark/symbol"
)

// folded knows folded stacks, as package profile/folded writes them: frames of which
// only the file is known are "[libc.so.6+0x9a1d0]", with the offset in the file, and of
// a caller that of the last byte of the call. The file may be given by its path or by
// its build ID too, "[/bin/prog+0x11cf (BuildId: ec9b…)]", "[ec9b…+0x11cf]".
type folded struct{ *resolver }

func (f *folded) rewrite(line string) ([]string, bool) {
	space := strings.LastIndexByte(line, ' ')
	if space < 0 || !isNumber(line[space+1:]) {
		return nil, false
	}
	var frames []string
	for frame := range strings.SplitSeq(line[:space], ";") {
		p, ok := parseFolded(frame)
		if !ok {
			frames = append(frames, frame)
			continue
		}
		if r := f.lookup(p); len(r.Frames) > 0 {
			frames = append(frames, foldedNames(r.Frames)...)
		} else {
			frames = append(frames, frame)
		}
	}
	return []string{strings.Join(frames, ";") + line[space:]}, true
}

// parseFolded takes apart a frame without a function. Frames of the kernel have no
// offset in a file.
func parseFolded(frame string) (p place, ok bool) {
	inside, ok := strings.CutPrefix(frame, "[")
	if !ok {
		return p, false
	}
	if inside, ok = strings.CutSuffix(inside, "]"); !ok {
		return p, false
	}
	plus := strings.LastIndex(inside, "+0x")
	if plus <= 0 {
		return p, false
	}
	at, rest, ok := cutHex(inside[plus+3:])
	if !ok {
		return p, false
	}
	id, rest := cutBuildID(rest)
	p = place{module: inside[:plus], id: id, at: at, offset: true}
	if bare, _, ok := parseBare(p.module, inside[plus:]); ok {
		p.id = bare.id
	}
	return p, rest == ""
}

// foldedNames returns the frames of functions, outermost first.
func foldedNames(frames []symbol.Frame) []string {
	var names []string
	for _, f := range slices.Backward((symbol.Result{Frames: frames}).Named().Frames) {
		names = append(names, strings.Clone(strings.Map(foldable, f.Func))) // the next lookup may close the file
	}
	return names
}

// foldable replaces what separates frames and lines.
func foldable(r rune) rune {
	switch {
	case r == ';':
		return ':'
	case plaintext.Rune(r) != r:
		return ' '
	}
	return r
}
