package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"hallmark/buildid"
	"hallmark/internal/atomicfile"
	"hallmark/internal/mounts"
	"hallmark/internal/ordered"
	"hallmark/internal/plaintext"
	"hallmark/perfdata"
	"hallmark/profile"
)

const injectLong = `Fill missing build IDs of a recording that perf made, in place of 'perf inject
-b'.

A mapping gets the build ID of the file at its path, if that is proven to be the
file that was mapped. A file is proven on the host that recorded: by the same
device, inode and generation, and by no change since the recording began. The
kernel and its modules are proven if they are where they were. For others inject
reports why not, and leaves them without. Build IDs that are in the list already
stay. --trust-paths takes the files at the paths without proof, as 'perf inject
-b' does.

A build ID is a claim: files that get the same one and differ in their code are
reported.

Files that have no GNU build ID stay without: perf takes their symbols from
their paths. With --every-identity they get the digits of another identity.
For Go's build ID it is the GNU build ID that Go's linker would make of it, else
the hash of their content. Hallmark finds the files by these digits, also on
other machines; perf does not, and takes no symbols from them.

Mappings and the list of build IDs are filled, and everything else stays byte
for byte as it is. A stream has no list: records of build IDs are put before its
others. Of a damaged recording what can be read is filled, and the exit status
is 1. Without --output the recording is replaced, when the new one is whole.
Standard error has what became of each file. FILE may be '-' for standard input;
it goes to standard output then, when all of it was read. A recording that gzip
compressed needs --output, and is written uncompressed. Of the directory that
'perf record --threads' writes each file is filled; OUT is a new directory then.`

func newInjectCommand(e *env) *cobra.Command {
	i := injector{env: e}
	cmd := &cobra.Command{
		Use:   "inject [flags] FILE",
		Short: "Fill the build IDs that a recording by perf lacks",
		Long:  injectLong,
		Example: `  hallmark inject perf.data
  hallmark inject -o filled.data perf.data
  hallmark inject --trust-paths -o filled.data perf.data
  perf record -g -o - sleep 1 | hallmark inject - | hallmark report -`,
		Args: takes("FILE"),
		RunE: func(_ *cobra.Command, args []string) error { return i.run(args[0]) },
	}
	cmd.Flags().StringVarP(&i.output, "output", "o", "", "write to the file `OUT`, '-' for standard output (default: replace FILE, and standard output for standard input)")
	cmd.Flags().BoolVar(&i.trust, "trust-paths", false, "take the files that are at the recorded paths now, without proof")
	everyIdentityFlag(cmd.Flags(), &i.every)
	return cmd
}

// everyIdentityFlag adds the flag of verbs that write perf.data.
func everyIdentityFlag(flags *pflag.FlagSet, every *bool) {
	flags.BoolVar(every, "every-identity", false, "in perf.data, give files without a GNU build ID the digits of their identity too: hallmark knows them by it, and perf finds no symbols of them")
}

type injector struct {
	env       *env
	output    string
	trust     bool
	every     bool // files without a GNU build ID get their identity
	directory bool // the recording is one, and the output is
}

// recorded is what a recording reports.
type recorded struct {
	info        *perfdata.Info
	files       map[mappedFile]int // mappings
	identified  int                // mappings that have a build ID
	told        listing            // their names
	image       *perfdata.Mmap2    // the mapping of the kernel
	modules     map[string]perfdata.Mmap2
	first, last uint64 // times of records
	damage      error
	memory      int64 // bytes, about
}

