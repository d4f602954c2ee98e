package buildid_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"hallmark/buildid"
	"hallmark/internal/testenv"
)

// doors are the ways to one file.
var doors = []struct {
	name string
	read func(t *testing.T, name string, content []byte) (buildid.Info, error)
}{
	{"Read", func(_ *testing.T, _ string, content []byte) (buildid.Info, error) {
		return buildid.Read(bytes.NewReader(content))
	}},
	{"Read, os.File", func(t *testing.T, name string, _ []byte) (buildid.Info, error) {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		return buildid.Read(f)
	}},
	{"ReadFile", func(_ *testing.T, name string, _ []byte) (buildid.Info, error) {
		return buildid.ReadFile(name)
	}},
	{"ReadEntryContext", func(t *testing.T, name string, _ []byte) (buildid.Info, error) {
		dir, err := syscall.Open(filepath.Dir(name), syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer syscall.Close(dir)
		return buildid.ReadEntryContext(t.Context(), dir, name)
	}},
	{"ReadDescriptor", func(t *testing.T, name string, _ []byte) (buildid.Info, error) {
		fd, err := syscall.Open(name, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer syscall.Close(fd)
		return buildid.ReadDescriptor(fd, name)
	}},
}

func TestCases(t *testing.T) {
	name := filepath.Join(t.TempDir(), "built")
	for _, c := range append(cases, damaged...) {
		for _, form := range forms {
			content := c.build(form)
			if err := os.WriteFile(name, content, 0o644); err != nil {
				t.Fatal(err)
			}
			for _, door := range doors {
				info, err := door.read(t, name, content)
				if err := c.file.check(info, err); err != nil {
					t.Errorf("%s, %s, %s: %v", c.name, form.name, door.name, err)
				}
			}
		}
	}
}

func TestReadWithoutSize(t *testing.T) {
	for _, c := range cases {
		info, err := buildid.Read(readerOnly{bytes.NewReader(c.build(forms[0]))})
		if err := c.file.check(info, err); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if !info.Also.IsZero() {
			t.Errorf("%s: a hash of a file of unknown size", c.name)
		}
	}
}

// readerOnly hides every method of a reader but ReadAt.
type readerOnly struct{ io.ReaderAt }

func TestNotELF(t *testing.T) {
	for _, content := range []string{"", "\x7f", "\x7fEL", "#!/bin/sh\n"} {
		name := filepath.Join(t.TempDir(), "script")
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, door := range doors {
			info, err := door.read(t, name, []byte(content))
			if err != nil || info.ELF || info.Where != buildid.Hashed || info.ID.Kind() != buildid.ByContent {
				t.Errorf("%q, %s: %+v, %v", content, door.name, info, err)
			}
		}
	}
}

func TestErrorsNameTheFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "damaged")
	if err := os.WriteFile(name, []byte("\x7fELF"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := buildid.ReadFile(name)
	var damage *buildid.FormatError
	if !errors.Is(err, buildid.ErrFormat) || !errors.As(err, &damage) || damage.Name != name {
		t.Errorf("damaged: %v", err)
	}
	want := name + ": malformed ELF: offset 0x0: ELF header outside the file"
	if err.Error() != want {
		t.Errorf("damaged: %q, want %q", err, want)
	}
	_, err = buildid.ReadFile(name + ".gone")
	var path *fs.PathError
	if !errors.Is(err, fs.ErrNotExist) || !errors.As(err, &path) || path.Path != name+".gone" {
		t.Errorf("gone: %v", err)
	}
}

func TestNotRegular(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	// A FIFO without a writer would keep an ordinary open waiting for ever. The
	// files of /proc have no true size, and no hash of what they happen to say.
	names := []string{dir, fifo, "/dev/null", "/dev/zero", "/proc/self/status"}
	// Opening some things has effects.
	names = append(names, testenv.Trap(t, filepath.Join(dir, "trap")))
	if os.Geteuid() == 0 {
		names = append(names, testenv.Terminal(t))
	}
	for _, name := range names {
		info, err := buildid.ReadFile(name)
		var path *fs.PathError
		if !errors.As(err, &path) || path.Path != name {
			t.Errorf("%s: %+v, %v", name, info, err)
		}
	}
}

func TestReadNotRegular(t *testing.T) {
	f, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if info, err := buildid.Read(f); err == nil {
		t.Errorf("/dev/zero: %+v", info)
	}
}

// TestReads counts the reads, which are what identifying a file costs.
func TestReads(t *testing.T) {
	most := map[string]int{
		"one note segment":                  1,
		"second note segment":               1,
		"Go's linker":                       1,
		"Go's linker, far from the start":   2,
		"only a section":                    2,
		"more sections than one read holds": 7,
		"no notes":                          5, // the code, and head and tail for OpenTelemetry
	}
	for _, c := range cases {
		count := &counter{r: bytes.NewReader(c.build(forms[0]))}
		if _, err := buildid.Read(count); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if limit, ok := most[c.name]; ok && count.reads > limit {
			t.Errorf("%s: %d reads, want %d", c.name, count.reads, limit)
		}
		delete(most, c.name)
	}
	if len(most) > 0 {
		t.Errorf("no such case: %v", most)
	}
}

// TestFailedRead checks that a file that cannot be read has no identity: neither
// the hash nor a Go ID, behind which there may be a GNU ID.
func TestFailedRead(t *testing.T) {
	for _, c := range cases {
		content := c.build(forms[0])
		for good := range 5 {
			r := &failing{r: bytes.NewReader(content), good: good}
			info, err := buildid.Read(r)
			switch {
			case !r.failed:
				if err := c.file.check(info, err); err != nil {
					t.Errorf("%s, %d reads: %v", c.name, good, err)
				}
			case err == nil && info.ID.Kind() != buildid.GNU:
				t.Errorf("%s, read %d failed: got %v", c.name, good, info.ID)
			case err != nil && !errors.Is(err, errFailing):
				t.Errorf("%s, read %d failed: got error %v", c.name, good, err)
			}
		}
	}
}

var errFailing = errors.New("a failure of the medium")

// failing reads well a few times, and then no more.
type failing struct {
	r      *bytes.Reader
	good   int
	failed bool
}

func (f *failing) ReadAt(p []byte, off int64) (int, error) {
	if f.good == 0 {
		f.failed = true
		return 0, errFailing
	}
	f.good--
	return f.r.ReadAt(p, off)
}

func (f *failing) Size() int64 { return f.r.Size() }
