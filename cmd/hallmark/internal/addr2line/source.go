package addr2line

import (
	"bytes"
	"math"
	"strconv"
	"strings"

	"hallmark/internal/plaintext"
	"hallmark/internal/regular"
)

// maxSource is the size of the largest source file that is read.
const maxSource = 64 << 20

// A sourceReader reads source files, and keeps the last one.
type sourceReader struct {
	name  string
	text  []byte
	plain bool // lines are for a terminal
}

// read returns the text of a file, nil if it cannot be read.
func (r *sourceReader) read(name string) []byte {
	if name != r.name {
		r.name, r.text = name, nil
		if text, err := regular.ReadFile(name, maxSource); err == nil {
			r.text = text
		}
	}
	return r.text
}

// appendContext appends n lines of a file around a line, with their numbers.
func (r *sourceReader) appendContext(b []byte, name string, line, n int) []byte {
	if n <= 0 || name == "" {
		return b
	}
	text := r.read(name)
	first := max(1, line-n/2)
	last := first + n - 1
	width := int(math.Ceil(math.Log10(float64(last))))
	for number := 1; number <= last && len(text) > 0; number++ {
		var content []byte
		content, text, _ = bytes.Cut(text, []byte{'\n'})
		if number < first {
			continue
		}
		digits := strconv.Itoa(number)
		for range width - len(digits) {
			b = append(b, ' ')
		}
		mark := "  : "
		if number == line {
			mark = " >: "
		}
		b = append(append(b, digits...), mark...)
		content = bytes.TrimSuffix(content, []byte{'\r'})
		if r.plain {
			content = []byte(plaintext.Line(strings.ReplaceAll(string(content), "\t", "        ")))
		}
		b = append(append(b, content...), '\n')
	}
	return b
}
