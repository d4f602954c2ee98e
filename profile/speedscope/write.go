package speedscope

import (
	"io"
	"iter"

	"hallmark/internal/jsonstream"
)

// writeFile writes a file of the schema.
func writeFile(to io.Writer, name, unit string, b *builder, profiles []sampled) error {
	w := jsonstream.NewWriter(to)
	w.Field(`{"$schema":`, schema)
	if name != "" {
		w.Field(`,"name":`, name)
	}
	w.Field(`,"exporter":`, "hallmark")
	w.Text(`,"shared":{"frames":[`)
	for i := range b.all {
		w.Comma(i)
		w.Value(b.all[i])
	}
	w.Text(`]},"profiles":[`)
	for i := range profiles {
		w.Comma(i)
		writeProfile(w, b, &profiles[i], unit)
	}
	w.Text("]}\n")
	return w.Flush()
}

func writeProfile(w *jsonstream.Writer, b *builder, p *sampled, unit string) {
	end, n := int64(0), 0
	for _, weight := range p.steps {
		end += weight
	}
	w.Text(`{"type":"sampled"`)
	w.Field(`,"name":`, p.name)
	w.Field(`,"unit":`, unit)
	w.Text(`,"startValue":0,"endValue":`)
	w.Int(end)
	w.Text(`,"samples":[`)
	for one := range p.steps {
		w.Comma(n)
		n++
		writeStack(w, b.stack(one))
		if w.Failed() {
			return
		}
	}
	w.Text(`],"weights":[`)
	n = 0
	for _, weight := range p.steps {
		w.Comma(n)
		n++
		w.Int(weight)
	}
	w.Text(`]}`)
}

func writeStack(w *jsonstream.Writer, stack iter.Seq[int]) {
	w.Text("[")
	n := 0
	for frame := range stack {
		w.Comma(n)
		n++
		w.Int(int64(frame))
	}
	w.Text("]")
}
