package capture

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"

	"hallmark/addr"
	"hallmark/internal/objects"
	"hallmark/internal/patience"
	"hallmark/internal/proctest"
	"hallmark/internal/reach"
	"hallmark/internal/testenv"
	"hallmark/procmap"
	"hallmark/profile"
)

// buildRewrite builds testdata/rewrite.c: the program, or one whose functions are in a library.
func buildRewrite(t testing.TB, library bool) (program, file string) {
	t.Helper()
	dir := t.TempDir()
	program = filepath.Join(dir, "rewrite")
	flags := []string{"-O1", "-fno-omit-frame-pointer", "-Wl,--build-id"}
	if !library {
		proctest.Compile(t, "gcc", program, append(flags, "-pthread", "testdata/rewrite.c")...)
		return program, program
	}
	file = filepath.Join(dir, "librewrite.so")
	proctest.Compile(t, "gcc", file, append(flags, "-shared", "-fPIC", "-Wl,-Bsymbolic", "-Dmain=body", "testdata/rewrite.c")...)
	stub := filepath.Join(dir, "main.c")
	source := "int body(int, char **);\nint main(int n, char **v) { return body(n, v); }\n"
	if err := os.WriteFile(stub, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	proctest.Compile(t, "gcc", program, append(flags, stub, file, "-Wl,-rpath,"+dir)...)
	return program, file
}

// TestRewrittenPages wants a page that a process has rewritten in its memory to lose the identity
// of the file, in that process alone, and no other page to lose it. The same is wanted of pages that
// processes have copied to anonymous memory.
func TestRewrittenPages(t *testing.T) {
	for name, c := range map[string]struct {
		long    bool // one of the long form
		library bool
		args    []string
		other   string // what another process does
	}{
		"before":         {false, false, []string{"before"}, "never"},
		"during":         {true, false, []string{"during", "1500"}, "never"},
		"library before": {true, true, []string{"before"}, "never"},
		"library during": {false, true, []string{"during", "1500"}, "never"},
		"copied":         {false, false, []string{"copied", "3000"}, "copies"},
		"library copied": {true, true, []string{"copied", "3000"}, "copies"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.long && !testenv.Thorough() {
				t.Skip("left to HALLMARK_THOROUGH=1")
			}
			eachBackend(t, func(t *testing.T, b Backend) { recordRewritten(t, b, c.library, c.args, c.other) })
		})
	}
}

func recordRewritten(t *testing.T, backend Backend, library bool, args []string, otherDoes string) {
	program, file := buildRewrite(t, library)
	patcher := proctest.Start(t, append([]string{program}, args...)...)
	other := proctest.Start(t, program, otherDoes)
	time.Sleep(50 * time.Millisecond)
	long := 3 * time.Second
	if args[0] == "copied" { // a page that is first met when it was rewritten is no copy
		long = 5 * time.Second
	}
	p, _, _ := recordSession(t, context.Background(),
		Options{Backend: backend, PIDs: []int{patcher, other}, Duration: long})
	counts := leaves(p)
	want := proctest.FileID(t, file).String()
	t.Log(counts)
	for in, n := range counts {
		if strings.HasPrefix(in, fmt.Sprintf("%d patched", patcher)) || strings.HasPrefix(in, fmt.Sprintf("%d [rewritten]", other)) {
			t.Errorf("%d samples of %q", n, in)
		}
	}
	for _, in := range []string{
		fmt.Sprintf("%d [rewritten] %s", patcher, file),
		fmt.Sprintf("%d kept %s", patcher, want),
		fmt.Sprintf("%d kept %s", other, want),
		fmt.Sprintf("%d patched %s", other, want),
	} {
		if counts[in] < 20 {
			testenv.Lack(t, "%d samples of %q", counts[in], in)
		}
	}
	notes := profile.Rewritten(p)
	if want := fmt.Sprintf("1 page of %s by process rewrite (%d)", file, patcher); len(notes) != 1 || !strings.HasSuffix(notes[0], want) {
		t.Errorf("notes %q, want one that ends in %q", notes, want)
	}
}

// TestRewrittenAmongMany wants a program to hide its rewritten page in no number of others: it takes
// longer to compare them with the file than a look may take.
func TestRewrittenAmongMany(t *testing.T) {
	program, _ := buildRewrite(t, false)
	const others = 25000
	patcher := proctest.Start(t, program, "many", strconv.Itoa(others))
	for until := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		list, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", patcher))
		if bytes.Count(list, []byte(program)) > others {
			break
		}
		if err != nil || time.Now().After(until) {
			t.Fatal("the program has not mapped its pages:", err)
		}
	}
	eachBackend(t, func(t *testing.T, b Backend) {
		p, _, _ := recordSession(t, context.Background(), Options{Backend: b, PIDs: []int{patcher}, Duration: 3 * time.Second})
		counts := leaves(p)
		t.Log(counts, profile.Rewritten(p))
		if in := fmt.Sprintf("%d [rewritten] %s", patcher, program); counts[in] < 20 {
			testenv.Lack(t, "%d samples of %q", counts[in], in)
		}
		for in, n := range counts {
			if strings.Contains(in, " patched ") {
				t.Errorf("%d samples of %q", n, in)
			}
		}
		if len(profile.Rewritten(p)) == 0 {
			t.Error("no note")
		}
	})
}

