package cli

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/internal/atomicfile"
	"hallmark/perfdata"
	"hallmark/profile/toperf"
)

const injectLong = `Fill missing build IDs of a recording that perf made, in place of 'perf inject -b'.

The build ID of a mapping is that of the file at its path, if that is proven to be the
file that was mapped: the same device, inode and generation as recorded, and not changed
since the recording began. Of others it says why not, and leaves them without; what is
in the list of build IDs already stays as it is. --trust-paths takes what is at the
paths without proof, as 'perf inject -b' does.

Files that have no GNU build ID but that of Go's toolchain get what Go's linker makes a
GNU build ID of it by. perf knows no such file again, and takes no symbols from it.

Mappings and the list of build IDs are filled, and everything else stays byte for byte as
it is. Without --output the recording is replaced, when the new one is whole.`

func newInjectCommand(e *env) *cobra.Command {
	i := injector{env: e}
	cmd := &cobra.Command{
		Use:   "inject [flags] FILE",
		Short: "Fill the build IDs that a recording by perf lacks",
		Long:  injectLong,
		Example: `  hallmark inject perf.data
  hallmark inject -o filled.data perf.data
  hallmark inject --trust-paths -o filled.data perf.data`,
		Args: usage(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error { return i.run(args[0]) },
	}
	cmd.Flags().StringVarP(&i.output, "output", "o", "", "write to the file `OUT`, '-' for standard output (default: replace FILE)")
	cmd.Flags().BoolVar(&i.trust, "trust-paths", false, "take the files that are at the recorded paths now, without proof")
	return cmd
}

type injector struct {
	env    *env
	output string
	trust  bool
}

// mappedFile is a file as records without a build ID tell of it.
type mappedFile struct {
	name         string
	major, minor uint32
	inode        uint64
	generation   uint64
}

// verdict is what became of a file.
type verdict struct {
	id      buildid.ID
	trusted bool  // without proof, which err says
	err     error // why there is no ID
}

// recorded is what a recording tells.
type recorded struct {
	info        *perfdata.Info
	files       map[mappedFile]int // mappings
	identified  int                // mappings that have a build ID
	kernel      *perfdata.Mmap2    // the image
	first, last uint64             // times of records
	damage      error
}

func (i *injector) run(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s: is no regular file, and has to be read twice", name)
	}
	rec, err := readMappings(f)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	before := rec.began(info.ModTime())
	listed := listedNames(rec.info)
	verdicts := map[mappedFile]verdict{}
	kernel := rec.kernelVerdict(i.trust)
	for file := range rec.files {
		if !listed[file.name] {
			verdicts[file] = i.verdict(file, before, kernel.err)
		}
	}
	more := newList(verdicts)
	if rec.kernel != nil && !listed[kernelName] && !kernel.id.IsZero() {
		more = append(more, perfdata.HeaderBuildID{Misc: uint16(perfdata.ModeKernel), PID: -1, BuildID: toperf.BuildID(kernel.id), Name: kernelName})
	}
	of := func(m *perfdata.Mmap2) []byte {
		if v := verdicts[fileOf(m)]; !v.id.IsZero() {
			return toperf.BuildID(v.id)
		}
		return nil
	}
	var filled perfdata.Filled
	write := func(w io.Writer) (err error) {
		filled, err = perfdata.FillBuildIDs(w, f, of, more)
		return err
	}
	if i.output == "-" {
		err = write(i.env.stdout)
	} else {
		err = atomicfile.Write(cmp.Or(i.output, name), 0o666, write)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if rec.kernel != nil && !listed[kernelName] {
		verdicts[mappedFile{name: kernelName}] = kernel
	}
	return i.tell(rec, verdicts, listed, filled)
}

// kernelName is how perf calls the kernel in the list of build IDs.
const kernelName = "[kernel.kallsyms]"

func fileOf(m *perfdata.Mmap2) mappedFile {
	return mappedFile{m.Name, m.Major, m.Minor, m.Inode, m.Generation}
}

// readMappings reads what the recording has mapped.
func readMappings(f *os.File) (*recorded, error) {
	r, err := perfdata.NewReader(f, perfdata.ReaderOptions{FileOrder: true})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	rec := &recorded{info: r.Info(), files: map[mappedFile]int{}}
	for {
		one, err := r.Next()
		if err != nil {
			if err != io.EOF {
				rec.damage = err
			}
			return rec, nil
		}
		switch one := one.(type) {
		case *perfdata.Mmap2:
			rec.mapping(one)
		case *perfdata.Sample:
			if one.Time != 0 && (rec.first == 0 || one.Time < rec.first) {
				rec.first = one.Time
			}
			rec.last = max(rec.last, one.Time)
		}
	}
}

func (rec *recorded) mapping(m *perfdata.Mmap2) {
	const protExec = 4
	switch {
	case m.BuildID != nil:
		rec.identified++
	case strings.HasPrefix(m.Name, kernelName):
		image := *m
		rec.kernel = &image
	case m.Type == perfdata.TypeMmap2 && m.Prot&protExec != 0 && isFile(m.Name):
		rec.files[fileOf(m)]++
	}
}

// isFile reports whether a mapping of that name has a file with an identity.
func isFile(name string) bool {
	return name == "[vdso]" || strings.HasPrefix(name, "/") && !strings.HasPrefix(name, "//") &&
		!strings.HasPrefix(name, "/SYSV") && !strings.HasPrefix(name, "/dev/") && !strings.HasPrefix(name, "/anon_hugepage")
}

func listedNames(info *perfdata.Info) map[string]bool {
	names := map[string]bool{}
	for _, b := range info.BuildIDs {
		names[b.Name] = true
	}
	return names
}

// began returns a time that is not after the recording began, as far as can be known:
// the file was written last when it had ended; and times of perf's clock mostly count
// from when the machine was booted, which may have been another boot.
func (rec *recorded) began(written time.Time) time.Time {
	if c := rec.info.Clock; c != nil {
		return time.Unix(0, int64(c.Wall+rec.first-c.Time)).Add(-time.Second)
	}
	began := written.Add(-time.Duration(rec.last - rec.first))
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) == nil {
		if ago := now.Nano() - int64(rec.first); ago > 0 && rec.first > 0 {
			if t := time.Now().Add(-time.Duration(ago)); t.Before(began) {
				began = t
			}
		}
	}
	return began.Add(-time.Second)
}

