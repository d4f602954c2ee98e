package inflate

import (
	"bytes"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"hallmark/internal/testenv"
)

// pack returns the stream that the standard library makes of data.
func pack(tb testing.TB, level int, data []byte) []byte {
	tb.Helper()
	var b bytes.Buffer
	z, err := zlib.NewWriterLevel(&b, level)
	if err != nil {
		tb.Fatal(err)
	}
	z.Write(data)
	if err := z.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// samples are data that compress in different ways.
func samples(tb testing.TB) map[string][]byte {
	r := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 200_000)
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	skewed := make([]byte, 300_000) // with codes of all lengths
	for i := range skewed {
		skewed[i] = byte(r.ExpFloat64() * 12)
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		tb.Fatal(err)
	}
	return map[string][]byte{
		"empty": nil, "one byte": {7}, "zeros": make([]byte, 300_000), "noise": noise, "skewed": skewed,
		"periods":   []byte(strings.Repeat("ab", 5000) + strings.Repeat("abc", 5000) + strings.Repeat("abcdefg", 5000) + strings.Repeat("abcdefgh", 5000)),
		"mixed":     bytes.Join([][]byte{noise[:70_000], make([]byte, 70_000), skewed, noise[:40_000]}, nil),
		"a program": self[:min(len(self), 1<<20)],
		"few":       []byte("a few letters"),
	}
}

// TestFill decompresses what the standard library compressed, at once and in steps.
func TestFill(t *testing.T) {
	for name, data := range samples(t) {
		for _, level := range []int{zlib.HuffmanOnly, zlib.NoCompression, zlib.BestSpeed, zlib.DefaultCompression, zlib.BestCompression} {
			t.Run(fmt.Sprint(name, level), func(t *testing.T) {
				in := append(pack(t, level, data), "behind the end"...)
				out := make([]byte, len(data))
				if n, err := NewDecoder(out, in).Fill(len(out)); n != len(out) || err != nil || !bytes.Equal(out, data) {
					t.Fatalf("got %d bytes and %v, want %d", n, err, len(data))
				}
				clear(out)
				d, rng := NewDecoder(out, in), testenv.Rand(t)
				for end := 0; end < len(out); {
					end = min(end+1+rng.IntN(100_000), len(out))
					n, err := d.Fill(end)
					if n < end || err != nil || !bytes.Equal(out[:n], data[:n]) {
						t.Fatalf("up to %d got %d bytes and %v", end, n, err)
					}
				}
			})
		}
	}
}

// TestSizes says that a stream is shorter or longer than it is.
func TestSizes(t *testing.T) {
	for name, data := range samples(t) {
		for _, level := range []int{zlib.HuffmanOnly, zlib.NoCompression, zlib.DefaultCompression} {
			in := pack(t, level, data)
			if n, err := NewDecoder(make([]byte, len(data)+1), in).Fill(len(data) + 1); n != len(data) || err != io.ErrUnexpectedEOF {
				t.Errorf("%s: one byte more: %d bytes and %v", name, n, err)
			}
			var damage *Error
			if len(data) == 0 {
				continue
			}
			if n, err := NewDecoder(make([]byte, len(data)-1), in).Fill(len(data) - 1); n == len(data) || !errors.As(err, &damage) {
				t.Errorf("%s: one byte less: %d bytes and %v", name, n, err)
			}
		}
	}
}

// TestChecksum changes the checksum, which the last bytes wait for.
func TestChecksum(t *testing.T) {
	data := []byte("some bytes, some bytes, some bytes")
	in := pack(t, zlib.DefaultCompression, data)
	in[len(in)-1]++
	out := make([]byte, len(data))
	d := NewDecoder(out, in)
	if n, err := d.Fill(10); n < 10 || err != nil {
		t.Errorf("the first bytes: %d and %v", n, err)
	}
	if n, err := d.Fill(len(out)); n != len(out)-1 || err == nil {
		t.Errorf("all: %d and %v", n, err)
	}
}

// TestCut cuts streams off everywhere.
func TestCut(t *testing.T) {
	data := samples(t)["skewed"][:3000]
	for _, level := range []int{zlib.HuffmanOnly, zlib.NoCompression, zlib.DefaultCompression} {
		in := pack(t, level, data)
		for n := range in {
			if _, err := NewDecoder(make([]byte, len(data)), in[:n]).Fill(len(data)); err != io.ErrUnexpectedEOF {
				t.Fatalf("%d of %d bytes: %v", n, len(in), err)
			}
		}
	}
}

// TestDamagedHeaders gives streams that begin wrongly.
func TestDamagedHeaders(t *testing.T) {
	for name, in := range map[string]string{
		"not deflate":        "\x79\x9c",
		"window too large":   "\x88\x1c",
		"wrong check":        "\x78\x9d",
		"dictionary":         "\x78\xbb",
		"unknown block":      "\x78\x9c\x07",
		"stored":             "\x78\x9c\x01\x05\x00\x05\x00",
		"too many codes":     "\x78\x9c\xfd\xff\xff",
		"no code of lengths": "\x78\x9c\x05\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
	} {
		var damage *Error
		if _, err := NewDecoder(make([]byte, 9), []byte(in)).Fill(9); !errors.As(err, &damage) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzFill compares with the standard library, which must agree on what a sound stream is and
// what is in it, but for what is not looked at there: whether its size is right.
func FuzzFill(f *testing.F) {
	for _, data := range samples(f) {
		data = data[:min(len(data), 2000)]
		for _, level := range []int{zlib.HuffmanOnly, zlib.NoCompression, zlib.DefaultCompression} {
			f.Add(pack(f, level, data), uint16(len(data)), uint16(7))
		}
	}
	f.Add([]byte("\x78\x9c\x03\x00\x00\x00\x00\x01"), uint16(0), uint16(1)) // fixed codes, and nothing
	f.Fuzz(func(t *testing.T, in []byte, size, step uint16) {
		var want []byte
		var sound error
		if z, err := zlib.NewReader(bytes.NewReader(in)); err != nil {
			sound = err
		} else {
			want, sound = io.ReadAll(io.LimitReader(z, 1<<17))
		}
		if sound == nil && len(want) < 1<<16 {
			size = uint16(len(want))
		}
		out := make([]byte, size)
		d := NewDecoder(out, in)
		n, err := 0, error(nil)
		for end := 0; end < len(out) && err == nil; {
			end = min(end+int(step)+1, len(out))
			n, err = d.Fill(end)
		}
		if err == nil {
			n, err = d.Fill(len(out))
		}
		if common := min(n, len(want)); !bytes.Equal(out[:common], want[:common]) {
			t.Fatalf("other bytes: %v", err)
		}
		if sound == nil && len(want) < 1<<16 && (n != len(want) || err != nil) {
			t.Fatalf("got %d bytes and %v, want %d", n, err, len(want))
		}
		if err == nil && (sound != nil || n != len(want)) {
			t.Fatalf("got %d bytes, and the standard library %d and %v", n, len(want), sound)
		}
	})
}

// BenchmarkFill decompresses the test program itself.
func BenchmarkFill(b *testing.B) {
	data := samples(b)["a program"]
	in, out := pack(b, zlib.DefaultCompression, data), make([]byte, len(data))
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := NewDecoder(out, in).Fill(len(out)); err != nil {
			b.Fatal(err)
		}
	}
}
