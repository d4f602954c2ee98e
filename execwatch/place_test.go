package execwatch

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"hallmark/internal/backend"
	"hallmark/internal/fstimes"
	"hallmark/internal/proctest"
	"hallmark/internal/testenv"
	"hallmark/reason"
)

// TestWatchElsewhere has another user's file at the path of this user's one, in a mount namespace
// of its own. The event says that the path is elsewhere, and that the file is not the one that
// has the build ID here; a copy is not another one. The path may lead nowhere here.
func TestWatchElsewhere(t *testing.T) {
	testenv.Root(t)
	testenv.Tool(t, "unshare")
	build, forged := proctest.TwoBuilds(t, proctest.SharedID)
	dir := t.TempDir()
	copied, nowhere := filepath.Join(dir, "copied"), filepath.Join(dir, "mounted", "file")
	proctest.CopyTo(t, build, copied)
	if err := os.Mkdir(filepath.Dir(nowhere), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{forged, copied} {
		if err := os.Chown(file, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(2 * fstimes.Delay()) // until the files are older than what follows
	const bind = `unshare -m sh -c 'mount --bind "$0" "$1" && "$1" 200' "$1" "$2"`
	const cover = `unshare -m sh -c 'mount -t tmpfs none "${1%/*}" && cp -p "$0" "$1" && sleep .1 && "$1" 300' "$1" "$2"`
	for name, test := range map[string]struct {
		script, file, path   string
		elsewhere, contested bool
	}{
		"here":            {`"$1" 200`, forged, forged, false, false},
		"another":         {bind, forged, build, true, true},
		"a copy":          {bind, copied, build, true, false},
		"of no file here": {cover, forged, nowhere, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			eachWatch(t, func(t *testing.T, o Options) {
				told := watchCommand(t, o, "sh", "-c", test.script, "sh", test.file, test.path)
				i := slices.IndexFunc(told, func(ev *Event) bool {
					return ev.Kind == Executed && ev.Program != nil && ev.Program.Path == test.path
				})
				if i < 0 {
					t.Fatalf("%s was not told", test.path)
				}
				b := told[i].Program
				if got, want := fmt.Sprint(b.Elsewhere, b.Contested), fmt.Sprint(test.elsewhere, test.contested); got != want {
					if r := b.Reason; o.Backend == backend.Perf && (r == reason.ProcessGone || r == reason.FileGone) {
						testenv.Lack(t, "the process was gone when its file was looked for: %v", r)
					}
					t.Errorf("elsewhere and contested: %s, want %s (%+v)", got, want, *b)
				}
			})
		})
	}
}
