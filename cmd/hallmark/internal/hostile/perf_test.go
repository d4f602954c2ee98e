package hostile

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"hallmark/addr"
	"hallmark/perfdata"
)

// recordingOf writes a recording, compressed as perf does it.
func (p *place) recordingOf(name string, write func(put func(perfdata.Record))) string {
	p.t.Helper()
	f, err := os.Create(p.in(name))
	if err != nil {
		p.t.Fatal(err)
	}
	defer f.Close()
	w, err := perfdata.NewWriter(f, perfdata.WriterOptions{Compress: true, InOrder: true})
	if err != nil {
		p.t.Fatal(err)
	}
	w.Info.Arch = "x86_64"
	err = w.AddEvent(&perfdata.Event{Name: "cpu-clock", IDs: []uint64{1}, Attr: perfdata.Attr{
		Type: 1, Period: 1,
		Fields: perfdata.SampleIP | perfdata.SampleTID | perfdata.SampleTime | perfdata.SamplePeriod | perfdata.SampleCallchain | perfdata.SampleIdentifier,
		Flags:  perfdata.AttrMmap | perfdata.AttrMmap2 | perfdata.AttrComm | perfdata.AttrTask | perfdata.AttrSampleIDAll,
	}})
	if err != nil {
		p.t.Fatal(err)
	}
	write(func(r perfdata.Record) {
		if err := w.Write(r, nil); err != nil {
			p.t.Fatal(err)
		}
	})
	if err := w.Close(); err != nil {
		p.t.Fatal(err)
	}
	return p.in(name)
}

func moment(i int, pid uint32) perfdata.ID {
	return perfdata.ID{PID: pid, TID: pid, Time: uint64(1000 + i), Event: 1, Misc: uint16(perfdata.ModeUser)}
}

// chain is a stack of n frames, the innermost at an address.
func chain(n int, at uint64) []uint64 {
	c := make([]uint64, n)
	for i := range c {
		c[i] = at
	}
	c[0] = perfdata.ContextUser
	return c
}

// recordings are recordings that stand for far more than they are.
var recordings = map[string]func(put func(perfdata.Record)){
	"deep stacks": func(put func(perfdata.Record)) {
		for i := range size(500, 10_000) {
			put(&perfdata.Sample{ID: moment(i, 10), IP: 0x401000, Period: 1, Callchain: chain(8000, 0x401000)})
		}
	},
	"deep stacks that differ": func(put func(perfdata.Record)) {
		for i := range size(500, 10_000) {
			c := chain(8000, 0x401000)
			c[7999] = 0x401000 + uint64(i)
			put(&perfdata.Sample{ID: moment(i, 10), IP: 0x401000, Period: 1, Callchain: c})
		}
	},
	"samples": func(put func(perfdata.Record)) {
		for i := range size(100_000, 2_000_000) {
			put(&perfdata.Sample{ID: moment(i, 10), IP: 0x401000, Period: 1, Callchain: chain(2, 0x401000)})
		}
	},
	"addresses": func(put func(perfdata.Record)) {
		for i := range size(100_000, 1_000_000) {
			put(&perfdata.Sample{ID: moment(i, 10), IP: addr.Abs(0x401000 + i), Period: 1, Callchain: chain(2, uint64(0x401000+i))})
		}
	},
	"processes": func(put func(perfdata.Record)) {
		for i := range size(100_000, 300_000) {
			put(&perfdata.Comm{ID: moment(i, uint32(i+1)), OwnerPID: uint32(i + 1), OwnerTID: uint32(i + 1), Name: "name" + strconv.Itoa(i)})
			put(&perfdata.Sample{ID: moment(i, uint32(i+1)), IP: 0x401000, Period: 1, Callchain: chain(2, 0x401000)})
		}
	},
	"mappings": func(put func(perfdata.Record)) {
		for i := range size(50_000, 200_000) {
			put(&perfdata.Mmap2{ID: moment(i, 10), Type: perfdata.TypeMmap2, Owner: 10, Thread: 10, Start: addr.Abs(0x401000 + i*0x1000), Size: 0x1000,
				Prot: 5, Flags: 2, Name: "/" + strings.Repeat("n", 3000) + strconv.Itoa(i)})
			put(&perfdata.Sample{ID: moment(i, 10), IP: addr.Abs(0x401000 + i*0x1000), Period: 1, Callchain: chain(2, uint64(0x401000+i*0x1000))})
		}
	},
	"forks": func(put func(perfdata.Record)) {
		for i := range 1000 {
			put(&perfdata.Mmap2{ID: moment(i, 10), Type: perfdata.TypeMmap2, Owner: 10, Thread: 10, Start: addr.Abs(0x401000 + i*0x1000), Size: 0x1000, Prot: 5, Flags: 2, Name: "/bin/prog"})
		}
		for i := range size(20_000, 100_000) {
			put(&perfdata.Task{ID: moment(2000+i, 10), ParentPID: 10, ParentTID: 10, ChildPID: uint32(100 + i), ChildTID: uint32(100 + i)})
			put(&perfdata.Mmap2{ID: moment(2000+i, uint32(100+i)), Type: perfdata.TypeMmap2, Owner: uint32(100 + i), Thread: uint32(100 + i), Start: 0x10000, Size: 0x1000, Prot: 5, Flags: 2, Name: "/bin/prog"})
			put(&perfdata.Sample{ID: moment(2000+i, uint32(100+i)), IP: 0x401000, Period: 1, Callchain: chain(2, 0x401000)})
		}
	},
}

