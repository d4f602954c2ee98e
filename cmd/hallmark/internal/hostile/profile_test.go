package hostile

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"strings"
	"testing"

	"hallmark/internal/testenv"
)

// message is a protobuf message in the making
// (https://protobuf.dev/programming-guides/encoding).
type message struct{ b []byte }

func varint(b []byte, n uint64) []byte {
	for n >= 0x80 {
		b = append(b, byte(n)|0x80)
		n >>= 7
	}
	return append(b, byte(n))
}

func (m *message) num(field int, n uint64) *message {
	m.b = varint(varint(m.b, uint64(field)<<3), n)
	return m
}

func (m *message) bytes(field int, data []byte) *message {
	m.b = append(varint(varint(m.b, uint64(field)<<3|2), uint64(len(data))), data...)
	return m
}

func (m *message) sub(field int, f func(*message)) *message {
	var s message
	f(&s)
	return m.bytes(field, s.b)
}

// packed writes n numbers, all the same.
func (m *message) packed(field int, n int, value uint64) *message {
	return m.bytes(field, bytes.Repeat(varint(nil, value), n))
}

// Fields of perftools.profiles.Profile and its messages (pprof's profile.proto).
const (
	profSampleType, profSample, profMapping, profLocation, profFunction, profString = 1, 2, 3, 4, 5, 6
	profTimeNanos, profComment                                                      = 9, 13

	sampleLocation, sampleValue, sampleLabel = 1, 2, 3
	labelKey, labelStr, labelNum, labelUnit  = 1, 2, 3, 4
	locID, locMapping, locAddress, locLine   = 1, 2, 3, 4
	lineFunction, lineNumber                 = 1, 2
	funcID, funcName, funcSystem, funcFile   = 1, 2, 3, 4
	mapID, mapStart, mapLimit, mapOffset     = 1, 2, 3, 4
	mapFile, mapBuildID                      = 5, 6
)

// built is a profile in the making: strings first, which the others number.
type built struct {
	message
	strings map[string]uint64
}

func newBuilt() *built {
	p := &built{strings: map[string]uint64{}}
	p.string("")
	p.sub(profSampleType, func(m *message) { m.num(1, p.string("samples")).num(2, p.string("count")) })
	p.sub(profSampleType, func(m *message) { m.num(1, p.string("cpu")).num(2, p.string("nanoseconds")) })
	return p
}

// string returns the number of a string.
func (p *built) string(s string) uint64 {
	n, ok := p.strings[s]
	if !ok {
		n = uint64(len(p.strings))
		p.strings[s] = n
	}
	return n
}

// done returns the profile, compressed.
func (p *built) done() []byte {
	list := make([]string, len(p.strings))
	for s, n := range p.strings {
		list[n] = s
	}
	for _, s := range list {
		p.bytes(profString, []byte(s))
	}
	return compressed(p.b)
}

func (p *built) function(id uint64, name, file string) {
	p.sub(profFunction, func(m *message) {
		m.num(funcID, id).num(funcName, p.string(name)).num(funcSystem, p.string(name)).num(funcFile, p.string(file))
	})
}

func (p *built) mapping(id uint64, file, buildID string) {
	p.sub(profMapping, func(m *message) {
		m.num(mapID, id).num(mapStart, 0x400000).num(mapLimit, 0x80000000).num(mapFile, p.string(file)).num(mapBuildID, p.string(buildID))
	})
}

// location adds one with as many lines.
func (p *built) location(id, mapping, address uint64, functions ...uint64) {
	p.sub(profLocation, func(m *message) {
		m.num(locID, id).num(locAddress, address)
		if mapping != 0 {
			m.num(locMapping, mapping)
		}
		for i, f := range functions {
			m.sub(locLine, func(m *message) { m.num(lineFunction, f).num(lineNumber, uint64(i)) })
		}
	})
}

func (p *built) sample(f func(m *message)) {
	p.sub(profSample, func(m *message) {
		m.packed(sampleValue, 2, 1)
		f(m)
	})
}

