package symbol

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"hallmark/addr"
	"hallmark/reason"
)

func TestPerfMap(t *testing.T) {
	m, err := ReadPerfMap(strings.NewReader(`1000 100 LazyCompile:~one /srv/a b.js:1
0x2000 0x40 two
2020 40 newer
3000 10 old
3000 10 new
4000 100 outer
4040 20 inner
5000 0 empty
6000 10 _ZN3foo3barEv
not a line
7000 10
ffffffffffffffff 10 wraps
8000 10 unfinished`))
	if err != nil {
		t.Fatal(err)
	}
	if m.Damaged() != 3 {
		t.Errorf("%d damaged lines, want 3", m.Damaged())
	}
	for a, want := range map[addr.Abs]string{
		0xfff:  "",
		0x1000: "LazyCompile:~one /srv/a b.js:1",
		0x10ff: "LazyCompile:~one /srv/a b.js:1",
		0x1100: "",
		0x2000: "two",
		0x201f: "two",
		0x2020: "newer",
		0x205f: "newer",
		0x2060: "",
		0x3005: "new",
		0x403f: "outer",
		0x4040: "inner",
		0x4060: "outer",
		0x5000: "",
		0x6001: "foo::bar",
		0x8000: "unfinished",
	} {
		got, name := m.Lookup(a), ""
		if len(got.Frames) == 1 && got.Source == SourcePerfMap {
			name = got.Frames[0].Func
		}
		if name != want || want == "" && got.Reason != reason.NoSymbol {
			t.Errorf("%v is %+v, want %q", a, got, want)
		}
	}
}

func TestPerfMapReadError(t *testing.T) {
	broken := errors.New("broken")
	r := io.MultiReader(strings.NewReader("1000 100 one\n20"), iotest.ErrReader(broken))
	if m, err := ReadPerfMap(r); err != broken {
		t.Errorf("got %v, %v", m, err)
	}
}

func TestEndlessPerfMap(t *testing.T) {
	if m, err := ReadPerfMap(endless{}); !errors.Is(err, ErrPerfMapTooLarge) {
		t.Errorf("got %v, %v", m, err)
	}
}

// endless is a file of empty bytes, without a line.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
