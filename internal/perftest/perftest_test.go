package perftest

import (
	"bytes"
	"encoding/binary"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hallmark/internal/testenv"
)

// TestBesideOthers records in all ways, while others record and programs with long build IDs
// run.
func TestBesideOthers(t *testing.T) {
	Disturb(t)
	file := filepath.Join(t.TempDir(), "perf.data")
	work := []string{"-e", "cpu-clock", "-F", "999", "--", "sh", "-c", "head -c 4000000 /dev/zero | gzip -1 | wc -c"}
	for name, record := range map[string]func(t testing.TB, file string, args ...string){"bare": Record, "listed": RecordListed} {
		for _, options := range [][]string{nil, {Asks}, {Asks, "-z"}} {
			t.Run(name+strings.Join(options, " "), func(t *testing.T) {
				record(t, file, append(slices.Clone(options), work...)...)
				if !bytes.Contains(Run(t, "script", "-D", "-i", file), []byte("PERF_RECORD_MMAP2")) {
					t.Error("there are no mappings")
				}
				if list := Run(t, "buildid-list", "-i", file); !bytes.Contains(list, []byte("gzip")) {
					t.Errorf("perf lists\n%s", list)
				}
			})
		}
	}
	t.Run("stream", func(t *testing.T) {
		cmd := exec.Command(testenv.Tool(t, "perf"), "script", "-D", "-i", "-")
		cmd.Stdin = bytes.NewReader(Stream(t, work...))
		if out, err := cmd.Output(); err != nil || !bytes.Contains(out, []byte("PERF_RECORD_MMAP2")) {
			t.Errorf("perf script: %v", err)
		}
	})
}

func TestMend(t *testing.T) {
	record := func(kind uint32, misc uint16, n int) []byte {
		b := binary.LittleEndian.AppendUint32(nil, kind)
		b = binary.LittleEndian.AppendUint16(b, misc)
		b = binary.LittleEndian.AppendUint16(b, uint16(recordHeader+n))
		return append(b, make([]byte, n)...)
	}
	stream := append([]byte("PERFILE2"), pipeHeader, 0, 0, 0, 0, 0, 0, 0)
	got := slices.Concat(stream, record(typeMmap2, miscMmapBuildID|2, 8), record(3, miscMmapBuildID, 0))
	want := slices.Concat(stream, record(typeMmap2, 2, 8), record(3, miscMmapBuildID, 0))
	if err := mend(got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v: %x, want %x", err, got, want)
	}
	for _, bad := range [][]byte{nil, stream[:9], slices.Concat(stream, record(typeCompressed, 0, 8)), append(stream, 1), slices.Concat(stream, record(typeMmap2, 0, 8)[:12])} {
		if err := mend(bad); err == nil {
			t.Errorf("%x is mended", bad)
		}
	}
}
