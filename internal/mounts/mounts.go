// Package mounts knows which file systems answer by themselves, because the kernel serves
// them, and keeps away from the others.
//
// A file system of FUSE is served by a process, which anybody may start and which need not
// answer; one of the network by another machine. Whoever opens, stats, reads or faults in a
// file there may wait for ever, in a state in which no signal helps. Nothing here asks such
// a server: what is needed is in /proc/self/mountinfo, and in what the kernel knows of an
// open file without a question (statx(2), AT_STATX_DONT_SYNC).
//
// Only the mounts of this process's own mount namespace are believed. Their device numbers
// cannot become those of another file system while they are mounted, and the kernel says
// (by poll) when that changes. In a namespace of his own a user may mount what he likes at
// any moment: what is only there counts as a file system that does not answer.
package mounts

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// Dev is the number of a device, that of a file system's superblock as /proc/PID/maps and
// mountinfo show it.
type Dev struct{ Major, Minor uint32 }

// served are the types of file systems that the kernel serves from a disk, from memory or
// from its own data. Whoever may mount the ones on disks is root, and a disk that does not
// answer stops more than this program.
var served = map[string]bool{
	"ext2": true, "ext3": true, "ext4": true, "xfs": true, "btrfs": true, "bcachefs": true, "f2fs": true,
	"zfs": true, "jfs": true, "reiserfs": true, "nilfs2": true, "ntfs3": true, "hfsplus": true,
	"vfat": true, "msdos": true, "exfat": true, "iso9660": true, "udf": true,
	"squashfs": true, "erofs": true, "cramfs": true, "romfs": true,
	"tmpfs": true, "ramfs": true, "rootfs": true, "devtmpfs": true, "hugetlbfs": true, "mqueue": true,
	"proc": true, "sysfs": true, "cgroup": true, "cgroup2": true, "devpts": true, "debugfs": true,
	"tracefs": true, "securityfs": true, "bpf": true, "pstore": true, "configfs": true, "efivarfs": true,
	"fusectl": true, "binfmt_misc": true, "selinuxfs": true, "smackfs": true, "nsfs": true, "nfsd": true, "rpc_pipefs": true,
}

// networkDisks are the major numbers of disks that are served as the file systems that are
// not listed: nbd, by a process or another machine.
var networkDisks = map[uint32]bool{43: true}

// A mount is a line of mountinfo: proc_pid_mountinfo(5).
type mount struct {
	id      uint64
	dev     Dev
	root    string // the directory of the file system that is mounted
	point   string
	kind    string
	options string // of the superblock
}

// table is what is mounted in a mount namespace.
type table struct {
	foreign bool // whoever mounted these may be anybody
	list    []mount
	devs    map[Dev]bool // whether they answer
	ids     map[uint64]bool
	ours    map[uint64]bool // mounts that are root's or this user's
}

// ownTable is what is mounted in this mount namespace.
type ownTable struct {
	table
	mu    sync.Mutex
	fd    int // of mountinfo, by which the kernel says that something has changed
	open  bool
	inner map[Dev]bool // file systems that are mounted nowhere: memfd and its like
}

var own ownTable

// A View is which file systems are believed to answer: those of this mount namespace, and
// with [Of] those of another one. The zero View is ready.
type View struct {
	ours   bool // those count as well that this user or root has mounted
	pid    int  // in the other namespace, 0 for none
	layers bool // the paths of its overlays' layers are believed
	leaves bool // directories of others are left alone: LeaveDirs
	once   sync.Once
	table  *table // of it, as it was
}

// Of returns a view that believes as well what is mounted for a process. An overlay says by
// paths what it lies over, which mean nothing here if a user has mounted it: it counts only
// with overlays.
func Of(pid int, overlays bool) *View { return &View{pid: pid, layers: overlays, leaves: true} }

// Ours returns a view that believes as well what root mounted here, from the network for
// instance, and what this user's own processes serve. It is for files that this user asked
// for by way of a recording or a profile: servers of other users must not hold that up.
func Ours() *View { return &View{ours: true} }

