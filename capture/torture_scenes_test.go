package capture

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hallmark/internal/proctest"

	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/internal/fstimes"
	"hallmark/internal/testenv"
)

// scenes are all that the recorders are tried with.
var scenes = []scene{
	{name: "build ID of 8 bytes", run: program(form{idSize: 8})},
	{name: "build ID of 16 bytes", run: program(form{idSize: 16})},
	{name: "build ID of 20 bytes", run: program(form{idSize: 20})},
	{name: "build ID of 32 bytes", run: program(form{idSize: 32})},
	{name: "build ID of 64 bytes", run: program(form{idSize: 64})},
	{name: "build ID of 100 bytes", run: program(form{idSize: 100})},
	{name: "no build ID", run: program(form{idSize: -1})},
	{name: "32-bit program", run: program(form{class32: true}), narrow: true},
	{name: "32-bit program, no build ID", run: program(form{class32: true, idSize: -1}), narrow: true},
	{name: "note outside the first page", run: program(form{noteAt: 0x3000, textAt: 0x5000})},
	{name: "note not mapped", run: program(form{noteAt: 0x8000, noteApart: true})},
	{name: "note in no segment", run: program(form{noteHidden: true})},
	{name: "several executable segments", run: program(form{moreText: true, textAt: 0x3000})},
	{name: "Go", run: goProgram(proctest.FileID)},
	{name: "Go, external linking", run: goProgram(proctest.FileID, "-ldflags=-linkmode=external")},
	{name: "Go, no GNU note", run: goProgram(proctest.OwnID, "-ldflags=-B none")},
	{name: "Go, 32-bit", run: goProgram32, narrow: true},
	{name: "PIE", run: cProgram("-fPIE", "-pie")},
	{name: "static", run: cProgram("-static")},
	{name: "static PIE", run: cProgram("-static-pie")},

	{name: "note page not in memory", run: evicted},
	{name: "pages of the file reclaimed", run: pagedOut},
	{name: "text mapped twice", run: mappedTwice},
	{name: "mapped from the middle of the file", run: mappedFromMiddle},
	{name: "mapped shared", run: mappedShared},
	{name: "offset above 4 GiB", run: largeOffset},
	{name: "the same build ID in two files", run: copied},
	{name: "page written by a debugger", run: poked, looked: true},
	{name: "header written by the process", run: pokedHeader, looked: true},
	{name: "text moved to anonymous memory", run: movedText, looked: true},
	{name: "text moved, no build ID", run: movedTextNoID, looked: true},

	{name: "overwritten in place, program", run: overwrittenPrograms, open: true},
	{name: "overwritten in place, library", run: overwrittenLibrary, open: true},
	{name: "overwritten within a tick", run: overwrittenInTick, open: true},
	{name: "overwritten within a second that is a tick", run: overwrittenInSecond, open: true},
	{name: "overwritten, old times restored", run: overwrittenAndStamped, open: true},
	{name: "overwritten while it runs", run: overwrittenWhileRunning, open: true, changes: 2 * overwrites},
	{name: "overwritten by long writes while it runs", run: longWrites, open: true, changes: 2 * overwrites},
	{name: "overwritten and run within a tick", run: rewrittenPrograms, open: true, caught: true},
	{name: "written and run at once", run: writtenAndRun, brief: true},
	{name: "replaced by rename", run: renamed, brief: true},
	{name: "deleted", run: deletedWhileRunning, open: true},
	{name: "inode used again", run: inodeReused, open: true},
	{name: "inode used again, tmpfs", run: inodeReusedOnTmpfs, open: true},
	{name: "on tmpfs", run: onTmpfs, open: true},
	{name: "memfd", run: inMemfd, private: true},
	{name: "in a mount namespace", run: inMountNamespace, private: true},
	{name: "on an overlay, lower layer", run: onOverlay, open: true},
	{name: "on an overlay, copied up", run: copiedUp, open: true},
	{name: "one file system after the other", run: remounted, open: true, caught: true},

	{name: "process number used again", run: pidReused},
	{name: "alternating at one address", run: alternating},
	{name: "dlopen and dlclose", run: dlopened, open: true},
	{name: "threads that map and unmap", run: churned},
	{name: "fork without exec", run: forked},
	{name: "exec from a thread", run: execInThread},
	{name: "processes that live 1 ms", run: shortLived},

	{name: "mapped before", prepare: mappedBefore(form{})},
	{name: "mapped before, no build ID", prepare: mappedBefore(form{idSize: -1})},
	{name: "mapped before, text moved", prepare: movedBefore, looked: true},
	{name: "mapped before and deleted", prepare: deletedBefore},
	{name: "mapped before and replaced", prepare: replacedBefore},
	{name: "mapped before on an overlay, copied up", prepare: copiedUpBefore, open: true},
}

