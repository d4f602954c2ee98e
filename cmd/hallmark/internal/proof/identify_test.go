package proof

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/cmd/hallmark/internal/perffile"
	"hallmark/perfdata"
)

// recordingOf writes a recording of the machine called host, that a mapping of a file is in, and
// opens it. It has no times of samples, as a compressed recording has none.
func recordingOf(t *testing.T, host string, mapped *perfdata.Mmap2, flags ...perfdata.AttrFlags) *perffile.Recording {
	t.Helper()
	name := filepath.Join(t.TempDir(), "perf.data")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w, err := perfdata.NewWriter(f, perfdata.WriterOptions{Pipe: true})
	if err != nil {
		t.Fatal(err)
	}
	w.Info.Hostname = host
	fields := perfdata.SampleIP | perfdata.SampleTID | perfdata.SampleTime
	attr := perfdata.Attr{Type: 1, Fields: fields, Flags: perfdata.AttrSampleIDAll}
	for _, flag := range flags {
		attr.Flags |= flag
	}
	if err := w.AddEvent(&perfdata.Event{Attr: attr}); err != nil {
		t.Fatal(err)
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}
	sample := &perfdata.Sample{ID: perfdata.ID{PID: 7, TID: 7, Time: uint64(now.Nano())}, IP: mapped.Start}
	for _, r := range []perfdata.Record{mapped, sample} {
		if err := w.Write(r, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	rec, err := perffile.Open(name, 0)
	if err != nil || rec == nil {
		t.Fatalf("%v %v", rec, err)
	}
	t.Cleanup(func() { rec.Close() })
	return rec
}

// TestIdentifyAndAdvise has one file in recordings of this machine, of another one and of one
// that has no name: it is proven in the first only, and the advice fits.
func TestIdentifyAndAdvise(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var s unix.Stat_t
	if err := unix.Stat(self, &s); err != nil {
		t.Fatal(err)
	}
	if wait := time.Until(time.Unix(s.Ctim.Unix()).Add(3 * time.Second)); wait > 0 {
		time.Sleep(wait) // a file that was changed while perf recorded is not proven
	}
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		t.Fatal(err)
	}
	mapped := &perfdata.Mmap2{Type: perfdata.TypeMmap2, Owner: 7, Start: 0x400000, Size: 0x1000, Prot: 5, Name: self,
		Major: unix.Major(uint64(s.Dev)), Minor: unix.Minor(uint64(s.Dev)), Inode: s.Ino}
	for _, test := range []struct {
		host   string
		trust  bool
		proven bool
		advice string
	}{
		{unix.ByteSliceToString(uts.Nodename[:]), false, true, ""},
		{"elsewhere", false, false, "run 'hallmark inject' on the machine that recorded elsewhere, or"},
		{"", false, false, "run 'hallmark inject' on the machine that recorded, or"},
		{"", true, true, ""},
	} {
		rec := recordingOf(t, test.host, mapped)
		r, err := rec.Reader(perfdata.ReaderOptions{}, false)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		for {
			if _, err := r.Next(); err != nil {
				break
			}
		}
		know := &Identifier{Recording: rec, Reader: r, Trust: test.trust}
		id := know.Identify(mapped, nil)
		if id.IsZero() == test.proven {
			t.Errorf("%q, trust %v: identity %v, because %v", test.host, test.trust, id, know.why)
		}
		if content := know.Content(mapped); content.IsZero() == (test.proven && !test.trust) {
			t.Errorf("%q, trust %v: content %v", test.host, test.trust, content)
		}
		unrecorded := int64(1)
		if test.proven {
			unrecorded = 0
		}
		if advice := know.Advice(unrecorded); !strings.HasPrefix(advice, test.advice) || test.advice == "" && advice != "" {
			t.Errorf("%q, trust %v: advice %q", test.host, test.trust, advice)
		}
		if (len(know.Notes()) == 1) != test.trust {
			t.Errorf("%q, trust %v: notes %q", test.host, test.trust, know.Notes())
		}
	}
}

// TestAdviceIsASentence has files that are not there, and one that may be another one, in recordings
// with and without build IDs. No advice is to do what was done, or to trust a file that is not there.
func TestAdviceIsASentence(t *testing.T) {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	gone := filepath.Join(t.TempDir(), "gone")
	const trust, record = "; --trust-paths takes the files at the paths, without proof", "'perf record --buildid-mmap' records build IDs"
	for _, test := range []struct {
		names []string
		flags perfdata.AttrFlags
		want  string
	}{
		{[]string{gone}, 0, gone + ": no such file or directory; " + record},
		{[]string{gone}, perfdata.AttrBuildID, gone + ": no such file or directory, and the kernel found no build ID in it"},
		{[]string{"/memfd:x (deleted)"}, perfdata.AttrBuildID, `"/memfd:x (deleted)": the file was deleted, and the kernel found no build ID in it`},
		{[]string{gone, self}, 0, self + ": not proven: the recording has no inode" + trust + ", and " + record},
		{[]string{self, gone}, perfdata.AttrBuildID, self + ": not proven: the recording has no inode" + trust},
	} {
		mapped := &perfdata.Mmap2{Type: perfdata.TypeMmap2, Owner: 7, Start: 0x400000, Size: 0x1000, Prot: 5, Name: test.names[0]}
		rec := recordingOf(t, unix.ByteSliceToString(uts.Nodename[:]), mapped, test.flags)
		r, err := rec.Reader(perfdata.ReaderOptions{}, false)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		for err == nil {
			_, err = r.Next()
		}
		know := &Identifier{Recording: rec, Reader: r}
		for _, name := range test.names {
			file := *mapped
			file.Name = name
			know.Identify(&file, nil)
		}
		if got := know.Advice(1); got != test.want {
			t.Errorf("%q: %q, want %q", test.names, got, test.want)
		}
	}
}

// TestAdviceNamesOneFile has files come in two orders: the advice names the same one.
func TestAdviceNamesOneFile(t *testing.T) {
	files := []struct {
		name string
		why  error
	}{{"/a", fs.ErrNotExist}, {"/d", errUnproven}, {"/c", errUnproven}, {"/b", fs.ErrNotExist}}
	for range 2 {
		var k Identifier
		for _, f := range files {
			k.note(f.name, f.why)
		}
		if k.file != "/c" || k.why != errUnproven {
			t.Errorf("it names %s: %v", k.file, k.why)
		}
		slices.Reverse(files)
	}
}
