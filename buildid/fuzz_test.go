package buildid_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"strings"
	"testing"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/internal/elftest"
)

// A counter counts what is read through it.
type counter struct {
	r           io.ReaderAt
	reads, size int
}

func (c *counter) ReadAt(p []byte, off int64) (int, error) {
	c.reads++
	c.size += len(p)
	return c.r.ReadAt(p, off)
}

// check fails the test if a search went beyond its bounds.
func (c *counter) check(t *testing.T) {
	t.Helper()
	if c.reads > buildid.MaxReads || c.size > buildid.MaxReads*4096 {
		t.Errorf("%d reads of %d bytes in all", c.reads, c.size)
	}
}

// checkInfo fails the test unless an answer is of a form that callers rely on.
func checkInfo(t *testing.T, info buildid.Info, err error, size int) {
	t.Helper()
	if err != nil {
		if info != (buildid.Info{}) {
			t.Errorf("%+v and error %v", info, err)
		}
		return
	}
	if info.ID.IsZero() {
		if info.Where != buildid.Nowhere || info.Offset != 0 {
			t.Errorf("no identity, but a place: %+v", info)
		}
		return
	}
	if again, err := buildid.Parse(info.ID.String()); err != nil || again != info.ID {
		t.Errorf("%q does not come back: %q, %v", info.ID, again, err)
	}
	if info.Where == buildid.Nowhere || (info.Where == buildid.Hashed) != (info.ID.Kind() == buildid.HTL) {
		t.Errorf("kind %v, %v", info.ID.Kind(), info.Where)
	}
	if info.Where != buildid.Hashed && uint64(info.Offset) >= uint64(size) {
		t.Errorf("found at %v of %d bytes", info.Offset, size)
	}
}

func FuzzRead(f *testing.F) {
	for _, c := range append(cases, damaged...) {
		for _, form := range forms {
			f.Add(c.build(form))
		}
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		c := &counter{r: bytes.NewReader(content)}
		info, err := buildid.Read(c)
		c.check(t)
		checkInfo(t, info, err, len(content))
		if info.ID.Kind() == buildid.GNU && !bytes.Contains(content, info.ID.Bytes()) {
			t.Errorf("%v is not in the file", info.ID)
		}
		sized, err2 := buildid.Read(bytes.NewReader(content))
		checkInfo(t, sized, err2, len(content))
		if (err == nil) != (err2 == nil) || !info.ID.IsZero() && info != sized {
			t.Errorf("%+v (%v), with the size known %+v (%v)", info, err, sized, err2)
		}
		if err2 == nil && sized.ID.IsZero() {
			t.Error("no identity, though the size is known")
		}
	})
}

func FuzzMemory(f *testing.F) {
	for _, c := range cases {
		for _, form := range forms {
			f.Add(c.build(form), uint64(0x10000))
		}
	}
	f.Add(scattered(forms[0]), ^uint64(0))
	f.Add(scattered(forms[0]), uint64(1)<<63-4096)
	f.Fuzz(func(t *testing.T, content []byte, base uint64) {
		c := &counter{r: &memory{base: addr.Abs(base), bytes: content}}
		info, err := buildid.ReadMemory(c, addr.Abs(base))
		c.check(t)
		if err == nil && info.Where == buildid.Hashed {
			t.Error("a hash of memory")
		}
		if err == nil && info.ID.Kind() == buildid.GNU && !bytes.Contains(content, info.ID.Bytes()) {
			t.Errorf("%v is not in memory", info.ID)
		}
	})
}

func FuzzNotes(f *testing.F) {
	f.Add(elftest.Notes(binary.NativeEndian, 4, elftest.ABITag(), elftest.GNU(gnu20), elftest.Go(goText)))
	f.Add(elftest.Notes(binary.NativeEndian, 4, elftest.GNU(make([]byte, buildid.MaxSize+1))))
	f.Add(bytes.Repeat([]byte{0xff}, 64))
	f.Add(bytes.Repeat([]byte{0}, 20_000))
	f.Fuzz(func(t *testing.T, notes []byte) {
		info, err := buildid.ReadNotes(notes)
		checkInfo(t, info, err, len(notes))
		if err == nil && info.ELF {
			t.Error("notes are not ELF")
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, test := range texts {
		f.Add(test.text)
	}
	f.Add("htl:")
	f.Add("go:\u00e9")
	f.Add("GO:x")
	f.Fuzz(func(t *testing.T, text string) {
		id, err := buildid.Parse(text)
		if err != nil {
			if !id.IsZero() {
				t.Errorf("%q and error %v", id, err)
			}
			return
		}
		if again := id.String(); again != text && again != strings.ToLower(text) {
			t.Errorf("%q is written %q", text, again)
		}
		if made, err := buildid.New(id.Kind(), id.Bytes()); err != nil || made != id {
			t.Errorf("%q is made as %q, %v", id, made, err)
		}
	})
}