// long is how long code of an image is called, in µs.
const long = 30_000

// program runs an image that is a program.
func program(f form) func(x *torture) {
	f.program = true
	return func(x *torture) { x.exec(x.image(f)) }
}

func goProgram(id func(testing.TB, string) buildid.ID, flags ...string) func(x *torture) {
	return func(x *torture) {
		path := ours(proctest.BuildGo(x.t, flags...))
		x.exec(x.built(path, id(x.t, path)), path, "60ms")
	}
}

func goProgram32(x *torture) {
	x.t.Setenv("GOARCH", "386")
	goProgram(proctest.FileID)(x)
	os.Unsetenv("GOARCH")
}

func cProgram(flags ...string) func(x *torture) {
	return func(x *torture) {
		path := ours(proctest.BuildC(x.t, flags...))
		x.exec(x.built(path, proctest.FileID(x.t, path)), path, "60")
	}
}

// evicted runs programs whose note is not in the page cache.
func evicted(x *torture) {
	for range 4 {
		i := x.image(form{program: true, noteAt: 0x3000, textAt: 0x5000})
		f, err := os.OpenFile(i.path, os.O_RDWR, 0)
		if err != nil {
			x.t.Fatal(err)
		}
		_ = f.Sync()
		_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
		f.Close()
		x.exec(i)
	}
}

func pagedOut(x *torture) {
	i := x.image(form{noteAt: 0x3000, textAt: 0x5000})
	x.script("map a", i, 0, imageSize, "repeat 10 page-out a call a", i.from, long/10)
}

func mappedTwice(x *torture) {
	i := x.image(form{textAt: 0x4000})
	x.script("map a", i, 0, imageSize, "map b", i, 0x4000, 0x2000, "map c", i, 0x2000, 0x3000,
		"repeat 3 call a", i.from, long/9, "call b", i.from-0x4000, long/9, "call c", i.from-0x2000, long/9)
}

func mappedFromMiddle(x *torture) {
	i := x.image(form{textAt: 0x4000})
	x.script("map a", i, 0x4000, textSize, "call a", i.from-0x4000, long)
}

func mappedShared(x *torture) {
	i := x.image(form{})
	x.script("map-shared a", i, 0, imageSize, "call a", i.from, long)
}

func largeOffset(x *torture) {
	const at = 5 << 30
	i := x.image(form{textAt: at})
	x.script("map a", i, at, textSize, "call a", i.from-at, long)
}

// copied runs two files with one identity.
func copied(x *torture) {
	i := x.image(form{})
	j := *i
	j.path += "-copy"
	copyFile(x.t, j.path, i.path)
	time.Sleep(fstimes.Delay() * 5 / 4) // as for i
	x.script("map a", i, 0, imageSize, "map b", &j, 0, imageSize, "call a", i.from, long/2, "call b", i.from, long/2)
}

func poked(x *torture) {
	i := x.image(form{})
	x.script("map a", i, 0, imageSize, "poke a", i.pages, "call a", i.from, long)
}

func pokedHeader(x *torture) {
	i := x.image(form{})
	x.script("map a", i, 0, imageSize, "poke a", 0, "call a", i.from, long)
}

func movedText(x *torture) {
	i := x.image(form{textAt: 0x4000})
	x.beside(x.start("map a", i, 0, imageSize, "wait move-text a", 0x4000, textSize, "call a", i.from, long, "sleep 2000"))
}

func movedTextNoID(x *torture) {
	i := x.image(form{textAt: 0x4000, idSize: -1})
	x.beside(x.start("map a", i, 0, imageSize, "wait move-text a", 0x4000, textSize, "call a", i.from, long, "sleep 2000"))
}

