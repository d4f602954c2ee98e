package contentcache

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/internal/fstimes"
	"hallmark/internal/testenv"
)

// size is that of the files: they are worth to be kept.
const size = 3 << 20

// believedDir returns a directory on a file system whose times are believed.
func believedDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	believed, why := fstimes.Trusted(int64(st.Type))
	testenv.Need(t, believed && st.Flags&unix.ST_NOSUID == 0, "a temporary directory on a file system whose times are believed; here: "+why)
	return dir
}

// write makes a file and waits until it may be remembered.
func write(t testing.TB, name, begin string) *os.File {
	t.Helper()
	if err := os.WriteFile(name, pattern(begin), 0o644); err != nil {
		t.Fatal(err)
	}
	return open(t, name)
}

// pattern is the content of a file.
func pattern(begin string) []byte {
	b := bytes.Repeat([]byte("content "), size/8)
	copy(b[size/2:], begin)
	return b
}

// open opens a file, whose last change is a tick of the clock ago.
func open(t testing.TB, name string) *os.File {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	time.Sleep(fstimes.Delay() * 3 / 2)
	return f
}

// contentOf is Of, and reports how many bytes were read.
func contentOf(t testing.TB, c *Cache, f *os.File) (content buildid.Content, read int64) {
	t.Helper()
	before := c.read.Load()
	content, err := c.Of(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	return content, c.read.Load() - before
}

// wantTrue wants the content that the file has, whatever is remembered.
func wantTrue(t testing.TB, c *Cache, f *os.File) buildid.Content {
	t.Helper()
	got, _ := contentOf(t, c, f)
	want, err := buildid.ReadContent(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("%s: content %v, want %v", f.Name(), got, want)
	}
	return want
}

// TestOfReadsOnce wants a file to be read once.
func TestOfReadsOnce(t *testing.T) {
	c := New("")
	f := write(t, filepath.Join(believedDir(t), "file"), "one")
	first, read := contentOf(t, c, f)
	if read < size {
		t.Errorf("%d bytes read of %d", read, size)
	}
	for range 3 {
		again, read := contentOf(t, c, open(t, f.Name()))
		if read != 0 || again != first {
			t.Errorf("%d bytes read again, %v after %v", read, again, first)
		}
	}
}

// TestCacheIsBounded wants room to be made by dropping what was not asked for.
func TestCacheIsBounded(t *testing.T) {
	c := New("")
	s := sight{isNamed: true}
	for s.inode = range uint64(10 * maxRecent) {
		c.remember(s, buildid.Content{})
		if _, ok := c.find(sight{isNamed: true}); !ok {
			t.Fatalf("file 0 forgotten after %d others", s.inode)
		}
	}
	if n := len(c.recent) + len(c.older); n > 2*maxRecent {
		t.Errorf("%d contents", n)
	}
	if _, ok := c.find(sight{isNamed: true, key: key{inode: 1}}); ok {
		t.Error("a content that nobody asked for is remembered for ever")
	}
}

// mapped is a file that is mapped shared and writable.
type mapped struct {
	t testing.TB
	b []byte
}

func mapShared(t testing.TB, name string) *mapped {
	t.Helper()
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() // the mapping keeps the file open
	b, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	return &mapped{t, b}
}

func (m *mapped) unmap() {
	if err := unix.Munmap(m.b); err != nil {
		m.t.Fatal(err)
	}
}

// changes are the ways to change the content of a file. The name may lead to another file
// afterwards.
var changes = map[string]func(t testing.TB, name string){
	"write": func(t testing.TB, name string) {
		writeAt(t, name, os.O_WRONLY, "two", size/2)
	},
	"truncate and write": func(t testing.TB, name string) {
		if err := os.WriteFile(name, pattern("two"), 0o644); err != nil {
			t.Fatal(err)
		}
	},
	"append": func(t testing.TB, name string) {
		writeAt(t, name, os.O_WRONLY, "two", size)
	},
	"shared mapping": func(t testing.TB, name string) {
		m := mapShared(t, name)
		defer m.unmap()
		copy(m.b[size/2:], "two")
	},
	"punch a hole": func(t testing.TB, name string) {
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 4096, 4096); err != nil {
			t.Fatal(err)
		}
	},
	"rename over": func(t testing.TB, name string) {
		write(t, name+".new", "two")
		if err := os.Rename(name+".new", name); err != nil {
			t.Fatal(err)
		}
	},
	"remove and make again": func(t testing.TB, name string) {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
		write(t, name, "two")
	},
}

