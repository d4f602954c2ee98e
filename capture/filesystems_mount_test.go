package capture

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/internal/fusetest"
	"hallmark/internal/testenv"
)

// contents is how many contents each file has, one after the other: of three the one that is
// there now differs from the last one and from the next one.
const contents = 3

// A fileSystem is a kind of place for files, with the ways to change them that it allows.
type fileSystem struct {
	name  string
	mount func(m *mounter) *fsPlace
	ways  []string
}

// The ways that more than one file system allows: see testdata/change.h. Those that begin with
// "behind:" are changes on the server's side, or in the lower layer.
var (
	anywhere = []string{"write", "truncate", "mapping", "kept-mapping", "rename", "rename-set-back", "hole", "set-back", "copy"}
	below    = []string{"behind:write", "behind:mapping", "behind:set-back"}
	onServer = []string{"behind:write", "behind:mapping", "behind:kept-mapping", "behind:rename", "behind:rename-set-back", "behind:set-back", "behind:copy", "behind:direct"}
)

func with(ways []string, more ...string) []string { return slices.Concat(ways, more) }

// cached is what rclone and gcsfuse do, and sshfs with its user's option.
var cached = fusetest.Options{Attributes: 20 * time.Second, Entries: 20 * time.Second}

// fileSystems are all kinds that differ in how a change shows.
var fileSystems = []fileSystem{
	{"ext4", (*mounter).ext4, with(anywhere, "collapse", "direct")},
	{"ext4, times in seconds", (*mounter).ext4Seconds, with(anywhere, "collapse", "direct")},
	{"xfs", (*mounter).xfs, with(anywhere, "collapse", "direct", "reflink")},
	{"btrfs", (*mounter).btrfs, with(anywhere, "direct", "reflink")},
	{"btrfs, snapshots", (*mounter).snapshots, []string{"snapshot"}},
	{"overlay over ext4", over((*mounter).ext4), with(anywhere, with(below, "direct")...)},
	{"overlay over xfs", over((*mounter).xfs), with(anywhere, with(below, "direct", "reflink")...)},
	{"overlay over btrfs", over((*mounter).btrfs), with(anywhere, with(below, "direct", "reflink")...)},
	{"overlay over tmpfs", over((*mounter).tmpfs), with(anywhere, below...)},
	{"tmpfs", (*mounter).tmpfs, anywhere},
	{"ramfs", (*mounter).ramfs, []string{"write", "truncate", "mapping", "kept-mapping", "rename", "rename-set-back", "set-back", "copy"}},
	{"memfd", (*mounter).memfd, []string{"write", "truncate", "mapping", "kept-mapping", "hole", "set-back", "copy"}},
	{"vfat", (*mounter).vfat, []string{"write", "truncate", "mapping", "kept-mapping", "rename", "rename-set-back", "set-back", "copy", "direct"}},
	{"squashfs, other images", (*mounter).squashfs, []string{"mount"}},
	{"FUSE", fuse(fusetest.Options{}), with(anywhere, onServer...)},
	{"FUSE, attributes cached", fuse(cached), with(anywhere, onServer...)},
	{"FUSE, all cached", fuse(fusetest.Options{Attributes: cached.Attributes, Entries: cached.Entries, KeepContent: true}), with(anywhere, onServer...)},
	{"network, as sshfs", fuse(fusetest.SSHFS), onServer},
	{"network, not cached", fuse(fusetest.Options{Seconds: true, NoChangeTime: true}), onServer},
}

// An fsPlace is where the files of a file system are changed.
type fsPlace struct {
	fileSystem
	dir    string
	behind string // dir on the server's side, "" for none
	keeps  bool   // does not look at the server's side again
	made   bool   // the files are there already
	// memory has the paths of files that are in no directory.
	memory map[string]string
	images []string // of file systems, that are mounted at dir one after the other
}

// path returns where a file is that has a content.
func (p *fsPlace) path(name string, content int) string {
	switch {
	case p.memory != nil:
		return p.memory[name]
	case p.ways[0] == "snapshot":
		return filepath.Join(p.dir, fmt.Sprint("s", content), name)
	}
	return filepath.Join(p.dir, name)
}

// A mounter makes places for a test.
type mounter struct {
	t      testing.TB
	images map[byte][]*image // contents, by the first letter of a file's name
	dir    string
	made   int
	lacks  string   // why there is no place
	names  []string // of the files that a file system is to have from the start
}