func (x *torture) read(path string) []byte {
	x.t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		x.t.Fatal(err)
	}
	return b
}

// overwrite puts the content of an image into a file, as the same inode.
func (x *torture) overwrite(path string, i *image) {
	x.t.Helper()
	content := x.read(i.path)
	var f *os.File
	testenv.Await(x.t, path, func() (idle bool) { // see open_to of testdata/change.h
		var err error
		f, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
		if err != nil && !errors.Is(err, unix.ETXTBSY) {
			x.t.Fatal(err)
		}
		return err == nil
	})
	defer f.Close()
	if _, err := f.Write(content); err != nil {
		x.t.Fatal(err)
	}
}

// pair makes two images of a form.
func (x *torture) pair(f form) (a, b *image) { return x.image(f), x.image(f) }

func overwrittenPrograms(x *torture) {
	a, b := x.pair(form{program: true})
	file := filepath.Join(x.dir, fmt.Sprintf("written-%d", os.Getpid()))
	for range 3 {
		for _, i := range []*image{a, b} {
			x.overwrite(file, i)
			x.exec(i, file)
		}
	}
}

// victim makes a file for images to be written into.
func (x *torture) victim(dir string, i *image) string {
	x.made++
	file := filepath.Join(dir, fmt.Sprintf("victim-%d-%d", x.made, os.Getpid()))
	x.overwrite(file, i)
	return file
}

func overwrittenLibrary(x *torture) {
	a, b := x.pair(form{})
	file := x.victim(x.dir, a)
	x.script("map a", file, 0, imageSize,
		"repeat 5 overwrite", file, a, "call a", a.from, 20000, "overwrite", file, b, "call a", b.from, 20000)
}

// overwrittenInTick overwrites a file many times between two ticks of the clock
// that its times are taken from.
func overwrittenInTick(x *torture) {
	a, b := x.pair(form{})
	file := x.victim(x.dir, a)
	x.script("map a", file, 0, imageSize,
		"repeat 600 overwrite", file, a, "call a", a.from, 200, "overwrite", file, b, "call a", b.from, 200)
	x.script("map a", file, 0, imageSize,
		"repeat 20 overwrite", file, a, "call a", a.from, 700, "overwrite", file, b, "call a", b.from, 10000)
}

// overwrittenInSecond overwrites a file on a file system that counts times in seconds.
func overwrittenInSecond(x *torture) {
	a, b := x.pair(form{})
	system := filepath.Join(x.t.TempDir(), "system")
	if out, err := exec.Command(testenv.Tool(x.t, "mkfs.ext4"), "-q", "-I", "128", system, "4M").CombinedOutput(); err != nil {
		x.t.Fatalf("mkfs.ext4: %v\n%s", err, out)
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		x.t.Log("NOT CHECKED: no loop devices here")
		x.script("map a", a, 0, imageSize, "call a", a.from, long)
		return
	}
	args, _ := words("map a /mnt/lib", 0, imageSize,
		"repeat 8 overwrite /mnt/lib", a, "call a", a.from, 15000, "overwrite /mnt/lib", b, "call a", b.from, 15000)
	script := `mount -o loop "$0" /mnt && cp "$1" /mnt/lib && shift && exec "$@"`
	x.run([]*image{a, b}, append([]string{testenv.Tool(x.t, "unshare"), "-m", "sh", "-c", script, system, a.path, x.host}, args...)...)
}

func overwrittenAndStamped(x *torture) {
	a, b := x.pair(form{})
	file := x.victim(x.dir, a)
	x.script("map a", file, 0, imageSize,
		"repeat 5 overwrite", file, a, "stamp", file, "call a", a.from, 15000, "overwrite", file, b, "stamp", file, "call a", b.from, 15000)
}

// rewrittenPrograms overwrites and runs a program over and over, as fast as it can.
func rewrittenPrograms(x *torture) {
	a, b := x.pair(form{program: true, rounds: 1_500_000})
	file := x.victim(x.dir, a)
	x.script("repeat 80 overwrite", file, a, "spawn", file, a, "overwrite", file, b, "spawn", file, b)
}

