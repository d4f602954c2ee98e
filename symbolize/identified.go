package symbolize

import (
	"strings"

	"hallmark/buildid"
)

// identified knows text with a build ID, whoever wrote it:
//
//	… (/bin/prog+0x11cf) (BuildId: ec9b…)                 a virtual address, as sanitizers print it
//	… ec9be1cd3b7fe64ad8ad58e9d62637f49a69b512+0x11cf     an offset in the file
//	… ec9be1cd3b7fe64ad8ad58e9d62637f49a69b512 0x11cf     the same, as stacks of BPF have it
type identified struct{ *resolver }

func (d *identified) rewrite(line string) ([]string, bool) {
	var p place
	var frame string
	if ref, ok := cutReference(line); ok && !ref.id.IsZero() {
		p = place{module: ref.module, id: ref.id, at: ref.offset}
		frame = ref.before + ref.text
	} else if p, frame, ok = findBare(line); !ok {
		return nil, false
	}
	r := d.lookup(p)
	if len(r.Frames) == 0 {
		return []string{line}, true
	}
	return annotated(frame, line[len(frame):], r), true
}

// A build ID that nothing marks as one has 16 or 20 bytes: those of GNU's and LLVM's
// linkers that are not numbers of another kind.
const (
	leastBare = 32
	mostBare  = 40
)

// findBare finds a build ID with an offset, and returns the line up to its end.
func findBare(line string) (p place, frame string, ok bool) {
	for at := 0; at < len(line); at++ {
		start := at
		for at < len(line) && isWord(line[at]) {
			at++
		}
		p, rest, ok := parseBare(line[start:at], line[at:])
		if ok {
			return p, line[:len(line)-len(rest)], true
		}
	}
	return p, "", false
}

// parseBare reads a word and what follows it.
func parseBare(word, after string) (p place, rest string, ok bool) {
	if len(word) != leastBare && len(word) != mostBare || !strings.HasPrefix(after, "+0x") && !strings.HasPrefix(after, " 0x") {
		return p, "", false
	}
	id, err := buildid.Parse(word)
	if err != nil {
		return p, "", false
	}
	at, rest, ok := cutHex(after[3:])
	return place{module: word, id: id, at: at, offset: true}, rest, ok && (rest == "" || !isWord(rest[0]))
}

// isWord reports whether c is a letter, a digit or _.
func isWord(c byte) bool {
	return isDigit(c) || c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