func (p *place) recordingReaders(in string) []command {
	return []command{
		line("report", in), line("report", "--json", in),
		line("convert", "--format", "folded", "-o", p.out("a.folded"), in),
		line("convert", "-o", p.out("a.speedscope.json"), in),
		line("convert", "-o", p.out("a.firefox.json"), in),
		line("convert", "--timeline", "-o", p.out("a.pb.gz"), in),
		line("convert", "-o", p.out("b.perf.data"), in),
		line("inject", "-o", p.out("c.perf.data"), in),
		{args: []string{"report", "-"}, stdin: in},
	}
}

func TestRecordings(t *testing.T) {
	for name, write := range recordings {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			p.runAll(p.recordingReaders(p.recordingOf("perf.data", write))...)
		})
	}
	t.Run("gzip", func(t *testing.T) {
		p := newPlace(t)
		in := p.recordingOf("perf.data", recordings["samples"])
		data, err := os.ReadFile(in)
		if err != nil {
			t.Fatal(err)
		}
		os.Remove(in)
		p.runAll(p.recordingReaders(p.write("perf.data.gz", compressed(append(data, make([]byte, size(50, 300)*mib)...))))...)
	})
}

// perfMaps are maps that anybody can write of a process.
var perfMaps = map[string]func() []byte{
	"many lines": func() []byte { return bytes.Repeat([]byte("0 1 a\n"), size(4, 20)*mib) },
	"long lines": func() []byte {
		return bytes.Repeat(append([]byte("401000 1000 "), append(bytes.Repeat([]byte("n"), 60_000), '\n')...), size(1200, 2000))
	},
	"one line": func() []byte { return bytes.Repeat([]byte("1"), size(20, 120)*mib) },
	"overlapping": func() []byte {
		return many(size(50_000, 500_000), func(d *dwarf, i int) { d.b = fmt.Appendf(d.b, "%x %x n%d\n", i, 1<<30, i) })
	},
	// as random as it can be in two million lines
	"lines": func() []byte {
		random := rand.New(rand.NewPCG(1, 2))
		return many(size(2<<20-10, 2<<20-10), func(d *dwarf, i int) {
			d.b = fmt.Appendf(d.b, "%x %x n%d\n", random.IntN(1<<28), random.IntN(1<<27), i%1000)
		})
	},
	"twenty million": func() []byte { return bytes.Repeat([]byte("7f0000000000 100 f\n"), size(4, 20)*1_000_000) },
	"steering":       func() []byte { return []byte("0 ffffffffffff \x1b[2J\u202ename\x9b\r\n") },
	"not a map":      func() []byte { return bytes.Repeat([]byte{0}, 10*mib) },
	"empty values":   func() []byte { return bytes.Repeat([]byte("0 0 \n"), 10*mib) },
}

// TestPerfMaps asks about a process whose map somebody wrote.
func TestPerfMaps(t *testing.T) {
	generated := buildGenerated(t)
	for name, make := range perfMaps {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			child := exec.Command(generated)
			out, err := child.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := child.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { child.Process.Kill(); child.Wait() }()
			var address string
			if _, err := fmt.Fscan(out, &address); err != nil {
				t.Fatal(err)
			}
			pid := strconv.Itoa(child.Process.Pid)
			perfMap := "/tmp/perf-" + pid + ".map"
			content := make()
			if err := os.WriteFile(perfMap, content, 0o644); err != nil {
				t.Fatal(err)
			}
			defer os.Remove(perfMap)
			size := int64(len(content))
			content = nil
			for _, c := range some(t.Name(), []command{
				line("addr", pid, address),
				line("record", "--backend", "perf", "-d", "300ms", "-o", p.out("a.pb.gz"), "-p", pid),
			}) {
				c.extra = size
				p.run(c)
			}
		})
	}
}

// buildGenerated builds a program that runs code in anonymous memory, and prints where.
func buildGenerated(t *testing.T) string {
	t.Helper()
	return buildC(t, `#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
int main(void)
{
	/* a loop without end */
	static const unsigned char code[] = { 0xeb, 0xfe };
	void *at = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memcpy(at, code, sizeof code);
	printf("%lx\n", (unsigned long)at);
	fflush(stdout);
	((void (*)(void))at)();
}
`)
}

// damage changes a few bytes here and there.
func damage(data []byte, random *rand.Rand) []byte {
	data = bytes.Clone(data)
	for range 1 + random.IntN(8) {
		if len(data) == 0 {
			break
		}
		at := random.IntN(len(data))
		if random.IntN(3) == 0 { // where headers are
			at = random.IntN(min(len(data), 512))
		}
		switch random.IntN(6) {
		case 0:
			data[at] = byte(random.IntN(256))
		case 1:
			data[at] ^= 1 << random.IntN(8)
		case 2:
			for i := at; i < min(at+8, len(data)); i++ {
				data[i] = 0xff
			}
		case 3:
			data = data[:at]
		case 4:
			n := min(random.IntN(64), len(data)-at)
			copy(data[at:at+n], data[random.IntN(len(data)-n+1):])
		case 5:
			for i := at; i < min(at+8, len(data)); i++ {
				data[i] = 0
			}
		}
	}
	return data
}
