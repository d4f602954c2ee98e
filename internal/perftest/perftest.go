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
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hallmark/internal/testenv"
)

// Asks is the option of perf record by which a recording asks for build IDs itself. Others
// do not change what the kernel reports to it.
const Asks = "--buildid-mmap"

// Run runs perf and returns what it prints. The cache of build IDs that perf uses is the test's. A
// recording keeps nothing: perf makes hard links of the files, which changes their ctime under
// tests that run beside.
func Run(t testing.TB, args ...string) (stdout []byte) {
	t.Helper()
	out, problem := try(t, args...)
	if problem != nil {
		t.Fatal(problem)
	}
	return out
}

func try(t testing.TB, args ...string) (stdout []byte, problem error) {
	t.Helper()
	cmd := exec.Command(testenv.Tool(t, "perf"), args...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "DEBUGINFOD_URLS=")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("perf %s: %w\n%s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return out, nil
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

// RecordListed has perf record write a file with a list of the build IDs of all files that
// samples are in. perf makes it when it has recorded, or afterwards, when it could not because
// of others.
func RecordListed(t testing.TB, file string, args ...string) {
	t.Helper()
	_, problem := try(t, append([]string{"record", "-q", "-N", "-o", file}, args...)...)
	if asks(args) && problem != nil {
		t.Fatal(problem)
	}
	if asks(args) || problem == nil && !mendFile(t, file) {
		return
	}
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
	b := Run(t, append([]string{"record", "-q", "-N", "-o", "-"}, args...)...)
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

// mendFile mends a file and reports whether it had to be.
func mendFile(t testing.TB, file string) bool {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before := bytes.Clone(b)
	if err := mend(b); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	if bytes.Equal(b, before) {
		return false
	}
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return true
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

// Work returns the words of a command that runs a few programs, which start each other, and how
// the names of all of them begin, and of no other on the machine.
func Work(t testing.TB) (words []string, names string) {
	t.Helper()
	names = fmt.Sprintf("w%05x-", rand.Uint32()%(1<<20)) // the kernel keeps 15 bytes of a name
	dir := t.TempDir()
	program := func(name string) string {
		link := filepath.Join(dir, names+name)
		if err := os.Symlink(testenv.Tool(t, name), link); err != nil {
			t.Fatal(err)
		}
		return link
	}
	script := fmt.Sprintf("%s -c 4000000 %s | %s -1 | %s -c >&2; %s /etc > /dev/null; true", program("head"), os.Args[0], program("gzip"), program("wc"), program("ls"))
	return []string{program("sh"), "-c", script}, names
}