// read reads what is mounted there now. It returns an empty table and false where that takes too long.
func (v *View) read() (t *table, inTime bool) {
	fd, err := syscall.Open("/proc/"+strconv.Itoa(v.pid)+"/mountinfo", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return new(table), true
	}
	defer syscall.Close(fd)
	text, err := others.read(fd)
	if err != nil {
		return new(table), !errors.Is(err, errSlow)
	}
	t = &table{foreign: !v.layers}
	t.set(parse(text))
	return t, true
}

// trustAll is set in a process that may wait.
var trustAll atomic.Bool

// TrustAll has this process ask every file system, because it may wait for ever.
func TrustAll() { trustAll.Store(true) }

// TrustsAll reports whether TrustAll was called.
func TrustsAll() bool { return trustAll.Load() }

// Answers is View.Answers of the zero View.
func Answers(dev Dev) bool { return new(View).Answers(dev) }

// Answers reports whether the file system with this number answers by itself. In another
// namespace the number may be another one's in the next moment.
func (v *View) Answers(dev Dev) bool {
	if trustAll.Load() || own.answersDev(dev) {
		return true
	}
	if v.pid == 0 {
		return false
	}
	v.once.Do(func() { v.table, _ = v.read() })
	return v.table.devs[dev]
}

// AnswersFD is View.AnswersFD of the zero View.
func AnswersFD(fd int) bool { return new(View).AnswersFD(fd) }

// AnswersFD reports whether an open file, of whatever kind (O_PATH), is on a file system that
// answers by itself. Nobody but the kernel is asked for that. Since the file is open, its
// mount and the number of its device are not another one's.
func (v *View) AnswersFD(fd int) bool {
	if trustAll.Load() {
		return true
	}
	st, err := statx(fd)
	if err != nil || own.answersFile(&st) || v.ours && own.isOurs(&st) {
		return err == nil
	}
	if v.pid == 0 {
		return false
	}
	t, _ := v.read()
	return t.has(&st)
}

// isOurs reports whether an open file is on a mount of root, or of this user.
func (t *ownTable) isOurs(st *statxResult) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.read() && st.mask&statxMount != 0 && t.ours[st.mount]
}

func (t *ownTable) answersDev(dev Dev) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.read() && (t.devs[dev] || t.inner[dev])
}

func (t *ownTable) answersFile(st *statxResult) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.read() && (t.has(st) || t.inner[Dev{st.devMajor, st.devMinor}])
}

// has reports whether an open file is on a mount of the table that answers.
func (t *table) has(st *statxResult) bool {
	return st.mask&statxMount != 0 && t.ids[st.mount] || t.devs[Dev{st.devMajor, st.devMinor}]
}

// IsInner reports whether a device is one of the kernel's own file systems that nobody can mount,
// in which memory without a name has its files: that of shared memory and of memfd, those of huge
// pages, and that of anonymous inodes.
func IsInner(dev Dev) bool {
	own.mu.Lock()
	defer own.mu.Unlock()
	return own.read() && own.inner[dev]
}

// maxPlaces bounds what Places returns.
const maxPlaces = 16

// Places returns paths of this mount namespace that may lead to a file on the file system with this number. The path
// of the file counts from the root of that file system, as those of an overlay's layers do: the overlay has mounted these
// for itself (fs/overlayfs/super.c: ovl_get_layers). A subvolume of btrfs has a number that no mount shows, so all
// mounts of btrfs are in question.
func Places(dev Dev, path string) []string {
	own.mu.Lock()
	defer own.mu.Unlock()
	if !own.read() {
		return nil
	}
	return own.places(dev, path)
}

func (t *table) places(dev Dev, path string) []string {
	var certain, possible []string
	for i := range t.list {
		m := &t.list[i]
		if !within(path, m.root) || m.dev != dev && (m.kind != "btrfs" || dev.Major != 0) {
			continue
		}
		place := filepath.Join(m.point, path[len(strings.TrimSuffix(m.root, "/")):])
		if m.dev == dev {
			certain = append(certain, place)
		} else {
			possible = append(possible, place)
		}
	}
	places := append(certain, possible...)
	return places[:min(len(places), maxPlaces)]
}

