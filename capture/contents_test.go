package capture

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/internal/contested"
	"hallmark/internal/fstimes"
	"hallmark/internal/objects"
	"hallmark/internal/proctest"
	"hallmark/internal/reach"
	"hallmark/internal/testenv"
	"hallmark/profile"
	"hallmark/reason"
)

// filesOf returns the samples in a function by the files that they are in.
func filesOf(p *pprof.Profile, function string) map[string]int64 {
	counts := map[string]int64{}
	for _, s := range p.Sample {
		for c := range profile.Calls(s) {
			if c.Function != nil && c.Function.Name == function {
				counts[c.Location.Mapping.File] += s.Value[0]
				break
			}
		}
	}
	return counts
}

// checkOnly wants samples in a function, all of them in one file.
func checkOnly(t *testing.T, p *pprof.Profile, function, file string) {
	t.Helper()
	if found := filesOf(p, function); found[file] == 0 || len(found) != 1 {
		t.Errorf("samples in %s are in %v, want %s", function, found, file)
	}
}

func checkDisagreement(t *testing.T, p *pprof.Profile, id buildid.ID, files ...string) {
	t.Helper()
	notes := profile.Disagreements(p)
	if len(notes) != 1 || !strings.HasSuffix(notes[0], " "+id.String()) {
		t.Errorf("notes %q, want one on %v", notes, id)
		return
	}
	for _, file := range files {
		if !strings.Contains(notes[0], file) {
			t.Errorf("note %q does not name %s", notes[0], file)
		}
	}
}

// mappingOf returns the mapping of a file.
func mappingOf(t *testing.T, p *pprof.Profile, file string) *pprof.Mapping {
	t.Helper()
	i := slices.IndexFunc(p.Mapping, func(m *pprof.Mapping) bool { return m.File == file })
	if i < 0 {
		t.Fatalf("no mapping of %s", file)
	}
	return p.Mapping[i]
}

// TestRecordTwoBuildsOfOneID records two builds that claim one build ID, together and after
// each other, in each order. None gets the names of the other.
func TestRecordTwoBuildsOfOneID(t *testing.T) { eachBackend(t, recordTwoBuildsOfOneID) }

func recordTwoBuildsOfOneID(t *testing.T, backend Backend) {
	testenv.Root(t)
	one, two := proctest.TwoBuilds(t, proctest.SharedID)
	for name, script := range map[string]string{
		"together": `"$1" 300 & "$2" 300 & wait`,
		"one, two": `"$1" 300; "$2" 300`,
		"two, one": `"$2" 300; "$1" 300`,
	} {
		t.Run(name, func(t *testing.T) {
			p, _, _ := recordCommand(t, Options{Backend: backend}, "sh", "-c", script, "sh", one, two)
			checkOnly(t, p, "burn", one)
			checkOnly(t, p, "burn_other", two)
			checkDisagreement(t, p, proctest.FileID(t, one), one, two)
			claims := profile.Claims(p)
			for _, file := range []string{one, two} {
				m := mappingOf(t, p, file)
				if id, _ := profile.Identity(m); id.Kind() != buildid.ByContent || claims[m] != proctest.FileID(t, one) {
					t.Errorf("%s is %s, and claims %v", file, m.BuildID, claims[m])
				}
			}
			merged, err := pprof.Merge([]*pprof.Profile{p, p})
			if err != nil {
				t.Fatal(err)
			}
			checkOnly(t, merged, "burn", one)
			checkOnly(t, merged, "burn_other", two)
		})
	}
}

// TestRecordOneIDAtOnePath records a program that is replaced by another build of its build
// ID, in each of the ways in which builders do: by rename, and in place.
func TestRecordOneIDAtOnePath(t *testing.T) { eachBackend(t, recordOneIDAtOnePath) }