// verdict finds the identity of a file.
func (i *injector) verdict(file mappedFile, began time.Time, kernel error) verdict {
	if file.name == "[vdso]" {
		return vdsoVerdict(kernel, i.trust)
	}
	if strings.HasSuffix(file.name, " (deleted)") {
		return verdict{err: errors.New("the file was deleted")}
	}
	f, err := os.OpenFile(file.name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return verdict{err: errors.Unwrap(err)}
	}
	defer f.Close()
	unproven := prove(f, file, began)
	if unproven != nil && !i.trust {
		return verdict{err: fmt.Errorf("not proven: %w", unproven)}
	}
	info, err := buildid.Read(f)
	if err != nil {
		return verdict{err: err}
	}
	if info.ID.IsZero() {
		return verdict{err: errors.New("the file has no build ID")}
	}
	return verdict{id: info.ID, trusted: unproven != nil, err: unproven}
}

// prove returns why an open file may be another than the one that was mapped.
func prove(f *os.File, file mappedFile, began time.Time) error {
	var s unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &s); err != nil {
		return err
	}
	changed := time.Unix(s.Ctim.Unix())
	major, minor := unix.Major(uint64(s.Dev)), unix.Minor(uint64(s.Dev))
	switch {
	case s.Mode&unix.S_IFMT != unix.S_IFREG:
		return errors.New("it is no regular file now")
	case file.inode == 0:
		return errors.New("the recording does not tell the inode")
	case major != file.major || minor != file.minor:
		return fmt.Errorf("it is on device %d:%d now, and was on %d:%d", major, minor, file.major, file.minor)
	case s.Ino != file.inode:
		return fmt.Errorf("another file is there now: inode %d, and it was %d", s.Ino, file.inode)
	case changed.After(began):
		return fmt.Errorf("it was changed at %s, and the recording may have begun before (a new link to it is a change too)", changed.Format(time.DateTime))
	}
	if g, ok := generation(f); ok && file.generation != 0 && g != file.generation {
		return fmt.Errorf("another file has the inode now: generation %d, and it was %d", g, file.generation)
	}
	return nil
}

// generation returns the number that tells apart the files which have an inode in turn,
// where the filesystem tells it.
func generation(f *os.File) (uint64, bool) {
	const getVersion = 0x80087601 // FS_IOC_GETVERSION of linux/fs.h, 64-bit
	n, err := unix.IoctlGetInt(int(f.Fd()), getVersion)
	return uint64(uint32(n)), err == nil
}

