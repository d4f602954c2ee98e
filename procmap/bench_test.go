package procmap

import (
	"fmt"
	"testing"

	"hallmark/addr"
)

func BenchmarkFind(b *testing.B) {
	c := start(b, play("many"))
	for _, m := range methods(b) {
		b.Run(m.String(), func(b *testing.B) {
			p := open(b, c.pid, m)
			v := mappingOf(b, p, func(v VMA) bool { return v.Kind() == KindFile })
			b.ReportAllocs()
			for b.Loop() {
				if _, ok, err := p.Find(v.Start); !ok || err != nil {
					b.Fatal(ok, err)
				}
			}
		})
	}
}

func BenchmarkAll(b *testing.B) {
	for _, role := range []string{"wait", "many"} {
		c := start(b, play(role))
		for _, m := range methods(b) {
			b.Run(fmt.Sprintf("%s/%v", role, m), func(b *testing.B) {
				p := open(b, c.pid, m)
				n := 0
				b.ReportAllocs()
				for b.Loop() {
					list, err := p.All()
					if err != nil {
						b.Fatal(err)
					}
					n = len(list)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/VMA")
			})
		}
	}
}

// BenchmarkTranslate has the addresses of stacks: many, in few VMAs.
func BenchmarkTranslate(b *testing.B) {
	c := start(b, play("many"))
	for _, m := range methods(b) {
		p := open(b, c.pid, m)
		code, err := p.Executable()
		if err != nil {
			b.Fatal(err)
		}
		var addrs []addr.Abs
		for i := range 464 {
			v := code[i%5*len(code)/5]
			addrs = append(addrs, v.Start+addr.Abs(8*i)%(v.End-v.Start))
		}
		b.Run(m.String(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := p.Translate(addrs); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkParseLine(b *testing.B) {
	line := []byte(lines[0].line)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseLine(line); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkIdentity(b *testing.B) {
	c := start(b, play("map", gnuFile(b)))
	for _, m := range methods(b) {
		p := open(b, c.pid, m)
		v := mappingOf(b, p, ofName(gnuFile(b)))
		b.Run(m.String(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.known.Clear()
				if id, err := p.Identity(v); err != nil || id.ID.IsZero() {
					b.Fatal(id, err)
				}
			}
		})
	}
}
