// Package proof finds the identities and names that a recording by perf lacks, from files of this machine
// that are proven to be those that were mapped.
package proof

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/internal/contested"
	"hallmark/internal/fstimes"
	"hallmark/internal/mounts"
	"hallmark/internal/trust"
	"hallmark/perfdata"
)

// A prover finds the identities that a recording by perf lacks: those of files
// that are proven to be the ones that were mapped.
type prover struct {
	info  *perfdata.Info
	began time.Time         // not after the recording began, zero if that is not known
	image *perfdata.Mmap2   // the mapping of the kernel, nil where the recording has none
	trust bool              // give identities without proof as well
	proc  string            // /proc by default
	loads map[string]uint64 // where the kernel has its modules
}

// A File is a file as records without a build ID describe it.
type File struct {
	Name         string
	major, minor uint32
	Inode        uint64
	Generation   uint64
}

// FileOf returns the file that a record maps.
func FileOf(m *perfdata.Mmap2) File {
	return File{m.Name, m.Major, m.Minor, m.Inode, m.Generation}
}

// Verdict is what became of a file.
type Verdict struct {
	ID      buildid.ID
	Trusted bool  // without proof, which err says
	NoGNU   bool  // it has an identity, which is none that perf knows
	Err     error // why there is no ID
}

// beganAt returns a time that is not after a recording began, as far as can be known: the
// file was written last when it had ended; and times of perf's clock mostly count from
// when the machine was booted, which may have been another boot. first and last are the
// times of samples.
func beganAt(info *perfdata.Info, first, last uint64, written time.Time) time.Time {
	if c := info.Clock; c != nil {
		return time.Unix(0, int64(c.Wall+first-c.Time)).Add(-time.Second)
	}
	began := written.Add(-time.Duration(last - first))
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) == nil {
		if ago := now.Nano() - int64(first); ago > 0 && first > 0 {
			if t := time.Now().Add(-time.Duration(ago)); t.Before(began) {
				began = t
			}
		}
	}
	return began.Add(-time.Second)
}

// beganBefore is beganAt, and zero where that is not known. A recording of another boot may
// have been copied since, and was written last then. One that came through a pipe, which
// has no time, may have been recorded now, or have been kept; then it must be of this boot,
// whose clock says when.
func (p *prover) beganBefore(first, last uint64, written time.Time) time.Time {
	switch {
	case p.info.Clock != nil:
		return beganAt(p.info, first, last, written)
	case !written.IsZero() && p.bootedSince(last):
		return time.Time{}
	case !written.IsZero():
		return beganAt(p.info, first, last, written)
	}
	var now unix.Timespec
	if p.proveKernel() != nil && (unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) != nil || !isRecent(last, now.Nano())) {
		return time.Time{}
	}
	return beganAt(p.info, first, last, time.Now())
}

// bootedSince reports whether the machine was booted since it recorded, as far as that shows:
// its clock has not come so far yet, or the kernel is elsewhere.
func (p *prover) bootedSince(last uint64) bool {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) == nil && int64(last) > now.Nano() && !isRecent(last, now.Nano()) {
		return true
	}
	if p.image == nil {
		return false
	}
	at, err := kernelSymbol(strings.TrimPrefix(p.image.Name, kernelName))
	return err == nil && at != 0 && at != uint64(p.image.Offset)
}

// isRecent reports whether a time of perf's clock is about now. Both count from when the
// machine was booted, but not exactly as fast.
func isRecent(at uint64, now int64) bool {
	apart := time.Duration(now - int64(at))
	return at > 0 && apart.Abs() <= time.Minute+time.Duration(now/10_000)
}

// errUnproven says that a file is there, and may be another one than the one that was mapped.
var errUnproven = errors.New("not proven")

// verdictOf judges what err has against an identity.
func (p *prover) verdictOf(unproven error, read func() (buildid.Info, error)) Verdict {
	if unproven != nil && !p.trust {
		return Verdict{Err: fmt.Errorf("%w: %w", errUnproven, unproven)}
	}
	info, err := read()
	if err != nil {
		return Verdict{Err: err}
	}
	if info.ID.IsZero() {
		return Verdict{Err: errors.New("the file has no build ID")}
	}
	return Verdict{ID: info.ID, Trusted: unproven != nil, Err: unproven}
}