func vdsoVerdict(kernel error, trust bool) verdict {
	if kernel != nil && !trust {
		return verdict{err: kernel}
	}
	info, err := buildid.ReadVDSO()
	if err != nil {
		return verdict{err: err}
	}
	return verdict{id: info.ID, trusted: kernel != nil, err: kernel}
}

// kernelVerdict finds the identity of the kernel: that of the running one, if it is the
// same release at the same place, which changes with every boot.
func (rec *recorded) kernelVerdict(trust bool) verdict {
	unproven := rec.proveKernel()
	if unproven != nil && !trust {
		return verdict{err: fmt.Errorf("not proven: %w", unproven)}
	}
	info, err := buildid.ReadKernel()
	if err != nil {
		return verdict{err: err}
	}
	return verdict{id: info.ID, trusted: unproven != nil, err: unproven}
}

func (rec *recorded) proveKernel() error {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return err
	}
	release := unix.ByteSliceToString(uts.Release[:])
	if rec.info.OSRelease != release {
		return fmt.Errorf("the kernel is %s now, and was %s", release, cmp.Or(rec.info.OSRelease, "not told"))
	}
	if rec.kernel == nil {
		return errors.New("the recording does not tell where the kernel was")
	}
	symbol := strings.TrimPrefix(rec.kernel.Name, kernelName)
	at, err := kernelSymbol(symbol)
	if err != nil {
		return err
	}
	if at == 0 || at != uint64(rec.kernel.Offset) {
		return fmt.Errorf("%s is at %#x now, and was at %#x: the machine was booted since, or hides it", symbol, at, uint64(rec.kernel.Offset))
	}
	return nil
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

// newList returns what to add to the list of build IDs, which goes by names: only those
// that had one file throughout.
func newList(verdicts map[mappedFile]verdict) []perfdata.HeaderBuildID {
	byName := map[string]map[buildid.ID]bool{}
	for file, v := range verdicts {
		if byName[file.name] == nil {
			byName[file.name] = map[buildid.ID]bool{}
		}
		byName[file.name][v.id] = true
	}
	var list []perfdata.HeaderBuildID
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		for id := range byName[name] {
			if len(byName[name]) == 1 && !id.IsZero() {
				list = append(list, perfdata.HeaderBuildID{Misc: uint16(perfdata.ModeUser), PID: -1, BuildID: toperf.BuildID(id), Name: name})
			}
		}
	}
	return list
}

// tell says what was filled, what not, and why.
func (i *injector) tell(rec *recorded, verdicts map[mappedFile]verdict, listed map[string]bool, filled perfdata.Filled) error {
	w := i.env.stdout
	if i.output == "-" {
		w = i.env.stderr
	}
	out := bufio.NewWriter(w)
	files := slices.SortedFunc(maps.Keys(verdicts), func(a, b mappedFile) int {
		return cmp.Or(strings.Compare(a.name, b.name), cmp.Compare(a.inode, b.inode), cmp.Compare(a.generation, b.generation))
	})
	found, trusted, missing := 0, 0, 0
	for _, file := range files {
		v := verdicts[file]
		switch {
		case v.trusted:
			trusted++
			fmt.Fprintf(out, "trusted  %x  %s: %v\n", toperf.BuildID(v.id), file.name, v.err)
		case v.err == nil:
			found++
			fmt.Fprintf(out, "filled   %x  %s\n", toperf.BuildID(v.id), file.name)
		default:
			missing++
			fmt.Fprintf(out, "missing  %s: %v\n", file.name, v.err)
		}
	}
	fmt.Fprintf(out, "%s filled, %d without proof, %d missing; %s of perf's list and %s had one; %s written\n",
		plural(int64(found+trusted), "file"), trusted, missing, plural(int64(len(listed)), "file"),
		plural(int64(rec.identified), "mapping"), plural(int64(filled.Mappings), "mapping"))
	if missing > 0 && !i.trust {
		fmt.Fprintln(out, "--trust-paths takes files without proof")
	}
	if filled.Compressed > 0 {
		fmt.Fprintln(out, "mappings in compressed records have their build IDs in the list only")
	}
	if !filled.Listed {
		fmt.Fprintln(out, "the recording has no list of build IDs: only its mappings have them")
	}
	if rec.damage != nil {
		fmt.Fprintf(out, "the recording is damaged: %v\n", rec.damage)
	}
	return out.Flush()
}
