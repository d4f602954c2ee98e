package perfdata_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"testing"

	"hallmark/internal/perfgen"
	"hallmark/perfdata"
)

// addSeeds adds bytes of which files of all forms are made.
func addSeeds(f *testing.F) {
	random := rand.New(rand.NewPCG(1, 2))
	for form := range 32 {
		data := make([]byte, 700)
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		data[0] = byte(form) | byte(form&1)<<7
		f.Add(data)
	}
}

// FuzzMadeFile reads files that are made of the input: with right lengths and plausible fields,
// or damaged a little. It reads them in both orders, fills their build IDs, and writes them as text.
func FuzzMadeFile(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		made := perfgen.Make(data)
		count := readMade(t, made, false)
		if other := readMade(t, made, true); count >= 0 && other >= 0 && other < count {
			t.Errorf("%d records in the order of time, %d in that of the file", count, other)
		}
		id := []byte("0123456789abcdefghij")
		var filled bytes.Buffer
		_, err := perfdata.FillBuildIDs(&filled, bytes.NewReader(made.Head), func(*perfdata.Mmap2) []byte { return id },
			[]perfdata.HeaderBuildID{{PID: -1, BuildID: id, Name: "/bin/a"}})
		if err == nil && readMade(t, perfgen.Recording{Head: filled.Bytes(), Parts: made.Parts}, false) < count {
			t.Errorf("fewer records when build IDs were filled")
		}
		for _, part := range made.Parts {
			filled.Reset()
			if _, err := perfdata.FillRecords(&filled, bytes.NewReader(part), bytes.NewReader(made.Head), func(*perfdata.Mmap2) []byte { return id }); err == nil && filled.Len() != len(part) {
				t.Errorf("%d bytes became %d", len(part), filled.Len())
			}
		}
		if r, err := open(made, false); err == nil {
			_ = perfdata.WriteText(io.Discard, r) // the error is that of Next
			r.Close()
		}
	})
}

func open(made perfgen.Recording, fileOrder bool) (*perfdata.Reader, error) {
	o := perfdata.ReaderOptions{FileOrder: fileOrder, MaxPending: 4 << 20}
	for _, part := range made.Parts {
		o.More = append(o.More, bytes.NewReader(part))
	}
	return perfdata.NewReader(bytes.NewReader(made.Head), o)
}

// readMade reads all records, and returns how many there are: -1 of what is no file or damaged,
// where the records that wait may be lost.
func readMade(t *testing.T, made perfgen.Recording, fileOrder bool) int {
	t.Helper()
	r, err := open(made, fileOrder)
	if err != nil {
		return -1
	}
	defer r.Close()
	for count := 0; count < 100_000; count++ {
		rec, err := r.Next()
		if err == io.EOF {
			return count
		}
		if err != nil {
			if _, again := r.Next(); again == nil || again.Error() != err.Error() {
				t.Errorf("after %v: %v", err, again)
			}
			return -1
		}
		perfdata.Text(rec)
	}
	return -1
}
