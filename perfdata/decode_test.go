package perfdata

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"strings"
	"testing"
)

const everyField = SampleIP | SampleTID | SampleTime | SampleID | SampleCPU | SamplePeriod | SampleCallchain | SampleCgroup

// recordBytes builds a record of this machine's byte order: each value is a
// number of its size, or a string that is padded to 8 bytes as the kernel does.
func recordBytes(kind Type, misc uint16, values ...any) []byte {
	b := make([]byte, HeaderSize)
	for _, v := range values {
		if s, ok := v.(string); ok {
			b = append(b, s...)
			b = append(b, make([]byte, 8-len(s)%8)...)
			continue
		}
		b, _ = binary.Append(b, binary.NativeEndian, v)
	}
	binary.NativeEndian.PutUint32(b, uint32(kind))
	binary.NativeEndian.PutUint16(b[4:], misc)
	binary.NativeEndian.PutUint16(b[6:], uint16(len(b)))
	return b
}

// trailer is the sample_id of pid 7, tid 8, at time 9, of event 6, on CPU 3.
func trailerValues() []any {
	return []any{uint32(7), uint32(8), uint64(9), uint64(6), uint32(3), uint32(0)}
}

var trailerID = ID{PID: 7, TID: 8, Time: 9, Event: 6, CPU: 3}

func withMisc(misc uint16) ID {
	id := trailerID
	id.Misc = misc
	return id
}

func withTrailer(values ...any) []any { return append(values, trailerValues()...) }

var records = []struct {
	name string
	data []byte
	want Record
}{
	{"sample", recordBytes(TypeSample, 0, uint64(0x1000), uint32(7), uint32(8), uint64(9), uint64(6), uint32(3), uint32(0),
		uint64(10101), uint64(3), ContextKernel, uint64(0xffffffff81000000), ContextUser, uint64(77)),
		&Sample{ID: trailerID, IP: 0x1000, Period: 10101, Cgroup: 77,
			Callchain: []uint64{ContextKernel, 0xffffffff81000000, ContextUser}}},
	{"mmap2 with inode", recordBytes(TypeMmap2, 0, withTrailer(uint32(1), uint32(2), uint64(0x400000), uint64(0x2000), uint64(0x1000),
		uint32(8), uint32(1), uint64(4711), uint64(5), uint32(5), uint32(2), "/usr/bin/gzip")...),
		&Mmap2{ID: trailerID, Type: TypeMmap2, Owner: 1, Thread: 2, Start: 0x400000, Size: 0x2000, Offset: 0x1000, Prot: 5, Flags: 2,
			Major: 8, Minor: 1, Inode: 4711, Generation: 5, Name: "/usr/bin/gzip"}},
	{"mmap2 with build ID", recordBytes(TypeMmap2, miscMmapBuildID, withTrailer(uint32(1), uint32(2), uint64(0x400000), uint64(0x2000), uint64(0),
		[]byte{8, 0, 0, 0}, [20]byte{1, 2, 3, 4, 5, 6, 7, 8}, uint32(5), uint32(2), "/lib/x.so")...),
		&Mmap2{ID: withMisc(miscMmapBuildID), Type: TypeMmap2, Owner: 1, Thread: 2, Start: 0x400000, Size: 0x2000, Prot: 5, Flags: 2,
			BuildID: []byte{1, 2, 3, 4, 5, 6, 7, 8}, Name: "/lib/x.so"}},
	{"mmap", recordBytes(TypeMmap, 0, withTrailer(uint32(1), uint32(2), uint64(0x400000), uint64(0x2000), uint64(0x1000), "[vdso]")...),
		&Mmap2{ID: trailerID, Type: TypeMmap, Owner: 1, Thread: 2, Start: 0x400000, Size: 0x2000, Offset: 0x1000, Prot: protExec, Name: "[vdso]"}},
	{"comm by exec", recordBytes(TypeComm, miscCommExec, withTrailer(uint32(1), uint32(2), "gzip")...),
		&Comm{ID: withMisc(miscCommExec), OwnerPID: 1, OwnerTID: 2, Name: "gzip", Exec: true}},
	{"fork", recordBytes(TypeFork, 0, withTrailer(uint32(11), uint32(1), uint32(12), uint32(2), uint64(9))...),
		&Task{ID: trailerID, ChildPID: 11, ParentPID: 1, ChildTID: 12, ParentTID: 2, At: 9}},
	{"exit", recordBytes(TypeExit, 0, withTrailer(uint32(11), uint32(1), uint32(12), uint32(2), uint64(9))...),
		&Task{ID: trailerID, Exited: true, ChildPID: 11, ParentPID: 1, ChildTID: 12, ParentTID: 2, At: 9}},
	{"lost", recordBytes(TypeLost, 0, withTrailer(uint64(1), uint64(42))...), &Lost{ID: trailerID, Type: TypeLost, Of: 1, Count: 42}},
	{"lost samples", recordBytes(TypeLostSample, 0, withTrailer(uint64(43))...), &Lost{ID: trailerID, Type: TypeLostSample, Count: 43}},
	{"throttle", recordBytes(TypeThrottle, 0, withTrailer(uint64(9), uint64(1), uint64(1))...), &Throttle{ID: trailerID, At: 9, Of: 1, From: 1}},
	{"ksymbol", recordBytes(TypeKsymbol, 0, withTrailer(uint64(0xffffffffc0000000), uint32(64), uint16(1), uint16(1), "bpf_prog_6deef7357e7b4530")...),
		&Ksymbol{ID: trailerID, Addr: 0xffffffffc0000000, Size: 64, Kind: 1, Flags: 1, Unregistered: true, Name: "bpf_prog_6deef7357e7b4530"}},
	{"cgroup", recordBytes(TypeCgroup, 0, withTrailer(uint64(77), "/system.slice")...), &Cgroup{ID: trailerID, Cgroup: 77, Path: "/system.slice"}},
	{"unknown", recordBytes(99, 0, uint64(5)), &Unknown{Type: 99, Data: recordBytes(99, 0, uint64(5))[HeaderSize:]}},
}