// mapped finds the identity of what a record maps.
func (p *prover) mapped(m *perfdata.Mmap2) Verdict {
	switch {
	case m.Owner == kernelOwner && strings.HasPrefix(m.Name, kernelName):
		return p.kernel()
	case m.Owner == kernelOwner:
		return p.module(m)
	}
	return p.file(FileOf(m))
}

// kernelOwner is who has the mappings of the kernel, in perf's records.
const kernelOwner = ^uint32(0)

// file finds the identity of a file.
func (p *prover) file(file File) Verdict {
	if file.Name == vdsoName {
		return p.verdictOf(p.proveKernel(), buildid.ReadVDSO)
	}
	if strings.HasSuffix(file.Name, " (deleted)") {
		return Verdict{Err: errors.New("the file was deleted")}
	}
	f, err := mounts.Ours().OpenFile(file.Name)
	if err != nil {
		return Verdict{Err: errors.Unwrap(err)}
	}
	defer f.Close()
	unproven := p.proveHost()
	if unproven == nil {
		unproven = prove(f, file, p.began)
	}
	return p.verdictOf(unproven, func() (buildid.Info, error) { return buildid.Read(f) })
}

// content returns the content of what a record maps, zero where that is not proven, or
// cannot be read in time.
func (p *prover) content(m *perfdata.Mmap2, until time.Time) buildid.Content {
	if m.Owner == kernelOwner || m.Name == vdsoName || p.proveHost() != nil {
		return buildid.Content{}
	}
	isProven := func(f *os.File) bool { return prove(f, FileOf(m), p.began) == nil }
	limits := contested.Limits{Time: max(time.Until(until), time.Nanosecond)}
	return contested.Read([]contested.File{{IsSame: isProven, Open: func() (*os.File, func()) {
		f, err := mounts.Ours().OpenFile(m.Name)
		if err != nil {
			return nil, nil
		}
		return f, func() { f.Close() }
	}}}, limits)[0]
}

const (
	vdsoName = "[vdso]"
	// kernelName is how perf calls the kernel in the list of build IDs.
	kernelName = "[kernel.kallsyms]"
)

// proveHost returns why this may be another machine than the one that recorded: the
// disks of two that were made of one image have the same files under the same numbers.
func (p *prover) proveHost() error {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return err
	}
	if host := unix.ByteSliceToString(uts.Nodename[:]); p.info.Hostname != "" && p.info.Hostname != host {
		return fmt.Errorf("it was recorded on %q, and this is %q", p.info.Hostname, host)
	}
	return nil
}

// prove returns why an open regular file may be another than the one that was mapped.
func prove(f *os.File, file File, began time.Time) error {
	var s unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &s); err != nil {
		return err
	}
	changed := time.Unix(s.Ctim.Unix())
	major, minor := unix.Major(uint64(s.Dev)), unix.Minor(uint64(s.Dev))
	switch {
	case file.Inode == 0:
		return errors.New("the recording has no inode")
	case major != file.major || minor != file.minor:
		return fmt.Errorf("it is on device %d:%d now, and was on %d:%d", major, minor, file.major, file.minor)
	case s.Ino != file.Inode:
		return fmt.Errorf("another file is there now: inode %d, and it was %d", s.Ino, file.Inode)
	case began.IsZero():
		return errors.New("when it was recorded is not known: the machine was booted since, or it was kept and came through a pipe")
	case canForge(f):
		return errors.New("others than root and this user can write it, and change its content without a change of its times")
	case changed.After(began):
		return fmt.Errorf("it was changed at %s, and the recording may have begun before (a new link to it is a change too)", changed.Format(time.DateTime))
	}
	if g, ok := generation(f); ok && file.Generation != 0 && g != file.Generation {
		return fmt.Errorf("another file has the inode now: generation %d, and it was %d", g, file.Generation)
	}
	return nil
}

// canForge reports whether others than root and this user may change the content of a file without a
// change of its times.
func canForge(f *os.File) bool {
	var fs unix.Statfs_t
	return unix.Fstatfs(int(f.Fd()), &fs) != nil || fstimes.CanForge(int64(fs.Type)) && !trust.TrustedFile(f)
}

