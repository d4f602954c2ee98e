package procmap

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"hallmark/buildid"
	"hallmark/internal/fstimes"
	"hallmark/reason"
)

// openWith opens this process with files.
func openWith(t *testing.T, files *Files, m Method) *Process {
	t.Helper()
	p, err := OpenOptions(os.Getpid(), Options{Method: m, Files: files})
	must(t, err)
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// TestFiles wants a file to be known to processes that are opened after it was kept, and
// only as long as nobody writes to it.
func TestFiles(t *testing.T) {
	for _, m := range methods(t) {
		t.Run(m.String(), func(t *testing.T) { testFiles(t, m) })
	}
}

func testFiles(t *testing.T, m Method) {
	name := copyFile(t, gnuFile(t), "file")
	memory := mapFile(name, 0)
	defer func() { must(t, syscall.Munmap(memory)) }()
	time.Sleep(fstimes.Delay() * 5 / 4) // what was just written is not remembered
	var files Files
	defer func() { must(t, files.Close()) }()
	identify := func(p *Process, want buildid.ID) VMA {
		t.Helper()
		v := mappingOf(t, p, ofName(name))
		if id, err := p.Identity(v); err != nil || id.ID != want {
			t.Fatalf("got %+v, %v, want %v", id, err, want)
		}
		return v
	}
	first := openWith(t, &files, m)
	v := identify(first, idOf(t, name))
	keeps := len(files.known) == 1
	if fd, err := openPath(name, oPath); err != nil || isTold(fd) != keeps {
		t.Errorf("%d files are kept, of a file system whose numbers are its own: %v, %v", len(files.known), !keeps, err)
	} else {
		must(t, syscall.Close(fd))
	}
	if _, ok := files.find(first, v); ok {
		t.Error("a process that was opened before the file was kept gets it")
	}
	second := openWith(t, &files, m)
	identify(second, idOf(t, name))
	if _, ok := files.find(second, v); ok != keeps {
		t.Errorf("the file is known: %v, want %v", ok, keeps)
	}

	// Another content, of the same inode and size.
	content, err := os.ReadFile(name)
	must(t, err)
	id := idOf(t, name)
	content[bytes.Index(content, id.Bytes())] ^= 0xff
	must(t, os.WriteFile(name, content, 0o600))
	if idOf(t, name) == id {
		t.Fatal("the file has the identity that it had")
	}
	if got := identify(openWith(t, &files, m), idOf(t, name)); got.Inode != v.Inode {
		t.Fatalf("inode %d became %d", v.Inode, got.Inode)
	}
}

// TestFilesReplaced has many files one after the other at one path and one address,
// whose inodes may have the same numbers.
func TestFilesReplaced(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "file")
	var files Files
	defer func() { must(t, files.Close()) }()
	content, err := os.ReadFile(gnuFile(t))
	must(t, err)
	at := bytes.Index(content, idOf(t, gnuFile(t)).Bytes())
	for n := range 50 {
		content[at] = byte(n)
		must(t, os.RemoveAll(name))
		must(t, os.WriteFile(name, content, 0o600))
		want := idOf(t, name)
		memory := mapFile(name, 0)
		for range 2 {
			p := openWith(t, &files, Auto)
			v := mappingOf(t, p, ofName(name))
			if got, err := p.Identity(v); err != nil || got.ID != want {
				t.Errorf("file %d: got %+v, %v, want %v", n, got, err, want)
			}
		}
		must(t, syscall.Munmap(memory))
	}
}

// TestFilesNoWord has a process write an identity into its memory of a file that is damaged and
// has none: that is its own word, which is not believed, and not of others that have the file mapped.
func TestFilesNoWord(t *testing.T) {
	program, err := os.ReadFile(gnuFile(t))
	must(t, err)
	name := filepath.Join(t.TempDir(), "file")
	damaged := make([]byte, len(program))
	copy(damaged, program[:4]) // the magic number
	must(t, os.WriteFile(name, damaged, 0o600))
	f, err := os.OpenFile(name, os.O_RDONLY, 0)
	must(t, err)
	defer f.Close()
	memory, err := syscall.Mmap(int(f.Fd()), 0, len(program), syscall.PROT_READ|syscall.PROT_WRITE|syscall.PROT_EXEC, syscall.MAP_PRIVATE)
	must(t, err)
	defer func() { must(t, syscall.Munmap(memory)) }()
	copy(memory, program)
	var files Files
	defer func() { must(t, files.Close()) }()
	p := openWith(t, &files, Auto)
	id, err := p.Identity(mappingOf(t, p, ofName(name)))
	if err != nil || !id.ID.IsZero() || id.Reason != reason.FileDamaged {
		t.Fatalf("from memory: %+v, %v", id, err)
	}
	if len(files.known) != 0 {
		t.Error("it is remembered for others")
	}
}
