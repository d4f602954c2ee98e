package perfdata

import (
	"encoding/binary"
	"errors"
	"reflect"
	"strings"
	"testing"
)

// eachField has every field of a sample once, in the kernel's order, with what
// its event asked for.
var eachField = []struct {
	name   string
	attr   Attr
	values []any
	want   Sample
}{
	{"identifier", Attr{Fields: SampleIdentifier | SampleIP}, []any{uint64(5), uint64(0x1000)}, Sample{ID: ID{Event: 5}, IP: 0x1000}},
	{"identifier and ID", Attr{Fields: SampleIdentifier | SampleID}, []any{uint64(5), uint64(6)}, Sample{ID: ID{Event: 6}}},
	{"address", Attr{Fields: SampleAddr | SampleTime}, []any{uint64(9), uint64(0x2000)}, Sample{ID: ID{Time: 9}, Addr: 0x2000}},
	{"stream", Attr{Fields: SampleStreamID | SampleID}, []any{uint64(6), uint64(7)}, Sample{ID: ID{Event: 6, Stream: 7}}},
	{"read", Attr{Fields: SampleRead, Read: ReadTimeEnabled | ReadTimeRunning | ReadID | ReadLost},
		[]any{uint64(1), uint64(2), uint64(3), uint64(4), uint64(5)},
		Sample{Read: Read{TimeEnabled: 2, TimeRunning: 3, Values: []ReadValue{{Value: 1, Event: 4, Lost: 5}}}}},
	{"read a group", Attr{Fields: SampleRead | SamplePeriod, Read: ReadGroup | ReadTimeEnabled | ReadID},
		[]any{uint64(77), uint64(2), uint64(9), uint64(1), uint64(4), uint64(11), uint64(14)},
		Sample{Period: 77, Read: Read{TimeEnabled: 9, Values: []ReadValue{{Value: 1, Event: 4}, {Value: 11, Event: 14}}}}},
	{"raw", Attr{Fields: SampleRaw}, []any{uint32(4), [4]byte{1, 2, 3, 4}}, Sample{Raw: []byte{1, 2, 3, 4}}},
	{"branches", Attr{Fields: SampleBranchStack, Branches: BranchHWIndex | BranchCounters},
		[]any{uint64(1), uint64(3), uint64(0x10), uint64(0x20), uint64(1 | 1<<2 | 100<<4 | 3<<20 | 2<<24 | 5<<26 | 4<<30), uint64(8)},
		Sample{BranchIndex: 3, BranchCounts: []uint64{8}, Branches: []Branch{{From: 0x10, To: 0x20,
			Flags: BranchFlags{Mispredicted: true, InTransaction: true, Cycles: 100, Type: 3, Spec: 2, NewType: 5, Privilege: 4}}}}},
	{"user registers", Attr{Fields: SampleRegsUser, UserRegs: 1<<7 | 1<<8 | 1<<63}, []any{uint64(2), uint64(70), uint64(80), uint64(630)},
		Sample{UserRegs: Regs{ABI: Regs64, Mask: 1<<7 | 1<<8 | 1<<63, Values: []uint64{70, 80, 630}}}},
	{"no user registers", Attr{Fields: SampleRegsUser | SamplePhysAddr, UserRegs: 1<<7 | 1<<8}, []any{uint64(0), uint64(9)},
		Sample{PhysAddr: 9}},
	{"user stack", Attr{Fields: SampleStackUser | SampleWeight, UserStack: 16}, []any{uint64(16), [16]byte{1, 2, 3}, uint64(8), uint64(4)},
		Sample{UserStack: []byte{1, 2, 3, 0, 0, 0, 0, 0}, Weight: 4}},
	{"user stack that cannot be read", Attr{Fields: SampleStackUser | SampleWeight, UserStack: 16}, []any{uint64(16), [16]byte{}, uint64(0), uint64(4)},
		Sample{Weight: 4}},
	{"no user stack", Attr{Fields: SampleStackUser | SampleWeightStruct, UserStack: 16}, []any{uint64(0), uint64(4)}, Sample{Weight: 4}},
	{"data", Attr{Fields: SampleDataSource | SampleTransaction | SamplePhysAddr | SampleDataPageSize | SampleCodePageSize | SampleCgroup},
		[]any{uint64(1), uint64(2), uint64(3), uint64(4), uint64(5), uint64(6)},
		Sample{DataSource: 1, Transaction: 2, PhysAddr: 3, Cgroup: 4, DataPageSize: 5, CodePageSize: 6}},
	{"registers at the interrupt", Attr{Fields: SampleRegsIntr | SampleTransaction, IntrRegs: 1}, []any{uint64(2), uint64(1), uint64(99)},
		Sample{Transaction: 2, IntrRegs: Regs{ABI: Regs32, Mask: 1, Values: []uint64{99}}}},
	{"AUX", Attr{Fields: SampleAux | SampleCgroup}, []any{uint64(6), uint64(8), [8]byte{1}}, Sample{Cgroup: 6, Aux: []byte{1, 0, 0, 0, 0, 0, 0, 0}}},
}

