package fromperf

import (
	"testing"

	"hallmark/perfdata"
)

// TestMemoryByName wants a file that has the name of memory known as a file, where the record
// shows that it is one.
func TestMemoryByName(t *testing.T) {
	id := make([]byte, 20)
	for _, c := range []struct {
		r    perfdata.Mmap2
		want bool
	}{
		{perfdata.Mmap2{Name: "//anon"}, true},
		{perfdata.Mmap2{Name: "[heap]"}, true},
		{perfdata.Mmap2{Name: "[vdso]"}, false},
		{perfdata.Mmap2{Name: "/dev/zero", Minor: 6, Inode: 6}, true},
		{perfdata.Mmap2{Name: "/dev/zero (deleted)", Minor: 1, Inode: 3}, true},
		{perfdata.Mmap2{Name: "/SYSV00000000 (deleted)", Minor: 1, Inode: 3}, true},
		{perfdata.Mmap2{Name: "/anon_hugepage (deleted)", Minor: 16, Inode: 3}, true},
		{perfdata.Mmap2{Name: "/dev/zero", Major: 8, Minor: 1, Inode: 3}, false},
		{perfdata.Mmap2{Name: "/dev/zero", BuildID: id}, false},
		{perfdata.Mmap2{Name: "/dev/zero (deleted)", BuildID: id}, false},
		{perfdata.Mmap2{Name: "/SYSV00000000 (deleted)", Major: 8, Inode: 3}, false},
		{perfdata.Mmap2{Name: "/SYSV00000000", Minor: 40, Inode: 3}, false},
		{perfdata.Mmap2{Name: "/anon_hugepage", Minor: 40, Inode: 3}, false},
	} {
		if got := isMemory(&c.r); got != c.want {
			t.Errorf("%v is memory: %v", &c.r, got)
		}
	}
}
