package folded

import (
	"bytes"
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"hallmark/internal/proftest"
	"hallmark/profile"
)

func write(t testing.TB, p *pprof.Profile, o Options) string {
	t.Helper()
	var out bytes.Buffer
	if err := Write(&out, p, o); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestWrite(t *testing.T) {
	const want = `app;main;[libz.so.1+0x3abc];vfs_read_[k] 2
app;main;loop;step 5
app;main;vfs_read_[k];[kernel+0x3000]_[k] 1
app;main;walk;walk;walk 3
main 4
old;[file-gone] /opt/old;main 2
old;[not-mapped] 1
`
	if got := write(t, proftest.Mixed(), Options{}); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestSampleType(t *testing.T) {
	got := write(t, proftest.Mixed(), Options{SampleType: "cpu"})
	if want := "app;main;loop;step 50000000\n"; !strings.Contains(got, want) {
		t.Errorf("got\n%swant a line %s", got, want)
	}
	heap := proftest.Heap(t) // has no samples, and so counts its default type
	if got, want := total(t, parse(t, write(t, heap, Options{}))), sum(t, heap, ""); got != want {
		t.Errorf("heap profile adds up to %d, want %d", got, want)
	}
	if err := Write(&bytes.Buffer{}, proftest.Mixed(), Options{SampleType: "inuse_space"}); err == nil {
		t.Error("a sample type that the profile does not have was written")
	}
}

func TestEqualStacksAreOneLine(t *testing.T) {
	m := proftest.New()
	mapping := m.Mapping("/bin/x", proftest.AppID, 0x400000)
	m.Sample("x", 1, 2, m.Location(mapping, 0x401000, "f"))
	m.Sample("x", 2, 3, m.Location(mapping, 0x401008, "f"))
	m.Sample("x", 2, 0, m.Location(mapping, 0x402000, "never"))
	m.Sample("x", 2, 1)
	m.Sample("", 0, 1)
	if got, want := write(t, m.Profile, Options{}), "[no stack] 1\nx 1\nx;f 5\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestStacksOfOneAddress wants the names of each file's functions, where two files have one at
// the same address, and so does a process the code that it generated.
func TestStacksOfOneAddress(t *testing.T) {
	m := proftest.New()
	x, y := m.Mapping("/bin/x", proftest.AppID, 0x400000), m.Mapping("/bin/y", "", 0x400000)
	m.Sample("x", 1, 2, m.Location(x, 0x401000, "f"))
	m.Sample("x", 1, 3, m.Location(y, 0x401000, "g"))
	m.Sample("x", 1, 4, m.Location(y, 0x401000, "h"))
	if got, want := write(t, m.Profile, Options{}), "x;f 2\nx;g 3\nx;h 4\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestNegativeValuesAreRefused(t *testing.T) {
	m := proftest.New()
	m.Sample("x", 1, -1)
	if err := Write(&bytes.Buffer{}, m.Profile, Options{}); !errors.Is(err, profile.ErrNegative) {
		t.Errorf("error %v, want %v", err, profile.ErrNegative)
	}
}

// TestAgreesWithPprof adds up each function's lines and compares with what pprof
// says of the same file.
func TestAgreesWithPprof(t *testing.T) {
	for _, test := range []struct {
		name       string
		p          *pprof.Profile
		sampleType string
		unit       string
	}{
		{"cpu profile by the runtime", proftest.CPU(t), "cpu", "ns"},
		{"its samples", proftest.CPU(t), "samples", "count"},
		{"heap profile by the runtime", proftest.Heap(t), "alloc_space", "B"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := map[string]proftest.Value{}
			for stack, n := range parse(t, write(t, test.p, Options{SampleType: test.sampleType})) {
				frames := strings.Split(stack, ";")
				seen := map[string]bool{}
				for i, f := range frames {
					v := got[f]
					if i == len(frames)-1 {
						v.Flat += n
					}
					if !seen[f] {
						seen[f] = true
						v.Cum += n
					}
					got[f] = v
				}
			}
			for name, want := range proftest.Top(t, proftest.Save(t, test.p), test.sampleType, test.unit) {
				name = strings.ReplaceAll(name, ";", ":") // Go's names of generic functions have some
				if got[name] != want {
					t.Errorf("%s: %+v, pprof says %+v", name, got[name], want)
				}
			}
		})
	}
}

// parse reads folded stacks as flamegraph.pl does: the number is what follows
// the last space.
func parse(t testing.TB, text string) map[string]int64 {
	t.Helper()
	stacks := map[string]int64{}
	last := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		i := strings.LastIndexByte(line, ' ')
		if i < 1 {
			t.Fatalf("line %q is not a stack and a number", line)
		}
		n, err := strconv.ParseInt(line[i+1:], 10, 64)
		if err != nil || n <= 0 {
			t.Fatalf("line %q does not end with a positive number", line)
		}
		if _, twice := stacks[line[:i]]; twice || line[:i] <= last && last != "" {
			t.Fatalf("%q comes after %q", line[:i], last)
		}
		last = line[:i]
		stacks[last] = n
	}
	return stacks
}

func total(t testing.TB, stacks map[string]int64) int64 {
	t.Helper()
	var n int64
	for _, count := range stacks {
		n += count
	}
	return n
}

func sum(t testing.TB, p *pprof.Profile, sampleType string) int64 {
	t.Helper()
	index, err := profile.SampleIndex(p, sampleType)
	if err != nil {
		t.Fatal(err)
	}
	var n int64
	for _, s := range p.Sample {
		n += s.Value[index]
	}
	return n
}

// FuzzWrite gives odd names to everything that has one. The output must still be
// a line for each stack, with as many frames as there were.
func FuzzWrite(f *testing.F) {
	f.Add("main", "[kernel]", "app", int64(3))
	f.Add("a;b", "/bin/a;b", "c;d", int64(1))
	f.Add("line\nbreak 5", "/x\ry", "tab\there", int64(math.MaxInt32))
	f.Add("\xff\xfe", "[", "\u2028", int64(7))
	f.Add("", "", "", int64(1))
	f.Add(" 12", "]", " ", int64(2))
	f.Fuzz(func(t *testing.T, function, file, process string, count int64) {
		m := proftest.New()
		mapping := m.Mapping(file, "", 0x400000)
		m.Sample(process, 1, count, m.Location(mapping, 0x401000, function), m.Location(mapping, 0x402000))
		var out bytes.Buffer
		err := Write(&out, m.Profile, Options{})
		if count < 0 {
			if !errors.Is(err, profile.ErrNegative) {
				t.Fatalf("error %v for a count of %d", err, count)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if count == 0 {
			if out.Len() != 0 {
				t.Fatalf("nothing was written as %q", &out)
			}
			return
		}
		frames := 2
		if process != "" {
			frames = 3
		}
		for stack, n := range parse(t, out.String()) {
			if n != count || strings.Count(stack, ";") != frames-1 {
				t.Errorf("%d frames and the count %d were written as %q", frames, count, &out)
			}
		}
		if limit := 8 * (len(function) + 2*len(file) + len(process) + 64); out.Len() > limit {
			t.Errorf("%d bytes were written", out.Len())
		}
	})
}

// TestUnknownCode wants all code of a binary without names to be one function.
func TestUnknownCode(t *testing.T) {
	m := proftest.New()
	lib := m.Mapping("/lib/libfoo.so", proftest.LibID, 0x400000)
	m.Sample("", 0, 1, m.Location(lib, 0x401000))
	m.Sample("", 0, 2, m.Location(lib, 0x402000))
	profile.NameUnknown(m.Profile)
	if got, want := write(t, m.Profile, Options{}), "libfoo.so [unknown] 3\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
