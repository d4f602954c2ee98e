package bpf

import (
	"fmt"
	"os"
	"testing"

	"hallmark/internal/testenv"
)

// TestCensus opens files and maps one, and wants the census to grow by them: other
// programs come and go meanwhile, so by about as many, and not each time.
func TestCensus(t *testing.T) {
	testenv.Root(t)
	err := checkKernel()
	testenv.Need(t, err == nil, fmt.Sprintf("a kernel that takes the BPF programs: %v", err))
	take := func() *Census {
		t.Helper()
		c, err := TakeCensus()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	var wrong string
	for range 10 {
		if wrong = takeTwice(t, take); wrong == "" {
			return
		}
	}
	t.Error(wrong)
}

// takeTwice opens files between two looks, and returns what is wrong with these.
func takeTwice(t *testing.T, take func() *Census) (wrong string) {
	t.Helper()
	before := take()
	const n = 500
	var files []*os.File
	for range n {
		f, err := os.Open("testdata/clang.txt")
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	during := take()
	for _, f := range files {
		f.Close()
	}
	for _, c := range []struct {
		what           string
		before, during int
	}{{"descriptors", before.Descriptors, during.Descriptors}, {"open files", before.Open, during.Open}, {"all files", before.All, during.All}} {
		if grown := c.during - c.before; grown < n/2 || grown > n*2 {
			wrong += fmt.Sprintf("%d %s more, want %d\n", grown, c.what, n)
		}
	}
	if grown := during.Inodes - before.Inodes; grown > n/2 {
		wrong += fmt.Sprintf("%d inodes more, and one was opened\n", grown)
	}
	if during.Spaces == 0 || during.CodeMappings == 0 || during.CodeMappings > during.Mappings || during.Mapped > during.All || during.Open > during.All || during.CodeInodes > during.CodeMappings {
		wrong += fmt.Sprintf("%+v\n", during)
	}
	return wrong
}

// TestStructSizes compares with the C library's idea of a structure that never changes.
func TestStructSizes(t *testing.T) {
	sizes, err := StructSizes("timespec64", "list_head", "file", "inode", "no_such_structure")
	if err != nil {
		t.Skip(err) // a kernel that does not describe itself
	}
	if sizes["timespec64"] != 16 || sizes["list_head"] != 16 || sizes["file"] < 128 || sizes["inode"] < 400 || len(sizes) != 4 {
		t.Errorf("%v", sizes)
	}
}