// DeviceOf returns the device and the inode of an open file as the kernel remembers them,
// without a question to the file system's server.
func DeviceOf(fd int) (dev Dev, inode uint64, err error) {
	st, err := statx(fd)
	return Dev{st.devMajor, st.devMinor}, st.inode, err
}

// MountOf is DeviceOf with the number of the mount through which the file was opened, which is no
// other's while the file is open; 0 where the kernel does not know (before Linux 5.8).
func MountOf(fd int) (mount uint64, dev Dev, inode uint64, err error) {
	st, err := statx(fd)
	if st.mask&statxMount != 0 {
		mount = st.mount
	}
	return mount, Dev{st.devMajor, st.devMinor}, st.inode, err
}

// Foreign reports whether any process sees a file system that may not answer now. What waits for
// a mount (autofs) has no files that could be mapped.
func Foreign() bool {
	if own.hasForeign() {
		return true
	}
	seen := map[string]bool{}
	if here, err := os.Readlink("/proc/self/ns/mnt"); err == nil {
		seen[here] = true
	}
	dir, err := os.ReadDir("/proc")
	if err != nil {
		return true
	}
	for _, e := range dir {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		namespace, err := os.Readlink("/proc/" + e.Name() + "/ns/mnt")
		if err != nil || seen[namespace] {
			continue // it is gone, or is not this user's to look at
		}
		seen[namespace] = true
		if t, inTime := (&View{pid: pid}).read(); !inTime || own.lacks(t) {
			return true
		}
	}
	return false
}

func (t *ownTable) hasForeign() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.read() || t.table.hasForeign()
}

// lacks reports whether another namespace has a file system that may not answer and does not
// answer here either.
func (t *ownTable) lacks(other *table) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(other.list, func(m mount) bool { return m.kind != "autofs" && !other.devs[m.dev] && !t.devs[m.dev] })
}

func (t *table) hasForeign() bool {
	return slices.ContainsFunc(t.list, func(m mount) bool { return m.kind != "autofs" && !t.devs[m.dev] })
}

// SameMount reports whether two open files are known to be on one mount.
func SameMount(a, b int) bool {
	one, err := statx(a)
	other, otherErr := statx(b)
	return err == nil && otherErr == nil && one.mask&other.mask&statxMount != 0 && one.mount == other.mount
}

