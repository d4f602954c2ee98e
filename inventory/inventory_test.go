package inventory

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"hallmark/buildid"
	"hallmark/internal/aside"
	"hallmark/internal/leaktest"
	"hallmark/internal/procfs"
	"hallmark/internal/proctest"
	"hallmark/internal/reach"
	"hallmark/internal/testenv"
	"hallmark/reason"
)

// TestMain makes the test binary its own helper, as main does for hallmark, and fails when a test
// leaves a goroutine behind.
func TestMain(m *testing.M) {
	aside.Serve()
	goleak.VerifyTestMain(testenv.Isolated(m), leaktest.HeldUpLooks()...)
}

// eachSource runs a test with every way of taking an inventory that this kernel has.
func eachSource(t *testing.T, test func(*testing.T, Source)) {
	for _, s := range []Source{AnySource, Iterator, Query, Text} {
		t.Run(s.String(), func(t *testing.T) {
			_, err := Take(Options{PIDs: []int{os.Getpid()}, Source: s})
			if errors.Is(err, errors.ErrUnsupported) {
				t.Skip(err)
			}
			testenv.Need(t, os.Geteuid() == 0 || !errors.Is(err, os.ErrPermission), "root, to load BPF programs")
			test(t, s)
		})
	}
}

func take(t *testing.T, o Options) map[int]Process {
	t.Helper()
	inv, err := Take(o)
	if err != nil {
		t.Fatal(err)
	}
	byPID := map[int]Process{}
	for i, r := range inv.Processes {
		if i > 0 && r.PID <= inv.Processes[i-1].PID {
			t.Fatalf("process %d comes after %d", r.PID, inv.Processes[i-1].PID)
		}
		byPID[r.PID] = r
	}
	if o.Source != AnySource && inv.Source != o.Source {
		t.Fatalf("the inventory is by %v, want %v", inv.Source, o.Source)
	}
	return byPID
}

// TestOfPrograms wants the identities of programs of every kind, and nothing
// else than the text in /proc has.
func TestOfPrograms(t *testing.T) {
	testenv.Root(t)
	goFile, plain, none := proctest.BuildGo(t), proctest.BuildC(t), proctest.BuildC(t, "-Wl,--build-id=none")
	short := proctest.BuildC(t, "-static", "-Wl,--build-id=0x0123456789abcdef")
	want := map[int]buildid.ID{
		proctest.Start(t, goFile, "1h"):     proctest.FileID(t, goFile),
		proctest.Start(t, plain, "3600000"): proctest.FileID(t, plain),
		proctest.Start(t, none, "3600000"):  proctest.OwnID(t, none),
		proctest.Start(t, short, "3600000"): proctest.FileID(t, short),
	}
	pids := slices.Collect(maps.Keys(want))
	proctest.AwaitMappings(t, pids)
	eachSource(t, func(t *testing.T, source Source) {
		for _, only := range [][]int{nil, pids} {
			taken := take(t, Options{PIDs: only, Source: source})
			if only != nil && len(taken) != len(pids) {
				t.Errorf("%d processes, want %d", len(taken), len(pids))
			}
			for pid, id := range want {
				checkRunning(t, taken[pid], pid, id)
			}
		}
	})
}

// checkRunning wants the program of a process first, and its mappings as /proc has them.
func checkRunning(t *testing.T, r Process, pid int, id buildid.ID) {
	t.Helper()
	exe, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "exe"))
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(r.Code, func(c Code) bool { return c.Path == exe })
	if i < 0 || r.Code[i].ID != id || r.Name != filepath.Base(exe) {
		t.Errorf("%s, process %d, is %+v, want identity %v", exe, pid, r, id)
	}
	vmas, err := reach.Mappings(pid)
	if err != nil {
		t.Fatal(err)
	}
	var want []Code
	for _, v := range vmas {
		if v.Perm&4 != 0 && v.FileBacked() {
			want = append(want, Code{Start: v.Start, End: v.End, Offset: v.Offset, Path: v.Path()})
		}
	}
	got := slices.Clone(r.Code)
	for i := range got {
		if got[i].ID.IsZero() || got[i].Reason != reason.None {
			t.Errorf("%s has no identity: %v", got[i].Path, got[i].Reason)
		}
		got[i].ID, got[i].Reason, got[i].file = buildid.ID{}, reason.None, fileKey{}
	}
	if !slices.Equal(got, want) {
		t.Errorf("process %d:\n got %v\nwant %v", pid, got, want)
	}
}

// TestWithoutFirstThread looks at a process whose first thread has ended and
// whose file was replaced.
func TestWithoutFirstThread(t *testing.T) { eachSource(t, inventoryWithoutFirstThread) }

func inventoryWithoutFirstThread(t *testing.T, source Source) {
	testenv.Root(t)
	file := proctest.BuildThreads(t)
	want := proctest.FileID(t, file)
	pid := proctest.Start(t, file)
	testenv.Await(t, "the end of the first thread", func() bool { return proctest.FirstEnded(pid) })
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("another file"), 0o700); err != nil {
		t.Fatal(err)
	}
	inv, err := Take(Options{Source: source})
	if err != nil {
		t.Fatal(err)
	}
	inv.LookAtDisk()
	at := slices.IndexFunc(inv.Processes, func(r Process) bool { return r.PID == pid })
	if at < 0 {
		t.Fatal("the process is missing")
	}
	r := inv.Processes[at]
	if r.Ended || r.Program != 0 || r.Code[0].Disk != DiskOther {
		t.Errorf("its program is %+v", r)
	}
	if len(r.Code) < 2 || r.Code[0].ID != want || r.Code[0].Path != file {
		t.Errorf("got %+v, want the identity %v", r, want)
	}
}

