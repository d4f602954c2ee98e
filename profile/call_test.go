package profile

import (
	"slices"
	"testing"

	pprof "github.com/google/pprof/profile"

	"hallmark/internal/proftest"
)

func TestCallsExpandsInlined(t *testing.T) {
	var got []string
	for _, s := range proftest.Mixed().Sample {
		for c := range Calls(s) {
			name := c.Name()
			if c.Kernel() {
				name += " in kernel"
			}
			got = append(got, name)
		}
		got = append(got, "--")
	}
	want := []string{
		"step", "loop", "main", "--",
		"walk", "walk", "walk", "main", "--",
		"vfs_read in kernel", "[libz.so.1+0x3abc]", "main", "--",
		"[kernel+0x3000] in kernel", "vfs_read in kernel", "main", "--",
		"main", "[file-gone] /opt/old", "--",
		"[not-mapped]", "--",
		"main", "--",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestCallsEndsEarly(t *testing.T) {
	n := 0
	for range Calls(proftest.Mixed().Sample[0]) {
		n++
		break
	}
	if n != 1 {
		t.Errorf("%d calls after the loop was left", n)
	}
}

func TestCallNamesAreNeverEmpty(t *testing.T) {
	nameless := &pprof.Function{ID: 1}
	mangled := &pprof.Function{ID: 2, SystemName: "_Zx"}
	for _, test := range []struct {
		l    *pprof.Location
		want string
	}{
		{&pprof.Location{Address: 0x10}, "[0x10]"},
		{&pprof.Location{Address: 0x10, Mapping: &pprof.Mapping{}}, "[unknown+0x10]"},
		{&pprof.Location{Address: 0x10, Mapping: &pprof.Mapping{File: "/bin/x"}, Line: []pprof.Line{{Function: nameless}}}, "[x+0x10]"},
		{&pprof.Location{Line: []pprof.Line{{Function: mangled}}}, "_Zx"},
	} {
		for c := range Calls(&pprof.Sample{Location: []*pprof.Location{test.l}}) {
			if c.Name() != test.want {
				t.Errorf("name %q, want %q", c.Name(), test.want)
			}
		}
	}
}

func TestKernel(t *testing.T) {
	for file, want := range map[string]bool{
		"[kernel]": true, "[nf_tables]": true, "[kernel.kallsyms]_stext": true,
		"[kernel-hidden]": true, "[module-unknown]": true,
		"[vdso]": false, "[vsyscall]": false, "[heap]": false, "[anon:libc_malloc]": false,
		"[not-recorded] [kernel]": true, "[not-recorded] [vdso]": false, "[not-recorded] /bin/x": false,
		"[not-mapped]": false, "[anonymous]": false, "/bin/x": false, "": false,
	} {
		c := Call{Location: &pprof.Location{Mapping: &pprof.Mapping{File: file}}}
		if got := c.Kernel(); got != want {
			t.Errorf("%q: kernel %v, want %v", file, got, want)
		}
	}
	if (Call{Location: &pprof.Location{}}).Kernel() {
		t.Error("a location without mapping is said to be in the kernel")
	}
}

func TestShortName(t *testing.T) {
	for file, want := range map[string]string{
		"/usr/lib/libc.so.6":           "libc.so.6",
		"/usr/lib/libc.so.6 (deleted)": "libc.so.6",
		"":                             "[unknown]",
		"[kernel]":                     "[kernel]",
		"[not-mapped]":                 "[not-mapped]",
		"[file-gone] /opt/old":         "[file-gone] old",
	} {
		if got := ShortName(file); got != want {
			t.Errorf("ShortName(%q) = %q, want %q", file, got, want)
		}
	}
}

func TestUnknownName(t *testing.T) {
	for _, test := range []struct {
		m    *pprof.Mapping
		want string
	}{
		{nil, "[unknown]"},
		{&pprof.Mapping{File: "/lib/libc.so.6"}, "libc.so.6 [unknown]"},
		{&pprof.Mapping{File: "[kernel]"}, "[kernel] [unknown]"},
		{&pprof.Mapping{File: "[file-gone] /opt/old"}, "[file-gone] old"},
	} {
		if got := UnknownName(test.m); got != test.want {
			t.Errorf("UnknownName(%v) = %q, want %q", test.m, got, test.want)
		}
	}
}
