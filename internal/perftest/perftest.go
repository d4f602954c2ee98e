// Package perftest has perf record programs for tests, such that what else is recorded on
// the machine at that time does not matter.
//
// As long as any recording asks for build IDs, of all that the machine runs, the kernel says
// of the mappings in all recordings that they have build IDs, and where none was asked for it
// puts device and inode there nevertheless (perf_event_mmap_output of kernel/events/core.c,
// 6.18, sets the bit in what all events share). perf takes the device's major number for the
// size of a build ID, and aborts when that is more than 20: 254 is usual. So perf does not
// read here what it has just recorded, and the bit is taken back before anybody reads it.
package perftest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"hallmark/internal/testenv"
)

// Asks is the option of perf record by which a recording asks for build IDs itself. Others
// do not change what the kernel tells it.
const Asks = "--buildid-mmap"

// Run runs perf and returns what it prints. What perf keeps of build IDs is the test's.
func Run(t testing.TB, args ...string) (stdout []byte) {
	t.Helper()
	cmd := exec.Command(testenv.Tool(t, "perf"), args...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "DEBUGINFOD_URLS=")
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("perf %s: %v\n%s", strings.Join(args, " "), err, problems.Bytes())
	}
	return out
}

// Record has perf record write a file, which has no list of build IDs. args are options, and
// the program behind "--". A recording that is compressed must ask for build IDs.
func Record(t testing.TB, file string, args ...string) {
	t.Helper()
	Run(t, append([]string{"record", "-q", "-B", "-o", file}, args...)...)
	if !asks(args) {
		mendFile(t, file)
	}
}

// RecordListed has perf record write a file to which perf adds the list of the build IDs of
// all files that samples are in, as it does when nothing else is recorded.
func RecordListed(t testing.TB, file string, args ...string) {
	t.Helper()
	bare := file + ".bare"
	Record(t, bare, args...)
	Run(t, "inject", "-b", "-i", bare, "-o", file)
	if err := os.Remove(bare); err != nil {
		t.Fatal(err)
	}
}

// Stream has perf record write into a pipe, and returns what comes out.
func Stream(t testing.TB, args ...string) []byte {
	t.Helper()
	b := Run(t, append([]string{"record", "-q", "-o", "-"}, args...)...)
	if !asks(args) {
		if err := mend(b); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// asks reports whether a recording asks for build IDs.
func asks(args []string) bool {
	end := slices.Index(args, "--")
	if end < 0 {
		end = len(args)
	}
	return slices.Contains(args[:end], Asks)
}

func mendFile(t testing.TB, file string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err == nil {
		err = mend(b)
	}
	if err == nil {
		err = os.WriteFile(file, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

var errFormat = errors.New("no file of perf record, or a compressed one")

// Sizes and numbers of perf.data (tools/perf/Documentation/perf.data-file-format.txt) and of
// perf_event.h.
const (
	pipeHeader, fileHeader, recordHeader = 16, 104, 8

	typeMmap2, typeCompressed = 10, 81

	miscMmapBuildID = 1 << 14
)

// mend takes back in the records of a file or stream that did not ask for build IDs that they
// have some.
func mend(b []byte) error {
	if len(b) < pipeHeader || string(b[:8]) != "PERFILE2" {
		return errFormat
	}
	records := b[pipeHeader:]
	if size := binary.LittleEndian.Uint64(b[8:]); size == fileHeader && len(b) >= fileHeader {
		from, n := binary.LittleEndian.Uint64(b[40:]), binary.LittleEndian.Uint64(b[48:])
		if from > uint64(len(b)) || n > uint64(len(b))-from {
			return errFormat
		}
		records = b[from : from+n]
	} else if size != pipeHeader {
		return errFormat
	}
	for len(records) > 0 {
		if len(records) < recordHeader {
			return errFormat
		}
		kind, size := binary.LittleEndian.Uint32(records), int(binary.LittleEndian.Uint16(records[6:]))
		if size < recordHeader || size > len(records) || kind == typeCompressed {
			return errFormat
		}
		if kind == typeMmap2 {
			misc := binary.LittleEndian.Uint16(records[4:])
			binary.LittleEndian.PutUint16(records[4:], misc&^miscMmapBuildID)
		}
		records = records[size:]
	}
	return nil
}