// TestOnOverlay looks at a program on an overlay, as in a container: once it is
// in the lower layer, and once it was written there. Its path is the one that it has there,
// and not one in a layer.
func TestOnOverlay(t *testing.T) { eachSource(t, inventoryOnOverlay) }

func inventoryOnOverlay(t *testing.T, source Source) {
	testenv.Root(t)
	file, dir := proctest.BuildC(t), t.TempDir()
	script := `mount -t tmpfs none "$1" && cd "$1" && mkdir low up work all && cp "$0" low/prog &&
		mount -t overlay overlay -o lowerdir=low,upperdir=up,workdir=work all && `
	for layer, then := range map[string]string{"lower": "true", "upper": "cp all/prog all/copy && mv all/copy all/prog"} {
		pid := proctest.Start(t, "unshare", "--mount", "sh", "-c", script+then+` && exec "$1/all/prog" 3600000`, file, dir)
		path := filepath.Join(dir, "all", "prog")
		awaitExec(t, pid, path)
		r := take(t, Options{PIDs: []int{pid}, Source: source})[pid]
		i := slices.IndexFunc(r.Code, func(c Code) bool { return c.Path == path })
		// Nobody here sees where the layers are. So the file is asked for by a helper, in bounded time.
		if i >= 0 && r.Code[i].Reason == reason.FileUnresponsive {
			testenv.Lack(t, "%s layer: the helper did not answer in time", layer)
		}
		if i < 0 || r.Code[i].ID != proctest.FileID(t, file) {
			t.Errorf("%s layer: got %+v, want %s to be %v", layer, r, path, proctest.FileID(t, file))
		}
	}
}

// TestInventoryMissesNobody wants every process that runs all the while to be there, or
// among those that could not be looked at: whoever else may not see it.
func TestInventoryMissesNobody(t *testing.T) {
	testenv.Root(t)
	eachSource(t, func(t *testing.T, source Source) {
		programs := func() map[int]string {
			all := map[int]string{}
			pids, err := procfs.Processes()
			if err != nil {
				t.Fatal(err)
			}
			for _, pid := range pids {
				stat, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
				vsize := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
				if len(vsize) > 20 && vsize[20] != "0" { // proc_pid_stat(5): its memory, of which others have none
					all[pid] = vsize[19] // when it started
				}
			}
			return all
		}
		// A process that executes a program has no code for a moment, and is there before
		// and after: it is missing only if it is in one look after the other.
		missing := programs()
		if len(missing) == 0 {
			t.Error("there are no processes")
		}
		for range 5 {
			inv, err := Take(Options{Source: source})
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range inv.Processes {
				delete(missing, p.PID)
			}
			for _, u := range inv.Unseen {
				delete(missing, u.PID)
			}
			after := programs()
			maps.DeleteFunc(missing, func(pid int, started string) bool { return after[pid] != started })
			if len(missing) == 0 {
				return
			}
		}
		t.Errorf("processes are missing: %v", slices.Collect(maps.Keys(missing)))
	})
}

// TestOfNobody asks for processes that have no code: one that does not exist,
// and a kernel thread.
func TestOfNobody(t *testing.T) {
	eachSource(t, func(t *testing.T, source Source) {
		inv, err := Take(Options{PIDs: []int{1 << 22, 2}, Source: source})
		if err != nil || len(inv.Processes)+len(inv.Unseen) > 0 {
			t.Errorf("got %+v, %v", inv, err)
		}
	})
}

// TestIsBounded wants files without build IDs that are too large, or too many, to
// have no identity and a reason, and all others to have theirs.
func TestIsBounded(t *testing.T) {
	testenv.Root(t)
	defer func(before buildid.Budget) { reach.Hashing = before }(reach.Hashing)
	reach.Hashing = buildid.Budget{Bytes: 100}
	plain, none := proctest.BuildC(t), proctest.BuildC(t, "-Wl,--build-id=none")
	large := filepath.Join(t.TempDir(), "large")
	proctest.MapSparse(t, large, 1<<30+4096)
	identified, unknown := proctest.Start(t, plain, "3600000"), proctest.Start(t, none, "3600000")
	proctest.AwaitMappings(t, []int{identified, unknown})
	eachSource(t, func(t *testing.T, source Source) {
		inv, err := Take(Options{Source: source})
		if err != nil {
			t.Fatal(err)
		}
		inv.LookAtDisk()
		seen := map[string]Code{}
		for _, p := range inv.Processes {
			if p.PID != identified && p.PID != unknown && p.PID != os.Getpid() {
				continue
			}
			for _, c := range p.Code {
				seen[c.Path] = c
			}
		}
		if c := seen[plain]; c.ID != proctest.FileID(t, plain) || c.Disk != DiskSame {
			t.Errorf("with a build ID: %+v", c)
		}
		if c := seen[none]; !c.ID.IsZero() || c.Reason != reason.HashBudget || c.Disk != DiskUnknown {
			t.Errorf("beyond the budget: %+v", c)
		}
		if c := seen[large]; !c.ID.IsZero() || c.Reason != reason.TooLarge {
			t.Errorf("too large: %+v", c)
		}
	})
}