// generation returns the number that distinguishes the files which have an inode in turn,
// where the filesystem has it.
func generation(f *os.File) (uint64, bool) {
	const getVersion = 0x80087601 // FS_IOC_GETVERSION of linux/fs.h, 64-bit
	n, err := unix.IoctlGetInt(int(f.Fd()), getVersion)
	return uint64(uint32(n)), err == nil
}

// kernel finds the identity of the kernel: that of the running one, if it is the same
// release at the same place, which changes with every boot.
func (p *prover) kernel() Verdict { return p.verdictOf(p.proveKernel(), buildid.ReadKernel) }

// proveRelease returns why this may be another machine, or another kernel may have run.
func (p *prover) proveRelease() error {
	if err := p.proveHost(); err != nil {
		return err
	}
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return err
	}
	release := unix.ByteSliceToString(uts.Release[:])
	if p.info.OSRelease != release {
		return fmt.Errorf("the kernel is %s now, and was %s", release, cmp.Or(p.info.OSRelease, "not recorded"))
	}
	return nil
}

func (p *prover) proveKernel() error {
	if err := p.proveRelease(); err != nil {
		return err
	}
	if p.image == nil {
		return errors.New("the recording does not say where the kernel was")
	}
	symbol := strings.TrimPrefix(p.image.Name, kernelName)
	at, err := kernelSymbol(symbol)
	if err != nil {
		return err
	}
	if at == 0 || at != uint64(p.image.Offset) {
		return fmt.Errorf("%s is at %#x now, and was at %#x: the machine was booted since, or hides it", symbol, at, uint64(p.image.Offset))
	}
	return nil
}

// module finds the identity of a module of the kernel: that of the one with its name
// which is loaded now, if it is where it was.
func (p *prover) module(m *perfdata.Mmap2) Verdict {
	name := moduleName(m.Name)
	return p.verdictOf(p.proveModule(name, uint64(m.Start)), func() (buildid.Info, error) { return buildid.ReadModule(name) })
}

func (p *prover) proveModule(name string, start uint64) error {
	if err := p.proveKernel(); err != nil {
		return err
	}
	at, err := p.loaded(name)
	switch {
	case err != nil:
		return err
	case at == 0 || at != start:
		return fmt.Errorf("it is at %#x now, and was at %#x: it was loaded again since", at, start)
	}
	return nil
}

// loaded returns where the kernel has a module, 0 where it hides it.
func (p *prover) loaded(name string) (uint64, error) {
	if p.loads == nil {
		loads, err := readModules(cmp.Or(p.proc, "/proc") + "/modules")
		if err != nil {
			return 0, err
		}
		p.loads = loads
	}
	at, ok := p.loads[name]
	if !ok {
		return 0, errors.New("the module is not loaded now")
	}
	return at, nil
}

// readModules reads where modules are loaded, from a file like /proc/modules.
func readModules(file string) (map[string]uint64, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	loads := map[string]uint64{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// nf_tables 380928 1 nft_ct, Live 0xffffffffc0800000 (E)
		var at uint64
		if words := strings.Fields(lines.Text()); len(words) > 5 {
			if _, err := fmt.Sscanf(words[5], "0x%x", &at); err == nil {
				loads[words[0]] = at
			}
		}
	}
	return loads, lines.Err()
}

// moduleName returns the name that the kernel has for the module in a file:
// "nf_tables" for /lib/modules/6.1.0/kernel/net/netfilter/nf-tables.ko.xz, and for
// [nf_tables].
func moduleName(file string) string {
	if name, ok := strings.CutPrefix(file, "["); ok {
		return strings.TrimSuffix(name, "]")
	}
	name, _, _ := strings.Cut(path.Base(file), ".ko")
	return strings.ReplaceAll(name, "-", "_")
}

// kernelSymbol returns the address of one of the first symbols of the kernel, 0 where it
// is hidden or not there.
func kernelSymbol(name string) (uint64, error) {
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var at uint64
		var kind, symbol string
		if _, err := fmt.Sscanf(lines.Text(), "%x %s %s", &at, &kind, &symbol); err == nil && symbol == name {
			return at, nil
		}
	}
	return 0, nil
}
