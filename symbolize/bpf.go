package symbolize

import (
	"strconv"
	"strings"

	"hallmark/buildid"
)

// bpf knows stacks with the build IDs that the kernel gives to BPF programs (struct bpf_stack_build_id in
// include/uapi/linux/bpf.h): those of bpftrace's ustack(build_id) (src/types_format.cpp), a frame a line, and those of
// Inspektor Gadget in its field buildid (pkg/operators/ustack), all in one line:
//
//	@[
//	ec9be1cd3b7fe64ad8ad58e9d62637f49a69b512 0x11cf
//	7f8b2b4e2a7c
//	]: 5
//
//	[0]ec9be1cd3b7fe64ad8ad58e9d62637f49a69b512 +11cf; [1]ec9be1cd3b7fe64ad8ad58e9d62637f49a69b512 +11f0;
//
// Where the kernel found no build ID there is an address alone. Offsets are in the file. The first frame of a stack is
// where the processor was, the others are return addresses.
type bpf struct {
	*resolver
	frames  int  // of the stack so far
	started bool // the line before begins a stack
}

func (b *bpf) rewrite(line string) ([]string, bool) {
	if strings.HasPrefix(line, "[0]") || strings.Contains(line, " [0]") {
		if text, ok := b.gadget(line); ok {
			return []string{text}, true
		}
	}
	trimmed := strings.TrimLeft(line, " \t")
	if trimmed == "" || strings.HasPrefix(trimmed, "@") && strings.HasSuffix(trimmed, "[") {
		b.started, b.frames = true, 0
		return nil, false
	}
	if !b.started {
		return nil, false
	}
	word, rest, _ := strings.Cut(trimmed, " ")
	if len(word) == mostBare {
		if p, rest, ok := parseBare(word, " "+rest); ok && rest == "" {
			p.id, p.caller = unpadded(p.id), b.frames > 0
			b.frames++
			r := b.lookup(p)
			if len(r.Frames) == 0 {
				return []string{line}, true
			}
			return annotated(line, "", r), true
		}
	}
	if _, left, ok := cutHex(word); ok && left == "" && rest == "" && len(word) <= 16 { // an address alone
		b.frames++
		return nil, false
	}
	b.started = false
	return nil, false
}

// unpadded returns the build ID that the kernel has filled up to 20 bytes with zeros, if it was one of 16 or 8 bytes, as
// -Wl,--build-id=md5 and =fast make them. One of 20 bytes ends in so many zeros once in four billion times.
func unpadded(id buildid.ID) buildid.ID {
	digits := id.String()
	for _, n := range []int{16, 32} {
		if strings.Trim(digits[n:], "0") == "" {
			if short, err := parseID(digits[:n]); err == nil {
				return short
			}
		}
	}
	return id
}

// gadget gives functions to the frames in a line of Inspektor Gadget.
func (b *bpf) gadget(line string) (string, bool) {
	var out strings.Builder
	found, next := false, 0
	for rest := line; rest != ""; {
		frame, after, last := cutGadget(rest, next)
		if frame.end == 0 {
			out.WriteString(rest)
			break
		}
		found = true
		r := b.lookup(place{module: frame.digits, id: unpadded(frame.id), at: frame.at, offset: true, caller: next > 0})
		out.WriteString(rest[:frame.end])
		for i := range r.Frames {
			text := annotated("", "", r)[i]
			out.WriteString(text)
		}
		next = frame.number + 1
		rest = after
		if last {
			out.WriteString(rest)
			break
		}
	}
	return out.String(), found
}

// gadgetFrame is a frame in a line.
type gadgetFrame struct {
	number int
	digits string
	id     buildid.ID
	at     uint64
	end    int // of its text in the line, 0 for no frame
}

// cutGadget finds the first frame from a number on that has a build ID.
func cutGadget(line string, least int) (f gadgetFrame, after string, last bool) {
	for at := 0; ; {
		open := strings.IndexByte(line[at:], '[')
		if open < 0 {
			return gadgetFrame{}, "", true
		}
		at += open + 1
		number, text, ok := strings.Cut(line[at:], "]")
		n, err := strconv.Atoi(number)
		if !ok || err != nil || n < least || len(text) < mostBare+2 || text[mostBare:mostBare+2] != " +" {
			continue
		}
		id, err := parseID(text[:mostBare])
		offset, rest, ok := cutHex(text[mostBare+2:])
		if err != nil || !ok || rest != "" && rest[0] != ';' {
			continue
		}
		return gadgetFrame{n, text[:mostBare], id, offset, len(line) - len(rest)}, rest, rest == ""
	}
}
