package contentcache

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"hallmark/internal/fstimes"
	"hallmark/internal/testenv"
	"hallmark/internal/trust"
)

// kept makes a file and returns a directory in which its content is kept, and the name of
// the entry.
func kept(t *testing.T) (f *os.File, dir, entry string) {
	t.Helper()
	dir = believedDir(t)
	f = write(t, filepath.Join(dir, "file"), "one")
	s, err := look(f)
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(dir, "cache")
	d := newDisk(dir)
	testenv.Need(t, d.keeps(s), "a disk with a sequence number and mounts with unique numbers (Linux 6.8)")
	testenv.Need(t, trust.LevelOf(f, "") != trust.Others, "a temporary directory that others cannot change")
	if _, read := contentOf(t, New(dir), f); read < size {
		t.Fatalf("%d bytes read", read)
	}
	return f, dir, d.name(d.title(s.key))
}

// TestDiskReadsOnce wants another process not to read the file.
func TestDiskReadsOnce(t *testing.T) {
	f, dir, entry := kept(t)
	want := wantTrue(t, New(""), f)
	c := New(dir)
	if got, read := contentOf(t, c, f); got != want || read != 0 {
		t.Errorf("%v with %d bytes read, want %v", got, read, want)
	}
	info, err := os.Stat(entry)
	if err != nil || info.Mode() != 0o600 || info.Size() > maxEntry {
		t.Errorf("entry: %v, %v", info, err)
	}
}

// TestSmallFilesAreNotKept wants no entry for what is read at once.
func TestSmallFilesAreNotKept(t *testing.T) {
	f, dir, _ := kept(t)
	if err := os.Truncate(f.Name(), leastKept-1); err != nil {
		t.Fatal(err)
	}
	time.Sleep(fstimes.Delay() * 3 / 2)
	before, _ := filepath.Glob(dir + "/*")
	wantTrue(t, New(dir), f)
	if after, _ := filepath.Glob(dir + "/*"); len(after) != len(before) {
		t.Errorf("%v, then %v", before, after)
	}
}

// TestDamagedEntries wants an entry that is not whole, or of another file, to be none.
func TestDamagedEntries(t *testing.T) {
	f, dir, entry := kept(t)
	whole, err := os.ReadFile(entry)
	if err != nil {
		t.Fatal(err)
	}
	s, err := look(f)
	if err != nil {
		t.Fatal(err)
	}
	d := newDisk(dir)
	isUsed := func(b []byte) bool {
		if err := os.WriteFile(entry, b, 0o600); err != nil {
			t.Fatal(err)
		}
		_, ok := d.find(s)
		return ok
	}
	if !isUsed(whole) {
		t.Fatal("an entry is not used")
	}
	for i := range whole {
		damaged := append([]byte{}, whole...)
		damaged[i] ^= 1
		if isUsed(damaged) || isUsed(whole[:i]) {
			t.Fatalf("an entry that is damaged at %d, or ends there, is used", i)
		}
	}
	if isUsed(append(whole[:len(whole):len(whole)], "more"...)) {
		t.Error("an entry with something behind it is used")
	}
	wantTrue(t, New(dir), f)
	another := s
	another.inode++
	title := d.title(another.key)
	if err := os.Rename(entry, d.name(title)); err != nil {
		t.Fatal(err)
	}
	if _, ok := d.find(another); ok {
		t.Error("the entry of another file is used")
	}
}

// TestOthersWriteEntries wants no entry to be used that others can have written.
func TestOthersWriteEntries(t *testing.T) {
	f, dir, entry := kept(t)
	isUsed := func() bool {
		_, read := contentOf(t, New(dir), f)
		return read == 0
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if isUsed() {
		t.Error("a directory that others can write to is used")
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(entry, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, ok := newDisk(dir).find(mustLook(t, f)); ok {
		t.Error("an entry that others can write is used")
	}
	isUsed() // and replaced
	if !isUsed() {
		t.Error("it is not replaced")
	}
	if err := os.Rename(entry, entry+".real"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(entry+".real", entry); err != nil {
		t.Fatal(err)
	}
	if isUsed() {
		t.Error("a link is followed")
	}
}

func mustLook(t *testing.T, f *os.File) sight {
	t.Helper()
	s, err := look(f)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestFilesOfOthers wants no entry for a file that others can write.
func TestFilesOfOthers(t *testing.T) {
	f, dir, entry := kept(t)
	if err := os.Remove(entry); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(f.Name(), 0o666); err != nil {
		t.Fatal(err)
	}
	time.Sleep(fstimes.Delay() * 3 / 2)
	wantTrue(t, New(dir), f)
	if left, _ := filepath.Glob(dir + "/*"); len(left) != 0 {
		t.Errorf("entries %v", left)
	}
}
