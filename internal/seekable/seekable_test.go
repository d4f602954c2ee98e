package seekable

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os/exec"
	"testing"
	"testing/iotest"

	"hallmark/internal/testenv"
)

// contents are of all sizes that matter to frames.
func contents() map[string][]byte {
	random := make([]byte, 3*FrameSize+1234)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(random)
	return map[string][]byte{
		"empty": {}, "one byte": {1}, "a frame": bytes.Repeat([]byte("abc4"), FrameSize/4), "a frame and a byte": random[:FrameSize+1],
		"some frames": random, "zeros": make([]byte, 5*FrameSize),
	}
}

func compress(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	n, err := Compress(&out, iotest.HalfReader(bytes.NewReader(b)))
	if err != nil || n != int64(len(b)) {
		t.Fatalf("%d of %d bytes: %v", n, len(b), err)
	}
	return out.Bytes()
}

func open(t *testing.T, b []byte, c *Cache) *Reader {
	t.Helper()
	r, err := NewReader(bytes.NewReader(b), int64(len(b)), "test", c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRoundTrip(t *testing.T) {
	rng := testenv.Rand(t)
	for name, want := range contents() {
		for _, cache := range []*Cache{nil, NewCache(2 * FrameSize), NewCache(1 << 30)} {
			r := open(t, compress(t, want), cache)
			if err := iotest.TestReader(r.Stream(), want); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			for range 50 {
				if len(want) == 0 {
					break
				}
				off := rng.IntN(len(want))
				got := make([]byte, rng.IntN(len(want)-off)+1)
				if n, err := r.ReadAt(got, int64(off)); n != len(got) || err != nil || !bytes.Equal(got, want[off:off+n]) {
					t.Fatalf("%s: %d bytes at %d: %d, %v", name, len(got), off, n, err)
				}
			}
			if n, err := r.ReadAt(make([]byte, 10), int64(len(want))); n != 0 || err != io.EOF {
				t.Errorf("%s: at the end: %d, %v", name, n, err)
			}
		}
	}
}

// TestZstd has the zstd command decompress it.
func TestZstd(t *testing.T) {
	tool := testenv.Tool(t, "zstd")
	for name, want := range contents() {
		cmd := exec.Command(tool, "-dc")
		cmd.Stdin = bytes.NewReader(compress(t, want))
		if got, err := cmd.Output(); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, want %d: %v", name, len(got), len(want), err)
		}
	}
}

func TestFailures(t *testing.T) {
	broken := errors.New("broken")
	if _, err := Compress(io.Discard, io.MultiReader(bytes.NewReader(make([]byte, 10*FrameSize)), iotest.ErrReader(broken))); !errors.Is(err, broken) {
		t.Errorf("reading: %v", err)
	}
	if _, err := Compress(failing{broken}, bytes.NewReader(make([]byte, 100*FrameSize))); !errors.Is(err, broken) {
		t.Errorf("writing: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// TestDamage changes each byte of the table and some of the frames, and wants an error or the
// same content.
func TestDamage(t *testing.T) {
	want := contents()["a frame and a byte"]
	whole := compress(t, want)
	for i := len(whole) - 40; i < len(whole); i++ {
		damaged := bytes.Clone(whole)
		damaged[i] ^= 0x55
		r, err := NewReader(bytes.NewReader(damaged), int64(len(damaged)), "test", nil)
		if err != nil {
			continue
		}
		if got, err := io.ReadAll(r.Stream()); err == nil && !bytes.Equal(got, want) {
			t.Errorf("byte %d: other content", i)
		}
	}
	for _, n := range []int{0, 1, 16, 17, 100, len(whole) - 1} {
		if _, err := NewReader(bytes.NewReader(whole[:n]), int64(n), "test", nil); err == nil {
			t.Errorf("%d bytes of it were taken", n)
		}
	}
}

func FuzzReader(f *testing.F) {
	var out bytes.Buffer
	if _, err := Compress(&out, bytes.NewReader([]byte("some content"))); err != nil {
		f.Fatal(err)
	}
	f.Add(out.Bytes(), int64(3))
	f.Fuzz(func(t *testing.T, b []byte, off int64) {
		r, err := NewReader(bytes.NewReader(b), int64(len(b)), "fuzz", NewCache(1<<20))
		if err != nil {
			return
		}
		p := make([]byte, 100)
		_, _ = r.ReadAt(p, off)
		_, _ = io.CopyN(io.Discard, r.Stream(), 1<<22)
	})
}

func TestCacheIsBounded(t *testing.T) {
	c := NewCache(100)
	for i := range 50 {
		c.put(frameKey{"x", i}, make([]byte, 30))
		if c.size > 100 || len(c.kept) > 3 {
			t.Fatalf("%d bytes, %d frames", c.size, len(c.kept))
		}
		c.get(frameKey{"x", 0}) // stays, because it is used
	}
	if c.get(frameKey{"x", 0}) == nil || c.get(frameKey{"x", 49}) == nil || c.get(frameKey{"x", 20}) != nil {
		t.Error("the wrong ones are kept")
	}
	c.put(frameKey{"large", 0}, make([]byte, 101))
	if c.size > 100 {
		t.Error("too large")
	}
}
