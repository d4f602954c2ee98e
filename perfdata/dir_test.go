package perfdata

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hallmark/internal/perftest"
	"hallmark/internal/testenv"
)

// perfThreads has perf record a few programs into a directory.
func perfThreads(t *testing.T, args ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "perf.data")
	work, _ := perftest.Work(t)
	perftest.Run(t, slices.Concat([]string{"record", "-q", "-B", "-N", "--threads", "-o", dir}, args, []string{"--"}, work)...)
	return dir
}

// samplesOf returns the samples of a recording, in words, and in the order in which they come.
func samplesOf(t *testing.T, file string) (all []string) {
	t.Helper()
	r, err := Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for last := uint64(0); ; {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if s, ok := rec.(*Sample); ok {
			if s.Time < last {
				t.Errorf("a sample of %d behind one of %d", s.Time, last)
			}
			last = s.Time
			all = append(all, fmt.Sprintf("%d/%d %d.%09d: %x", s.PID, s.TID, s.Time/1e9, s.Time%1e9, uint64(s.IP)))
		}
	}
	if r.Forced() != 0 || len(r.Problems()) != 0 {
		t.Errorf("%d times forced, problems %v", r.Forced(), r.Problems())
	}
	return all
}

// TestDirectoryAgreesWithPerf has all samples of the files of a directory in the order of time.
func TestDirectoryAgreesWithPerf(t *testing.T) {
	for _, args := range [][]string{{perftest.Asks, "-F", "4999"}, {perftest.Asks, "-z", "-F", "4999"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			dir := perfThreads(t, args...)
			if parts, err := filepath.Glob(filepath.Join(dir, "data.*")); err != nil || len(parts) < 2 {
				t.Skipf("perf made no files beside the head: %v %v", parts, err)
			}
			ours := samplesOf(t, dir)
			var theirs []string
			for line := range strings.Lines(string(perftest.Run(t, "script", "--ns", "-F", "pid,tid,time,ip,sym", "-i", dir))) {
				fields := strings.Fields(line)
				theirs = append(theirs, strings.Join(fields[:3], " "))
			}
			if len(theirs) < 20 {
				testenv.Lack(t, "%d samples", len(theirs))
			}
			compareLines(t, ours, theirs)
		})
	}
}

// writeParts writes records as files of a directory, one for each list, in memory.
func writeParts(t testing.TB, opts WriterOptions, parts ...[]Record) (head []byte, more [][]byte) {
	t.Helper()
	attr := Attr{Fields: SampleIP | SampleTID | SampleTime, Flags: AttrSampleIDAll}
	for i, records := range append([][]Record{nil}, parts...) {
		name := filepath.Join(t.TempDir(), "part")
		f, err := os.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		w, err := NewWriter(f, opts)
		if err != nil {
			t.Fatal(err)
		}
		w.Info.Hostname = "there"
		if err := w.AddEvent(&Event{Attr: attr}); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			records = []Record{&Mmap2{Type: TypeMmap2, Owner: 7, Start: 0x400000, Size: 0x1000, Prot: 5, Name: "/bin/a"}}
		}
		for _, r := range records {
			if err := w.Write(r, nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		whole, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			head = whole
			continue
		}
		more = append(more, whole[w.data.offset:w.data.offset+w.data.size])
	}
	return head, more
}

func readers(parts [][]byte) (all []io.Reader) {
	for _, b := range parts {
		all = append(all, bytes.NewReader(b))
	}
	return all
}

// TestPartsInOrderAndBounded has files of very different length and pace, with records that are
// a little out of order, and wants all in the order of time in the memory of a few turns.
func TestPartsInOrderAndBounded(t *testing.T) {
	const n = 200_000
	var parts [3][]Record
	for i := range n {
		at := uint64(1000 + 10*i)
		parts[0] = append(parts[0], &Sample{ID: ID{PID: 7, TID: 1, Time: at ^ 8}}) // in pairs, the later first
		if i%1000 == 0 {
			parts[1] = append(parts[1], &Sample{ID: ID{PID: 7, TID: 2, Time: at + 1}})
		}
		if i > n/2 {
			parts[2] = append(parts[2], &Sample{ID: ID{PID: 7, TID: 3, Time: at + 2}})
		}
	}
	for _, opts := range []WriterOptions{{}, {Compress: true}, {BigEndian: true}} {
		head, more := writeParts(t, opts, parts[0], parts[1], parts[2])
		r, err := NewReader(bytes.NewReader(head), ReaderOptions{More: readers(more)})
		if err != nil {
			t.Fatal(err)
		}
		count, last, most := 0, uint64(0), 0
		for {
			rec, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if s, ok := rec.(*Sample); ok {
				if count++; s.Time < last {
					t.Fatalf("%+v: %d behind %d", opts, s.Time, last)
				}
				last = s.Time
			}
			most = max(most, r.pool.live)
		}
		if want := n + n/1000 + n/2 - 1; count != want || most > 24 {
			t.Errorf("%+v: %d samples, want %d, with %d blocks in use", opts, count, want, most)
		}
		r.Close()
	}
}

// TestDamagedPart has one file that is cut off: the others are read to their ends, and the error
// names it.
func TestDamagedPart(t *testing.T) {
	sample := func(at uint64) Record { return &Sample{ID: ID{PID: 7, TID: 7, Time: at}} }
	head, more := writeParts(t, WriterOptions{}, []Record{sample(1), sample(5)}, []Record{sample(2), sample(9)})
	more[0] = more[0][:len(more[0])-3]
	r, err := NewReader(bytes.NewReader(head), ReaderOptions{More: readers(more), Names: []string{"data.0", "data.1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var times []uint64
	for {
		rec, err := r.Next()
		if err != nil {
			if !errors.Is(err, io.ErrUnexpectedEOF) || !strings.HasPrefix(err.Error(), "data.0: ") {
				t.Errorf("error %v", err)
			}
			break
		}
		if s, ok := rec.(*Sample); ok {
			times = append(times, s.Time)
		}
	}
	if !slices.Equal(times, []uint64{1, 2, 9}) {
		t.Errorf("times %v", times)
	}
}

// TestNoDirectoryOfPerf has directories that are none of perf's, and the head of one alone.
func TestNoDirectoryOfPerf(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(dir); !errors.Is(err, ErrNotPerfData) {
		t.Errorf("an empty directory: %v", err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); !errors.Is(err, ErrNotPerfData) {
		t.Errorf("a directory in its place: %v", err)
	}
	recorded := perfThreads(t, perftest.Asks, "-F", "99")
	r, err := Open(filepath.Join(recorded, "data"))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if len(r.Problems()) != 1 || !strings.Contains(r.Problems()[0].Error(), "give the directory") {
		t.Errorf("the head alone: problems %v", r.Problems())
	}
}