func (i *injector) run(name string) error {
	files, written, err := i.open(name)
	if err != nil {
		return err
	}
	defer files.Close()
	rec, err := readMappings(files)
	if err != nil {
		return describeKind(name, fmt.Errorf("%s: %w", name, err))
	}
	listed := listedNames(rec.info)
	verdicts := i.judge(rec, listed, written)
	of := func(m *perfdata.Mmap2) []byte {
		if v := verdicts[fileOf(m)]; !v.id.IsZero() {
			return v.id.GNUForm().Bytes()
		}
		return nil
	}
	more := newList(verdicts, rec, len(listed) > 0)
	var filled perfdata.Filled
	for at, f := range files {
		write := func(w io.Writer) error {
			one, err := fill(w, files, at, of, more)
			filled.Mappings += one.Mappings
			filled.Compressed += one.Compressed
			filled.Listed = filled.Listed || one.Listed
			return err
		}
		if err := i.write(name, f, write); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return i.tell(name, rec, verdicts, listed, filled)
}

// fill copies one file of a recording with more build IDs. The first one has the list.
func fill(w io.Writer, files perfdata.Files, at int, of func(*perfdata.Mmap2) []byte, more []perfdata.HeaderBuildID) (perfdata.Filled, error) {
	if at == 0 {
		return perfdata.FillBuildIDs(w, files[0], of, more)
	}
	return perfdata.FillRecords(w, files[at], files[0], of)
}

// write writes the result. No more people may read it than could read the recording: there may
// be memory of programs in it, and perf keeps it to itself.
func (i *injector) write(name string, recording *os.File, write func(io.Writer) error) error {
	if i.output == "-" {
		return write(i.env.stdout)
	}
	to := cmp.Or(i.output, name)
	if i.directory {
		to = filepath.Join(to, filepath.Base(recording.Name()))
	}
	if i.output == "" {
		return atomicfile.Rewrite(recording, to, write)
	}
	info, err := recording.Stat()
	if err != nil {
		return err
	}
	return atomicfile.Write(to, info.Mode().Perm(), write)
}

// open opens the recording, which is read twice: what comes through a pipe, or is compressed, is
// kept in a file that has no name. It returns when it was written as well, zero for a pipe.
func (i *injector) open(name string) (perfdata.Files, time.Time, error) {
	var from io.Reader = i.env.stdin
	if name == "-" {
		name = "standard input"
		i.output = cmp.Or(i.output, "-")
	} else {
		files, err := i.openFiles(name)
		if err != nil {
			return nil, time.Time{}, err
		}
		info, err := files[0].Stat()
		regular := err == nil && info.Mode().IsRegular()
		if regular && !isGzip(files[0]) {
			return files, info.ModTime(), nil
		}
		defer files.Close()
		if i.output == "" {
			what := "is no regular file"
			if regular {
				what = "is compressed"
			}
			if regular && !hasCompressedMagic(bufio.NewReader(io.NewSectionReader(files[0], 0, info.Size()))) {
				return nil, time.Time{}, describeKind(name, fmt.Errorf("%s: %w", name, perfdata.ErrNotPerfData))
			}
			return nil, time.Time{}, usageError{fmt.Errorf("%s: %s and cannot be replaced: use --output", name, what)}
		}
		from = files[0]
	}
	kept, err := i.keepPlain(from)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("%s: %w", name, err)
	}
	return perfdata.Files{kept}, writtenAt(from), nil
}

// openFiles opens a file, or those of a directory, for which it makes the output's.
func (i *injector) openFiles(name string) (perfdata.Files, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, openFailed(err)
	}
	if i.directory = info.IsDir(); i.directory && i.output == "-" {
		return nil, usageError{fmt.Errorf("%s: is a directory, and is not written to standard output", name)}
	}
	files, err := perfdata.OpenFiles(name)
	if err == nil && i.directory && i.output != "" {
		err = atomicfile.NewDir(i.output, info.Mode().Perm())
	}
	if err != nil {
		return nil, errors.Join(err, files.Close())
	}
	return files, nil
}

// isGzip reports whether gzip compressed a regular file.
func isGzip(f *os.File) bool {
	var head [2]byte
	_, err := f.ReadAt(head[:], 0)
	return err == nil && bytes.Equal(head[:], gzipMagic)
}

// keepPlain keeps what it reads, uncompressed and within bounds.
func (i *injector) keepPlain(from io.Reader) (*os.File, error) {
	plain, err := uncompressed(from)
	if err != nil {
		return nil, err
	}
	if plain.compressed {
		return keep(&bounded{plain, profile.DefaultMaxSize})
	}
	return keep(plain)
}

// writtenAt returns when what is read was written, zero if it is no file.
func writtenAt(from io.Reader) time.Time {
	if f, ok := from.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			return info.ModTime()
		}
	}
	return time.Time{}
}

// keep copies what comes through a pipe to a file that has no name.
func keep(from io.Reader) (*os.File, error) {
	kept, err := atomicfile.Scratch()
	if err != nil {
		return nil, err
	}
	if _, err = io.Copy(kept, from); err == nil {
		_, err = kept.Seek(0, io.SeekStart)
	}
	if err != nil {
		kept.Close()
		return nil, err
	}
	return kept, nil
}

// judge finds the identities that the recording lacks.
func (i *injector) judge(rec *recorded, listed map[string]bool, written time.Time) map[mappedFile]verdict {
	p := &prover{info: rec.info, image: rec.image, trust: i.trust}
	p.began = p.beganBefore(rec.first, rec.last, written)
	verdicts := map[mappedFile]verdict{}
	for file := range rec.files {
		if !listed[file.name] {
			verdicts[file] = i.forPerf(p.file(file))
		}
	}
	if rec.image != nil && rec.image.BuildID == nil && !listed[kernelName] {
		verdicts[mappedFile{name: kernelName}] = p.mapped(rec.image)
	}
	for name, m := range rec.modules {
		if !listed[name] {
			verdicts[fileOf(&m)] = p.mapped(&m)
		}
	}
	return verdicts
}

