package procmap

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

func TestParseLineErrors(t *testing.T) {
	for _, line := range []string{
		"",
		"00400000",
		"00400000-00401000",
		"00400000-00400000 r-xp 00000000 08:10 12 ",
		"00401000-00400000 r-xp 00000000 08:10 12 ",
		"-00401000 r-xp 00000000 08:10 12 ",
		"00400000-10000000000000000 r-xp 00000000 08:10 12 ",
		"00400000-00401000 rwx 00000000 08:10 12 ",
		"00400000-00401000 xwrp 00000000 08:10 12 ",
		"00400000-00401000 r-xq 00000000 08:10 12 ",
		"00400000-00401000 r-xp 0000000g 08:10 12 ",
		"00400000-00401000 r-xp 00000000 0810 12 ",
		"00400000-00401000 r-xp 00000000 100000000:10 12 ",
		"00400000-00401000 r-xp 00000000 08:10 1a ",
		"00400000-00401000 r-xp 00000000 08:10 18446744073709551616 ",
		"00400000-00401000 r-xp 00000000 08:10 12",
	} {
		v, err := ParseLine([]byte(line))
		var bad *TextError
		if !errors.As(err, &bad) || bad.Text != line || v != (VMA{}) {
			t.Errorf("ParseLine(%q) = %+v, %v", line, v, err)
		}
	}
}

const someText = `00400000-00401000 r--p 00000000 08:10 12                                 /a
00401000-00402000 r-xp 00001000 08:10 12                                 /a
7ffdcd3f9000-7ffdcd41a000 rw-p 00000000 00:00 0                          [stack]
`

func TestReadText(t *testing.T) {
	want, err := ReadText(strings.NewReader(someText))
	if err != nil || len(want) != 3 {
		t.Fatalf("%d VMAs, %v", len(want), err)
	}
	for name, r := range map[string]io.Reader{
		"byte by byte":      iotest.OneByteReader(strings.NewReader(someText)),
		"no last newline":   strings.NewReader(strings.TrimSuffix(someText, "\n")),
		"end with the data": iotest.DataErrReader(strings.NewReader(someText)),
	} {
		if got, err := ReadText(r); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestReadTextErrors(t *testing.T) {
	broken := errors.New("broken")
	got, err := ReadText(io.MultiReader(strings.NewReader(someText), iotest.ErrReader(broken)))
	if !errors.Is(err, broken) || len(got) != 3 {
		t.Errorf("failing reader: %d VMAs, %v", len(got), err)
	}
	got, err = ReadText(strings.NewReader(someText + "00500000-005"))
	var bad *TextError
	if !errors.As(err, &bad) || bad.Line != 4 || len(got) != 3 {
		t.Errorf("cut line: %d VMAs, %v", len(got), err)
	}
}

func TestLongNames(t *testing.T) {
	for _, n := range []int{4000, 9000, 70000} {
		v := VMA{Start: page, End: 2 * page, Dev: Dev{1, 1}, Inode: 1, Name: "/" + strings.Repeat("x", n)}
		got, err := ReadText(strings.NewReader(someText[:75] + "\n" + v.String() + "\n"))
		if n > 0 && err == nil {
			got = got[:1] // v lies below the first line and so replaces it
		}
		if err != nil || got[0] != v {
			t.Errorf("name of %d bytes: %v", n, err)
		}
	}
	endless := io.MultiReader(strings.NewReader(someText), strings.NewReader(strings.Repeat("x", 2*maxLine)))
	got, err := ReadText(endless)
	var bad *TextError
	if !errors.As(err, &bad) || bad.Line != 4 || len(got) != 3 {
		t.Errorf("endless line: %d VMAs, %v", len(got), err)
	}
}

// TestOverlaps has text as it comes from a process whose mappings change while it
// is written.
func TestOverlaps(t *testing.T) {
	vma := func(start, end uint64) VMA { return VMA{Start: absPages(start), End: absPages(end)} }
	for _, tt := range []struct{ read, want []VMA }{
		{[]VMA{vma(1, 2), vma(2, 3)}, []VMA{vma(1, 2), vma(2, 3)}},
		{[]VMA{vma(1, 2), vma(1, 3)}, []VMA{vma(1, 3)}},
		{[]VMA{vma(1, 3), vma(2, 5)}, []VMA{vma(1, 2), vma(2, 5)}},
		{[]VMA{vma(1, 2), vma(3, 4), vma(2, 5)}, []VMA{vma(1, 2), vma(2, 5)}},
		{[]VMA{vma(1, 2), vma(3, 4), vma(0, 5)}, []VMA{vma(0, 5)}},
	} {
		var got []VMA
		for _, v := range tt.read {
			got = appendNewer(got, v)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%v: got %v, want %v", tt.read, got, tt.want)
		}
	}
}

// FuzzParseLine holds the parser to its own output: what it accepts it prints so
// that it reads the same again.
func FuzzParseLine(f *testing.F) {
	for _, tt := range lines {
		f.Add([]byte(tt.line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		v, err := ParseLine(line)
		if err != nil {
			if v != (VMA{}) || len(err.Error()) > 1000 {
				t.Fatalf("%+v with error %v", v, err)
			}
			return
		}
		if len(v.Name) > len(line) {
			t.Fatalf("name of %d bytes from a line of %d", len(v.Name), len(line))
		}
		again, err := ParseLine([]byte(v.String()))
		if err != nil || again != v {
			t.Fatalf("%q reads back as %+v, %v", v, again, err)
		}
	})
}

// FuzzReadText checks that a list is in order, without overlaps and no longer than
// its text.
func FuzzReadText(f *testing.F) {
	f.Add([]byte(someText))
	f.Add([]byte("0-1 r-xp 0 0:0 0 0"))
	f.Add([]byte("00400000-00402000 r--p 00000000 08:10 12 \n00401000-00403000 r--p 00000000 08:10 12 /a\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		list, _ := ReadText(strings.NewReader(string(text)))
		if shortest := len("0-1 r-xp 0 0:0 0 \n"); len(list) > (len(text)+1)/shortest {
			t.Fatalf("%d VMAs from %d bytes", len(list), len(text))
		}
		for i, v := range list {
			if v.Start >= v.End || i > 0 && list[i-1].End > v.Start {
				t.Fatalf("VMA %d is empty or overlaps: %v", i, list)
			}
		}
	})
}
