package profile

import (
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"hallmark/internal/proftest"
)

func compress(t testing.TB, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// encoded returns a profile, compressed and not.
func encoded(t testing.TB) (compressed, plain []byte) {
	t.Helper()
	p := proftest.Mixed()
	var c, u bytes.Buffer
	if err := p.Write(&c); err != nil {
		t.Fatal(err)
	}
	if err := p.WriteUncompressed(&u); err != nil {
		t.Fatal(err)
	}
	return c.Bytes(), u.Bytes()
}

func TestReadTakesBothForms(t *testing.T) {
	want := proftest.Mixed().String()
	compressed, plain := encoded(t)
	for name, data := range map[string][]byte{"compressed": compressed, "plain": plain} {
		p, err := Read(bytes.NewReader(data), ReadOptions{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if p.String() != want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, p, want)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	compressed, plain := encoded(t)
	for _, test := range []struct {
		name string
		data []byte
		want string // in the error
	}{
		{"nothing", nil, "empty"},
		{"text", []byte("this is no profile\n"), "unrecognized profile format"},
		{"ELF", []byte("\x7fELF\x02\x01\x01"), "unrecognized profile format"},
		{"a cut gzip stream", compressed[:len(compressed)/2], "unexpected EOF"},
		{"a cut gzip header", compressed[:5], "unexpected EOF"},
		{"a gzip of nothing", compress(t, nil), "empty"},
		{"a gzip of a gzip", compress(t, compressed), "compressed twice"},
		{"a cut profile", plain[:len(plain)/2], "parsing profile"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, err := Read(bytes.NewReader(test.data), ReadOptions{})
			if err == nil {
				t.Fatalf("read %v", p)
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %q does not say %q", err, test.want)
			}
		})
	}
}

func TestReadFileNamesTheFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "broken.pb.gz")
	if err := os.WriteFile(name, []byte("broken"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{name, name + ".missing"} {
		if _, err := ReadFile(name, ReadOptions{}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("error %v does not name %s", err, name)
		}
	}
}

// TestReadBoundsWhatIsUnpacked reads 1 MiB that unpacks to 1 GiB: gzip streams one
// behind the other are one stream.
func TestReadBoundsWhatIsUnpacked(t *testing.T) {
	bomb := bytes.NewReader(bytes.Repeat(compress(t, make([]byte, 1<<20)), 1<<10))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := Read(bomb, ReadOptions{MaxSize: 1 << 20})
	runtime.ReadMemStats(&after)
	if !errors.Is(err, ErrTooLarge) {
		t.Errorf("error %v, want %v", err, ErrTooLarge)
	}
	if spent := after.TotalAlloc - before.TotalAlloc; spent > 16<<20 {
		t.Errorf("reading allocated %d bytes for a limit of 1 MiB", spent)
	}
}

func TestReadAllowsTheLimitItself(t *testing.T) {
	_, plain := encoded(t)
	size := int64(len(plain))
	if _, err := Read(bytes.NewReader(plain), ReadOptions{MaxSize: size}); err != nil {
		t.Errorf("a profile of %d bytes: %v", size, err)
	}
	if _, err := Read(bytes.NewReader(plain), ReadOptions{MaxSize: size - 1}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("one byte less: error %v, want %v", err, ErrTooLarge)
	}
}

func TestReadZstd(t *testing.T) {
	var plain bytes.Buffer
	if err := proftest.Mixed().WriteUncompressed(&plain); err != nil {
		t.Fatal(err)
	}
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	data := z.EncodeAll(plain.Bytes(), nil)
	p, err := Read(bytes.NewReader(data), ReadOptions{})
	if err != nil || len(p.Sample) != len(proftest.Mixed().Sample) {
		t.Fatalf("%v, %v", p, err)
	}
	if _, err := Read(bytes.NewReader(data[:len(data)-5]), ReadOptions{}); err == nil {
		t.Error("one that is cut is a profile")
	}
	bomb := z.EncodeAll(make([]byte, 600<<20), nil)
	if _, err := Read(bytes.NewReader(bomb), ReadOptions{}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%d bytes of zeros: %v", len(bomb), err)
	}
}
