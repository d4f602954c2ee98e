package procmap

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"hallmark/buildid"
	"hallmark/internal/testenv"
	"hallmark/reason"
)

// gnuFile is a program whose build ID the kernel sees, goFile one whose it does not.
func gnuFile(t testing.TB) string { return mustResolve(t, testenv.Tool(t, "sleep")) }
func goFile() string              { return "/proc/self/exe" }

func idOf(t testing.TB, name string) buildid.ID {
	t.Helper()
	info, err := buildid.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return info.ID
}

// named matches the VMAs of a file.
func ofName(name string) func(VMA) bool {
	return func(v VMA) bool { return v.Name == name }
}

// through opens the file of v by one door.
func through(t *testing.T, p *Process, d Door, v VMA) (*os.File, reason.Reason) {
	t.Helper()
	for _, candidate := range doors {
		if candidate.door != d {
			continue
		}
		f, why, err := p.try(candidate.open, v)
		if err != nil {
			t.Fatal(err)
		}
		if f != nil {
			t.Cleanup(func() { f.Close() })
		}
		return f, why
	}
	t.Fatalf("no door %v", d)
	return nil, 0
}

// TestDoors does to a mapped file what happens to files, and then tries each door.
func TestDoors(t *testing.T) {
	mapFilesDoor := reason.None
	if os.Geteuid() != 0 {
		mapFilesDoor = reason.NotPermitted
	}
	for name, tt := range map[string]struct {
		file   string
		change func(t *testing.T, path string)
		// What the doors by path answer, and OpenFile where map_files is shut.
		byPath reason.Reason
		now    func(path string) string // the file whose identity the mapping has; by default the path
	}{
		"untouched":               {file: "lib.so"},
		"spaces and a newline":    {file: " lib\nso (1) "},
		"named as if deleted":     {file: "lib.so (deleted)"},
		"a backslash in the name": {file: `lib\012so`},
		"renamed": {
			file:   "lib.so",
			change: func(t *testing.T, path string) { must(t, os.Rename(path, path+".old")) },
			now:    func(path string) string { return path + ".old" },
		},
		"deleted": {
			file:   "lib.so",
			change: func(t *testing.T, path string) { must(t, os.Remove(path)) },
			byPath: reason.FileGone,
		},
		"replaced": {
			file: "lib.so",
			change: func(t *testing.T, path string) {
				must(t, os.Rename(copyFile(t, goFile(), "other"), path))
			},
			byPath: reason.FileChanged,
		},
		"replaced by a directory": {
			file: "lib.so",
			change: func(t *testing.T, path string) {
				must(t, os.Remove(path))
				must(t, os.Mkdir(path, 0o755))
			},
			byPath: reason.FileChanged,
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := copyFile(t, gnuFile(t), tt.file)
			want := idOf(t, path)
			c := start(t, play("map", path))
			if tt.change != nil {
				tt.change(t, path)
			}
			for _, m := range methods(t) {
				p := open(t, c.pid, m)
				v := mappingOf(t, p, func(v VMA) bool { return strings.Contains(v.Name, filepath.Dir(path)) })
				ambiguous := m == Text && strings.Contains(tt.file, `\`)
				byPath := tt.byPath
				if ambiguous {
					byPath = reason.FileGone
				}
				for d, wantWhy := range map[Door]reason.Reason{
					DoorMapFiles: mapFilesDoor, DoorRoot: byPath, DoorPath: byPath, DoorExe: reason.FileGone,
				} {
					f, why := through(t, p, d, v)
					if why != wantWhy || (f == nil) != (why != reason.None) {
						t.Errorf("%v, door %v: %v, want %v", m, d, why, wantWhy)
					}
					if f != nil {
						if info, err := buildid.Read(f); info.ID != want {
							t.Errorf("%v, door %v: %v, %v, want %v", m, d, info.ID, err, want)
						}
					}
				}
				id, err := p.Identity(v)
				if err != nil || id.ID != want || id.Reason != reason.None || id.Inferred {
					t.Errorf("%v: identity %+v, %v, want %v", m, id, err, want)
				}
			}
		})
	}
}

// TestDeepPath has a file whose path is too long for a query and for opening.
func TestDeepPath(t *testing.T) {
	c := start(t, play("deep", t.TempDir()))
	for _, m := range methods(t) {
		if compareProcess(t, c.pid, m) != equal {
			t.Errorf("%v: not equal to the kernel's text", m)
		}
		p := open(t, c.pid, m)
		v := mappingOf(t, p, func(v VMA) bool { return len(v.Name) > longName })
		if found, ok, err := p.Find(v.Start); !ok || found != v || err != nil {
			t.Errorf("%v: Find(%v) = %v, %v, %v", m, v.Start, found, ok, err)
		}
		for _, d := range []Door{DoorRoot, DoorPath} {
			if f, why := through(t, p, d, v); f != nil || why != reason.FileGone {
				t.Errorf("%v, door %v: %v", m, d, why)
			}
		}
		if id, err := p.Identity(v); err != nil || id.ID != idOf(t, goFile()) {
			t.Errorf("%v: identity %+v, %v", m, id, err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestMapFilesShut does without map_files: what is left is the miss of the process'
// own view, and memory.
func TestMapFilesShut(t *testing.T) {
	shut := slices.Clone(doors)
	doors = doors[1:]
	defer func() { doors = shut }()

	deleted := copyFile(t, goFile(), "deleted")
	replaced := copyFile(t, goFile(), "replaced")
	data := filepath.Join(t.TempDir(), "data")
	must(t, os.WriteFile(data, []byte(strings.Repeat("not ELF ", 1000)), 0o644))
	want := idOf(t, deleted)
	c := start(t, play("map", deleted, replaced, data))
	must(t, os.Remove(deleted))
	must(t, os.Remove(data))
	must(t, os.Rename(copyFile(t, gnuFile(t), "new"), replaced))

	for _, m := range methods(t) {
		p := open(t, c.pid, m)
		for name, why := range map[string]reason.Reason{
			deleted: reason.FileGone, replaced: reason.FileChanged, data: reason.FileGone,
		} {
			v := mappingOf(t, p, ofName(name+" (deleted)"))
			if f, err := p.OpenFile(v); f != nil || !errors.Is(err, why) {
				t.Errorf("%v: OpenFile(%v) = %v, %v, want %v", m, v, f, err, why)
			}
			id, err := p.Identity(v)
			switch {
			case err != nil:
				t.Errorf("%v: %v: %v", m, v, err)
			case name == data:
				if !id.ID.IsZero() || id.Reason != why {
					t.Errorf("%v: %v: identity %+v", m, v, id)
				}
			case id.ID != want || id.Door != DoorMemory:
				t.Errorf("%v: %v: identity %+v, want %v from memory", m, v, id, want)
			}
		}
	}
}

// TestForgedMemory has a process that shows the identity of another file where one is mapped that cannot
// be reached: its word is not believed.
func TestForgedMemory(t *testing.T) {
	shut := slices.Clone(doors)
	doors = doors[1:]
	defer func() { doors = shut }()
	path := copyFile(t, goFile(), "real")
	c := start(t, play("forge", path, gnuFile(t)))
	must(t, os.Remove(path))
	for _, m := range methods(t) {
		p := open(t, c.pid, m)
		list, err := p.All()
		must(t, err)
		for _, v := range list {
			if v.Name != path+" (deleted)" {
				continue
			}
			p.known.Clear()
			if id, err := p.Identity(v); err != nil || !id.ID.IsZero() || id.Reason != reason.FileGone {
				t.Errorf("%v: %v: identity %+v, %v, want none", m, v, id, err)
			}
		}
	}
}

// TestOverwritten has a file that changes in place, as nothing forbids for a
// library: the mapping then shows the new content.
func TestOverwritten(t *testing.T) {
	path := copyFile(t, goFile(), "lib.so")
	c := start(t, play("map", path))
	p := open(t, c.pid, Text)
	v := mappingOf(t, p, ofName(path))
	copyTo(gnuFile(t), path)
	id, err := p.Identity(v)
	if want := idOf(t, gnuFile(t)); err != nil || id.ID != want {
		t.Errorf("identity %+v, %v, want %v", id, err, want)
	}
}

// TestUnmapped asks for the file of a mapping that the process does not have any
// more. Its inode number may belong to another file by now.
func TestUnmapped(t *testing.T) {
	path := copyFile(t, gnuFile(t), "lib.so")
	c := start(t, play("wait"))
	p := open(t, c.pid, Auto)
	self := open(t, os.Getpid(), Auto)
	m := mapFile(path, 0)
	v := mappingOf(t, self, ofName(path))
	must(t, syscall.Munmap(m))
	v.Start, v.End = 0x1000, 0x2000 // mapped by nobody: programs of Go for arm64 begin at 0x10000
	if f, err := p.OpenFile(v); f != nil || !errors.Is(err, reason.NotMapped) {
		t.Errorf("OpenFile = %v, %v, want not mapped", f, err)
	}
}

func TestMemfd(t *testing.T) {
	c := start(t, play("memfd", "a program"))
	want := idOf(t, goFile())
	for _, m := range methods(t) {
		p := open(t, c.pid, m)
		v := mappingOf(t, p, func(v VMA) bool { return v.Kind() == KindMemfd })
		if f, why := through(t, p, DoorExe, v); f == nil {
			t.Errorf("%v: door exe: %v", m, why)
		}
		id, err := p.Identity(v)
		if err != nil || id.ID != want || id.Inferred || v.Name != "/memfd:a program (deleted)" {
			t.Errorf("%v: %v: identity %+v, %v, want %v", m, v, id, err, want)
		}
	}
}

// TestNoFile asks for the identities of what is no file.
func TestNoFile(t *testing.T) {
	c := start(t, play("wait"))
	want, err := buildid.ReadVDSO()
	must(t, err)
	for _, m := range methods(t) {
		p := open(t, c.pid, m)
		list, err := p.All()
		must(t, err)
		vdso := false
		for _, v := range list {
			if v.FileBacked() {
				continue
			}
			id, err := p.Identity(v)
			must(t, err)
			if f, err := p.OpenFile(v); f != nil || reason.Of(err) == reason.None {
				t.Errorf("%v: OpenFile(%v) = %v, %v", m, v, f, err)
			}
			if v.Kind() == KindVDSO {
				vdso = true
				if id.ID != want.ID || id.Door != DoorMemory {
					t.Errorf("%v: vdso: %+v, want %v", m, id, want)
				}
				continue
			}
			if !id.ID.IsZero() || id.Reason != v.withoutFile() {
				t.Errorf("%v: %v: %+v", m, v, id)
			}
		}
		if !vdso {
			t.Error("no [vdso] was seen")
		}
	}
}

// TestDevice has a VMA of a device.
func TestDevice(t *testing.T) {
	var st syscall.Stat_t
	must(t, syscall.Stat("/dev/null", &st))
	v := VMA{Start: page, End: 2 * page, Dev: splitDev(uint64(st.Dev)), Inode: st.Ino, Name: "/dev/null"}
	p := open(t, os.Getpid(), Auto)
	if f, err := p.OpenFile(v); f != nil || !errors.Is(err, reason.NotAFile) {
		t.Errorf("OpenFile = %v, %v, want not a file", f, err)
	}
	if id, err := p.Identity(v); !id.ID.IsZero() || id.Reason != reason.NotAFile || err != nil {
		t.Errorf("Identity = %+v, %v, want not a file", id, err)
	}
}

// TestMountNamespace looks at a file that is only there for the process itself,
// with another one in the same place for us.
func TestMountNamespace(t *testing.T) {
	testenv.Root(t)
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "lib.so"), nil, 0o644))
	for name, file := range map[string]string{"gnu": gnuFile(t), "go": goFile()} {
		cmd := play("mount", dir, file)
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		c := start(t, cmd)
		for _, m := range methods(t) {
			p := open(t, c.pid, m)
			v := mappingOf(t, p, ofName(filepath.Join(dir, "lib.so")))
			for d, wantWhy := range map[Door]reason.Reason{
				DoorMapFiles: reason.None, DoorRoot: reason.None, DoorPath: reason.FileChanged,
			} {
				if f, why := through(t, p, d, v); why != wantWhy || (f == nil) != (why != reason.None) {
					t.Errorf("%s, %v, door %v: %v, want %v", name, m, d, why, wantWhy)
				}
			}
			id, err := p.Identity(v)
			if want := idOf(t, file); err != nil || id.ID != want {
				t.Errorf("%s, %v: %+v, %v, want %v", name, m, id, err, want)
			}
		}
	}
}

// TestOverlay looks at a file of an overlay, whose device and inode stat and maps
// tell differently when the layers are on two file systems, and which is no longer
// the file that its name leads to once somebody wrote there.
func TestOverlay(t *testing.T) {
	testenv.Root(t)
	have, err := os.ReadFile("/proc/filesystems")
	must(t, err)
	testenv.Need(t, strings.Contains(string(have), "\toverlay\n"), "a kernel with overlayfs")
	for name, lower := range map[string]string{"one file system": "", "two file systems": t.TempDir()} {
		t.Run(name, func(t *testing.T) {
			cmd := play("cover", t.TempDir(), lower, goFile(), gnuFile(t))
			cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
			c := start(t, cmd)
			want := idOf(t, goFile())
			isLib := func(v VMA) bool { return strings.HasSuffix(v.Name, "/merged/lib.so") }
			p := open(t, c.pid, Auto)
			v := mappingOf(t, p, isLib)
			for _, d := range []Door{DoorMapFiles, DoorRoot} {
				if f, why := through(t, p, d, v); f == nil {
					t.Errorf("door %v: %v", d, why)
				}
			}
			if id, err := p.Identity(v); err != nil || id.ID != want || id.Door != DoorMapFiles {
				t.Errorf("%+v, %v, want %v", id, err, want)
			}

			fmt.Fprintln(c.stdin) // write to it
			p = open(t, c.pid, Auto)
			waitForCopyUp(t, p, v)
			if id, err := p.Identity(v); err != nil || id.ID != want || id.Door != DoorMemory {
				t.Errorf("after a write: %+v, %v, want %v from memory", id, err, want)
			}
		})
	}
}

// TestTwinsOnOverlay looks at two files of an overlay that have one device, one inode and one name.
func TestTwinsOnOverlay(t *testing.T) {
	testenv.Root(t)
	have, err := os.ReadFile("/proc/filesystems")
	must(t, err)
	testenv.Need(t, strings.Contains(string(have), "\toverlay\n"), "a kernel with overlayfs")
	cmd := play("twins", t.TempDir(), goFile(), gnuFile(t))
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	c := start(t, cmd)
	want := map[buildid.ID]int{idOf(t, goFile()): 1, idOf(t, gnuFile(t)): 1}
	for _, m := range methods(t) {
		p := open(t, c.pid, m)
		list, err := p.Executable()
		must(t, err)
		found := map[buildid.ID]int{}
		for _, v := range list {
			if strings.HasSuffix(v.Name, "/merged/lib.so") {
				id, err := p.Identity(v)
				must(t, err)
				found[id.ID]++
			}
		}
		if fmt.Sprint(found) != fmt.Sprint(want) {
			t.Errorf("%v: identities %v, want %v", m, found, want)
		}
	}
}

// waitForCopyUp waits until the overlay has put another file in the place of v's.
func waitForCopyUp(t *testing.T, p *Process, v VMA) {
	for {
		f, err := p.OpenFile(v)
		if reason.Of(err) == reason.None && err != nil {
			t.Fatal(err)
		}
		if err != nil {
			if !errors.Is(err, reason.FileChanged) {
				t.Errorf("after a write: %v, want file changed", err)
			}
			return
		}
		f.Close()
	}
}

// TestUnprivileged looks as an ordinary user at processes of its own and of root.
func TestUnprivileged(t *testing.T) {
	testenv.Root(t)
	nobody := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	program := copyFile(t, "/proc/self/exe", "program")
	gone := copyFile(t, goFile(), "gone")
	for _, name := range []string{program, gone} {
		must(t, os.Chmod(filepath.Dir(filepath.Dir(name)), 0o755))
	}
	cmd := playAs(program, "map", gnuFile(t), gone)
	cmd.SysProcAttr = nobody
	own := start(t, cmd)
	must(t, os.Remove(gone))
	must(t, os.Remove(program))
	foreign := start(t, play("wait"))

	out, err := lookAs(nobody, foreign.pid)
	if err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("root's process: %s, %v, want permission denied", out, err)
	}
	out, err = lookAs(nobody, own.pid)
	must(t, err)
	var all []seen
	must(t, json.Unmarshal(out, &all))
	byKernel := "query"
	if methods(t)[0] == Text {
		byKernel = "root"
	}
	want := map[string]seen{
		gnuFile(t): {ID: idOf(t, gnuFile(t)).String(), Reason: "none", Door: byKernel},
		gone:       {ID: idOf(t, goFile()).String(), Reason: "none", Door: "memory"},
		program:    {ID: idOf(t, goFile()).String(), Reason: "none", Door: "exe"},
	}
	for _, s := range all {
		name := strings.TrimSuffix(s.Name, deleted)
		w, ok := want[name]
		if !ok {
			continue
		}
		delete(want, name)
		if w.Name = s.Name; s != w {
			t.Errorf("own process: %+v, want %+v", s, w)
		}
	}
	if len(want) != 0 {
		t.Errorf("own process: %v is missing in %v", want, all)
	}
}

// lookAs runs the role "look" as another user.
func lookAs(user *syscall.SysProcAttr, pid int) ([]byte, error) {
	cmd := play("look", itoa(pid))
	cmd.SysProcAttr = user
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	return out, err
}

// TestIdentities compares, for every executable file mapping of this machine, what
// the kernel says with what is in the file, and memory with both.
func TestIdentities(t *testing.T) {
	checked := 0
	for _, pid := range processes(t) {
		p, err := Open(pid)
		if err != nil {
			continue
		}
		list, err := p.Executable()
		p.Close()
		if err != nil {
			continue
		}
		for _, v := range list {
			if checkIdentity(t, pid, v) {
				checked++
			}
		}
	}
	t.Logf("%d mappings", checked)
	if checked == 0 {
		t.Error("nothing was checked")
	}
}

// checkIdentity compares the ways to the identity of v, several times if need be:
// files are being replaced. It reports whether there were such ways.
func checkIdentity(t *testing.T, pid int, v VMA) bool {
	t.Helper()
	var ids [3]Identity
	for range 3 {
		var err error
		if ids, err = identities(pid, v); err != nil {
			return false
		}
		file, memory := ids[1], ids[2]
		if file.Reason == reason.FileUnresponsive {
			return false // on a file system that is not mounted here any more
		}
		if ids[0].ID == file.ID && ids[0].Reason == file.Reason && (memory.ID.IsZero() || memory.ID == file.ID) {
			return true
		}
	}
	t.Errorf("process %d: %v:\n%+v by query\n%+v by text\n%+v in memory", pid, v, ids[0], ids[1], ids[2])
	return true
}

// identities returns the identity of v by query, by text and from memory.
func identities(pid int, v VMA) (ids [3]Identity, err error) {
	for i, m := range []Method{Auto, Text} {
		p, err := OpenOptions(pid, Options{Method: m})
		if err != nil {
			return ids, err
		}
		defer p.Close()
		if ids[i], err = p.Identity(v); err != nil {
			return ids, err
		}
		h, ok, err := p.header(v)
		if ok && err == nil {
			ids[2], err = p.fromMemory(h, reason.NoIdentity)
		}
		if err != nil {
			return ids, err
		}
	}
	return ids, nil
}