func TestDecodeFields(t *testing.T) {
	for _, test := range eachField {
		t.Run(test.name, func(t *testing.T) {
			d, err := NewAttrDecoder(test.attr, bigEndian)
			if err != nil {
				t.Fatal(err)
			}
			data := recordBytes(TypeSample, 2, test.values...)
			r, err := d.Decode(data)
			if err != nil {
				t.Fatal(err)
			}
			got := withoutEmpty(*r.(*Sample))
			want := test.want
			want.Misc = uint16(ModeUser)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
			checkCuts(t, d, data)
		})
	}
}

// checkCuts shortens a record of which every byte is read: none of the rests may decode.
func checkCuts(t *testing.T, d *Decoder, data []byte) {
	t.Helper()
	for n := HeaderSize; n < len(data); n++ {
		cut := append([]byte(nil), data[:n]...)
		binary.NativeEndian.PutUint16(cut[6:], uint16(n))
		if r, err := d.Decode(cut); !errors.Is(err, ErrFormat) {
			t.Errorf("%d of %d bytes: %+v, %v", n, len(data), r, err)
		}
	}
}

// withoutEmpty lets slices that are kept for the next sample be nil.
func withoutEmpty(s Sample) Sample {
	v := reflect.ValueOf(&s).Elem()
	clearEmpty(v)
	return s
}

func clearEmpty(v reflect.Value) {
	for i := range v.NumField() {
		switch f := v.Field(i); {
		case f.Kind() == reflect.Slice && f.Len() == 0:
			f.SetZero()
		case f.Kind() == reflect.Struct:
			clearEmpty(f)
		}
	}
}

func TestRegsGet(t *testing.T) {
	r := Regs{ABI: Regs64, Mask: 1<<7 | 1<<8 | 1<<63, Values: []uint64{70, 80, 630}}
	for n, want := range map[int]uint64{7: 70, 8: 80, 63: 630} {
		if got, ok := r.Get(n); !ok || got != want {
			t.Errorf("register %d is %d, %v, want %d", n, got, ok, want)
		}
	}
	for _, n := range []int{-1, 0, 6, 9, 62, 64} {
		if got, ok := r.Get(n); ok {
			t.Errorf("register %d, which is not there, is %d", n, got)
		}
	}
}

func TestDecodeFieldLies(t *testing.T) {
	huge := ^uint64(0)
	for _, test := range []struct {
		attr   Attr
		values []any
		want   string
	}{
		{Attr{Fields: SampleStackUser}, []any{uint64(8), uint64(0), uint64(9)}, "user stack of 9 bytes where there is room for 8"},
		{Attr{Fields: SampleStackUser}, []any{huge}, "18446744073709551615 bytes wanted"},
		{Attr{Fields: SampleRegsUser, UserRegs: 3}, []any{uint64(2), uint64(0)}, "2 registers in 8 bytes"},
		{Attr{Fields: SampleBranchStack}, []any{huge}, "18446744073709551615 branches"},
		{Attr{Fields: SampleRead, Read: ReadGroup}, []any{huge}, "values of 18446744073709551615 events"},
		{Attr{Fields: SampleRaw}, []any{^uint32(0)}, "4294967295 bytes wanted"},
		{Attr{Fields: SampleAux}, []any{huge}, "18446744073709551615 bytes wanted"},
	} {
		d, err := NewAttrDecoder(test.attr, bigEndian)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Decode(recordBytes(TypeSample, 0, test.values...)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("want an error with %q, got %v", test.want, err)
		}
	}
}
