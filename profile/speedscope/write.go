package speedscope

import (
	"bufio"
	"encoding/json"
	"io"
	"strconv"
)

// writer writes JSON as it comes: encoding/json would hold all of it.
type writer struct {
	*bufio.Writer
	values *json.Encoder
	err    error
}

// writeFile writes a file of the schema.
func writeFile(to io.Writer, name, unit string, frames []frame, profiles []sampled) error {
	w := writer{Writer: bufio.NewWriterSize(to, 1<<16)}
	w.values = json.NewEncoder(&w)
	w.values.SetEscapeHTML(false)
	w.field(`{"$schema":`, schema)
	if name != "" {
		w.field(`,"name":`, name)
	}
	w.field(`,"exporter":`, "hallmark")
	w.WriteString(`,"shared":{"frames":[`)
	for i := range frames {
		w.comma(i)
		w.value(frames[i])
	}
	w.WriteString(`]},"profiles":[`)
	for i := range profiles {
		w.comma(i)
		w.profile(&profiles[i], unit)
	}
	w.WriteString("]}\n")
	if w.err != nil {
		return w.err
	}
	return w.Flush()
}

func (w *writer) profile(p *sampled, unit string) {
	end, n := int64(0), 0
	for _, weight := range p.steps {
		end += weight
	}
	w.WriteString(`{"type":"sampled"`)
	w.field(`,"name":`, p.name)
	w.field(`,"unit":`, unit)
	w.WriteString(`,"startValue":0,"endValue":`)
	w.number(end)
	w.WriteString(`,"samples":[`)
	for stack := range p.steps {
		w.comma(n)
		n++
		w.WriteByte('[')
		for i, frame := range stack {
			w.comma(i)
			w.number(int64(frame))
		}
		w.WriteByte(']')
	}
	w.WriteString(`],"weights":[`)
	n = 0
	for _, weight := range p.steps {
		w.comma(n)
		n++
		w.number(weight)
	}
	w.WriteString(`]}`)
}

func (w *writer) field(key string, value any) {
	w.WriteString(key)
	w.value(value)
}

// value writes what encoding/json makes of it, which ends with a new line.
func (w *writer) value(v any) {
	if err := w.values.Encode(v); err != nil && w.err == nil {
		w.err = err
	}
}

// Write is what the encoder calls.
func (w *writer) Write(b []byte) (int, error) {
	if n := len(b); n > 0 && b[n-1] == '\n' {
		_, err := w.Writer.Write(b[:n-1])
		return n, err
	}
	return w.Writer.Write(b)
}

// comma goes before all elements but the first.
func (w *writer) comma(i int) {
	if i > 0 {
		w.WriteByte(',')
	}
}

func (w *writer) number(n int64) {
	var b [20]byte
	w.Writer.Write(strconv.AppendInt(b[:0], n, 10))
}
