package perfdata

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"hallmark/internal/perftest"
	"hallmark/internal/testenv"
)

// copyFile reads a file and writes what was read, but for the kernel's symbols if withoutKsymbols.
// It returns how many records the copy has.
func copyFile(t *testing.T, from, to string, opts WriterOptions, order ReaderOptions, withoutKsymbols bool) (records int) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	r, err := NewReader(in, order)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	out, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	w, err := NewWriter(out, opts)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range r.Events() {
		if err := w.AddEvent(e); err != nil {
			t.Fatal(err)
		}
	}
	w.Info = *r.Info()
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, isKsymbol := rec.(*Ksymbol); isKsymbol && withoutKsymbols {
			continue
		}
		if err := w.Write(rec, r.Event()); err != nil {
			t.Fatal(err)
		}
		records++
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return records
}

// TestEncodeIsTheKernels decodes and encodes every record of real recordings: the
// bytes are those that the kernel and perf wrote.
func TestEncodeIsTheKernels(t *testing.T) {
	for _, rec := range recordings {
		if rec.name == "compressed" || rec.name == "dwarf" { // stacks are not as long as the room for them
			continue
		}
		t.Run(rec.name, func(t *testing.T) {
			if rec.root {
				testenv.Root(t)
			}
			checkEncoding(t, perfRecord(t, false, rec.args...))
		})
	}
}

func checkEncoding(t *testing.T, file string) {
	t.Helper()
	r, err := Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	records := 0
	for {
		b, at, err := r.sources[0].cutter.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		raw := b.buf[at : at+r.sources[0].cutter.size]
		attr := Attr{}
		rec, err := r.early.Decode(raw)
		if r.early.kind(raw) < firstUserType {
			var e *Event
			if rec, e = r.events.decode(raw); e == nil {
				t.Fatalf("%v", rec)
			}
			attr = e.Attr
		} else if err != nil {
			t.Fatal(err)
		}
		if id, is := rec.(*HeaderBuildID); is && id.Misc&miscBuildIDSize == 0 {
			continue // in a form of perf's without the size, which is never written here
		}
		enc, err := NewEncoder(attr, r.big)
		if err != nil {
			t.Fatal(err)
		}
		got, err := enc.Append(nil, rec)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, raw) && !onlyMoreIDs(rec) {
			t.Fatalf("%T\ngot  %x\nwant %x", rec, got, raw)
		}
		records++
	}
	if records < 10 {
		t.Errorf("%d records only", records)
	}
}

// onlyMoreIDs reports whether a record may have something behind what is decoded.
func onlyMoreIDs(r Record) bool { _, ok := r.(*IDIndex); return ok }

