package perfdata

import (
	"bytes"
	"errors"
	"testing"
)

// FuzzReader reads whatever it is given: it ends, with an error that says where, and
// gives no more than there is.
func FuzzReader(f *testing.F) {
	for _, opts := range []WriterOptions{{}, {BigEndian: true}, {Pipe: true}, {Compress: true}, {Pipe: true, Compress: true, InOrder: true, BigEndian: true}} {
		f.Add(buildFile(f, opts, 3), false)
		f.Add(buildFile(f, opts, 3), true)
	}
	f.Fuzz(func(t *testing.T, data []byte, fileOrder bool) {
		r, err := NewReader(bytes.NewReader(data), ReaderOptions{FileOrder: fileOrder, MaxPending: 2 * blockSize})
		if err != nil {
			return
		}
		defer r.Close()
		// A zstd frame unpacks to many times its size: what is looked at is limited here.
		for range 100000 {
			rec, err := r.Next()
			if err != nil {
				if _, again := r.Next(); again == nil || again.Error() != err.Error() {
					t.Errorf("after %v: %v", err, again)
				}
				return
			}
			if s, ok := rec.(*Sample); ok && 8*len(s.Callchain)+len(s.UserStack)+len(s.Raw) > 1<<16 {
				t.Errorf("a sample with more than a record")
			}
			if r.pool.live > 8 {
				t.Fatalf("%d blocks are held", r.pool.live)
			}
		}
	})
}

// FuzzRecord decodes and encodes: what was encoded decodes to the same and encodes to
// the same bytes.
func FuzzRecord(f *testing.F) {
	for _, r := range records {
		f.Add(uint64(everyField), uint64(0), uint64(0), false, r.data)
	}
	for _, s := range eachField {
		f.Add(uint64(s.attr.Fields), uint64(s.attr.Read), uint64(s.attr.Branches), false, recordBytes(TypeSample, 0, s.values...))
	}
	f.Fuzz(func(t *testing.T, fields, read, branches uint64, big bool, data []byte) {
		attr := Attr{Fields: SampleType(fields) & sampleKnown, Read: ReadFormat(read) & readKnown, Branches: BranchType(branches) & branchKnown,
			UserRegs: fields >> 32, IntrRegs: fields >> 40, Flags: AttrSampleIDAll}
		d, err := NewAttrDecoder(attr, big)
		if err != nil {
			t.Fatal(err)
		}
		e, err := NewEncoder(attr, big)
		if err != nil {
			t.Fatal(err)
		}
		r, err := d.Decode(data)
		if err != nil {
			if !errors.Is(err, ErrFormat) {
				t.Errorf("error of another kind: %v", err)
			}
			return
		}
		once, err := e.Append(nil, r)
		if err != nil {
			return // it grew by padding, or stands before bytes of the AUX area
		}
		if r, err = d.Decode(once); err != nil {
			t.Fatalf("%x does not decode: %v", once, err)
		}
		twice, err := e.Append(nil, r)
		if err != nil || !bytes.Equal(once, twice) {
			t.Errorf("%x became %x, %v", once, twice, err)
		}
	})
}