// forPerf leaves a file without an identity that perf does not read from it: perf would look for
// a file that has it, and take no symbols from the one at the path.
func (i *injector) forPerf(v verdict) verdict {
	if i.every || v.id.IsZero() || v.id.Kind() == buildid.GNU {
		return v
	}
	return verdict{noGNU: true, err: errors.New("it has no GNU build ID: perf takes its symbols from its path (--every-identity fills in " + v.id.String() + ")")}
}

// readMappings reads what the recording has mapped.
func readMappings(files perfdata.Files) (*recorded, error) {
	r, err := perfdata.NewReader(files[0], perfdata.ReaderOptions{FileOrder: true, More: files.Records()})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	rec := &recorded{info: r.Info(), files: map[mappedFile]int{}, told: listing{}, modules: map[string]perfdata.Mmap2{}}
	limit := mappedMemory(files)
	for {
		one, err := r.Next()
		if err != nil {
			if err != io.EOF {
				rec.damage = err
			} else if problems := r.Problems(); len(problems) > 0 {
				rec.damage = problems[0]
			}
			return rec, nil
		}
		switch one := one.(type) {
		case *perfdata.Mmap2:
			rec.mapping(one)
			if rec.memory > limit {
				return nil, fmt.Errorf("at offset %d: the files that are mapped take more than %d MiB of memory", r.Offset(), limit>>20)
			}
		case *perfdata.Sample:
			if one.Time != 0 && (rec.first == 0 || one.Time < rec.first) {
				rec.first = one.Time
			}
			rec.last = max(rec.last, one.Time)
		}
	}
}

// mappedMemory is how much the files may take that a recording maps, in bytes: compressed, a few
// bytes can stand for very many. They are on the lists of what was mapped and of verdicts.
func mappedMemory(files perfdata.Files) int64 {
	limit := int64(256 << 20)
	for _, f := range files {
		if info, err := f.Stat(); err == nil {
			limit += 8 * info.Size()
		}
	}
	return limit
}

// cost is about what a file takes.
func (f mappedFile) cost() int64 { return 800 + 2*int64(len(f.name)) }

func (rec *recorded) mapping(m *perfdata.Mmap2) {
	const protExec = 4
	kernel := m.Owner == kernelOwner
	if kernel && strings.HasPrefix(m.Name, kernelName) {
		image := *m
		image.BuildID = slices.Clone(m.BuildID)
		rec.image = &image
	}
	switch {
	case m.BuildID != nil:
		rec.identified++
		if id, err := buildid.New(buildid.GNU, m.BuildID); err == nil {
			rec.memory += rec.told.add(listedName(m), id, kernel)
		}
	case kernel && !strings.HasPrefix(m.Name, kernelName):
		rec.modules[m.Name] = *m
		rec.memory += fileOf(m).cost()
	case m.Type == perfdata.TypeMmap2 && m.Prot&protExec != 0 && isFile(m):
		file := fileOf(m)
		if rec.files[file]++; rec.files[file] == 1 {
			rec.memory += file.cost()
		}
	}
}

// isFile reports whether a mapping has a file with an identity. What is on a disk is one, even if
// it has the name of memory or of a device.
func isFile(m *perfdata.Mmap2) bool {
	if m.Name == "[vdso]" {
		return true
	}
	if !strings.HasPrefix(m.Name, "/") || strings.HasPrefix(m.Name, "//") {
		return false
	}
	return m.Major != 0 ||
		!strings.HasPrefix(m.Name, "/SYSV") && !strings.HasPrefix(m.Name, "/dev/zero") && !strings.HasPrefix(m.Name, "/anon_hugepage")
}

func listedNames(info *perfdata.Info) map[string]bool {
	names := map[string]bool{}
	for _, b := range info.BuildIDs {
		names[b.Name] = true
	}
	return names
}

// listing has what goes into perf's list of build IDs, by name.
type listing map[string]*listedFile

type listedFile struct {
	ids    map[buildid.ID]bool // the zero ID of a file that has none
	kernel bool
}

// add adds an identity to what has a name, and returns about how many bytes of memory that took.
func (l listing) add(name string, id buildid.ID, kernel bool) (took int64) {
	f := l[name]
	if f == nil {
		took = 400 + int64(len(name))
		f = &listedFile{ids: map[buildid.ID]bool{}, kernel: kernel}
		l[name] = f
	}
	if !f.ids[id] {
		took += 100
		f.ids[id] = true
	}
	return took
}

// listedName is how perf's list calls what a mapping shows.
func listedName(m *perfdata.Mmap2) string {
	if m.Owner == kernelOwner && strings.HasPrefix(m.Name, kernelName) {
		return kernelName
	}
	return m.Name
}