// read reads what is mounted, if that has changed since it last did. The caller holds mu.
func (t *ownTable) read() bool {
	if !t.open {
		fd, err := syscall.Open("/proc/self/mountinfo", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
		if err != nil {
			return false
		}
		t.fd, t.open = fd, true
		t.inner = innerDevices()
	} else if !changed(t.fd) {
		return true
	}
	text, err := readAll(t.fd, time.Time{})
	if err != nil {
		syscall.Close(t.fd)
		t.open, t.table = false, table{}
		return false
	}
	t.set(parse(text))
	return true
}

// set takes the mounts.
func (t *table) set(list []mount) {
	t.list, t.devs, t.ids, t.ours = list, map[Dev]bool{}, map[uint64]bool{}, map[uint64]bool{}
	for i := range list {
		m := &list[i]
		answers := t.answers(m, maxLayers)
		t.devs[m.dev], t.ids[m.id] = answers, answers
		t.ours[m.id] = m.isOurs()
	}
}

// isOurs reports whether root has mounted a file system, or this user. A server of FUSE is a
// process of the user whose number is an option (fuse_show_options of fs/fuse/inode.c), and
// nobody but root mounts the others here.
func (m *mount) isOurs() bool {
	if !strings.HasPrefix(m.kind, "fuse") || m.kind == "fusectl" {
		return true
	}
	for _, option := range strings.Split(m.options, ",") {
		if number, ok := strings.CutPrefix(option, "user_id="); ok {
			return number == "0" || number == strconv.Itoa(os.Geteuid())
		}
	}
	return false
}

// maxLayers is how deep overlays may lie upon each other: FILESYSTEM_MAX_STACK_DEPTH of
// include/linux/fs.h, and the file system below.
const maxLayers = 3

// answers reports whether a mounted file system answers by itself.
func (t *table) answers(m *mount, depth int) bool {
	switch {
	case networkDisks[m.dev.Major]:
		return false
	case m.kind == "overlay":
		// In a container the root is an overlay whose layers have no path. If it did not
		// answer, this program would not run.
		return !t.foreign && (m.point == "/" || t.layersAnswer(m, depth))
	}
	return served[m.kind]
}

// layersAnswer reports whether all the layers of an overlay do, as far as their paths show it,
// which whoever mounted it gave. In this mount namespace that was nobody with less rights
// than its owner. A path that counts from another directory says nothing.
func (t *table) layersAnswer(m *mount, depth int) bool {
	layers := layersOf(m.options)
	if depth == 0 || len(layers) == 0 {
		return false
	}
	for _, path := range layers {
		below := t.holding(path)
		if below == nil || below.dev == m.dev || !t.answers(below, depth-1) {
			return false
		}
	}
	return true
}

// holding returns the mount that a path lies in, nil for a relative one.
func (t *table) holding(path string) *mount {
	var best *mount
	for i := range t.list {
		m := &t.list[i]
		if !strings.HasPrefix(path, "/") || !within(path, m.point) {
			continue
		}
		if best == nil || len(m.point) >= len(best.point) { // the later one covers the earlier one
			best = m
		}
	}
	return best
}

func within(path, dir string) bool {
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(dir, "/"))
	return ok && (rest == "" || rest[0] == '/')
}

// layersOf returns the directories that an overlay is made of, from its options: lowerdir=a:b
// or lowerdir+=a, datadir+=b and upperdir=c. (Documentation/filesystems/overlayfs.rst.)
func layersOf(options string) []string {
	var layers []string
	for _, option := range strings.Split(options, ",") {
		key, value, _ := strings.Cut(option, "=")
		value = unescape(value)
		switch key {
		case "lowerdir":
			layers = append(layers, splitLayers(value)...)
		case "lowerdir+", "datadir+", "upperdir":
			layers = append(layers, value)
		}
	}
	return layers
}

// splitLayers splits at colons, of which one that is part of a name has a backslash before
// it, and two stand before layers of data.
func splitLayers(s string) []string {
	var layers []string
	var one strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+1 < len(s):
			i++
			one.WriteByte(s[i])
		case s[i] == ':':
			if one.Len() > 0 {
				layers = append(layers, one.String())
			}
			one.Reset()
		default:
			one.WriteByte(s[i])
		}
	}
	if one.Len() > 0 {
		layers = append(layers, one.String())
	}
	return layers
}

// unescape undoes what seq_escape of the kernel does: \ and three octal digits.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// parse reads the lines of mountinfo. A line that is not understood is left out, and so does not
// answer.
func parse(text []byte) []mount {
	var list []mount
	for line := range bytes.Lines(text) {
		if m, ok := parseLine(strings.TrimSuffix(string(line), "\n")); ok {
			list = append(list, m)
		}
	}
	return list
}

func parseLine(line string) (mount, bool) {
	words := strings.Split(line, " ")
	if len(words) < 7 {
		return mount{}, false
	}
	end := 6 // optional words follow, up to a dash
	for end < len(words) && words[end] != "-" {
		end++
	}
	if end+3 >= len(words) {
		return mount{}, false
	}
	id, idErr := strconv.ParseUint(words[0], 10, 64)
	majorText, minorText, _ := strings.Cut(words[2], ":")
	major, majorErr := strconv.ParseUint(majorText, 10, 32)
	minor, minorErr := strconv.ParseUint(minorText, 10, 32)
	if idErr != nil || majorErr != nil || minorErr != nil {
		return mount{}, false
	}
	return mount{
		id: id, dev: Dev{uint32(major), uint32(minor)}, root: unescape(words[3]), point: unescape(words[4]),
		kind: unescape(words[end+1]), options: words[end+3],
	}, true
}