func recordOneIDAtOnePath(t *testing.T, backend Backend) {
	testenv.Root(t)
	one, two := proctest.TwoBuilds(t, proctest.SharedID)
	for name, replace := range map[string]string{
		"renamed":  `cp "$2" "$3.new"; mv "$3.new" "$3"`,
		"in place": `cat "$2" >"$3"`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			program, first, second := filepath.Join(dir, "busy-c"), filepath.Join(dir, "first"), filepath.Join(dir, "second")
			script := `cp "$1" "$3"; "$3" 200 & echo $! >"$4"; wait $!; ` + replace + `; "$3" 200 & echo $! >"$5"; wait $!`
			p, _, _ := recordCommand(t, Options{Backend: backend}, "sh", "-c", script, "sh", one, two, program, first, second)
			for file, wrong := range map[string]string{first: "burn_other", second: "burn"} {
				pid, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				for _, s := range p.Sample {
					if _, n := profile.Process(s); fmt.Sprintln(n) != string(pid) {
						continue
					}
					for c := range profile.Calls(s) {
						if c.Function != nil && c.Function.Name == wrong {
							t.Fatalf("%d samples of the %s program are in %s", s.Value[0], filepath.Base(file), wrong)
						}
					}
				}
			}
			if name == "renamed" {
				checkDisagreement(t, p, proctest.FileID(t, one), program)
			}
		})
	}
}

// TestRecordForgery records a program of an unprivileged user that claims the build ID of the
// C library, beside programs that use the real one.
func TestRecordForgery(t *testing.T) { eachBackend(t, recordForgery) }