// TestRewrittenBesideOthers wants a program to hide its rewritten page neither by ending its first
// thread, without which /proc shows no mappings, nor by changing the mapping all the time: then the
// profile says at least that nobody knows it.
func TestRewrittenBesideOthers(t *testing.T) {
	program, _ := buildRewrite(t, false)
	for _, way := range []string{"thread", "moving"} {
		t.Run(way, func(t *testing.T) {
			eachBackend(t, func(t *testing.T, b Backend) {
				p, _, _ := recordSession(t, context.Background(),
					Options{Backend: b, PIDs: []int{proctest.Start(t, program, way)}, Duration: 1500 * time.Millisecond})
				notes := profile.Rewritten(p)
				var patched, rewritten int64
				for in, n := range leaves(p) {
					if strings.Contains(in, " patched ") {
						patched += n
					}
					if strings.Contains(in, "[rewritten]") {
						rewritten += n
					}
				}
				t.Logf("%d samples in the page of the file, %d in the rewritten one; %q", patched, rewritten, notes)
				switch {
				case len(notes) == 0, patched > 0 && way == "thread":
					t.Errorf("%d samples are said to be of the file, with the notes %q", patched, notes)
				case patched > 0 && !strings.Contains(notes[len(notes)-1], "not known of"):
					t.Errorf("%d samples are said to be of the file, and nobody doubts it: %q", patched, notes)
				case patched+rewritten < 5: // moving mappings takes most of the time
					testenv.Lack(t, "%d samples", patched+rewritten)
				}
			})
		})
	}
}

// TestRewrittenVDSO wants the code that the kernel maps into each process to be looked at as files are.
func TestRewrittenVDSO(t *testing.T) {
	program, _ := buildRewrite(t, false)
	pid := proctest.Start(t, program, "vdso")
	other := proctest.Start(t, program, "never")
	time.Sleep(50 * time.Millisecond)
	eachBackend(t, func(t *testing.T, b Backend) {
		p, _, _ := recordSession(t, context.Background(), Options{Backend: b, PIDs: []int{pid, other}, Duration: time.Second})
		counts := leaves(p)
		if len(counts) < 4 {
			testenv.Lack(t, "samples are %v", counts)
		}
		want := []string{fmt.Sprintf("rewritten in memory: 1 page of [vdso] by process rewrite (%d)", pid)}
		if got := profile.Rewritten(p); !slices.Equal(got, want) {
			t.Errorf("notes %q, want %q", got, want)
		}
	})
}