// maxMountinfo bounds what is read: the kernel allows 100,000 mounts in a namespace.
const maxMountinfo = 64 << 20

// readAll reads a file from its start, until a time if that is not zero.
func readAll(fd int, until time.Time) ([]byte, error) {
	text := make([]byte, 0, 16<<10)
	for len(text) < maxMountinfo {
		if !until.IsZero() && time.Now().After(until) {
			return nil, errSlow
		}
		if cap(text)-len(text) < 4096 {
			text = append(text, make([]byte, 4096)...)[:len(text)]
		}
		n, err := syscall.Pread(fd, text[len(text):cap(text)], int64(len(text)))
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return nil, err
		case n == 0:
			return text, nil
		default:
			text = text[:len(text)+n]
		}
	}
	return nil, io.ErrShortBuffer
}

// changed reports whether the mounts have changed since the file was opened or this was last
// asked: mounts_poll of fs/proc_namespace.c.
func changed(fd int) bool {
	const pollPri, pollErr = 0x2, 0x8
	poll := struct {
		fd              int32
		events, revents int16
	}{int32(fd), pollPri, 0}
	var now syscall.Timespec
	for {
		n, _, errno := syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&poll)), 1, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
		if errno == syscall.EINTR {
			continue
		}
		return errno != 0 || n > 0 && poll.revents&(pollPri|pollErr) != 0
	}
}

// statxResult is struct statx of include/uapi/linux/stat.h, as far as it is wanted.
type statxResult struct {
	mask               uint32
	_                  [28]byte
	inode              uint64
	_                  [96]byte
	devMajor, devMinor uint32
	mount              uint64
	_                  [104]byte
}

const statxMount = 0x1000 // STATX_MNT_ID

// statx asks what the kernel remembers of an open file.
func statx(fd int) (statxResult, error) {
	const (
		emptyPath, noAutomount, dontSync = 0x1000, 0x800, 0x4000 // AT_…
		typeAndInode                     = 0x1 | 0x100           // STATX_…
	)
	var st statxResult
	number, ok := numbers[runtime.GOARCH]
	if !ok {
		return st, syscall.ENOSYS
	}
	var empty byte
	_, _, errno := syscall.Syscall6(number.statx, uintptr(fd), uintptr(unsafe.Pointer(&empty)),
		emptyPath|noAutomount|dontSync, typeAndInode|statxMount, uintptr(unsafe.Pointer(&st)), 0)
	if errno != 0 {
		return st, errno
	}
	return st, nil
}

// numbers are those of system calls that the standard library does not name.
var numbers = map[string]struct{ statx, memfd uintptr }{
	"amd64": {332, 319}, "arm64": {291, 279}, "riscv64": {291, 279}, "loong64": {291, 279},
}

// innerDevices returns the file systems of the kernel that are mounted nowhere and whose files
// may be mapped: that of memfd and of shared memory, those of huge pages, and that of
// anonymous inodes.
func innerDevices() map[Dev]bool {
	inner := map[Dev]bool{}
	add := func(fd int) {
		if dev, _, err := DeviceOf(fd); err == nil {
			inner[dev] = true
		}
		syscall.Close(fd)
	}
	const cloexec, huge, huge2MB, huge1GB = 1, 4, 21 << 26, 30 << 26 // MFD_…
	for _, flags := range []uintptr{0, huge, huge | huge2MB, huge | huge1GB} {
		if fd, ok := memfd(cloexec | flags); ok {
			add(fd)
		}
	}
	if fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC); err == nil {
		add(fd)
	}
	return inner
}

func memfd(flags uintptr) (fd int, ok bool) {
	number, ok := numbers[runtime.GOARCH]
	if !ok {
		return -1, false
	}
	name := [...]byte{'m', 0}
	n, _, errno := syscall.Syscall(number.memfd, uintptr(unsafe.Pointer(&name)), flags, 0)
	return int(n), errno == 0
}