func TestDecode(t *testing.T) {
	d, err := NewDecoder(everyField)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range records {
		t.Run(test.name, func(t *testing.T) {
			got, err := d.Decode(test.data)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got  %+v\nwant %+v", got, test.want)
			}
			if _, unknown := got.(*Unknown); !unknown && d.Time(test.data) != 9 {
				t.Errorf("Time is %d, want 9", d.Time(test.data))
			}
		})
	}
}

// TestDecodeTruncated cuts every record at every length, with a header that says
// so: no cut of a known kind may pass as whole, unless only padding is gone.
func TestDecodeTruncated(t *testing.T) {
	d, err := NewDecoder(everyField)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range records {
		for n := HeaderSize; n < len(test.data); n++ {
			cut := append([]byte(nil), test.data[:n]...)
			if _, err := d.Decode(cut); !errors.Is(err, ErrFormat) {
				t.Errorf("%s: %d of %d bytes: header does not fit, got %v", test.name, n, len(test.data), err)
			}
			binary.NativeEndian.PutUint16(cut[6:], uint16(n))
			r, err := d.Decode(cut)
			if err == nil {
				if reflect.DeepEqual(r, test.want) {
					t.Errorf("%s: %d of %d bytes decode as all of them", test.name, n, len(test.data))
				}
				continue
			}
			var damage *FormatError
			if !errors.As(err, &damage) || !strings.Contains(err.Error(), "offset") {
				t.Errorf("%s: error without place: %v", test.name, err)
			}
		}
	}
}

func TestDecodeLies(t *testing.T) {
	d, err := NewDecoder(everyField)
	if err != nil {
		t.Fatal(err)
	}
	chain := recordBytes(TypeSample, 0, uint64(0x1000), uint32(7), uint32(8), uint64(9), uint64(6), uint32(3), uint32(0), uint64(1), ^uint64(0))
	if _, err := d.Decode(chain); err == nil || !strings.Contains(err.Error(), "call chain of 18446744073709551615 entries") {
		t.Errorf("a call chain of 2^64-1 entries: %v", err)
	}
	id := recordBytes(TypeMmap2, miscMmapBuildID, withTrailer(uint32(1), uint32(2), uint64(0), uint64(0), uint64(0),
		[]byte{21, 0, 0, 0}, [20]byte{}, uint32(5), uint32(2), "x")...)
	if _, err := d.Decode(id); err == nil || !strings.Contains(err.Error(), "build ID of 21 bytes") {
		t.Errorf("a build ID of 21 bytes: %v", err)
	}
}

func TestNewDecoderRefusesWhatItDoesNotKnow(t *testing.T) {
	if _, err := NewDecoder(everyField | 1<<25); err == nil {
		t.Error("a field that is not known is not refused")
	}
}

func FuzzDecode(f *testing.F) {
	for _, r := range records {
		f.Add(uint64(everyField), r.data)
		f.Add(uint64(SampleTime), r.data)
	}
	f.Fuzz(func(t *testing.T, fields uint64, data []byte) {
		d, err := NewDecoder(SampleType(fields) & sampleKnown)
		if err != nil {
			t.Fatal(err)
		}
		d.Time(data)
		r, err := d.Decode(data)
		if err != nil && !errors.Is(err, ErrFormat) {
			t.Errorf("error of another kind: %v", err)
		}
		if s, ok := r.(*Sample); ok && len(s.Callchain) > len(data)/8 {
			t.Errorf("%d addresses from %d bytes", len(s.Callchain), len(data))
		}
		if m, ok := r.(*Mmap2); ok && len(m.Name)+len(m.BuildID) > len(data) {
			t.Errorf("more text than data")
		}
	})
}