func overwrittenWhileRunning(x *torture) { x.overwriteWhileRunning(form{}) }

// longWrites overwrites the head of the file long before the code that runs.
func longWrites(x *torture) { x.overwriteWhileRunning(form{textAt: 32 << 20}) }

// overwrites is how many times each of two contents is written.
const overwrites = 30

// overwriteWhileRunning has one process overwrite what the other one runs. A processor that executes
// what another one writes at the same time may do anything (Intel SDM 3A, Handling Self- and
// Cross-Modifying Code), so a signal may end the process; the code is such that it need not.
func (x *torture) overwriteWhileRunning(f form) {
	a, b := x.pair(f)
	file := x.victim(x.dir, a)
	both := []*image{a, b}
	args, _ := words(x.host, "wait map a", file, 0, a.pages+textSize, "repeat 400 call a", a.from, 1000)
	resume := x.startAny(both, args...)
	args, _ = words(x.host, "map a", a, 0, a.pages+textSize, "repeat", overwrites, "overwrite", file, a, "call a", a.from, 6000, "overwrite", file, b, "call a", a.from, 6000)
	ended := make(chan error, 1)
	go func() { ended <- resume() }()
	x.run(both, args...)
	switch err := <-ended; {
	case err == nil:
	case strings.HasPrefix(err.Error(), "signal: "):
		x.lack(x.at, "%v", err)
	default:
		x.t.Errorf("%s: %v", x.at, err)
	}
}

// writtenAndRun writes a program and runs it, over and over, as fast as it can.
func writtenAndRun(x *torture) {
	a, b := x.pair(form{program: true})
	file := filepath.Join(x.dir, fmt.Sprintf("fresh-%d", os.Getpid()))
	for range 4 {
		for _, i := range []*image{a, b} {
			os.Remove(file)
			x.overwrite(file, i)
			x.exec(i, file)
		}
	}
}

func renamed(x *torture) {
	a, b := x.pair(form{program: true})
	dir := x.t.TempDir()
	file := filepath.Join(dir, fmt.Sprintf("replaced-%d", os.Getpid()))
	for range 3 {
		for _, i := range []*image{a, b} {
			x.overwrite(filepath.Join(dir, "new"), i)
			if err := os.Rename(filepath.Join(dir, "new"), file); err != nil {
				x.t.Fatal(err)
			}
			x.exec(i, file)
		}
	}
}

func deletedWhileRunning(x *torture) {
	i := x.image(form{})
	x.script("map a", i, 0, imageSize, "unlink", i, "call a", i.from, long)
	j := x.image(form{idSize: -1})
	x.script("map a", j, 0, imageSize, "call a", j.from, long, "unlink", j, "call a", j.from, long)
}

func inodeReused(x *torture) { x.reuse(x.t.TempDir()) }

func inodeReusedOnTmpfs(x *torture) { x.reuse(x.shm()) }

// reuse makes and removes files of one name.
func (x *torture) reuse(dir string) {
	a, b := x.pair(form{})
	file := filepath.Join(dir, "again")
	for range 10 {
		for _, i := range []*image{a, b} {
			x.overwrite(file, i)
			args, _ := words(x.host, "map a", file, 0, imageSize, "call a", i.from, 5000)
			x.run([]*image{i}, args...)
			if err := os.Remove(file); err != nil {
				x.t.Fatal(err)
			}
		}
	}
}

// shm returns a directory on a tmpfs.
func (x *torture) shm() string {
	dir, err := os.MkdirTemp("/dev/shm", "hallmark-test")
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func onTmpfs(x *torture) {
	dir := x.shm()
	x.exec(x.image(form{program: true, dir: dir}))
	a, b := x.pair(form{dir: dir})
	file := x.victim(dir, a)
	x.script("map a", file, 0, imageSize,
		"repeat 5 overwrite", file, a, "call a", a.from, 15000, "overwrite", file, b, "call a", b.from, 15000)
	x.script("map a", file, 0, imageSize,
		"repeat 400 overwrite", file, a, "call a", a.from, 200, "overwrite", file, b, "call a", b.from, 200)
}

func inMemfd(x *torture) {
	i := x.image(form{program: true})
	fd, err := unix.MemfdCreate("program", unix.MFD_CLOEXEC)
	if err != nil {
		x.t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "program")
	defer file.Close()
	src, err := os.Open(i.path)
	if err != nil {
		x.t.Fatal(err)
	}
	defer src.Close()
	if _, err := io.Copy(file, src); err != nil {
		x.t.Fatal(err)
	}
	x.exec(i, fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd))
}

