package perfdata

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
)

// testID is the build ID that the tests give to a file.
func testID(m *Mmap2) []byte {
	if m.Inode == 0 || !strings.HasPrefix(m.Name, "/") {
		return nil
	}
	return []byte(fmt.Sprintf("id of %-20s", m.Name))[:20] // shorter ones are not believed
}

// texts returns all records of a file as text, and what the file lists.
func texts(t *testing.T, data []byte) (records []string, list []HeaderBuildID) {
	t.Helper()
	r, err := NewReader(bytes.NewReader(data), ReaderOptions{FileOrder: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for {
		rec, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, Text(rec))
	}
	if len(r.Problems()) > 0 {
		t.Errorf("problems %v", r.Problems())
	}
	return records, r.Info().BuildIDs
}

// TestFillBuildIDs fills what perf recorded, and compares every record and every feature.
func TestFillBuildIDs(t *testing.T) {
	for _, kind := range recordings {
		for _, stream := range []bool{false, true} {
			if kind.root && os.Getuid() != 0 {
				continue
			}
			t.Run(kind.name+map[bool]string{true: ", stream"}[stream], func(t *testing.T) {
				before, err := os.ReadFile(perfRecord(t, stream, append([]string{"-B"}, kind.args...)...))
				if err != nil {
					t.Fatal(err)
				}
				checkFilled(t, before, stream)
			})
		}
	}
}

func checkFilled(t *testing.T, before []byte, stream bool) {
	t.Helper()
	more := []HeaderBuildID{{Misc: uint16(ModeUser), PID: -1, BuildID: []byte("12345678901234567890"), Name: "/one"}}
	var after bytes.Buffer
	filled, err := FillBuildIDs(&after, bytes.NewReader(before), testID, more)
	if err != nil {
		t.Fatal(err)
	}
	old, listed := texts(t, before)
	changed, list := texts(t, after.Bytes())
	if stream { // the list comes before all records
		if !strings.HasPrefix(changed[0], "HeaderBuildID ") || !strings.HasSuffix(changed[0], `Name="/one"}`) {
			t.Errorf("the first record is %s", changed[0])
		}
		changed = changed[1:]
	}
	if len(old) != len(changed) {
		t.Fatalf("%d records, and before %d", len(changed), len(old))
	}
	n := 0
	for i := range old {
		was, err := ParseText(old[i])
		if err != nil {
			t.Fatal(err)
		}
		if m, ok := was.(*Mmap2); ok && m.Type == TypeMmap2 && m.BuildID == nil && filled.Compressed == 0 && testID(m) != nil {
			n++
			m.BuildID = testID(m)
			m.Major, m.Minor, m.Inode, m.Generation = 0, 0, 0, 0
			m.Misc |= miscMmapBuildID
		}
		if filled.Compressed == 0 && Text(was) != changed[i] {
			t.Errorf("record %d is\n%s\nwant\n%s", i, changed[i], Text(was))
		}
	}
	if filled.Compressed == 0 && n != filled.Mappings {
		t.Errorf("%d mappings filled, want %d", filled.Mappings, n)
	}
	if !filled.Listed {
		t.Error("not listed")
	}
	if want := len(listed) + 1; len(list) != want || !slices.ContainsFunc(list, func(b HeaderBuildID) bool { return b.Name == "/one" }) {
		t.Errorf("list %v, and before %v", list, listed)
	}
	if !stream {
		compareFeatures(t, before, after.Bytes())
	}
}

// compareFeatures wants every section but the list of build IDs as it was.
func compareFeatures(t *testing.T, before, after []byte) {
	t.Helper()
	sections := func(data []byte) map[Feature]string {
		h, err := readFileHeader(bytes.NewReader(data), false, fileHeaderSize)
		if err != nil {
			t.Fatal(err)
		}
		at := h.data.offset + h.data.size
		all := map[Feature]string{}
		for f := range Feature(featureCount) {
			if h.features[f/64]>>(f%64)&1 != 0 {
				offset, size := orderOf(false).Uint64(data[at:]), orderOf(false).Uint64(data[at+8:])
				all[f] = string(data[offset : offset+size])
				at += 16
			}
		}
		return all
	}
	old, changed := sections(before), sections(after)
	if len(changed) < 5 || changed[FeatureBuildID] == "" {
		t.Errorf("%d sections", len(changed))
	}
	delete(old, FeatureBuildID)
	delete(changed, FeatureBuildID)
	for f, data := range old {
		if changed[f] != data {
			t.Errorf("feature %d is %q, and was %q", f, changed[f], data)
		}
	}
	if len(old) != len(changed) {
		t.Errorf("%d sections, and before %d", len(changed), len(old))
	}
}

// TestFillNothing copies a file byte for byte, and one that is cut off.
func TestFillNothing(t *testing.T) {
	data, err := os.ReadFile(perfRecord(t, false, "-g"))
	if err != nil {
		t.Fatal(err)
	}
	nothing := func(*Mmap2) []byte { return nil }
	var out bytes.Buffer
	if _, err := FillBuildIDs(&out, bytes.NewReader(data), nothing, nil); err != nil || !bytes.Equal(out.Bytes(), data) {
		t.Errorf("the copy differs: %v", err)
	}
	// As perf leaves it when it is killed: no size of the records, the last one cut off.
	cut := slices.Clone(data[:len(data)*2/3])
	clear(cut[48:56])
	out.Reset()
	if _, err := FillBuildIDs(&out, bytes.NewReader(cut), nothing, nil); err != nil && !errors.Is(err, errTooSmall) {
		t.Errorf("cut off: %v", err)
	}
	if got := out.Bytes(); !bytes.HasPrefix(cut, got) {
		t.Error("the copy of what is cut off differs")
	}
	// The header says where the records are and how many bytes they have.
	start, size := binary.NativeEndian.Uint64(data[40:]), binary.NativeEndian.Uint64(data[48:])
	between := start
	for between < start+size/2 {
		between += uint64(recordSize(data[between:], false))
	}
	for _, end := range []uint64{between, between + 1} {
		if _, err := FillBuildIDs(io.Discard, bytes.NewReader(data[:end]), nothing, nil); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("a file of %d bytes ends at %d: %v", len(data), end, err)
		}
	}
}

func FuzzFillBuildIDs(f *testing.F) {
	for _, pipe := range []bool{false, true} {
		name := f.TempDir() + "/file"
		file, err := os.Create(name)
		if err != nil {
			f.Fatal(err)
		}
		w, err := NewWriter(file, WriterOptions{Pipe: pipe})
		if err != nil {
			f.Fatal(err)
		}
		w.Info.Hostname = "here"
		w.Write(&Mmap2{Type: TypeMmap2, Name: "/bin/true", Inode: 7, Size: 4096}, nil)
		if err := w.Close(); err != nil {
			f.Fatal(err)
		}
		file.Close()
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		more := []HeaderBuildID{{BuildID: []byte("12345678901234567890"), Name: "/one"}}
		FillBuildIDs(io.Discard, bytes.NewReader(data), testID, more)
	})
}
