package buildid_test

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/internal/testenv"
)

// bias is where the test's loader puts images, besides what they ask for.
const bias = 0x7f0000000000

// memory is an address space with one image in it.
type memory struct {
	base  addr.Abs // of the ELF header
	bytes []byte
}

// load lays the PT_LOAD segments out as the loader does.
func load(t *testing.T, content []byte) *memory {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	m := &memory{}
	for _, p := range f.Progs {
		if p.Type != elf.PT_LOAD {
			continue
		}
		if m.base == 0 {
			m.base = addr.Abs(bias + p.Vaddr - p.Off)
		}
		at := bias + p.Vaddr - uint64(m.base)
		end := (at + p.Filesz + 4095) &^ 4095
		m.bytes = append(m.bytes, make([]byte, end-uint64(len(m.bytes)))...)
		copy(m.bytes[at:], content[p.Off:p.Off+p.Filesz])
	}
	return m
}

var errUnmapped = errors.New("unmapped memory")

// ReadAt reads by absolute address, as from /proc/PID/mem.
func (m *memory) ReadAt(p []byte, off int64) (int, error) {
	i := off - int64(m.base)
	if i < 0 || i >= int64(len(m.bytes)) {
		return 0, errUnmapped
	}
	n := copy(p, m.bytes[i:])
	if n < len(p) {
		return n, errUnmapped
	}
	return n, nil
}

func TestCasesInMemory(t *testing.T) {
	for _, c := range cases {
		if c.unloaded {
			continue
		}
		for _, form := range forms {
			m := load(t, c.build(form))
			info, err := buildid.ReadMemory(m, m.base)
			want := c.memory
			if want == nil {
				want = &c.file
			}
			if err := want.check(info, err); err != nil {
				t.Errorf("%s, %s: %v", c.name, form.name, err)
			}
			if err == nil && !info.ELF {
				t.Errorf("%s, %s: not ELF", c.name, form.name)
			}
		}
	}
}

// TestProcesses compares what is found in the memory of processes with what is
// found in their files.
func TestProcesses(t *testing.T) {
	pids, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	images := 0
	here, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range pids {
		// Servers of file systems that others mount for themselves, in tests of other packages too,
		// give files and mapped pages different contents.
		if there, err := os.Readlink(dir + "/ns/mnt"); err == nil && there == here {
			images += compareProcess(t, dir)
		}
	}
	testenv.Need(t, images > 0, "a process whose memory can be read")
	t.Logf("%d images", images)
}

// compareProcess checks every file of which a process has mapped the start, and
// returns how many these are.
func compareProcess(t *testing.T, dir string) (images int) {
	mem, err := os.Open(dir + "/mem")
	if err != nil {
		return 0
	}
	defer mem.Close()
	maps, err := os.ReadFile(dir + "/maps")
	if err != nil {
		return 0
	}
	lines := bufio.NewScanner(bytes.NewReader(maps))
	for lines.Scan() {
		var start, end, offset uint64
		var perms, dev, name string
		var inode uint64
		n, _ := fmt.Sscanf(lines.Text(), "%x-%x %s %x %s %d %s", &start, &end, &perms, &offset, &dev, &inode, &name)
		if n < 7 || offset != 0 || inode == 0 || perms[0] != 'r' {
			continue
		}
		mapping := fmt.Sprintf("%s/map_files/%x-%x", dir, start, end)
		if dispute := compareImage(mem, mapping, addr.Abs(start)); dispute == "" {
			images++
		} else if dispute != noImage && !written(dir, start, end) {
			t.Errorf("%s, %s: %s", dir, name, dispute)
		}
	}
	return images
}

// noImage says that there is nothing to compare, or not any more.
const noImage = "no image"

// compareImage compares the file of a mapping with the memory there, and says what differs. A
// process may map something else in between: it counts only when it is there each time.
func compareImage(mem *os.File, mapping string, start addr.Abs) (dispute string) {
	for range 20 {
		file, err := buildid.ReadFile(mapping)
		if err != nil || !file.ELF || file.ID.Kind() != buildid.GNU {
			return noImage
		}
		memory, err := buildid.ReadMemory(mem, start)
		switch {
		case errors.Is(err, os.ErrProcessDone), errors.Is(err, io.EOF), errors.Is(err, syscall.EIO):
			return noImage // of a page behind the end of a file there is no memory
		case err == nil && memory.ID == file.ID && memory.Offset == file.Offset:
			return ""
		}
		dispute = fmt.Sprintf("%+v in memory (%v), %+v in the file", memory, err, file)
	}
	return dispute
}

// written reports whether a process has written to the beginning of a mapping: what is in
// memory then is its own word. It is bit 61 of a page in pagemap (proc_pid_pagemap(5)) that
// says that the page is the file's, and bit 63 that it is there.
func written(dir string, start, end uint64) bool {
	f, err := os.Open(dir + "/pagemap")
	if err != nil {
		return false
	}
	defer f.Close()
	const page, most = 4096, 64
	for at := start; at < min(end, start+most*page); at += page {
		var b [8]byte
		if _, err := f.ReadAt(b[:], int64(at/page*8)); err != nil {
			return true // the process has ended
		}
		if word := binary.NativeEndian.Uint64(b[:]); word>>63 == 1 && word>>61&1 == 0 {
			return true
		}
	}
	return false
}

func TestReadMemoryRefuses(t *testing.T) {
	mem, err := os.Open("/proc/self/mem")
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	for _, base := range []addr.Abs{0, 8, 1 << 62, 1 << 63, ^addr.Abs(0)} {
		if info, err := buildid.ReadMemory(mem, base); err == nil {
			t.Errorf("at %v: %+v", base, info)
		}
	}
	m := &memory{base: 4096, bytes: make([]byte, 4096)}
	if _, err := buildid.ReadMemory(m, 4096); !errors.Is(err, buildid.ErrFormat) {
		t.Errorf("zeros: %v", err)
	}
}

// TestVDSO shows readelf the vdso, as a file.
func TestVDSO(t *testing.T) {
	info, err := buildid.ReadVDSO()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "vdso")
	if err := os.WriteFile(name, vdsoBytes(t), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(testenv.Tool(t, "readelf"), "-n", name).Output()
	if err != nil || !strings.Contains(string(out), "Build ID: "+info.ID.String()+"\n") {
		t.Errorf("got %v; readelf (%v):\n%s", info.ID, err, out)
	}
	file, err := buildid.ReadFile(name)
	if err != nil || file != info {
		t.Errorf("%+v in memory, %+v in a file (%v)", info, file, err)
	}
}

func vdsoBytes(t *testing.T) []byte {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		if !strings.HasSuffix(line, "[vdso]\n") {
			continue
		}
		var start, end int64
		if _, err := fmt.Sscanf(line, "%x-%x", &start, &end); err != nil {
			t.Fatal(err)
		}
		mem, err := os.Open("/proc/self/mem")
		if err != nil {
			t.Fatal(err)
		}
		defer mem.Close()
		data := make([]byte, end-start)
		if _, err := mem.ReadAt(data, start); err != nil {
			t.Fatal(err)
		}
		return data
	}
	t.Fatal("no vdso")
	return nil
}