// places mounts those file systems that there are here.
func places(t testing.TB, systems []fileSystem, images map[byte][]*image, uses int) []*fsPlace {
	testenv.Root(t)
	m := &mounter{t: t, images: images, dir: t.TempDir()}
	var all []*fsPlace
	for _, fs := range systems {
		m.names, m.lacks = nil, ""
		for use := range uses {
			for way := range fs.ways {
				for kind := range images {
					m.names = append(m.names, fileName(kind, use, way))
				}
			}
		}
		p := fs.mount(m)
		if p == nil {
			t.Logf("NOT CHECKED: %s: %s", fs.name, m.lacks)
			continue
		}
		p.fileSystem = fs
		p.stage(t, images)
		all = append(all, p)
	}
	return all
}

// fileName is the name of a program or library (see fsTorture.images) that is changed in one
// way. No foreign process has such a name.
func fileName(kind byte, use, way int) string {
	return fmt.Sprintf("%c%d-%d-%d", kind, use, way, os.Getpid())
}

// stage copies the contents to where they are taken from, on the same file system where that
// can be.
func (p *fsPlace) stage(t testing.TB, images map[byte][]*image) {
	if p.images != nil { // there is nothing yet
		return
	}
	dirs := []string{p.dir}
	if p.made && p.behind != "" { // a layer, where they do not show yet
		dirs = append(dirs, p.behind)
	}
	for _, of := range images {
		for _, i := range of {
			for _, dir := range dirs {
				copyFile(t, filepath.Join(dir, filepath.Base(i.path)), i.path)
			}
		}
	}
}

// source returns the path of a content that files are changed to.
func (p *fsPlace) source(i *image) string { return filepath.Join(p.dir, filepath.Base(i.path)) }

// create makes a file with the first content, unless it came with the file system.
func (p *fsPlace) create(t testing.TB, name string, images map[byte][]*image) {
	t.Helper()
	if p.made {
		return
	}
	content, err := os.ReadFile(images[name[0]][0].path)
	if err != nil {
		t.Error(err)
		return
	}
	// A child that is forked meanwhile would have the file open to write, until it executes.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if p.memory != nil {
		fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
		if err != nil {
			t.Error(err)
			return
		}
		f := os.NewFile(uintptr(fd), name)
		t.Cleanup(func() { f.Close() })
		p.memory[name] = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd)
		if _, err := f.Write(content); err != nil {
			t.Error(err)
		}
		return
	}
	dir := p.dir
	if p.behind != "" {
		dir = p.behind
	}
	if err := os.WriteFile(filepath.Join(dir, name), content, 0o755); err != nil {
		t.Error(err)
	}
}

// change returns the words for testdata/host.c that change a file to a content.
func (p *fsPlace) change(way, name string, content int, images map[byte][]*image) []any {
	from := p.source(images[name[0]][content])
	server, behind := strings.CutPrefix(way, "behind:")
	switch {
	case way == "snapshot":
		return nil // each content has its own file
	case way == "mount":
		return []any{"mount", p.dir, p.images[content], "squashfs"}
	case behind:
		return []any{"change", server, filepath.Join(p.behind, name), filepath.Join(p.behind, filepath.Base(from))}
	}
	return []any{"change", way, p.path(name, content), from}
}

// kernelHas reports whether the kernel has a file system.
func kernelHas(name string) bool {
	b, err := os.ReadFile("/proc/filesystems")
	return err == nil && slices.Contains(strings.Fields(string(b)), name)
}

// has reports whether a file system can be mounted here.
func (m *mounter) has(kind string, loop bool) bool {
	if !kernelHas(kind) {
		_ = exec.Command("modprobe", "-q", kind).Run()
	}
	_, err := os.Stat("/dev/loop-control")
	switch {
	case !kernelHas(kind):
		m.lacks = "this kernel has no " + kind
	case loop && err != nil:
		m.lacks = "no loop devices here"
	default:
		return true
	}
	return false
}

func (m *mounter) run(args ...string) {
	m.t.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		m.t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// newPath returns the path of a new file or directory.
func (m *mounter) newPath() string {
	m.made++
	return filepath.Join(m.dir, fmt.Sprint("made", m.made))
}

// mkdir makes a directory.
func (m *mounter) mkdir(dir string) string {
	m.t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		m.t.Fatal(err)
	}
	return dir
}

// newDir makes a directory, and has what is mounted there be taken away.
func (m *mounter) newDir() string {
	m.t.Helper()
	dir := m.mkdir(m.newPath())
	m.t.Cleanup(func() {
		err := syscall.Unmount(dir, 0)
		if errors.Is(err, syscall.EBUSY) {
			m.t.Logf("a file system of %s is still in use, by recordings of others", m.t.Name())
			_ = syscall.Unmount(dir, syscall.MNT_DETACH)
		}
	})
	return dir
}

// mount mounts something, and returns where.
func (m *mounter) mount(kind, device, options string) string {
	m.t.Helper()
	dir := m.newDir()
	m.run("mount", "-t", kind, "-o", options, device, dir)
	return dir
}