// inMountNamespace runs a program from a file system that only it can see.
func inMountNamespace(x *torture) {
	i := x.image(form{program: true})
	script := `mount -t tmpfs none /mnt && cp "$0" "$1" && exec "$1"`
	hidden := fmt.Sprintf("/mnt/hidden-%d", os.Getpid())
	x.execAs(nameOf(hidden), i, testenv.Tool(x.t, "unshare"), "-m", "sh", "-c", script, i.path, hidden)
}

// overlay is a script that mounts an overlay on /mnt/all with the file "lib" in its
// lower layer, and goes on with the arguments.
const overlay = `mount -t tmpfs none /mnt && mkdir /mnt/low /mnt/up /mnt/work /mnt/all && cp "$0" /mnt/low/lib &&
	mount -t overlay -o lowerdir=/mnt/low,upperdir=/mnt/up,workdir=/mnt/work none /mnt/all && exec "$@"`

// onOverlayCommand is a script with an image on an overlay in place of a file.
func (x *torture) onOverlayCommand(i *image, script ...any) (images []*image, command []string) {
	args, images := words(script...)
	return append(images, i), append([]string{testenv.Tool(x.t, "unshare"), "-m", "sh", "-c", overlay, i.path, x.host}, args...)
}

func onOverlay(x *torture) {
	for _, f := range []form{{}, {idSize: -1}} {
		i := x.image(f)
		images, command := x.onOverlayCommand(i, "map a /mnt/all/lib", 0, imageSize, "call a", i.from, long)
		x.run(images, command...)
	}
}

// copiedUp changes a file on an overlay: who has it mapped goes on with the file of
// the lower layer.
func copiedUp(x *torture) {
	for _, f := range []form{{}, {idSize: -1}} {
		a, b := x.pair(f)
		images, command := x.onOverlayCommand(a, "map a /mnt/all/lib", 0, imageSize, "overwrite /mnt/all/lib", b, "call a", a.from, long,
			"map b /mnt/all/lib", 0, imageSize, "call b", b.from, long)
		x.run(images, command...)
	}
}

// remounted mounts images of a file system one after the other, in which all is the same,
// inode, generation, times and size, but the content.
func remounted(x *torture) {
	dir := x.t.TempDir()
	a, b := x.pair(form{})
	systems := x.twinFileSystems(dir, a, b)
	if systems == nil {
		x.t.Log("NOT CHECKED: no loop devices here")
		x.script("map a", a, 0, imageSize, "call a", a.from, long)
		return
	}
	script := `mount -o loop,ro "$0" /mnt && exec "$@"`
	for range 4 {
		for k, i := range []*image{a, b} {
			args, _ := words("map a /mnt/lib", 0, imageSize, "call a", i.from, 15000)
			x.run([]*image{i}, append([]string{testenv.Tool(x.t, "unshare"), "-m", "sh", "-c", script, systems[k], x.host}, args...)...)
		}
	}
}

func (x *torture) twinFileSystems(dir string, a, b *image) []string {
	content, other := x.read(a.path), x.read(b.path)
	root := filepath.Join(dir, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		x.t.Fatal(err)
	}
	copyFile(x.t, filepath.Join(root, "lib"), a.path)
	first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
	if out, err := exec.Command(testenv.Tool(x.t, "mkfs.ext4"), "-q", "-d", root, first, "4M").CombinedOutput(); err != nil {
		x.t.Fatalf("mkfs.ext4: %v\n%s", err, out)
	}
	if exec.Command("unshare", "-m", "mount", "-o", "loop,ro", first, "/mnt").Run() != nil {
		return nil
	}
	system := x.read(first)
	const page = 1024 // blocks of a small ext4
	for at := 0; at < len(content); at += page {
		if bytes.Equal(content[at:at+page], other[at:at+page]) {
			continue
		}
		place := bytes.Index(system, content[at:at+page])
		if place < 0 {
			x.t.Fatalf("no page %#x of the file in its file system", at)
		}
		copy(system[place:], other[at:at+page])
	}
	if err := os.WriteFile(second, system, 0o644); err != nil {
		x.t.Fatal(err)
	}
	return []string{first, second}
}

