package buildid_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"strings"
	"sync"
	"testing"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/internal/elftest"
)

// A counter counts what is read through it.
type counter struct {
	r           io.ReaderAt
	mu          sync.Mutex
	reads, size int
}

func (c *counter) ReadAt(p []byte, off int64) (int, error) {
	c.mu.Lock()
	c.reads++
	c.size += len(p)
	c.mu.Unlock()
	return c.r.ReadAt(p, off)
}

// check fails the test if a search went beyond its bounds.
func (c *counter) check(t *testing.T) {
	t.Helper()
	if c.reads > buildid.MaxReads || c.size > buildid.MaxReads*4096 {
		t.Errorf("%d reads of %d bytes in all", c.reads, c.size)
	}
}

// checkHashed fails the test if a search that may hash size bytes went beyond its bounds:
// those for the notes, the same for the headers again, and the code of each segment.
func (c *counter) checkHashed(t *testing.T, size int) {
	t.Helper()
	const segments = 256
	reads := 2*buildid.MaxReads + 2*segments*(1+size/4096)
	if c.reads > reads || c.size > 2*buildid.MaxReads*4096+segments*(size+256<<10) {
		t.Errorf("%d reads of %d bytes in all, of a file of %d bytes", c.reads, c.size, size)
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
		if info.Where != buildid.Nowhere && info.Where != buildid.TooLarge || info.Offset != 0 || !info.Also.IsZero() {
			t.Errorf("no identity, but a place: %+v", info)
		}
		return
	}
	if again, err := buildid.Parse(info.ID.String()); err != nil || again != info.ID {
		t.Errorf("%q does not come back: %q, %v", info.ID, again, err)
	}
	if info.Where == buildid.Nowhere || (info.Where == buildid.Hashed) != (info.ID.Kind() == buildid.ByContent) {
		t.Errorf("kind %v, %v", info.ID.Kind(), info.Where)
	}
	if !info.Also.IsZero() && (info.Where != buildid.Hashed || info.Also.Kind() != buildid.HTL) {
		t.Errorf("also %v, of %v", info.Also, info.Where)
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
		claim, _ := buildid.ReadClaim(c)
		c.check(t)
		c = &counter{r: bytes.NewReader(content)}
		info, err := buildid.Read(c)
		c.checkHashed(t, len(content))
		checkInfo(t, info, err, len(content))
		if err == nil && info.Where != buildid.Hashed && info.Where != buildid.TooLarge && claim != info {
			t.Errorf("%+v, but claims %+v", info, claim)
		}
		if info.ID.Kind() == buildid.GNU && !bytes.Contains(content, info.ID.Bytes()) {
			t.Errorf("%v is not in the file", info.ID)
		}
		sized, err2 := buildid.Read(bytes.NewReader(content))
		checkInfo(t, sized, err2, len(content))
		also := sized
		also.Also = buildid.ID{}
		if (err == nil) != (err2 == nil) || !info.ID.IsZero() && info != also {
			t.Errorf("%+v (%v), with the size known %+v (%v)", info, err, sized, err2)
		}
		content2, err3 := buildid.ReadContent(t.Context(), bytes.NewReader(content))
		if sized.Where == buildid.Hashed && (err3 != nil || sized.ID != content2.ID()) || err2 == nil && sized.ID.IsZero() && !content2.IsZero() {
			t.Errorf("%+v, and content %v, %v", sized, content2, err3)
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