func compressed(data []byte) []byte {
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	w.Write(data)
	w.Close()
	return out.Bytes()
}

// streamed compresses what is too large for memory.
func streamed(f func(w io.Writer)) []byte {
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	f(w)
	w.Close()
	return out.Bytes()
}

// repeat writes n copies.
func repeat(w io.Writer, n int, piece []byte) {
	many := max(1, min(n, 1<<16/max(len(piece), 1)))
	block := bytes.Repeat(piece, many)
	for ; n >= many; n -= many {
		w.Write(block)
	}
	w.Write(bytes.Repeat(piece, n))
}

// times repeats a number.
func times(n int, f uint64) []uint64 {
	list := make([]uint64, n)
	for i := range list {
		list[i] = f
	}
	return list
}

// profiles are profiles that claim, or stand for, far more than they are.
var profiles = map[string]func() []byte{
	// one name in every frame of every stack
	"name": func() []byte {
		p := newBuilt()
		p.function(1, strings.Repeat("A", 100_000), "f.c")
		p.location(1, 0, 0x401000, times(500, 1)...)
		p.sample(func(m *message) { m.packed(sampleLocation, 1000, 1) })
		return p.done()
	},
	// a name that is short, in a stack that is deep
	"deep": func() []byte {
		p := newBuilt()
		p.function(1, "f", "f.c")
		p.location(1, 0, 0x401000, times(10_000, 1)...)
		for range 30 {
			p.sample(func(m *message) { m.packed(sampleLocation, 1_000_000, 1) })
		}
		return p.done()
	},
	// many samples of the same deep stack
	"wide": func() []byte {
		p := newBuilt()
		p.function(1, "function", "f.c")
		p.location(1, 0, 0x401000, times(5000, 1)...)
		for range 200_000 {
			p.sample(func(m *message) { m.packed(sampleLocation, 20, 1) })
		}
		return p.done()
	},
	// stacks that differ in one frame only
	"differ": func() []byte {
		p := newBuilt()
		for i := range uint64(1000) {
			p.function(i+1, fmt.Sprintf("%s%d", strings.Repeat("B", 10_000), i), "f.c")
			p.location(i+1, 0, 0x401000+i, i+1)
		}
		for i := range uint64(20_000) {
			p.sample(func(m *message) { m.packed(sampleLocation, 100, i%1000+1).packed(sampleLocation, 10, i/1000+1) })
		}
		return p.done()
	},
	// the name of a file in every frame without symbol
	"file": func() []byte {
		p := newBuilt()
		p.mapping(1, "/lib/"+strings.Repeat("C", 200_000), "")
		for i := range uint64(50_000) {
			p.location(i+1, 1, 0x401000+i)
			p.sample(func(m *message) { m.num(sampleLocation, i+1) })
		}
		return p.done()
	},
	// the name of a thread, and of its process, for each sample
	"threads": func() []byte {
		p := newBuilt()
		p.function(1, "f", "f.c")
		p.location(1, 0, 0x401000, 1)
		long := p.string(strings.Repeat("D", 200_000))
		for i := range uint64(50_000) {
			p.sample(func(m *message) {
				m.num(sampleLocation, 1)
				for _, key := range []string{"process", "thread", "comm"} {
					m.sub(sampleLabel, func(m *message) { m.num(labelKey, p.string(key)).num(labelStr, long) })
				}
				for _, key := range []string{"pid", "tid"} {
					m.sub(sampleLabel, func(m *message) { m.num(labelKey, p.string(key)).num(labelNum, i+1) })
				}
				m.sub(sampleLabel, func(m *message) {
					m.num(labelKey, p.string("timestamp")).num(labelNum, 1_800_000_000_000_000_000+i).num(labelUnit, p.string("nanoseconds"))
				})
			})
		}
		return p.done()
	},
	// as many calls as a large recording has
	"calls": func() []byte {
		p := newBuilt()
		for i := range uint64(2000) {
			p.function(i+1, fmt.Sprintf("function%d", i), "f.c")
			p.location(i+1, 0, 0x401000+i, i+1)
		}
		for i := range uint64(100_000) {
			p.sample(func(m *message) {
				for k := range uint64(60) {
					m.num(sampleLocation, 1+(i*(k/20)+k)%2000)
				}
			})
		}
		return p.done()
	},
	"zeros": func() []byte {
		return streamed(func(w io.Writer) { repeat(w, size(150, 600)*mib, []byte{0}) })
	},
	"letters": func() []byte {
		return streamed(func(w io.Writer) { repeat(w, size(150, 600)*mib, []byte("a")) })
	},
	"samples":   func() []byte { return repeated(profSample, size(80, 200)*mib/2, nil) },
	"locations": func() []byte { return repeated(profLocation, size(80, 200)*mib/2, nil) },
	"functions": func() []byte { return repeated(profFunction, size(80, 200)*mib/2, nil) },
	"mappings":  func() []byte { return repeated(profMapping, size(80, 200)*mib/2, nil) },
	"strings":   func() []byte { return repeated(profString, size(120, 400)*mib/2, nil) },
	"types":     func() []byte { return repeated(profSampleType, size(80, 200)*mib/2, nil) },
	"comments":  func() []byte { return repeated(profComment, size(120, 400)*mib/2, nil) },
	"lines":     func() []byte { return inside(profLocation, size(80, 200)*mib, []byte{locLine<<3 | 2, 0}) },
	"labels":    func() []byte { return inside(profSample, size(80, 200)*mib, []byte{sampleLabel<<3 | 2, 0}) },
	"values":    func() []byte { return inside(profSample, size(120, 400)*mib, []byte{sampleValue << 3, 0}) },
	"stack":     func() []byte { return inside(profSample, size(120, 400)*mib, []byte{sampleLocation << 3, 1}) },
	// labels of the same key
	"numbers": func() []byte {
		p := newBuilt()
		p.function(1, "f", "f.c")
		p.location(1, 0, 0x401000, 1)
		key, unit := p.string("timestamp"), p.string("nanoseconds")
		var label message
		label.sub(sampleLabel, func(m *message) { m.num(labelKey, key).num(labelNum, 5).num(labelUnit, unit) })
		p.sample(func(m *message) { m.num(sampleLocation, 1).b = append(m.b, bytes.Repeat(label.b, 3_000_000)...) })
		return p.done()
	},
	// a sample whose values are as many as the types
	"types and values": func() []byte {
		p := newBuilt()
		for i := range 20_000 {
			p.sub(profSampleType, func(m *message) { m.num(1, p.string(fmt.Sprint("t", i))) })
		}
		for range 200 {
			p.sub(profSample, func(m *message) { m.packed(sampleValue, 20_002, 1) })
		}
		return p.done()
	},
	"length": func() []byte {
		p := newBuilt()
		p.b = append(varint(varint(p.b, profSample<<3|2), 1<<62), 1, 2, 3)
		return p.done()
	},
	"mapping each": func() []byte {
		p := newBuilt()
		for i := range uint64(size(25_000, 100_000)) {
			p.mapping(i+1, fmt.Sprintf("/lib/%d.so", i), fmt.Sprintf("%040x", i))
			p.location(i+1, i+1, 0x401000+i)
			p.sample(func(m *message) { m.num(sampleLocation, i+1) })
		}
		return p.done()
	},
	"process each": func() []byte {
		p := newBuilt()
		p.function(1, "f", "f.c")
		p.location(1, 0, 0x401000, 1)
		for i := range uint64(300_000) {
			p.sample(func(m *message) {
				m.num(sampleLocation, 1)
				m.sub(sampleLabel, func(m *message) { m.num(labelKey, p.string("tid")).num(labelNum, i+1) })
				m.sub(sampleLabel, func(m *message) { m.num(labelKey, p.string("pid")).num(labelNum, i+1) })
			})
		}
		return p.done()
	},
}