// lastNumber has the process number that was given last, and can be set.
const lastNumber = "/proc/sys/kernel/ns_last_pid"

// pidReused runs programs that get the same number, one after the other.
func pidReused(x *torture) {
	a, b := x.pair(form{program: true})
	var pids [2]int
	reused := 0
	for try := 0; try < 30 && reused < 4; try++ {
		for k, i := range []*image{a, b} {
			if k == 1 {
				_ = os.WriteFile(lastNumber, fmt.Append(nil, pids[0]-1), 0)
			}
			cmd := exec.Command(i.path)
			if err := cmd.Run(); err != nil {
				x.t.Fatal(err)
			}
			pids[k] = cmd.Process.Pid
			x.ran(who{pids[k], nameOf(i.path)}, i)
		}
		if pids[0] == pids[1] {
			reused++
		}
	}
	x.t.Logf("%d process numbers were used again", reused)
}

// alternating maps two files at the same address in turn.
func alternating(x *torture) {
	a, b := x.pair(form{})
	x.script("repeat 200 map-here a", a, 0, imageSize, "call a", a.from, 300, "unmap a map-here b", b, 0, imageSize, "call b", b.from, 300, "unmap b")
	x.script("repeat 200 map-here a", a, 0, imageSize, "call a", a.from, 300, "map-here b", b, 0, imageSize, "call b", b.from, 300)
}

func dlopened(x *torture) {
	a, b := x.buildLibrary(), x.buildLibrary("-Wl,--build-id=md5", "-falign-functions=1024")
	x.script("repeat 150 dl", a, 400, "dl", b, 400)
}

func churned(x *torture) {
	a, b := x.pair(form{})
	x.script("threads 4 repeat 300 map a", a, 0, imageSize, "map b", b, 0, imageSize, "call a", a.from, 100, "unmap a call b", b.from, 100, "unmap b")
}

func forked(x *torture) {
	i := x.image(form{})
	x.script("map a", i, 0, imageSize, "children 5 call a", i.from, long/5)
}

func execInThread(x *torture) {
	i, j := x.image(form{}), x.image(form{program: true})
	x.script("map a", i, 0, imageSize, "call a", i.from, long/2, "exec-in-thread", j)
	for w := range x.truth {
		if x.truth[w].of == x.at {
			x.ran(who{w.pid, nameOf(j.path)}, j)
		}
	}
}

// shortLived starts many processes that live about a millisecond.
func shortLived(x *torture) {
	a, b := x.pair(form{})
	x.script("children 150 map a", a, 0, imageSize, "call a", a.from, 500)
	x.script("children 150 map a", b, 0, imageSize, "call a", b.from, 500)
}

func mappedBefore(f form) func(x *torture) func() {
	return func(x *torture) func() {
		i := x.image(f)
		return x.start("map a", i, 0, imageSize, "wait call a", i.from, long)
	}
}

func movedBefore(x *torture) func() {
	i := x.image(form{textAt: 0x4000})
	return x.start("map a", i, 0, imageSize, "move-text a", 0x4000, textSize, "wait call a", i.from, long, "sleep 2000")
}

func deletedBefore(x *torture) func() {
	i := x.image(form{})
	return x.start("map a", i, 0, imageSize, "unlink", i, "wait call a", i.from, long)
}

func replacedBefore(x *torture) func() {
	i, j := x.pair(form{})
	resume := x.start("map a", i, 0, imageSize, "wait call a", i.from, long)
	if err := os.Rename(j.path, i.path); err != nil {
		x.t.Fatal(err)
	}
	return resume
}

func copiedUpBefore(x *torture) func() {
	a, b := x.pair(form{})
	images, command := x.onOverlayCommand(a, "map a /mnt/all/lib", 0, imageSize, "overwrite /mnt/all/lib", b, "wait call a", a.from, long)
	return x.startCommand(images, command...)
}