func recordForgery(t *testing.T, backend Backend) {
	testenv.Root(t)
	library, err := filepath.EvalSymlinks(proctest.LibC(t))
	if err != nil {
		t.Fatal(err)
	}
	id := proctest.FileID(t, library)
	dir := t.TempDir()
	source, honest, forged := filepath.Join(dir, "lengths.c"), filepath.Join(dir, "lengths"), filepath.Join(dir, "forged")
	const lengths = `#include <string.h>
		#include <time.h>
		char text[1 << 20];
		volatile unsigned long sum;
		int main(void) {
			memset(text, 'x', sizeof text - 1);
			for (clock_t end = clock() + CLOCKS_PER_SEC / 2; clock() < end; ) sum += strlen(text);
			return 0;
		}`
	if err := os.WriteFile(source, []byte(lengths), 0o666); err != nil {
		t.Fatal(err)
	}
	proctest.Compile(t, "gcc", honest, "-O1", "-fno-builtin", "-fno-omit-frame-pointer", source)
	proctest.CopyTo(t, proctest.BuildC(t, "-DOTHER", "-static", "-Wl,--build-id=0x"+id.String()), forged)
	if err := os.Chown(forged, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	testenv.Tool(t, "setpriv")
	for name, script := range map[string]string{
		"together":      `setpriv --reuid 65534 --clear-groups "$1" 200 & "$2" & wait`,
		"forgery first": `setpriv --reuid 65534 --clear-groups "$1" 200; "$2"`,
		"forgery last":  `"$2"; setpriv --reuid 65534 --clear-groups "$1" 200`,
	} {
		t.Run(name, func(t *testing.T) {
			p, _, _ := recordCommand(t, Options{Backend: backend}, "sh", "-c", script, "sh", forged, honest)
			checkOnly(t, p, "burn_other", forged)
			false := mappingOf(t, p, forged)
			// With perf a process that is gone before its mappings were looked at leaves it open which
			// library was mapped. Then that has no identity, because another file claims it.
			isOpen := backend == Perf && !slices.ContainsFunc(p.Mapping, func(m *pprof.Mapping) bool { return m.File == library })
			if !isOpen {
				if shown, _ := profile.Identity(mappingOf(t, p, library)); shown != id {
					t.Errorf("the C library is %v, want %v", shown, id)
				}
			}
			if shown, _ := profile.Identity(false); shown.Kind() != buildid.ByContent || profile.Claims(p)[false] != id {
				t.Errorf("the forgery is %v and claims %v", shown, profile.Claims(p)[false])
			}
			for _, s := range p.Sample {
				process, _ := profile.Process(s)
				for _, l := range s.Location {
					if l.Mapping != nil && l.Mapping.File == library && process == "forged" || l.Mapping.File == forged && process == "lengths" {
						t.Fatalf("a frame of %s is in %s", process, l.Mapping.File)
					}
				}
			}
			if !isOpen {
				checkDisagreement(t, p, id, library, forged)
			}
		})
	}
}

// TestRecordForgedNames records copies of a program whose owners call its function otherwise:
// what they say names no frame of a file that is not theirs.
func TestRecordForgedNames(t *testing.T) { eachBackend(t, recordForgedNames) }

func recordForgedNames(t *testing.T, backend Backend) {
	testenv.Root(t)
	testenv.Tool(t, "setpriv")
	one, dir := proctest.BuildC(t), t.TempDir()
	renamed := func(name, function string, owner int) string {
		file := filepath.Join(dir, name)
		if msg, err := exec.Command(testenv.Tool(t, "objcopy"), "--redefine-sym", "burn="+function, one, file).CombinedOutput(); err != nil {
			t.Fatalf("objcopy: %v\n%s", err, msg)
		}
		if err := os.Chown(file, owner, owner); err != nil {
			t.Fatal(err)
		}
		return file
	}
	first, second := renamed("first", "first_says", 65534), renamed("second", "second_says", 65533)
	const asFirst, asSecond = `setpriv --reuid 65534 --clear-groups "$1" 150`, `setpriv --reuid 65533 --clear-groups "$2" 150`
	for name, script := range map[string]string{
		"forged first": asFirst + `; "$3" 150`,
		"real first":   `"$3" 150; ` + asFirst,
		"together":     asFirst + ` & "$3" 150 & wait`,
	} {
		t.Run(name, func(t *testing.T) {
			p, _, _ := recordCommand(t, Options{Backend: backend}, "sh", "-c", script, "sh", first, second, one)
			checkOnly(t, p, "burn", one)
			if found := filesOf(p, "first_says"); len(found) > 0 {
				t.Errorf("names of the forgery: %v", found)
			}
		})
	}
	for name, script := range map[string]string{"two users": asFirst + `; ` + asSecond, "two users, the other way round": asSecond + `; ` + asFirst} {
		t.Run(name, func(t *testing.T) {
			p, _, _ := recordCommand(t, Options{Backend: backend}, "sh", "-c", script, "sh", first, second, one)
			checkOnly(t, p, "first_says", first)
			checkOnly(t, p, "second_says", second)
		})
	}
}

// TestRecordSwapped has an unprivileged user execute a copy of a program, then another build of
// the same build ID at the same path, and put the copy back while that runs: no frame of it may
// become one of the program.
func TestRecordSwapped(t *testing.T) { eachBackend(t, recordSwapped) }

func recordSwapped(t *testing.T, backend Backend) {
	testenv.Root(t)
	testenv.Tool(t, "setpriv")
	one, two := proctest.TwoBuilds(t, proctest.SharedID)
	dir := t.TempDir()
	if err := errors.Join(os.Chown(dir, 65534, 65534), os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
		t.Fatal(err)
	}
	const script = `"$2" 200
		setpriv --reuid 65534 --clear-groups sh -c 'cp "$1" x && cp "$2" y && ./x 200; mv x kept; mv y x; ./x 200 & echo $! >pid; until [ "$(readlink /proc/$!/exe)" = "$PWD/x" ]; do :; done; mv x y; mv kept x; wait' sh "$2" "$3"`
	p, _, _ := recordCommand(t, Options{Backend: backend}, "sh", "-c", `cd "$1"; `+script, "sh", dir, one, two)
	pid, err := os.ReadFile(filepath.Join(dir, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, s := range p.Sample {
		process, n := profile.Process(s)
		if fmt.Sprintln(n) != string(pid) || process != "x" {
			continue
		}
		found++
		for c := range profile.Calls(s) {
			m := c.Location.Mapping
			if m != nil && m.File == one || c.Function != nil && c.Function.Name == "burn" {
				t.Fatalf("a frame of the other build is %v in %s", c.Function, m.File)
			}
		}
	}
	if found == 0 {
		t.Error("no samples of the other build")
	}
}

// TestRecordCopies records a program, a copy of it and one that is stripped: they are one
// build, and nothing is said of them.
func TestRecordCopies(t *testing.T) { eachBackend(t, recordCopies) }

func recordCopies(t *testing.T, backend Backend) {
	testenv.Root(t)
	one, dir := proctest.BuildC(t), t.TempDir()
	copied, stripped := filepath.Join(dir, "copied"), filepath.Join(dir, "stripped")
	proctest.CopyTo(t, one, copied)
	if msg, err := exec.Command(testenv.Tool(t, "strip"), "-o", stripped, one).CombinedOutput(); err != nil {
		t.Fatalf("strip: %v\n%s", err, msg)
	}
	p, _, stats := recordCommand(t, Options{Backend: backend}, "sh", "-c", `"$1" 200; "$2" 200; "$3" 200`, "sh", one, copied, stripped)
	found := samplesIn(p, "burn")
	checkMost(t, fmt.Sprint("samples in burn: ", found), found[proctest.FileID(t, one)], int64(stats.Samples), 0.8)
	if found := filesOf(p, "burn"); len(found) != 1 {
		t.Errorf("samples in burn are in %v, want one file", found)
	}
	if notes := profile.Disagreements(p); len(notes) > 0 {
		t.Errorf("notes %q", notes)
	}
}

// TestRecordContainers records a program of a layer that two containers have, each on an
// overlay and in a mount namespace of its own: it is one build.
func TestRecordContainers(t *testing.T) { eachBackend(t, recordContainers) }

func recordContainers(t *testing.T, backend Backend) {
	testenv.Root(t)
	one := proctest.BuildC(t)
	const inOverlay = `mount -t tmpfs none /mnt && mkdir /mnt/up /mnt/work "/mnt/$2" &&
		mount -t overlay -o lowerdir="$1",upperdir=/mnt/up,workdir=/mnt/work none "/mnt/$2" && exec "/mnt/$2/busy-c" 150`
	isolate := []string{testenv.Tool(t, "unshare"), "-m", "sh", "-c"}
	if err := exec.Command(isolate[0], append(isolate[1:], inOverlay, "sh", filepath.Dir(one), "try")...).Run(); err != nil {
		testenv.Need(t, false, "overlayfs")
	}
	p, _, stats := recordCommand(t, Options{Backend: backend}, "sh", "-c",
		`unshare -m sh -c "$1" sh "$2" first & unshare -m sh -c "$1" sh "$2" second & wait`, "sh", inOverlay, filepath.Dir(one))
	if found := filesOf(p, "burn"); len(found) != 1 {
		t.Errorf("samples in burn are in %v, want one file", found)
	}
	found := samplesIn(p, "burn")
	checkMost(t, fmt.Sprint("samples in burn: ", found), found[proctest.FileID(t, one)], int64(stats.Samples), 0.6)
	if notes := profile.Disagreements(p); len(notes) > 0 {
		t.Errorf("notes %q", notes)
	}
}

// TestReadContentsIsBounded has files that cannot be read within the limits: their content is
// unknown, and they are the same as no other.
func TestReadContentsIsBounded(t *testing.T) {
	one, _ := proctest.TwoBuilds(t, proctest.SharedID)
	set := objects.New()
	defer set.Close()
	copied := filepath.Join(t.TempDir(), "copied")
	proctest.CopyTo(t, one, copied)
	a, b := exactObjectOf(t, set, one), exactObjectOf(t, set, copied)
	set.Stop()
	identify := func(limits contested.Limits) *finisher {
		f := &finisher{files: map[distinct]*identified{}, ofObject: map[*objects.Object]*identified{}}
		f.distinguish(f.read([]*objects.Object{a, b}, limits))
		return f
	}
	if f := identify(contentLimits); f.ofObject[a] != f.ofObject[b] || f.ofObject[a].Content.IsZero() {
		t.Errorf("copies are %+v and %+v", f.ofObject[a].Binary, f.ofObject[b].Binary)
	}
	if f := identify(contested.Limits{Time: contentLimits.Time, Bytes: 1}); f.ofObject[a] == f.ofObject[b] || !f.ofObject[a].Content.IsZero() {
		t.Errorf("files that were not read are %+v and %+v", f.ofObject[a].Binary, f.ofObject[b].Binary)
	}
}

func openFile(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// exactObjectOf returns the object of a file that is certain to be what was mapped.
func exactObjectOf(t *testing.T, s *objects.Set, name string) *objects.Object {
	t.Helper()
	f := openFile(t, name)
	return s.OfOpened(objects.Opened{Path: name, ID: proctest.FileID(t, name), Content: f, Seen: reach.StampOf(f), Exact: true})
}

// TestBeyondTheCode has a stranger execute what is not code of his copy of a file of this user:
// those bytes are not compared, and are shown as nothing of that file. The copy's code is its.
func TestBeyondTheCode(t *testing.T) {
	testenv.Root(t)
	one := proctest.BuildC(t)
	copied := filepath.Join(t.TempDir(), "copied")
	proctest.CopyTo(t, one, copied)
	if err := os.Chown(copied, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * fstimes.Delay())
	set := objects.New()
	defer set.Close()
	ours, theirs := exactObjectOf(t, set, one), exactObjectOf(t, set, copied)
	set.Stop()
	f := &finisher{files: map[distinct]*identified{}, ofObject: map[*objects.Object]*identified{}}
	f.distinguish(f.read([]*objects.Object{theirs, ours}, contentLimits))
	b := f.ofObject[ours]
	if b != f.ofObject[theirs] || b.Path != one || len(b.Segments) == 0 {
		t.Fatalf("the file is %+v, its copy %+v", b.Binary, f.ofObject[theirs].Binary)
	}
	code, data := uint64(b.Segments[0].Offset), uint64(0)
	if b.executes(addr.Offset(data)) {
		testenv.Lack(t, "the headers are in the segment of the code")
	}
	for _, o := range []*objects.Object{ours, theirs} {
		if got := f.frame(place{object: o, at: code}); got.Binary != &b.Binary {
			t.Errorf("code of %s is of %+v", o.Path, got.Binary)
		}
	}
	if got := f.frame(place{object: ours, at: data}); got.Binary != &b.Binary {
		t.Errorf("data of %s is of %+v", one, got.Binary)
	}
	if got := f.frame(place{object: theirs, at: data}); got.Binary.Claimant == nil || got.Binary.Path != copied || !got.Binary.Content.IsZero() {
		t.Errorf("data of the copy is of %+v", got.Binary)
	}
}

// TestUnknownContentHasNoLayout has a file of unknown content beside one that claims the same
// identity: pprof, which merges files of one build ID and layout, must keep them apart.
func TestUnknownContentHasNoLayout(t *testing.T) {
	one, two := proctest.TwoBuilds(t, proctest.SharedID)
	set := objects.New()
	defer set.Close()
	a := exactObjectOf(t, set, one)
	b := set.OfOpened(objects.Opened{Path: two, ID: a.ID, Content: openFile(t, two)})
	set.Stop()
	f := &finisher{files: map[distinct]*identified{}, ofObject: map[*objects.Object]*identified{}}
	f.distinguish(f.read([]*objects.Object{a, b}, contentLimits))
	builder := profile.NewBuilder(1)
	var all []*pprof.Location
	for _, o := range []*objects.Object{a, b} {
		all = append(all, builder.Location(&profile.Frame{Binary: &f.ofObject[o].Binary, Offset: 0x1100}))
	}
	builder.Count(builder.Stack(all, profile.Walk{}), builder.Owner(&profile.Labels{}), 1, 1)
	p, err := pprof.Merge([]*pprof.Profile{builder.Profile()})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Mapping) != 2 || f.ofObject[a].Content.IsZero() || !f.ofObject[b].Content.IsZero() {
		t.Errorf("%+v and %+v are %v", f.ofObject[a].Binary, f.ofObject[b].Binary, p.Mapping)
	}
}

// hideCode gives each section of code the type of one that has no bytes in the file, as a debug
// file has it. The loader does not look at sections.
func hideCode(t *testing.T, name string) {
	t.Helper()
	changeSections(t, name, func(s *elf.Section) (elf.SectionType, bool) {
		return elf.SHT_NOBITS, s.Flags&elf.SHF_EXECINSTR != 0
	})
}

// hideNames makes what names the code nothing that anybody reads.
func hideNames(t *testing.T, name string) {
	t.Helper()
	changeSections(t, name, func(s *elf.Section) (elf.SectionType, bool) {
		return elf.SHT_NULL, s.Flags&elf.SHF_ALLOC == 0 && s.Name != ".shstrtab"
	})
}

// changeSections changes the types of sections of a 64-bit program.
func changeSections(t *testing.T, name string, change func(*elf.Section) (elf.SectionType, bool)) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	at := binary.LittleEndian.Uint64(b[40:]) // e_shoff
	for i, s := range f.Sections {
		if to, ok := change(s); ok {
			binary.LittleEndian.PutUint32(b[at+uint64(i)*64+4:], uint32(to))
		}
	}
	if err := os.WriteFile(name, b, 0o755); err != nil {
		t.Fatal(err)
	}
}

// addSegments gives a program more segments of code than a content is computed of: the program
// headers move to the end of the file.
func addSegments(t *testing.T, name string) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	const entry, more, page, far = 56, 257, 4096, 0x10_0000_0000
	put := binary.LittleEndian
	load := func(flags elf.ProgFlag, offset, virt, size uint64) []byte {
		p := put.AppendUint32(nil, uint32(elf.PT_LOAD))
		p = put.AppendUint32(p, uint32(flags))
		for _, v := range []uint64{offset, virt, virt, size, size, page} {
			p = put.AppendUint64(p, v)
		}
		return p
	}
	at := (uint64(len(b)) + page - 1) &^ (page - 1)
	added := load(elf.PF_R, at, far-16*page, 8*page) // C's library reads the headers there
	for i := range uint64(more) {
		added = append(added, load(elf.PF_R|elf.PF_X, page, far+i*page, 16)...)
	}
	var before, after []byte
	for old := b[put.Uint64(b[32:]):][:entry*put.Uint16(b[56:])]; len(old) > 0; old = old[entry:] {
		switch elf.ProgType(put.Uint32(old)) {
		case elf.PT_LOAD:
			before, after = append(append(before, after...), old[:entry]...), nil
		case elf.PT_PHDR:
		default:
			after = append(after, old[:entry]...)
		}
	}
	headers := slices.Concat(before, added, after)
	put.PutUint64(b[32:], at)
	put.PutUint16(b[56:], uint16(len(headers)/entry))
	b = slices.Concat(b, make([]byte, at-uint64(len(b))), headers, make([]byte, 1<<20))
	if err := os.WriteFile(name, b, 0o755); err != nil {
		t.Fatal(err)
	}
}

// TestRecordHiddenContent has another user's program without names claim the build ID of a
// program that runs beside it, and see to it in several ways that its content is unknown: its identity
// is a claim of its own, without names, or it has none.
func TestRecordHiddenContent(t *testing.T) { eachBackend(t, recordHiddenContent) }

func recordHiddenContent(t *testing.T, backend Backend) {
	testenv.Root(t)
	testenv.Tool(t, "setpriv")
	const asOther = `setpriv --reuid 65534 --regid 65534 --clear-groups `
	const beside = asOther + `"$1" 200 & "$2" 200; wait`
	const changing = asOther + `sh -c '"$1" 200 & for i in $(seq 150); do chmod 755 "$1"; sleep 0.005; done' sh "$1" & "$2" 200; wait`
	const mounted = asOther + `unshare -Urm sh -c 'mount --bind "$1" "$2" && exec "$2" 200' sh "$1" "$2" & "$2" 200; wait`
	for name, test := range map[string]struct {
		hide   func(t *testing.T, name string)
		script string
	}{
		"sections":       {hideCode, beside},
		"segments":       {addSegments, beside},
		"changes":        {func(t *testing.T, name string) { grow(t, name, 3<<20) }, changing},
		"mounted there":  {addSegments, mounted},
		"mounted hidden": {hideCode, mounted},
	} {
		t.Run(name, func(t *testing.T) {
			one := proctest.BuildC(t, "-no-pie", "-Wl,--build-id=0x"+proctest.SharedID)
			two := proctest.BuildC(t, "-no-pie", "-Wl,--build-id=0x"+proctest.SharedID, "-DOTHER")
			for _, dir := range []string{filepath.Dir(one), filepath.Dir(two)} {
				if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
					t.Fatal(err)
				}
			}
			id := proctest.FileID(t, one)
			hideNames(t, two)
			test.hide(t, two)
			if err := os.Chown(two, 65534, 65534); err != nil {
				t.Fatal(err)
			}
			shown := two
			if test.script == mounted {
				shown = one
				try := exec.Command(testenv.Tool(t, "setpriv"), "--reuid", "65534", "--regid", "65534", "--clear-groups",
					"unshare", "-Urm", "mount", "--bind", two, one)
				testenv.Need(t, try.Run() == nil, "mounts in user namespaces of other users")
			}
			p, _, _ := recordCommand(t, Options{Backend: backend}, "sh", "-c", test.script, "sh", two, one)
			checkHidden(t, p, id, one, two)
			switch unknown := unknownOf(p, one, two); {
			case slices.ContainsFunc(p.Mapping, func(m *pprof.Mapping) bool { return profile.IsClaimed(m) && m.File == shown }):
			case len(unknown) == 0, len(profile.Disagreements(p)) > 0:
				checkDisagreement(t, p, id, shown)
			case !slices.Contains(unknown, profile.PseudoFile(reason.FileChanged, two)):
				testenv.Lack(t, "%q", unknown)
			}
		})
	}
}