// TestRewritesUnknown wants a profile to name each process for which nobody could look, and why.
func TestRewritesUnknown(t *testing.T) {
	r := newRewrites(nil, nil)
	defer r.release()
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	self, release := os.Getpid(), make(chan struct{})
	patience.Within(self, 0, func() { <-release }) // who waits for this process is not waited for twice
	for _, pid := range []int{self, 2, ended.Process.Pid} {
		r.sights[pid] = &lookedAt{name: "name"}
		r.look(pid, time.Minute)
	}
	close(release)
	want := []string{fmt.Sprintf("rewritten in memory: not known of name (%d): %v", self, patience.ErrSilent)}
	if got := r.unknown(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for { // the look before may not have ended
		if r.look(self, time.Minute); r.sights[self].looked {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if got := r.unknown(); len(got) > 0 {
		t.Errorf("%q, want nothing: everything was looked at, has no memory or has ended", got)
	}
	r.sights[self].err = &procmap.Error{PID: self, Err: &os.PathError{Op: "open", Path: "/proc/PID/pagemap", Err: os.ErrPermission}}
	for pid := 1001; pid < 1007; pid++ {
		r.sights[pid] = &lookedAt{name: "other", err: os.ErrPermission}
	}
	r.missed = 3
	got := strings.Join(r.unknown(), "\n")
	for _, part := range []string{"other (1003)", "2 more: permission denied", "of 3 samples: too many processes ran"} {
		if !strings.Contains(got, part) {
			t.Errorf("%s; want %q in it", got, part)
		}
	}
}

// TestRewritesShares wants other users' processes to leave room for the pages of root's.
func TestRewritesShares(t *testing.T) {
	r := &rewrites{sights: map[int]*lookedAt{}, pagesOf: map[uint32]int{}}
	for user := uint32(70001); user < 70010; user++ {
		for range 10 {
			s := &lookedAt{user: user}
			for i := range maxOfProcess {
				r.keep(s, rewrittenPages{path: "/lib/a.so", inode: 1, start: addr.Offset(i) << 13})
			}
		}
		if r.pagesOf[user] > maxRewrites/4 {
			t.Errorf("%d ranges are kept of user %d, at most %d should be", r.pagesOf[user], user, maxRewrites/4)
		}
	}
	own := &lookedAt{}
	if r.keep(own, rewrittenPages{path: "/lib/b.so", inode: 2}); own.many || len(own.found) != 1 {
		t.Error("no range of a process of root's is kept")
	}
}

// TestRewritesBound wants a process with more ranges of pages than are kept to have none of its
// files believed, and those of other processes to be believed.
func TestRewritesBound(t *testing.T) {
	r := &rewrites{sights: map[int]*lookedAt{}, pagesOf: map[uint32]int{}}
	few, many := &lookedAt{}, &lookedAt{name: "many"}
	pages := func(i int) rewrittenPages {
		return rewrittenPages{path: "/lib/a.so", dev: procmap.Dev{Major: 8}, inode: 1, start: addr.Offset(2*i) << 12, end: addr.Offset(2*i+1) << 12}
	}
	for i := range maxOfProcess + 1 {
		r.keep(many, pages(i))
	}
	for range 2 {
		r.keep(few, pages(1))
		r.keep(few, rewrittenPages{path: "/lib/a.so", dev: procmap.Dev{Major: 8}, inode: 1, start: 0x2800, end: 0x4000})
	}
	other := &objects.Object{Path: "/lib/b.so", Key: reach.Key{Inode: 2, Major: 8}}
	same := &objects.Object{Path: "/lib/a.so", Key: reach.Key{Inode: 1, Major: 8}}
	if !many.many || len(many.found) != maxOfProcess || r.pages != maxOfProcess+2 {
		t.Errorf("%d ranges are kept, %d of all, more: %v", len(many.found), r.pages, many.many)
	}
	w := &rewriter{known: map[seenFile][]fileSpan{}, ofAny: map[*lookedAt][]fileSpan{}}
	for _, c := range []struct {
		seen   *lookedAt
		object *objects.Object
		at     uint64
		want   bool
	}{
		{few, same, 0x1fff, false}, {few, same, 0x2000, true}, {few, same, 0x3fff, true}, {few, same, 0x4000, false},
		{few, other, 0x2000, false}, {many, other, 0x10, true}, {many, same, 1 << 40, true},
		{few, &objects.Object{Kind: objects.Generated, Path: "/lib/a.so"}, 0x2000, false},
	} {
		if got := w.holds(c.seen, place{c.object, c.at}); got != c.want {
			t.Errorf("%s %#x: %v", c.object.Path, c.at, got)
		}
	}
	virtual := &lookedAt{}
	r.keep(virtual, rewrittenPages{path: "/all/lib/a.so", inode: 77, start: 0x2000, end: 0x4000}) // of an overlay
	files := map[*objects.Object]bool{same: true, other: true}
	if spans := virtual.ofAny(files); len(spans) != 0 {
		t.Errorf("%v may be of any file, want none: one has the name", spans)
	}
	delete(files, same)
	if spans := virtual.ofAny(files); len(spans) != 1 || !slices.Equal(virtual.in(other, spans), spans) {
		t.Errorf("%v may be of any file, want those of a file that has another name", spans)
	}
	if notes := many.notes(7); len(notes) != 2 || !strings.Contains(notes[1], "more pages than") {
		t.Errorf("notes %q", notes)
	}
	if notes := few.notes(7); len(notes) != 1 || !strings.Contains(notes[0], "2 pages") {
		t.Errorf("notes %q", notes)
	}
}

// leaves counts samples by their process and their innermost frame: its function and the identity
// of its file, or the reason why it has none.
func leaves(p *pprof.Profile) map[string]int64 {
	counts := map[string]int64{}
	for _, s := range p.Sample {
		_, pid := profile.Process(s)
		l := s.Location[0]
		switch {
		case l.Mapping == nil || l.Mapping.BuildID == "" && l.Mapping.File == "":
		case l.Mapping.BuildID == "":
			counts[fmt.Sprintf("%d %s", pid, l.Mapping.File)] += s.Value[0]
		case len(l.Line) > 0:
			counts[fmt.Sprintf("%d %s %s", pid, l.Line[0].Function.Name, l.Mapping.BuildID)] += s.Value[0]
		}
	}
	return counts
}