// newList returns what to add to the list of build IDs, which goes by names: only those
// that had one file throughout. perf looks at nothing but the list where there is one, so
// a first one has what mappings tell as well.
func newList(verdicts map[mappedFile]verdict, rec *recorded, has bool) []perfdata.HeaderBuildID {
	all, found := listing{}, false
	for file, v := range verdicts {
		_, module := rec.modules[file.name]
		all.add(file.name, v.id, module || file.name == kernelName)
		found = found || !v.id.IsZero()
	}
	for name, f := range rec.told {
		for id := range f.ids {
			if all[name] != nil || found && !has {
				all.add(name, id, f.kernel)
			}
		}
	}
	var list []perfdata.HeaderBuildID
	for _, name := range slices.Sorted(maps.Keys(all)) {
		mode := perfdata.ModeUser
		if all[name].kernel {
			mode = perfdata.ModeKernel
		}
		for id := range all[name].ids {
			if len(all[name].ids) == 1 && !id.IsZero() {
				list = append(list, perfdata.HeaderBuildID{Misc: uint16(mode), PID: -1, BuildID: id.GNUForm().Bytes(), Name: name})
			}
		}
	}
	return list
}

// differentFiles returns pairs of files that got one build ID and have different contents.
// What reads the recording by build IDs alone takes them for one.
func differentFiles(verdicts map[mappedFile]verdict) [][2]string {
	var byID ordered.Multimap[buildid.ID, string]
	for file, v := range verdicts {
		if !v.id.IsZero() && strings.HasPrefix(file.name, "/") {
			byID.Add(v.id, file.name)
		}
	}
	var pairs [][2]string
	for _, id := range byID.Keys() {
		names := slices.Sorted(slices.Values(byID.Values(id)))
		if len(names) < 2 {
			continue
		}
		first := contentAt(names[0])
		for _, name := range names[1:] {
			if contentAt(name) != first {
				pairs = append(pairs, [2]string{names[0], name})
				break
			}
		}
	}
	slices.SortFunc(pairs, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
	return pairs
}

// contentAt returns the content of the file at a path, the zero one if it is not known.
func contentAt(name string) buildid.Content {
	f, err := mounts.Ours().OpenFile(name)
	if err != nil {
		return buildid.Content{}
	}
	defer f.Close()
	content, err := buildid.ReadMapped(context.Background(), f)
	if err != nil {
		return buildid.Content{}
	}
	return content
}

// tell says what was filled, what not, and why. A damaged recording is an error.
func (i *injector) tell(recording string, rec *recorded, verdicts map[mappedFile]verdict, listed map[string]bool, filled perfdata.Filled) error {
	out := bufio.NewWriter(i.env.stderr)
	files := slices.SortedFunc(maps.Keys(verdicts), func(a, b mappedFile) int {
		return cmp.Or(strings.Compare(a.name, b.name), cmp.Compare(a.inode, b.inode), cmp.Compare(a.generation, b.generation))
	})
	found, trusted, missing, left := 0, 0, 0, 0
	for _, file := range files {
		v, name := verdicts[file], nameCell(file.name)
		switch {
		case v.trusted:
			trusted++
			fmt.Fprintf(out, "trusted  %x  %s: %s\n", v.id.GNUForm().Bytes(), name, plaintext.Line(v.err.Error()))
		case v.noGNU:
			left++
			fmt.Fprintf(out, "left     %s: %s\n", name, plaintext.Line(v.err.Error()))
		case v.err == nil:
			found++
			fmt.Fprintf(out, "filled   %x  %s\n", v.id.GNUForm().Bytes(), name)
		default:
			missing++
			fmt.Fprintf(out, "missing  %s: %s\n", name, plaintext.Line(v.err.Error()))
		}
	}
	without := ""
	if left > 0 {
		without = fmt.Sprintf(", %d without a GNU build ID", left)
	}
	fmt.Fprintf(out, "%s filled, %d without proof, %d missing%s; %s of perf's list and %s had one; %s written\n",
		plural(int64(found+trusted), "file"), trusted, missing, without, plural(int64(len(listed)), "file"),
		plural(int64(rec.identified), "mapping"), plural(int64(filled.Mappings), "mapping"))
	for _, paths := range differentFiles(verdicts) {
		fmt.Fprintln(out, differentText(paths))
	}
	if missing > 0 && !i.trust {
		fmt.Fprintln(out, "--trust-paths takes files without proof")
	}
	if filled.Compressed > 0 {
		fmt.Fprintln(out, "mappings in compressed records have their build IDs in the list only")
	}
	if !filled.Listed {
		fmt.Fprintln(out, "the recording has no list of build IDs: only its mappings have them")
	}
	if err := out.Flush(); err != nil || rec.damage == nil {
		return err
	}
	return fmt.Errorf("%s: the recording is damaged, and what could not be read has no build IDs: %w", inputName(recording), rec.damage)
}
