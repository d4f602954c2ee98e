package execprint

import (
	"testing"

	"hallmark/capture"
)

// TestWatchMatchScripts wants scripts however they were asked for, and libraries and programs
// by the names of their files.
func TestWatchMatchScripts(t *testing.T) {
	dash := &capture.Binary{Path: "/usr/bin/dash"}
	for _, test := range []struct {
		match string
		event capture.WatchEvent
		want  bool
	}{
		{"/opt/x/run.sh", capture.WatchEvent{Script: "/opt/x/run.sh", Program: dash}, true},
		{"/opt/x/run.sh", capture.WatchEvent{Script: "./run.sh", Program: dash}, true},
		{"/opt/x/run.sh", capture.WatchEvent{Script: "../x/./run.sh", Program: dash}, true},
		{"/opt/x/run.sh", capture.WatchEvent{Script: "/opt/y/run.sh", Program: dash}, false},
		{"/opt/x/run.sh", capture.WatchEvent{Script: "../y/run.sh", Program: dash}, false},
		{"/opt/x/run.sh", capture.WatchEvent{Script: "n.sh", Program: dash}, false},
		{"/opt/x/run.sh", capture.WatchEvent{Program: dash}, false},
		{"run.sh", capture.WatchEvent{Script: "/opt/y/run.sh", Program: dash}, true},
		{"run.sh", capture.WatchEvent{Program: dash}, false},
		{"qemu-system-aarch64", capture.WatchEvent{Name: "qemu-system-aar", Program: &capture.Binary{Path: "/usr/bin/qemu-system-aarch64"}}, true},
		{"libc.so.6", capture.WatchEvent{Kind: capture.Loaded, Library: &capture.Binary{Path: "/lib/libc.so.6"}}, true},
		{"libc.so.6", capture.WatchEvent{Kind: capture.Loaded, Library: &capture.Binary{Path: "/lib/libm.so.6"}}, false},
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