// repeated is a profile with very many messages.
func repeated(field, n int, body []byte) []byte {
	piece := new(message).bytes(field, body).b
	return streamed(func(w io.Writer) {
		w.Write(newBuilt().b)
		repeat(w, n, piece)
		for _, s := range []string{"", "samples", "count", "cpu", "nanoseconds"} {
			w.Write(new(message).bytes(profString, []byte(s)).b)
		}
	})
}

// inside is a profile with one message of so many bytes, all of the same piece.
func inside(field, size int, piece []byte) []byte {
	n := size / len(piece)
	return streamed(func(w io.Writer) {
		w.Write(newBuilt().b)
		w.Write(varint(varint(nil, uint64(field)<<3|2), uint64(n*len(piece))))
		repeat(w, n, piece)
		for _, s := range []string{"", "samples", "count", "cpu", "nanoseconds"} {
			w.Write(new(message).bytes(profString, []byte(s)).b)
		}
	})
}

// readers are the commands that read a profile.
func (p *place) readers(in string) []command {
	all := []command{
		line("report", in), line("report", "--json", in),
		line("convert", "--format", "folded", "-o", p.out("a.folded"), in),
		line("convert", "-o", p.out("a.speedscope.json"), in),
		line("convert", "-o", p.out("a.firefox.json"), in),
		line("convert", "-o", p.out("a.html"), in),
		line("convert", "-o", p.out("a.svg"), in),
		line("convert", "-o", p.out("a.pb.gz"), in),
		line("convert", "-o", p.out("a.perf.data"), in),
		line("convert", "-o", p.out("a.otlp"), in),
		line("symbolize", "-o", p.out("b.pb.gz"), in),
	}
	return all
}