func BenchmarkDecodeSample(b *testing.B) {
	chain := make([]any, 0, 64)
	for i := range 32 {
		chain = append(chain, uint64(0x400000+i))
	}
	head := []any{uint64(0x1000), uint32(7), uint32(8), uint64(9), uint64(6), uint32(3), uint32(0), uint64(10101), uint64(32)}
	data := recordBytes(TypeSample, 0, append(append(head, chain...), uint64(77))...)
	d, err := NewDecoder(everyField)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Decode(data); err != nil {
			b.Fatal(err)
		}
	}
}

// TestBuildIDsNobodyAskedFor has the bit for a build ID in records that have device and
// inode, as the kernel leaves it there while another recording asks for build IDs.
func TestBuildIDsNobodyAskedFor(t *testing.T) {
	mapping := func(field ...any) []byte {
		values := append([]any{uint32(1), uint32(2), uint64(0x400000), uint64(0x2000), uint64(0)}, field...)
		return recordBytes(TypeMmap2, miscMmapBuildID, append(values, uint32(5), uint32(2), "/lib/x.so")...)
	}
	full := [20]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20}
	for _, test := range []struct {
		name  string
		rec   []byte
		asked bool
		major uint32
		id    []byte
		fails bool
	}{
		{"a disk", mapping(uint32(8), uint32(1), uint64(4711), uint64(5)), false, 8, nil, false},
		{"no device", mapping(uint32(0), uint32(42), uint64(4711), uint64(0)), false, 0, nil, false},
		{"a virtual disk", mapping(uint32(254), uint32(0), uint64(4711), uint64(5)), false, 254, nil, false},
		{"NVMe", mapping(uint32(259), uint32(0), uint64(4711), uint64(5)), false, 259, nil, false},
		{"large numbers", mapping(uint32(20|1<<8), uint32(0), uint64(4711), uint64(5)), false, 20 | 1<<8, nil, false},
		{"filled in", mapping([]byte{20, 0, 0, 0}, full), false, 0, full[:], false},
		{"filled in, of 16 bytes", mapping([]byte{16, 0, 0, 0}, full), false, 0, full[:16], false},
		{"asked for", mapping([]byte{8, 0, 0, 0}, full), true, 0, full[:8], false},
		{"asked for, damaged", mapping([]byte{254, 0, 0, 0}, full), true, 0, nil, true},
	} {
		attr := Attr{Fields: SampleIP}
		if test.asked {
			attr.Flags = AttrBuildID
		}
		d, err := NewAttrDecoder(attr, bigEndian)
		if err != nil {
			t.Fatal(err)
		}
		got, err := d.Decode(test.rec)
		if test.fails {
			if err == nil {
				t.Errorf("%s: %v", test.name, Text(got))
			}
			continue
		}
		m, ok := got.(*Mmap2)
		if err != nil || !ok || m.Major != test.major || !bytes.Equal(m.BuildID, test.id) || m.Name != "/lib/x.so" {
			t.Errorf("%s: %+v, %v", test.name, got, err)
		}
		if ok && test.id == nil && m.Inode != 4711 {
			t.Errorf("%s: inode %d", test.name, m.Inode)
		}
	}
}

// TestBuildIDsAskedForByAnother has a short build ID in a record that names no event, where the
// event that asked for it is the first one, and the last one, as with perf's dummy events.
func TestBuildIDsAskedForByAnother(t *testing.T) {
	for _, flags := range [][2]AttrFlags{{AttrBuildID, 0}, {0, AttrBuildID}, {0, 0}} {
		var stream bytes.Buffer
		w, err := NewWriter(&stream, WriterOptions{Pipe: true})
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range flags {
			if err := w.AddEvent(&Event{Attr: Attr{Type: 1, Config: uint64(i), Fields: SampleIP, Flags: f}, IDs: []uint64{uint64(i + 1)}}); err != nil {
				t.Fatal(err)
			}
		}
		id := []byte{1, 2, 3, 4, 5, 6, 7, 8}
		err = w.Write(&Mmap2{Type: TypeMmap2, Owner: 1, Start: 0x1000, Size: 0x1000, Prot: protExec, BuildID: id, Name: "/lib/x.so"}, w.Events()[0])
		if err = errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
		r, err := NewReader(&stream, ReaderOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var m *Mmap2
		for ok := false; !ok; {
			rec, err := r.Next()
			if err != nil {
				t.Fatal(err)
			}
			m, ok = rec.(*Mmap2)
		}
		if asked := flags != [2]AttrFlags{}; bytes.Equal(m.BuildID, id) != asked {
			t.Errorf("flags %#x: %+v", flags, m)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}
