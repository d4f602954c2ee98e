package profile

import (
	"testing"

	pprof "github.com/google/pprof/profile"

	"hallmark/addr"
	"hallmark/reason"
)

// reasons returns every reason but None.
func reasons() []reason.Reason {
	var all []reason.Reason
	for r := reason.None + 1; ; r++ {
		if _, known := reason.Parse(r.Code()); !known {
			return all
		}
		all = append(all, r)
	}
}

func TestReasonSurvivesPseudoFile(t *testing.T) {
	for _, r := range reasons() {
		for _, path := range []string{"", "/bin/a program", "/odd]name"} {
			file := PseudoFile(r, path)
			if got := ReasonOf(&pprof.Mapping{File: file}); got != r {
				t.Errorf("ReasonOf(%q) = %v, want %v", file, got, r)
			}
			if _, got, ok := pseudo(file); !ok || got != path {
				t.Errorf("path of %q is %q, want %q", file, got, path)
			}
		}
	}
}

func TestReasonOfOtherMappings(t *testing.T) {
	for _, test := range []struct {
		name string
		m    *pprof.Mapping
		want reason.Reason
	}{
		{"no mapping", nil, reason.NotRecorded},
		{"file without ID", &pprof.Mapping{File: "/bin/x"}, reason.NotRecorded},
		{"no name", &pprof.Mapping{}, reason.NotRecorded},
		{"vdso without ID", &pprof.Mapping{File: "[vdso]"}, reason.NotRecorded},
		{"the code of None", &pprof.Mapping{File: "[none]"}, reason.NotRecorded},
		{"one bracket", &pprof.Mapping{File: "["}, reason.NotRecorded},
		{"module called as a reason", &pprof.Mapping{File: "[anonymous]", BuildID: "abcd"}, reason.None},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := ReasonOf(test.m); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestIdentity(t *testing.T) {
	for _, test := range []struct {
		text string
		ok   bool
	}{
		{"a1b2c3d4e5f60718293a4b5c6d7e8f9001020304", true},
		{"go:abc/def/ghi", true},
		{"", false},
		{"no hexadecimal", false},
	} {
		id, ok := Identity(&pprof.Mapping{BuildID: test.text})
		if ok != test.ok || ok && id.String() != test.text {
			t.Errorf("Identity of %q = %v, %v", test.text, id, ok)
		}
	}
	if _, ok := Identity(nil); ok {
		t.Error("no mapping has an identity")
	}
}

func TestFileOffset(t *testing.T) {
	absolute := &pprof.Mapping{Start: 0x7f0000000000, Offset: 0x2000}
	virtual := &pprof.Mapping{Start: 0x401000, Offset: 0x1000}
	for _, test := range []struct {
		l    *pprof.Location
		want addr.Offset
	}{
		{&pprof.Location{Mapping: absolute, Address: 0x7f0000000123}, 0x2123},
		{&pprof.Location{Mapping: virtual, Address: 0x401040}, 0x1040},
		{&pprof.Location{Address: 0x99}, 0x99},
	} {
		if got := FileOffset(test.l); got != test.want {
			t.Errorf("offset of %#x is %v, want %v", test.l.Address, got, test.want)
		}
	}
}
