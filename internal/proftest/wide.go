package proftest

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
)

// Wide says how a large profile is made. The zero value of a field stands for the number at it.
type Wide struct {
	Stacks    int // 1,000,000 distinct ones, a sample each
	Depth     int // 20 frames
	Functions int // 20,000, each of which has a location
	Shared    int // 10 frames, of which only two can follow each, so that stacks have beginnings in common
	Processes int // 0: samples have no labels
}

// Write writes the profile, uncompressed, as it is made: it is never in memory.
func (o Wide) Write(to io.Writer) error {
	set := func(field *int, value int) {
		if *field == 0 {
			*field = value
		}
	}
	set(&o.Stacks, 1_000_000)
	set(&o.Depth, 20)
	set(&o.Functions, 20_000)
	set(&o.Shared, 10)
	w := wideWriter{out: bufio.NewWriterSize(to, 1<<16), texts: map[string]uint64{"": 0}, list: []string{""}}
	for _, t := range [][2]string{{"samples", "count"}, {"cpu", "nanoseconds"}} {
		w.message(1, func(b *body) { b.number(1, w.text(t[0])); b.number(2, w.text(t[1])) })
	}
	r := rand.New(rand.NewPCG(1, 2))
	stack := make([]uint64, o.Depth)
	for n := range o.Stacks {
		for depth := range stack {
			at := depth * (o.Functions / o.Depth)
			if depth < o.Shared {
				at += r.IntN(2)
			} else {
				at += r.IntN(o.Functions / o.Depth)
			}
			stack[o.Depth-1-depth] = uint64(at + 1)
		}
		w.message(2, func(b *body) {
			b.list(1, stack...)
			b.list(2, 1, Period)
			if o.Processes > 0 {
				pid := n % o.Processes
				b.message(3, func(b *body) { b.number(1, w.text("process")); b.number(2, w.text(fmt.Sprint("worker-", pid%10))) })
				b.message(3, func(b *body) { b.number(1, w.text("pid")); b.number(3, uint64(pid+1)) })
			}
		})
	}
	const binaries = 10
	for i := range uint64(binaries) {
		w.message(3, func(b *body) {
			b.number(1, i+1)
			b.number(2, i<<32)
			b.number(3, (i+1)<<32)
			b.number(5, w.text(fmt.Sprintf("/usr/lib/libwide%d.so", i)))
			b.number(6, w.text(fmt.Sprintf("%040x", i+1)))
		})
	}
	for i := range uint64(o.Functions) {
		w.message(4, func(b *body) {
			b.number(1, i+1)
			b.number(2, i%binaries+1)
			b.number(3, (i%binaries)<<32+i*64)
			b.message(4, func(b *body) { b.number(1, i+1); b.number(2, i%1000+1) })
		})
	}
	for i := range uint64(o.Functions) {
		w.message(5, func(b *body) { b.number(1, i+1); b.number(2, w.text(fmt.Sprintf("wide::function_%d", i))) })
	}
	for _, text := range w.list {
		w.bytes(6, []byte(text))
	}
	if w.err != nil {
		return w.err
	}
	return w.out.Flush()
}

type wideWriter struct {
	out   *bufio.Writer
	texts map[string]uint64
	list  []string
	body  body
	err   error
}

func (w *wideWriter) text(s string) uint64 {
	n, ok := w.texts[s]
	if !ok {
		n = uint64(len(w.list))
		w.texts[s], w.list = n, append(w.list, s)
	}
	return n
}

func (w *wideWriter) message(field uint64, fill func(*body)) {
	w.body = w.body[:0]
	fill(&w.body)
	w.bytes(field, w.body)
}

func (w *wideWriter) bytes(field uint64, data []byte) {
	head := binary.AppendUvarint(nil, field<<3|2)
	head = binary.AppendUvarint(head, uint64(len(data)))
	if _, err := w.out.Write(append(head, data...)); err != nil {
		w.err = err
	}
}

// body is a message of protobuf.
type body []byte

func (b *body) number(field, v uint64) {
	*b = binary.AppendUvarint(binary.AppendUvarint(*b, field<<3), v)
}

func (b *body) list(field uint64, numbers ...uint64) {
	b.message(field, func(b *body) {
		for _, v := range numbers {
			*b = binary.AppendUvarint(*b, v)
		}
	})
}

func (b *body) message(field uint64, fill func(*body)) {
	var inner body
	fill(&inner)
	*b = binary.AppendUvarint(binary.AppendUvarint(*b, field<<3|2), uint64(len(inner)))
	*b = append(*b, inner...)
}
