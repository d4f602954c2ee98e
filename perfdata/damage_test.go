package perfdata

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// memFile is a file in memory that a Writer writes.
type memFile struct {
	data []byte
	pos  int
}

func (f *memFile) Write(b []byte) (int, error) {
	if grow := f.pos + len(b) - len(f.data); grow > 0 {
		f.data = append(f.data, make([]byte, grow)...)
	}
	f.pos += copy(f.data[f.pos:], b)
	return len(b), nil
}

func (f *memFile) Seek(offset int64, whence int) (int64, error) {
	if whence != io.SeekStart {
		return 0, errors.New("only from the start")
	}
	f.pos = int(offset)
	return offset, nil
}

// twoEvents are of different layouts, distinguished by their identifiers.
func twoEvents() []*Event {
	common := SampleIdentifier | SampleIP | SampleTID | SampleTime | SampleCPU | SamplePeriod
	return []*Event{
		{Name: "cpu-clock", IDs: []uint64{11, 12}, Attr: Attr{Type: 1, Fields: common | SampleCallchain, Period: 4000, Flags: AttrFreq | AttrSampleIDAll}},
		{Name: "page-faults", IDs: []uint64{21, 22}, Attr: Attr{Type: 1, Config: 2, Fields: common | SampleAddr | SampleRegsUser | SampleStackUser,
			UserRegs: 1<<7 | 1<<8, UserStack: 64, Flags: AttrSampleIDAll}},
	}
}

// buildFile writes a file with n samples of each event, and returns it.
func buildFile(t testing.TB, opts WriterOptions, n int) []byte {
	t.Helper()
	var f memFile
	w, err := NewWriter(&f, opts)
	if err != nil {
		t.Fatal(err)
	}
	w.Info = Info{Hostname: "somewhere", Arch: "x86_64", Cmdline: []string{"perf", "record"},
		BuildIDs: []HeaderBuildID{{PID: -1, BuildID: []byte{1, 2, 3, 4, 5, 6, 7, 8}, Name: "/bin/true"}}}
	events := twoEvents()
	for _, e := range events {
		if err := w.AddEvent(e); err != nil {
			t.Fatal(err)
		}
	}
	put := func(r Record, e *Event) {
		t.Helper()
		if err := w.Write(r, e); err != nil {
			t.Fatal(err)
		}
	}
	put(&Comm{ID: ID{Event: 11}, OwnerPID: 7, OwnerTID: 7, Name: "true"}, events[0])
	put(&Mmap2{ID: ID{Event: 11}, Type: TypeMmap2, Owner: 7, Thread: 7, Start: 0x400000, Size: 0x1000, Prot: 5, Name: "/bin/true"}, events[0])
	for i := range n {
		id := ID{PID: 7, TID: 7, Time: uint64(1000 + 10*i), CPU: uint32(i % 2), Misc: uint16(ModeUser)}
		id.Event = 11
		put(&Sample{ID: id, IP: 0x400010, Period: 1, Callchain: []uint64{ContextUser, 0x400010, 0x400020}}, events[0])
		id.Event, id.Time = 22, id.Time+5
		put(&Sample{ID: id, IP: 0x400030, Period: 1, Addr: 0x1234, UserStack: []byte("stack..."),
			UserRegs: Regs{ABI: Regs64, Mask: 1<<7 | 1<<8, Values: []uint64{0x7ffc0000, 0x400030}}}, events[1])
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return f.data
}

// streamOf hides that a reader can read at any place.
type streamOf struct{ io.Reader }

// readAll returns the records of a file as text, and how reading ended.
func readAll(t testing.TB, data []byte, opts ReaderOptions) (lines []string, r *Reader, err error) {
	t.Helper()
	r, err = NewReader(bytes.NewReader(data), opts)
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return lines, r, nil
		}
		if err != nil {
			return lines, r, err
		}
		event := "-"
		if e := r.Event(); e != nil {
			event = fmt.Sprint(e.IDs)
		}
		lines = append(lines, fmt.Sprintf("%s %+v", event, rec))
	}
}