// unknownOf returns what a profile says of frames in files that have no identity.
func unknownOf(p *pprof.Profile, files ...string) (unknown []string) {
	for _, m := range p.Mapping {
		isOne := slices.ContainsFunc(files, func(file string) bool { return strings.HasSuffix(m.File, " "+file) })
		if m.BuildID == "" && isOne {
			unknown = append(unknown, m.File)
		}
	}
	return unknown
}

// grow appends zeros to a file.
func grow(t *testing.T, name string, n int64) {
	t.Helper()
	st, err := os.Stat(name)
	if err == nil {
		err = os.Truncate(name, st.Size()+n)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// checkHidden wants the frames of two programs that ran at the same time under one build ID not
// to be of one file that has it, or at least no names for them.
func checkHidden(t *testing.T, p *pprof.Profile, id buildid.ID, one, two string) {
	t.Helper()
	isNamed, isApart := false, false
	for _, s := range p.Sample {
		for _, l := range s.Location {
			m := l.Mapping
			if m == nil || !strings.HasSuffix(m.File, one) && !strings.HasSuffix(m.File, two) {
				continue
			}
			named, isClaimed := len(l.Line) > 0, profile.IsClaimed(m)
			if isClaimed && named || m.BuildID == id.String() && m.File != one && !isClaimed {
				t.Errorf("%s has the build ID %q, claimed: %v, names: %v", m.File, m.BuildID, isClaimed, named)
			}
			isNamed, isApart = isNamed || named, isApart || isClaimed || m.BuildID != id.String()
		}
	}
	if !isApart && (isNamed || !profile.ContestedIDs(p)[id]) {
		t.Errorf("one file has the identity, all frames, and names: %v", isNamed)
	}
}

// TestClaimsTakeNothing has a file of others claim a build ID beside one of unknown content that claims it too. Neither
// takes anything from the other: not the one whose content is known, nor the claim.
func TestClaimsTakeNothing(t *testing.T) {
	testenv.Root(t)
	one, two := proctest.TwoBuilds(t, proctest.SharedID)
	for _, name := range []string{one, two} {
		if err := os.Chown(name, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	set := objects.New()
	defer set.Close()
	known := exactObjectOf(t, set, one)
	claimed := set.OfOpened(objects.Opened{Path: two, ID: known.ID, Content: openFile(t, two)})
	set.Stop()
	f := &finisher{files: map[distinct]*identified{}, ofObject: map[*objects.Object]*identified{}}
	f.distinguish(f.read([]*objects.Object{known, claimed}, contentLimits))
	if b := f.ofObject[known]; b.ID != known.ID || b.Content.IsZero() || b.Claimant != nil || b.Unkept {
		t.Errorf("the file of known content is %+v", b.Binary)
	}
	if b := f.ofObject[claimed]; b.ID != known.ID || !b.Content.IsZero() || b.Claimant == nil || b.Unkept {
		t.Errorf("the file of unknown content is %+v", b.Binary)
	}
}