// image mounts a new file system of so many megabytes.
func (m *mounter) image(kind string, megabytes int64, mkfs ...string) *fsPlace {
	m.t.Helper()
	if !m.has(kind, true) {
		return nil
	}
	file := m.newPath()
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, megabytes<<20)); err != nil {
		m.t.Fatal(err)
	}
	m.run(append(mkfs, file)...)
	return &fsPlace{dir: m.mount(kind, file, "loop")} // the device goes with the mount
}

func (m *mounter) ext4() *fsPlace {
	return m.image("ext4", 64, testenv.Tool(m.t, "mkfs.ext4"), "-q")
}

func (m *mounter) ext4Seconds() *fsPlace {
	return m.image("ext4", 64, testenv.Tool(m.t, "mkfs.ext4"), "-q", "-I", "128")
}

func (m *mounter) xfs() *fsPlace {
	return m.image("xfs", 400, testenv.Tool(m.t, "mkfs.xfs"), "-q")
}

func (m *mounter) btrfs() *fsPlace {
	return m.image("btrfs", 256, testenv.Tool(m.t, "mkfs.btrfs"), "-q")
}

func (m *mounter) vfat() *fsPlace {
	if !m.has("vfat", true) { // in the guests that have it, mkdosfs is busybox's
		return nil
	}
	return m.image("vfat", 64, testenv.Tool(m.t, "mkdosfs"))
}

func (m *mounter) tmpfs() *fsPlace {
	return &fsPlace{dir: m.mount("tmpfs", "none", "size=128m,mode=755")}
}

func (m *mounter) ramfs() *fsPlace { return &fsPlace{dir: m.mount("ramfs", "none", "mode=755")} }

func (m *mounter) memfd() *fsPlace {
	return &fsPlace{dir: m.mkdir(m.newPath()), memory: map[string]string{}}
}

// over mounts an overlay over another file system. The files are in the lower layer until they
// are changed.
func over(lower func(m *mounter) *fsPlace) func(m *mounter) *fsPlace {
	return func(m *mounter) *fsPlace {
		p := lower(m)
		if p == nil || !m.has("overlay", false) {
			return nil
		}
		low, up, work := m.mkdir(p.dir+"/low"), m.mkdir(p.dir+"/up"), m.mkdir(p.dir+"/work")
		m.fill(low, 0)
		dir := m.mount("overlay", "none", "lowerdir="+low+",upperdir="+up+",workdir="+work)
		return &fsPlace{dir: dir, behind: low, made: true}
	}
}

func fuse(o fusetest.Options) func(m *mounter) *fsPlace {
	return func(m *mounter) *fsPlace {
		if !m.has("fuse", false) {
			return nil
		}
		s := fusetest.Mount(m.t, o)
		return &fsPlace{dir: s.Dir, behind: s.Backing, keeps: o.KeepContent}
	}
}

// longAgo is when files were changed whose times are to be the same.
var longAgo = time.Unix(1e9, 0)

// fill makes the files that a file system is to have from the start, or overwrites them.
func (m *mounter) fill(dir string, content int) {
	m.t.Helper()
	for _, name := range m.names {
		path := filepath.Join(dir, name)
		from, err := os.ReadFile(m.images[name[0]][content].path)
		if err == nil {
			err = errors.Join(os.WriteFile(path, from, 0o755), os.Chtimes(path, longAgo, longAgo))
		}
		if err != nil {
			m.t.Fatal(err)
		}
	}
}

// snapshots makes subvolumes of which each is a snapshot of the first one, with other content
// in the same files.
func (m *mounter) snapshots() *fsPlace {
	p := m.btrfs()
	if p == nil {
		return nil
	}
	tool := testenv.Tool(m.t, "btrfs")
	p.made = true
	first := p.dir + "/s0"
	m.run(tool, "-q", "subvolume", "create", first)
	m.fill(first, 0)
	for content := 1; content < contents; content++ {
		sub := fmt.Sprint(p.dir, "/s", content)
		m.run(tool, "-q", "subvolume", "snapshot", first, sub)
		m.fill(sub, content)
	}
	return p
}

// squashfs makes images of file systems in which all is the same but the content of files.
func (m *mounter) squashfs() *fsPlace {
	if !m.has("squashfs", true) {
		return nil
	}
	tool := testenv.Tool(m.t, "mksquashfs")
	p := &fsPlace{dir: m.newDir(), made: true}
	for content := range contents {
		root, image := m.mkdir(m.newPath()), m.newPath()
		m.fill(root, content)
		m.run(tool, root, image, "-noappend", "-quiet", "-no-progress", "-all-root", "-all-time", "1000000000", "-mkfs-time", "1000000000")
		p.images = append(p.images, image)
	}
	return p
}