// TestReadWhatWasWritten reads files of every form: the records, their events and
// what the file says are as they were written.
func TestReadWhatWasWritten(t *testing.T) {
	var want []string
	for _, opts := range []WriterOptions{
		{}, {InOrder: true}, {BigEndian: true}, {Compress: true}, {Compress: true, BigEndian: true},
		{Pipe: true}, {Pipe: true, BigEndian: true, Compress: true, InOrder: true},
	} {
		lines, r, err := readAll(t, buildFile(t, opts, 30), ReaderOptions{})
		if err != nil {
			t.Fatalf("%+v: %v", opts, err)
		}
		if len(r.Problems()) > 0 {
			t.Errorf("%+v: %v", opts, r.Problems())
		}
		if opts.Pipe { // what else a stream has between its records
			lines = lines[len(lines)-62:]
		}
		if want == nil {
			want = lines
		}
		if len(lines) != 62 || strings.Join(lines, "\n") != strings.Join(want, "\n") {
			t.Errorf("%+v: %d records:\n%s\nwant\n%s", opts, len(lines), strings.Join(lines[:4], "\n"), strings.Join(want[:4], "\n"))
		}
		i := r.Info()
		if i.Hostname != "somewhere" || i.Arch != "x86_64" || len(i.Cmdline) != 2 || len(i.BuildIDs) != 1 ||
			len(i.BuildIDs[0].BuildID) != 8 || i.BuildIDs[0].Name != "/bin/true" || i.BuildIDs[0].PID != -1 {
			t.Errorf("%+v: info %+v", opts, i)
		}
		if e := r.Events(); len(e) != 2 || e[0].Name != "cpu-clock" || e[1].Name != "page-faults" {
			t.Errorf("%+v: events %+v", opts, e)
		}
	}
}

// TestTruncated cuts files at every length: what stands before the cut is returned,
// in order, and then an error or (with all records there) a problem.
func TestTruncated(t *testing.T) {
	for _, opts := range []WriterOptions{{}, {Pipe: true}, {Compress: true, InOrder: true}} {
		data := buildFile(t, opts, 4)
		whole, _, err := readAll(t, data, ReaderOptions{})
		if err != nil {
			t.Fatal(err)
		}
		most, step := 0, 1
		if opts.Compress {
			step = 7 // a decompressor is made anew each time
		}
		for n := 0; n < len(data); n += step {
			lines, r, err := readAll(t, data[:n], ReaderOptions{})
			if err == nil && len(r.Problems()) == 0 && !opts.Pipe {
				t.Errorf("%+v: %d of %d bytes read as if nothing was missing", opts, n, len(data))
			}
			if err != nil && r != nil && !strings.Contains(err.Error(), "offset 0x") {
				t.Errorf("%+v: %d of %d bytes: error without a place: %v", opts, n, len(data), err)
			}
			if len(lines) < most {
				t.Errorf("%+v: %d records of %d bytes, and there were %d of less", opts, len(lines), n, most)
			}
			most = max(most, len(lines))
			for i := range lines {
				if lines[i] != whole[i] {
					t.Fatalf("%+v: %d of %d bytes: record %d is\n%s, not\n%s", opts, n, len(data), i, lines[i], whole[i])
				}
			}
		}
		if most != len(whole) && !opts.Pipe {
			t.Errorf("%+v: at most %d of %d records", opts, most, len(whole))
		}
	}
}

