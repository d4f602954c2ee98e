package execprint

import (
	"testing"

	"hallmark/execwatch"
)

// TestWatchMatchScripts wants scripts however they were asked for, and libraries and programs
// by the names of their files.
func TestWatchMatchScripts(t *testing.T) {
	dash := &execwatch.Binary{Path: "/usr/bin/dash"}
	for _, test := range []struct {
		match string
		event execwatch.Event
		want  bool
	}{
		{"/opt/x/run.sh", execwatch.Event{Script: "/opt/x/run.sh", Program: dash}, true},
		{"/opt/x/run.sh", execwatch.Event{Script: "./run.sh", Program: dash}, true},
		{"/opt/x/run.sh", execwatch.Event{Script: "../x/./run.sh", Program: dash}, true},
		{"/opt/x/run.sh", execwatch.Event{Script: "/opt/y/run.sh", Program: dash}, false},
		{"/opt/x/run.sh", execwatch.Event{Script: "../y/run.sh", Program: dash}, false},
		{"/opt/x/run.sh", execwatch.Event{Script: "n.sh", Program: dash}, false},
		{"/opt/x/run.sh", execwatch.Event{Program: dash}, false},
		{"run.sh", execwatch.Event{Script: "/opt/y/run.sh", Program: dash}, true},
		{"run.sh", execwatch.Event{Program: dash}, false},
		{"qemu-system-aarch64", execwatch.Event{Name: "qemu-system-aar", Program: &execwatch.Binary{Path: "/usr/bin/qemu-system-aarch64"}}, true},
		{"libc.so.6", execwatch.Event{Kind: execwatch.Loaded, Library: &execwatch.Binary{Path: "/lib/libc.so.6"}}, true},
		{"libc.so.6", execwatch.Event{Kind: execwatch.Loaded, Library: &execwatch.Binary{Path: "/lib/libm.so.6"}}, false},
	} {
		m, err := NewMatch([]string{test.match})
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Has(&test.event); got != test.want {
			t.Errorf("--match %s of %+v: %v", test.match, test.event, got)
		}
	}
}
