// Package jsonstream writes JSON as it comes: encoding/json holds all of a value before it
// writes the first byte.
package jsonstream

import (
	"bufio"
	"encoding/json"
	"io"
	"math"
	"strconv"

	"hallmark/internal/plaintext"
)

// A Writer writes what it is given, piece by piece; that the pieces are JSON together is for
// the caller to see to. Values are written as encoding/json writes them, without the escapes of
// HTML, and with those of [plaintext.JSON]. The first error is kept, and Flush returns it.
type Writer struct {
	out    *bufio.Writer
	values *json.Encoder
	err    error // of a value that is none in JSON
}

// NewWriter returns a Writer to w.
func NewWriter(w io.Writer) *Writer {
	out := bufio.NewWriterSize(w, 1<<16)
	values := json.NewEncoder(plaintext.JSON(lines{out}))
	values.SetEscapeHTML(false)
	return &Writer{out: out, values: values}
}

// lines writes without the new lines that an encoder ends values with. There are no others:
// in texts they are escaped.
type lines struct{ *bufio.Writer }

func (l lines) Write(b []byte) (int, error) {
	if n := len(b); n > 0 && b[n-1] == '\n' {
		_, err := l.Writer.Write(b[:n-1])
		return n, err
	}
	return l.Writer.Write(b)
}

// Text writes a piece of JSON as it is. Names that others chose are for Value.
func (w *Writer) Text(s string) { w.out.WriteString(s) }

// Value writes a value, all of which is held.
func (w *Writer) Value(v any) {
	if err := w.values.Encode(v); err != nil && w.err == nil {
		w.err = err
	}
}

// Field writes a piece of JSON that ends with a key, and the key's value.
func (w *Writer) Field(key string, v any) {
	w.Text(key)
	w.Value(v)
}

// Comma writes the comma before all elements of a list but the first, which is number 0.
func (w *Writer) Comma(i int) {
	if i > 0 {
		w.out.WriteByte(',')
	}
}

// Int writes a number.
func (w *Writer) Int(n int64) {
	w.out.Write(strconv.AppendInt(w.out.AvailableBuffer(), n, 10))
}

// Float writes a number.
func (w *Writer) Float(f float64) {
	if a := math.Abs(f); a != 0 && !(a >= 1e-6 && a < 1e21) {
		w.Value(f) // with an exponent, or no number
		return
	}
	w.out.Write(strconv.AppendFloat(w.out.AvailableBuffer(), f, 'f', -1, 64))
}

// Failed reports whether what was written is lost: there is no use in writing more.
func (w *Writer) Failed() bool {
	_, err := w.out.Write(nil)
	return err != nil || w.err != nil
}

// Flush writes what is not written yet, and returns the first error of all.
func (w *Writer) Flush() error {
	if w.err != nil {
		return w.err
	}
	return w.out.Flush()
}