func writeAt(t testing.TB, name string, flags int, text string, at int64) {
	t.Helper()
	f, err := os.OpenFile(name, flags, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte(text), at); err != nil {
		t.Fatal(err)
	}
}

// TestEachChangeIsSeen changes files that are remembered, and sets the time of their last
// change back. By their names or by descriptors that were open before, in this process or by
// an entry on the disk: the content is that of the file.
func TestEachChangeIsSeen(t *testing.T) {
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := believedDir(t)
			entries := filepath.Join(dir, "cache")
			c := New(entries)
			f := write(t, filepath.Join(dir, "file"), "one")
			old := wantTrue(t, c, f)
			info, err := f.Stat()
			if err != nil {
				t.Fatal(err)
			}
			change(t, f.Name())
			if err := os.Chtimes(f.Name(), info.ModTime(), info.ModTime()); err != nil {
				t.Fatal(err)
			}
			for _, c := range []*Cache{c, New(entries)} {
				wantTrue(t, c, f)
				if changed := wantTrue(t, c, open(t, f.Name())); changed == old {
					t.Error("the change is none")
				}
			}
		})
	}
}

// TestOpenForWriting changes a page that is dirty already, through a shared mapping: that
// changes no time of the file.
func TestOpenForWriting(t *testing.T) {
	dir := believedDir(t)
	c, entries := New(""), New(filepath.Join(dir, "cache"))
	f := write(t, filepath.Join(dir, "file"), "one")
	m := mapShared(t, f.Name())
	copy(m.b[size/2:], "dirty")
	time.Sleep(fstimes.Delay() * 3 / 2)
	before, err := look(f)
	if err != nil {
		t.Fatal(err)
	}
	wantTrue(t, c, f)
	wantTrue(t, entries, f)
	copy(m.b[size/2:], "two")
	after, err := look(f)
	if err != nil {
		t.Fatal(err)
	}
	if before.key != after.key {
		t.Log("the page was written back meanwhile") // then the times show the change
	}
	wantTrue(t, c, f)
	wantTrue(t, entries, f)
	m.unmap()
	wantTrue(t, c, f)
	if _, read := contentOf(t, c, f); read != 0 {
		t.Errorf("%d bytes read of a file that nobody has open for writing any more", read)
	}
}

// TestJustChanged wants a file not to be remembered in the tick of its last change: another
// change may come in it.
func TestJustChanged(t *testing.T) {
	name := filepath.Join(believedDir(t), "file")
	c := New("")
	for n := range 50 {
		write := []byte{byte(n)}
		if err := os.WriteFile(name, append(pattern("one"), write...), 0o644); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		wantTrue(t, c, f)
		writeAt(t, name, os.O_WRONLY, "two", size/2)
		wantTrue(t, c, f)
		f.Close()
	}
}

// TestChangesMeanwhile changes a file while it is hashed, in all ways. When all is quiet
// again, no content is remembered that the file had before.
func TestChangesMeanwhile(t *testing.T) {
	dir := believedDir(t)
	c := New(filepath.Join(dir, "cache"))
	name := filepath.Join(dir, "file")
	write(t, name, "one")
	m := mapShared(t, name)
	defer m.unmap()
	random := rand.New(rand.NewPCG(1, 2))
	rounds := 200
	if testenv.Brief() {
		rounds = 40
	}
	for range rounds {
		var writing sync.WaitGroup
		pause, kind := time.Duration(random.IntN(3000))*time.Microsecond, random.IntN(3)
		text := string([]byte{byte(random.Uint32()), byte(random.Uint32()), byte(random.Uint32())})
		writing.Go(func() {
			time.Sleep(pause)
			switch kind {
			case 0:
				writeAt(t, name, os.O_WRONLY, text, size/2)
			case 1:
				copy(m.b[size/2:], text)
			case 2:
				if err := os.WriteFile(name, pattern(text), 0o644); err != nil {
					t.Error(err)
				}
			}
		})
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			_, err := c.Of(t.Context(), f)
			// Who reads a file that is cut off meanwhile does not find all of it.
			var damage *buildid.FormatError
			if err != nil && !errors.Is(err, buildid.ErrChanging) && !errors.As(err, &damage) {
				t.Error(err)
			}
		}
		writing.Wait()
		wantTrue(t, c, f)
		f.Close()
	}
}

