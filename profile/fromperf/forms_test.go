package fromperf

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"hallmark/perfdata"
)

// rewrite copies a recording into a file of another form.
func rewrite(t *testing.T, file string, opts perfdata.WriterOptions) string {
	t.Helper()
	return rewriteAs(t, file, opts, func(*perfdata.Info) {})
}

// rewriteAs also changes what the file says of itself.
func rewriteAs(t *testing.T, file string, opts perfdata.WriterOptions, change func(*perfdata.Info)) string {
	t.Helper()
	r, err := perfdata.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	name := filepath.Join(t.TempDir(), "perf.data")
	out, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	w, err := perfdata.NewWriter(out, opts)
	if err != nil {
		t.Fatal(err)
	}
	w.Info = *r.Info()
	change(&w.Info)
	events := map[*perfdata.Event]*perfdata.Event{}
	for i, e := range r.Events() {
		if err := w.AddEvent(e); err != nil {
			t.Fatal(err)
		}
		events[e] = w.Events()[i]
	}
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = w.Write(rec, events[r.Event()])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestEveryFormIsTheSameProfile has a real recording as a machine of the other byte order
// would have written it, and into a pipe, and compressed.
func TestEveryFormIsTheSameProfile(t *testing.T) {
	for _, args := range [][]string{{"-g", "-F", "4999", "-d"}, {"-g", "-F", "4999", "--buildid-mmap"}} {
		file := perfRecord(t, args...)
		p, stats := readFile(t, file, Options{Times: true})
		want := p.String()
		if stats.Samples < 20 || len(p.Mapping) < 3 {
			t.Fatalf("%d samples in %d mappings", stats.Samples, len(p.Mapping))
		}
		for name, opts := range map[string]perfdata.WriterOptions{
			"big-endian":                    {BigEndian: true, InOrder: true},
			"big-endian stream":             {BigEndian: true, Pipe: true, InOrder: true},
			"big-endian, compressed":        {BigEndian: true, Compress: true, InOrder: true},
			"stream":                        {Pipe: true, InOrder: true},
			"compressed stream":             {Compress: true, Pipe: true, InOrder: true},
			"compressed, in the old order":  {Compress: true},
			"big-endian, in the old order":  {BigEndian: true},
			"big-endian compressed streams": {BigEndian: true, Compress: true, Pipe: true, InOrder: true},
		} {
			copied, _ := readFile(t, rewrite(t, file, opts), Options{Times: true})
			if got := copied.String(); got != want {
				t.Errorf("%v, %s: another profile\n%.2000s\nwant\n%.2000s", args, name, got, want)
			}
		}
	}
}