// TestNotEnded reads a file of which perf wrote no more than the first head.
func TestNotEnded(t *testing.T) {
	data := buildFile(t, WriterOptions{}, 4)
	end := binary.LittleEndian.Uint64(data[40:]) + binary.LittleEndian.Uint64(data[48:])
	copy(data[48:56], make([]byte, 8)) // size of the records
	lines, r, err := readAll(t, data[:end], ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(lines) != 10 {
		t.Errorf("%d records, want 10", len(lines))
	}
	if len(r.Problems()) != 1 || !strings.Contains(r.Problems()[0].Error(), "not ended properly") {
		t.Errorf("problems %v", r.Problems())
	}
}

// TestDamagedRecords changes records in their middle: they come as Malformed, and
// the others as ever.
func TestDamagedRecords(t *testing.T) {
	data := buildFile(t, WriterOptions{}, 3)
	whole, r, err := readAll(t, data, ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	starts := recordStarts(t, data, r)
	broken := bytes.Clone(data)
	sample := starts[4]
	broken[sample+8+8*6] = 0xff // number of addresses in the call chain
	lines, _, err := readAll(t, broken, ReaderOptions{})
	if err != nil || len(lines) != len(whole) {
		t.Fatalf("%d records, want %d; %v", len(lines), len(whole), err)
	}
	bad := 0
	for i, line := range lines {
		if line != whole[i] {
			bad++
			if !strings.Contains(line, "call chain of 255 entries") {
				t.Errorf("got %s", line)
			}
		}
	}
	if bad != 1 {
		t.Errorf("%d records are not as they were, want 1", bad)
	}

	broken = bytes.Clone(data)
	broken[sample+8] = 99 // number of the event
	if lines, _, err = readAll(t, broken, ReaderOptions{}); err != nil || !strings.Contains(strings.Join(lines, "\n"), "of no event that is known (number 99)") {
		t.Errorf("unknown event: %v", err)
	}

	broken = bytes.Clone(data)
	broken[sample+6], broken[sample+7] = 4, 0 // size
	lines, _, err = readAll(t, broken, ReaderOptions{})
	if want := fmt.Sprintf("offset %#x: record is shorter than its header: 4 bytes", sample); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	if len(lines) != 4 {
		t.Errorf("%d records before the damage, want 4", len(lines))
	}
}

func recordStarts(t *testing.T, data []byte, r *Reader) []int {
	t.Helper()
	var starts []int
	end := int(r.head.data.offset + r.head.data.size)
	for at := int(r.head.data.offset); at < end; at += recordSize(data[at:], r.big) {
		starts = append(starts, at)
	}
	return starts
}

func TestStreamOfAFile(t *testing.T) {
	_, err := NewReader(streamOf{bytes.NewReader(buildFile(t, WriterOptions{}, 1))}, ReaderOptions{})
	if err == nil || !strings.Contains(err.Error(), "cannot be read from a stream") {
		t.Errorf("got %v", err)
	}
	r, err := NewReader(streamOf{bytes.NewReader(buildFile(t, WriterOptions{Pipe: true}, 1))}, ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Next(); err != nil {
		t.Error(err)
	}
}

func TestHasMagic(t *testing.T) {
	for _, opts := range []WriterOptions{{}, {BigEndian: true}, {Pipe: true}} {
		if data := buildFile(t, opts, 1); !HasMagic(data[:MagicSize]) || HasMagic(data[:MagicSize-1]) {
			t.Errorf("%+v: not seen, or in less", opts)
		}
	}
	if HasMagic([]byte("PERFFILE")) || HasMagic(nil) {
		t.Error("seen where it is not")
	}
}

func TestNotPerfData(t *testing.T) {
	for _, data := range []string{"", "PERF", "PERFILE2", "PERFFILE12345678", strings.Repeat("x", 200)} {
		if _, err := NewReader(strings.NewReader(data), ReaderOptions{}); !errors.Is(err, ErrNotPerfData) {
			t.Errorf("%q: %v", data, err)
		}
	}
}

// failing breaks after n bytes with an error of the disk.
type failing struct {
	io.ReaderAt
	io.Reader
	after int64
}

var errDisk = errors.New("the disk is broken")

func (f failing) ReadAt(b []byte, at int64) (int, error) {
	if at+int64(len(b)) > f.after && at < 4096 {
		n, _ := f.ReaderAt.ReadAt(b[:max(0, min(f.after-at, int64(len(b))))], at)
		return n, errDisk
	}
	return f.ReaderAt.ReadAt(b, at)
}

func TestReadError(t *testing.T) {
	data := buildFile(t, WriterOptions{}, 100)
	in := bytes.NewReader(data)
	r, err := NewReader(failing{bytes.NewReader(data), in, 2048}, ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for ; err == nil; n++ {
		_, err = r.Next()
	}
	if !errors.Is(err, errDisk) || n < 10 {
		t.Errorf("%d records, %v", n, err)
	}
	if _, again := r.Next(); !errors.Is(again, errDisk) {
		t.Errorf("the next call says %v", again)
	}
}

// TestAuxtrace passes over a trace that stands outside of its record, in files and in
// streams, and misses one that is cut off.
func TestAuxtrace(t *testing.T) {
	for _, pipe := range []bool{false, true} {
		trace := bytes.Repeat([]byte{0xff}, 3*blockSize+5)
		head := builder{byteOrder: orderOf(false)}
		if pipe {
			head.u64(magic, pipeHeaderSize)
		} else {
			head.u64(magic, fileHeaderSize, attrSize0+16, fileHeaderSize, 0, fileHeaderSize, uint64(64+len(trace)), 0, 0, 0, 0, 0, 0)
		}
		head.u32(uint32(TypeFinishedInit), 8<<16)
		head.u32(uint32(TypeAuxtrace), 48<<16)
		head.u64(uint64(len(trace)), 5, 6)
		head.u32(1, 2, 3, 0)
		head.bytes(trace)
		head.u32(uint32(TypeFinishedInit), 8<<16)
		data := head.buf
		lines, _, err := readAll(t, data, ReaderOptions{})
		if len(lines) != 3 || !strings.Contains(lines[1], "Offset:5 Reference:6 Index:1 TID:2 CPU:3") || err != nil {
			t.Errorf("pipe %v: %v, %v", pipe, lines, err)
		}
		for _, cut := range []int{9, 100, 2 * blockSize, len(trace)} {
			lines, _, err := readAll(t, data[:len(data)-cut], ReaderOptions{})
			if !errors.Is(err, io.ErrUnexpectedEOF) || len(lines) != 1 || !strings.Contains(err.Error(), "behind the AUXTRACE record") {
				t.Errorf("pipe %v, %d bytes cut: %d records, %v", pipe, cut, len(lines), err)
			}
		}
	}
}
