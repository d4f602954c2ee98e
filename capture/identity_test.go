package capture

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/internal/fstimes"
	"hallmark/internal/procfs"
	"hallmark/internal/proctest"
	"hallmark/internal/reach"
	"hallmark/internal/testenv"
	"hallmark/profile"
)

// TestRecordReplacedFile records programs that replace their own file and execute
// it again: same process, same path, same addresses, and no note that the kernel
// could read. No sample may get the identity of the other file. The first is not replaced
// before the recording has it open, which takes long on a busy machine.
func TestRecordReplacedFile(t *testing.T) { eachBackend(t, recordReplacedFile) }

func recordReplacedFile(t *testing.T, backend Backend) {
	testenv.Root(t)
	first, second := proctest.BuildC(t, "-no-pie", "-Wl,--build-id=none"), proctest.BuildC(t, "-no-pie", "-Wl,--build-id=none", "-DOTHER")
	if proctest.OwnID(t, first) == proctest.OwnID(t, second) {
		t.Fatal("both builds are the same file")
	}
	program, number := filepath.Join(t.TempDir(), "busy-c"), filepath.Join(t.TempDir(), "pid")
	script := `echo $$ >"$5"; cp "$1" "$3"; "$3" & "$3" 300; read open <"$4"; kill $!; wait $!; cp "$2" "$3.new" && mv "$3.new" "$3" && exec "$3" 100 other`
	p, _, _ := recordCommand(t, Options{Backend: backend, Frequency: 2000}, "sh", "-c", script, "sh", first, second, program, whenOpen(t, program), number)
	found := samplesIn(p, "burn")
	for id, n := range found {
		if id != proctest.OwnID(t, first) && !id.IsZero() {
			t.Errorf("%d samples in burn have the identity %v", n, id)
		}
	}
	for id, n := range samplesIn(p, "burn_other") {
		if id != proctest.OwnID(t, second) && !id.IsZero() {
			t.Errorf("%d samples in burn_other have the identity %v", n, id)
		}
	}
	// The shell becomes the other program. Where that is taken for the first one, so are its symbols.
	text, err := os.ReadFile(number)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range p.Sample {
		if _, pid := profile.Process(s); fmt.Sprintln(pid) != string(text) {
			continue
		}
		for _, l := range s.Location {
			if id, ok := profile.Identity(l.Mapping); ok && id == proctest.OwnID(t, first) {
				t.Fatalf("%d samples of the other program have the identity %v", s.Value[0], id)
			}
		}
	}
	if len(found) == 0 { // it was replaced after it was opened and before it was read
		testenv.Lack(t, "no samples in the first program")
	}
}

// whenOpen returns the path of a pipe that gets a line when this process has a file open, or
// when it has not in a minute.
func whenOpen(t *testing.T, file string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "open")
	if err := unix.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(name, os.O_RDWR, 0) // which waits for no reader
	if err != nil {
		t.Fatal(err)
	}
	var looking sync.WaitGroup
	looking.Go(func() {
		for deadline := time.Now().Add(time.Minute); !hasOpen(file) && time.Now().Before(deadline) && t.Context().Err() == nil; {
			time.Sleep(10 * time.Millisecond)
		}
		if _, err := pipe.WriteString("open\n"); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		looking.Wait()
		pipe.Close()
	})
	return name
}

// hasOpen reports whether one of this process's descriptors is a file's.
func hasOpen(file string) bool {
	want, err := os.Stat(file)
	if err != nil {
		return false // it is not there yet
	}
	links, _ := filepath.Glob("/proc/self/fd/*")
	return slices.ContainsFunc(links, func(link string) bool {
		is, err := os.Stat(link)
		return err == nil && os.SameFile(is, want)
	})
}

// TestRecordNamesDiffer records a program whose name is not the one that we see:
// deleted after its start, and in another root directory.
func TestRecordNamesDiffer(t *testing.T) { eachBackend(t, recordNamesDiffer) }

func recordNamesDiffer(t *testing.T, backend Backend) {
	testenv.Root(t)
	file := proctest.BuildGo(t)
	want := proctest.FileID(t, file)
	root := t.TempDir()
	if msg, err := exec.Command("cp", file, filepath.Join(root, "elsewhere")).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v\n%s", err, msg)
	}
	doomed := filepath.Join(t.TempDir(), "doomed")
	for _, test := range []struct{ name, script string }{
		{"deleted", `cp "$0" "$1"; "$1" 400ms & read open <"$3"; rm "$1"; wait`},
		{"other root", `exec chroot "$2" /elsewhere 400ms`},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, _, stats := recordCommand(t, Options{Backend: backend}, "sh", "-c", test.script, file, doomed, root, whenOpen(t, doomed))
			found := samplesIn(p, "main.spin")
			checkMost(t, fmt.Sprintf("main.spin of %v (%v)", want, found), found[want], int64(stats.Samples), 0.3)
		})
	}
}

// TestRecordWithoutFirstThread records a process whose first thread has ended.
func TestRecordWithoutFirstThread(t *testing.T) { eachBackend(t, recordWithoutFirstThread) }

func recordWithoutFirstThread(t *testing.T, backend Backend) {
	testenv.Root(t)
	file := proctest.BuildThreads(t)
	time.Sleep(2 * fstimes.Delay()) // until the times of the program are believed
	pid := proctest.Start(t, file)
	testenv.Await(t, "the end of the first thread", func() bool {
		tids, err := procfs.ThreadsOf(pid)
		return err == nil && len(tids) == 2 && proctest.FirstEnded(pid)
	})
	p, misses, _ := recordUntil(t, Options{Backend: backend, PIDs: []int{pid}}, 100)
	if got := samplesIn(p, "burn")[proctest.FileID(t, file)]; got == 0 {
		t.Errorf("samples in burn: %v", samplesIn(p, "burn"))
	}
	checkIdentified(t, p, misses)
}

// TestProgramsNamedLikeMemory records programs that have the path /dev/zero in a mount namespace of
// their own, on a disk and in memory: they are files like others.
func TestProgramsNamedLikeMemory(t *testing.T) {
	testenv.Root(t)
	unshare := testenv.Tool(t, "unshare")
	for name, mount := range map[string]string{
		"disk":  `mount --bind "$1" /dev && exec /dev/zero`,
		"tmpfs": `mount -t tmpfs none /dev && cp "$1/zero" /dev/zero && exec /dev/zero`,
	} {
		t.Run(name, func(t *testing.T) {
			eachBackend(t, func(t *testing.T, b Backend) {
				program := proctest.BuildC(t)
				want := proctest.FileID(t, program)
				if err := os.Rename(program, filepath.Join(filepath.Dir(program), "zero")); err != nil {
					t.Fatal(err)
				}
				pid := proctest.Start(t, unshare, "--mount", "sh", "-c", mount, "sh", filepath.Dir(program))
				testenv.Await(t, "the program", func() bool {
					exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
					return err == nil && exe == reach.DevZero
				})
				p, _, stats := recordUntil(t, Options{Backend: b, PIDs: []int{pid}}, 50)
				ids := map[buildid.ID]int64{}
				for _, s := range p.Sample {
					for c := range profile.Calls(s) {
						id, _ := profile.Identity(c.Location.Mapping)
						ids[id] += s.Value[0]
						break
					}
				}
				checkMost(t, "the program", ids[want], int64(stats.Samples), 0.3)
			})
		})
	}
}
