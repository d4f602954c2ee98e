package contested

import (
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/buildid"
)

func write(t *testing.T, name, text string) func() (*os.File, func()) {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return func() (*os.File, func()) {
		f, err := os.Open(path)
		if err != nil {
			return nil, nil
		}
		return f, func() { f.Close() }
	}
}

func gnu(t *testing.T, b byte) buildid.ID {
	t.Helper()
	id, err := buildid.New(buildid.GNU, slices.Repeat([]byte{b}, 20))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestFind has copies, another build, a file that is gone, and one that nobody else claims
// to be, which is not to be read.
func TestFind(t *testing.T) {
	gone := func() (*os.File, func()) { return nil, nil }
	unread := func() (*os.File, func()) {
		t.Error("a file was read that is alone")
		return nil, nil
	}
	one, copied, two := write(t, "a", "one"), write(t, "b", "one"), write(t, "c", "two")
	content, err := buildid.ParseContent(Read([]File{{Open: one}}, Limits{})[0].String())
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		claims []Claim[int]
		want   []Verdict
	}{
		{"copies", []Claim[int]{{gnu(t, 1), 1, one, nil}, {gnu(t, 1), 2, copied, nil}}, []Verdict{Same, Same}},
		{"builds", []Claim[int]{{gnu(t, 1), 1, one, nil}, {gnu(t, 1), 2, copied, nil}, {gnu(t, 1), 3, two, nil}}, []Verdict{Different, Different, Different}},
		{"gone", []Claim[int]{{gnu(t, 1), 1, one, nil}, {gnu(t, 1), 2, gone, nil}}, []Verdict{Unknown, Unknown}},
		{"gone beside builds", []Claim[int]{{gnu(t, 1), 1, one, nil}, {gnu(t, 1), 2, gone, nil}, {gnu(t, 1), 3, two, nil}}, []Verdict{Different, Different, Different}},
		{"one file in several processes", []Claim[int]{{gnu(t, 1), 1, unread, nil}, {gnu(t, 1), 1, unread, nil}}, []Verdict{Same, Same}},
		{"several processes, of which one is gone", []Claim[int]{{gnu(t, 1), 1, gone, nil}, {gnu(t, 1), 1, one, nil}, {gnu(t, 1), 2, copied, nil}}, []Verdict{Same, Same, Same}},
		{"others", []Claim[int]{{gnu(t, 1), 1, unread, nil}, {gnu(t, 2), 2, unread, nil}}, []Verdict{Same, Same}},
		{"without identity", []Claim[int]{{buildid.ID{}, 1, unread, nil}, {buildid.ID{}, 2, unread, nil}}, []Verdict{Same, Same}},
		{"by content", []Claim[int]{{content.ID(), 1, unread, nil}, {content.ID(), 2, unread, nil}}, []Verdict{Same, Same}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []Verdict
			for _, f := range Find(test.claims, Limits{}) {
				got = append(got, f.Verdict)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// TestReadIsBounded has more files than may be read, of which the small ones are, and one
// that never answers.
func TestReadIsBounded(t *testing.T) {
	var opened atomic.Int64
	open := write(t, "file", "text")
	var files []File
	for i := range 100 {
		files = append(files, File{Size: int64(100 - i), Open: func() (*os.File, func()) {
			opened.Add(1)
			return open()
		}})
	}
	contents := Read(files, Limits{Bytes: 1 + 2 + 3 + 4})
	known := slices.IndexFunc(contents, func(c buildid.Content) bool { return !c.IsZero() })
	if opened.Load() != 4 || known != 96 {
		t.Errorf("%d files were read, the first is %d", opened.Load(), known)
	}

	name := filepath.Join(t.TempDir(), "silent")
	if err := unix.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	silent := File{Open: func() (*os.File, func()) {
		f, err := os.OpenFile(name, os.O_RDONLY, 0) // waits for a writer
		if err != nil {
			return nil, nil
		}
		return f, func() { f.Close() }
	}}
	contents = Read([]File{silent, {Open: open}}, Limits{Time: 100 * time.Millisecond})
	// It has not waited for the silent one, which never answers.
	if !contents[0].IsZero() || contents[1].IsZero() {
		t.Errorf("contents %v", contents)
	}
	if f, err := os.OpenFile(name, os.O_WRONLY, 0); err == nil { // lets the reader go
		f.Close()
	}
}

// TestReadChanged wants no content of a file that is not the same any more.
func TestReadChanged(t *testing.T) {
	files := []File{{Open: write(t, "file", "text"), IsSame: func(*os.File) bool { return false }}}
	if got := Read(files, Limits{})[0]; !got.IsZero() {
		t.Error(got)
	}
}