func TestProfiles(t *testing.T) {
	for name, make := range profiles {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			p.runAll(p.readers(p.write("in.pb.gz", make()))...)
		})
	}
}

// messages are of OTLP: a few bytes that stand for many.
var messages = map[string]func() []byte{
	"zeros":         func() []byte { return nested(1, 1, 1<<29, []byte{0}) },
	"empty fields":  func() []byte { return nested(1, 2, 1<<28, []byte{0x12, 0}) },
	"empty strings": func() []byte { return nested(2, 5, 1<<28, []byte{0x2a, 0}) },
	"short":         func() []byte { return varint([]byte{1<<3 | 2}, 1<<62) },
}

// nested is a message, compressed, whose field has so many bytes of the same piece after a field of its own that
// makes it one of OTLP.
func nested(field, inner, size int, piece []byte) []byte {
	n := size / len(piece)
	return streamed(func(w io.Writer) {
		begin := new(message).bytes(inner, nil).b
		w.Write(varint(varint(nil, uint64(field)<<3|2), uint64(len(begin)+n*len(piece))))
		w.Write(begin)
		repeat(w, n, piece)
	})
}

// TestMessages reads messages of OTLP.
func TestMessages(t *testing.T) {
	for name, make := range messages {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			in := p.write("in.otlp", make())
			p.runAll(line("report", in), line("report", "--max-size", "100", in), line("convert", "-o", p.out("a.folded"), in), line("convert", "-o", p.out("a.pb.gz"), in))
		})
	}
}

// pages are what view serves.
var pages = []string{"", "api/profile", "api/coverage", "api/tree", "api/tree?invert=1", "api/functions", "api/binaries",
	"api/labels?key=process", "api/search?q=.", "api/function?fn=0", "api/lines?fn=0", "api/callers?fn=0", "api/time?by=process", "api/download"}

// TestView shows profiles in a browser.
func TestView(t *testing.T) {
	for name, make := range profiles {
		t.Run(name, func(t *testing.T) {
			if sum := len(name); !testenv.Thorough() && sum%8 != 0 {
				t.Skip("left to HALLMARK_THOROUGH=1")
			}
			p := newPlace(t)
			in := p.write("in.pb.gz", make())
			p.serve(line("view", "--no-browser", in), pages...)
		})
	}
}