// TestUnbelievedTimes wants nothing to be remembered on a file system whose times say
// nothing: what is written through a mapping changes none of them.
func TestUnbelievedTimes(t *testing.T) {
	testenv.Root(t)
	dir := believedDir(t)
	c := New(filepath.Join(dir, "cache"))
	memory := filepath.Join(dir, "memory")
	if err := os.Mkdir(memory, 0o755); err != nil {
		t.Fatal(err)
	}
	run(t, "mount", "-t", "tmpfs", "tmpfs", memory)
	defer run(t, "umount", memory)
	f := write(t, filepath.Join(memory, "file"), "one")
	defer f.Close()
	one := wantTrue(t, c, f)
	m := mapShared(t, f.Name())
	if m.b[size/2] != 'o' { // which maps the page, writable
		t.Error("it is not there")
	}
	copy(m.b[size/2:], "two")
	m.unmap()
	if two := wantTrue(t, c, f); one == two {
		t.Error("the change is none")
	}
	if _, read := contentOf(t, c, f); read < size {
		t.Errorf("%d bytes read", read)
	}
}

// TestErrors wants errors to be passed on, and not to be remembered.
func TestErrors(t *testing.T) {
	c := New("")
	f := write(t, filepath.Join(believedDir(t), "file"), "one")
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if content, err := c.Of(stopped, f); !errors.Is(err, context.Canceled) || !content.IsZero() {
		t.Errorf("after the end: %v, %v", content, err)
	}
	wantTrue(t, c, f)
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if content, err := c.Of(t.Context(), dir); err == nil || !content.IsZero() {
		t.Errorf("a directory: %v, %v", content, err)
	}
	f.Close()
	if content, err := c.Of(t.Context(), f); !errors.Is(err, fs.ErrClosed) && !errors.Is(err, unix.EBADF) || !content.IsZero() {
		t.Errorf("a closed file: %v, %v", content, err)
	}
}

// TestImagesInTurn mounts two images whose files have the same inode, size and times, one
// after the other at one loop device, as versions of an image that is built to be
// reproducible.
func TestImagesInTurn(t *testing.T) {
	testenv.Root(t)
	dir := believedDir(t)
	images := makeImages(t, dir)
	at, entries := filepath.Join(dir, "mnt"), filepath.Join(dir, "cache")
	c := New(entries)
	var keys []key
	var contents []buildid.Content
	for _, image := range images {
		run(t, "mount", "-o", "loop,ro", image, at)
		func() {
			defer run(t, "umount", at)
			f, err := os.Open(filepath.Join(at, "file"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			s, err := look(f)
			if err != nil {
				t.Fatal(err)
			}
			keys = append(keys, s.key)
			contents = append(contents, wantTrue(t, c, f))
			wantTrue(t, New(entries), f)
			if _, read := contentOf(t, c, f); s.isNamed && read != 0 {
				t.Errorf("%d bytes read again", read)
			}
		}()
	}
	if contents[0] == contents[1] {
		t.Error("the images are equal")
	}
	a, b := keys[0], keys[1]
	if a.inode != b.inode || a.size != b.size || a.mtime != b.mtime || a.ctime != b.ctime || a.born != b.born || a.generation != b.generation {
		t.Errorf("the files are told apart by themselves: %+v and %+v", a, b)
	}
}

// makeImages returns two images of ext4 that differ in one word of a file, and mounts none.
func makeImages(t *testing.T, dir string) [2]string {
	t.Helper()
	at := filepath.Join(dir, "mnt")
	one, two := filepath.Join(dir, "one.img"), filepath.Join(dir, "two.img")
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(one, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(one, 16<<20); err != nil {
		t.Fatal(err)
	}
	const first, second = "the first version", "the other version"
	run(t, "mkfs.ext4", "-q", one)
	run(t, "mount", "-o", "loop", one, at)
	func() {
		defer run(t, "umount", at)
		write(t, filepath.Join(at, "file"), first).Close()
	}()
	b, err := os.ReadFile(one)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(b, []byte(first)); n != 1 {
		t.Fatalf("%d times in the image", n)
	}
	if err := os.WriteFile(two, bytes.Replace(b, []byte(first), []byte(second), 1), 0o644); err != nil {
		t.Fatal(err)
	}
	return [2]string{one, two}
}

func run(t testing.TB, tool string, args ...string) {
	t.Helper()
	if out, err := exec.Command(testenv.Tool(t, tool), args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", tool, args, err, out)
	}
}