// TestPerfReadsWhatWeWrite copies recordings into files of every form. What perf
// says of the copy is what it says of the original.
func TestPerfReadsWhatWeWrite(t *testing.T) {
	forms := []struct {
		name  string
		opts  WriterOptions
		order ReaderOptions
	}{
		{"file", WriterOptions{}, ReaderOptions{FileOrder: true}},
		{"file in order", WriterOptions{InOrder: true}, ReaderOptions{}},
		{"stream", WriterOptions{Pipe: true, InOrder: true}, ReaderOptions{}},
		{"compressed", WriterOptions{Compress: true, InOrder: true}, ReaderOptions{}},
		{"compressed stream", WriterOptions{Compress: true, Pipe: true, InOrder: true}, ReaderOptions{}},
		{"big-endian", WriterOptions{BigEndian: true}, ReaderOptions{FileOrder: true}},
		{"big-endian stream", WriterOptions{BigEndian: true, Pipe: true}, ReaderOptions{FileOrder: true}},
	}
	for _, args := range [][]string{
		{"-g", "-F", "999", "-e", "cpu-clock,page-faults"},
		{"--call-graph", "dwarf,1024", "-F", "199"},
	} {
		original := perfRecord(t, false, args...)
		dump := perfDump(t, original)
		for _, form := range forms {
			t.Run(strings.Join(args, " ")+" "+form.name, func(t *testing.T) {
				copied := filepath.Join(t.TempDir(), "perf.data")
				copyFile(t, original, copied, form.opts, form.order, false)
				compareLines(t, describeFile(t, copied), dump)
				if form.opts.BigEndian && strings.Contains(args[0], "graph") {
					return // perf has the names of this machine's registers only
				}
				if form.opts.BigEndian {
					// perf does not turn the bytes of a KSYMBOL round, and refuses the
					// file when the kernel loaded a BPF program during the recording.
					copyFile(t, original, copied, form.opts, form.order, true)
				}
				if theirs := perfDump(t, copied); form.opts.BigEndian {
					compareLines(t, withoutProt(theirs), withoutProt(dump))
				} else {
					compareLines(t, theirs, dump)
				}
				if form.opts.Pipe { // perf says less of streams
					return
				}
				got, want := perfHeader(t, copied), perfHeader(t, original)
				if strings.Contains(want, "# time of first sample : 0.000000\n") { // perf did not look: see RecordListed
					got, want = sampleTimes.ReplaceAllString(got, ""), sampleTimes.ReplaceAllString(want, "")
				}
				if got != want {
					t.Errorf("perf report --header-only says\n%s\nand of the original\n%s", got, want)
				}
				if got, want := perfBuildIDs(t, copied), perfBuildIDs(t, original); got != want {
					t.Errorf("perf buildid-list says\n%s\nand of the original\n%s", got, want)
				}
			})
		}
	}
}

// withoutProt takes out what a mapping may be used for, and kernel code that comes and goes:
// perf does not turn their bytes round when it reads a file of the other byte order.
func withoutProt(lines []string) []string {
	prot := regexp.MustCompile(`\]: [rwx-]{3}[ps] `)
	var out []string
	for _, line := range lines {
		if strings.Contains(line, " KSYMBOL addr ") {
			continue
		}
		out = append(out, prot.ReplaceAllString(line, "]: "))
	}
	return out
}

// perfTells are the lines about what Info has.
var perfTells = regexp.MustCompile(`(?m)^# (hostname|os release|perf version|arch|nrcpus (online|avail)|cpudesc|cpuid|total memory|cmdline|event|pmu mappings|time of (first|last) sample|sample duration) : .*$`)

// sampleTimes are the lines about the times of samples.
var sampleTimes = regexp.MustCompile(`(?m)^# (time of (first|last) sample|sample duration) : .*\n?`)

func perfHeader(t *testing.T, file string) string {
	t.Helper()
	out := perftest.Run(t, "report", "--header-only", "-i", file)
	lines := perfTells.FindAllString(string(out), -1)
	if len(lines) < 12 {
		t.Fatalf("perf report --header-only:\n%s", out)
	}
	return strings.Join(lines, "\n")
}

func perfBuildIDs(t *testing.T, file string) string {
	t.Helper()
	out := perftest.Run(t, "buildid-list", "-i", file)
	return string(out)
}

// TestRoundTripOfEachField writes each field of samples in both byte orders.
func TestRoundTripOfEachField(t *testing.T) {
	for _, test := range eachField {
		for _, big := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, big-endian %v", test.name, big), func(t *testing.T) {
				enc, err := NewEncoder(test.attr, big)
				if err != nil {
					t.Fatal(err)
				}
				want := test.want
				data, err := enc.Append(nil, &want)
				if err != nil {
					t.Fatal(err)
				}
				dec, err := NewAttrDecoder(test.attr, big)
				if err != nil {
					t.Fatal(err)
				}
				got, err := dec.Decode(data)
				if err != nil {
					t.Fatal(err)
				}
				if s := withoutEmpty(*got.(*Sample)); !reflect.DeepEqual(s, want) {
					t.Errorf("got  %+v\nwant %+v", s, want)
				}
			})
		}
	}
}
