package plaintext

import (
	"fmt"
	"io"
	"unicode/utf16"
	"unicode/utf8"
)

// JSON returns a writer for the values of a json.Encoder. It escapes what Line replaces:
// JSON lets controls of 8 bits and of direction stand in strings. Strings keep their values.
func JSON(w io.Writer) io.Writer { return jsonWriter{w} }

type jsonWriter struct{ w io.Writer }

// Write writes whole values. Other characters than ASCII stand in strings only.
func (j jsonWriter) Write(value []byte) (int, error) {
	n := len(value)
	for i, c := range value {
		if c >= 0x7f {
			value = appendEscaped(append(make([]byte, 0, n+n/8), value[:i]...), value[i:])
			break
		}
	}
	if _, err := j.w.Write(value); err != nil {
		return 0, err
	}
	return n, nil
}

func appendEscaped(b, value []byte) []byte {
	for len(value) > 0 {
		r, size := utf8.DecodeRune(value)
		switch hi, lo := utf16.EncodeRune(r); {
		case r < 0x7f || Rune(r) == r:
			b = append(b, value[:size]...)
		case r > 0xffff:
			b = fmt.Appendf(b, `\u%04x\u%04x`, hi, lo)
		default:
			b = fmt.Appendf(b, `\u%04x`, r)
		}
		value = value[size:]
	}
	return b
}
