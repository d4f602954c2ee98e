package execwatch

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/internal/contentcache"
	"hallmark/internal/fstimes"
	"hallmark/internal/objects"
	"hallmark/internal/perfring"
	"hallmark/internal/proctest"
	"hallmark/internal/reach"
	"hallmark/internal/testenv"
	"hallmark/perfdata"
	"hallmark/reason"
)

// mappedLibrary is a library that this process maps, of which records have no identity.
type mappedLibrary struct {
	t    *testing.T
	path string
	a, b string // two builds that it becomes
}

func newMappedLibrary(t *testing.T) *mappedLibrary {
	dir := t.TempDir()
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		t.Fatal(err)
	}
	believed, _ := fstimes.Trusted(int64(fs.Type))
	testenv.Need(t, believed, "a temporary directory on a file system whose times are believed")
	const id = "-Wl,--build-id=0x"
	a, b := proctest.BuildC(t, id+"1122334455667788990011223344556677889900"), proctest.BuildC(t, id+"9988776655443322110099887766554433221100")
	return &mappedLibrary{t, filepath.Join(dir, "library"), a, b}
}

// become writes the content of a build into the library, and waits until it is not young.
func (l *mappedLibrary) become(build string) {
	l.t.Helper()
	content, err := os.ReadFile(build)
	if err != nil {
		l.t.Fatal(err)
	}
	if err := os.WriteFile(l.path, content, 0o755); err != nil {
		l.t.Fatal(err)
	}
	time.Sleep(fstimes.Delay() * 5 / 4)
}

// record maps the library until the test ends, and returns the record of that.
func (l *mappedLibrary) record() *perfdata.Mmap2 {
	l.t.Helper()
	f, err := os.Open(l.path)
	if err != nil {
		l.t.Fatal(err)
	}
	defer f.Close()
	st := proctest.Stat(l.t, l.path)
	b, err := unix.MmapPtr(int(f.Fd()), 0, nil, uintptr(st.Size), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = unix.MunmapPtr(b, uintptr(st.Size)) })
	return &perfdata.Mmap2{
		ID: perfdata.ID{Time: perfring.Monotonic()}, Owner: uint32(os.Getpid()),
		Start: addr.Abs(uintptr(b)), Size: uint64(st.Size), Prot: unix.PROT_READ | perfdata.ProtExec,
		Major: unix.Major(st.Dev), Minor: unix.Minor(st.Dev), Inode: st.Ino, Name: l.path,
	}
}

// passingWatch is a watch that gets its records from a test.
type passingWatch struct {
	*perfWatch
	t *testing.T
}

func newPassingWatch(t *testing.T) *passingWatch {
	p := &perfWatch{queue: newWatchQueue(), objects: objects.NewPassing(), tasks: map[uint32]*watchedTask{}, opts: Options{Libs: true, patience: testenv.Patience}}
	t.Cleanup(p.objects.Close)
	return &passingWatch{p, t}
}

// see takes a record, and handles it.
func (p *passingWatch) see(r *perfdata.Mmap2) {
	p.takeMapping(r)
	for i := range p.records {
		p.handle(&p.records[i])
	}
	p.records = nil
	p.task(r.Owner).loaded = fileOfRecord{} // the next one is to be reported as well
}

// told waits for the next event, and returns it.
func (p *passingWatch) told() (ev *Event) {
	p.t.Helper()
	testenv.Await(p.t, "an event", func() bool {
		if held := p.queue.next(^uint64(0)); held != nil {
			ev = held.Event
		}
		return ev != nil
	})
	return ev
}

func (p *passingWatch) wantTold(id buildid.ID) {
	p.t.Helper()
	if ev := p.told(); ev.Library.ID != id {
		p.t.Errorf("the library is %v (%v), want %v", ev.Library.ID, ev.Library.Reason, id)
	}
}

// TestToldAsMapped changes a library between mappings, and wants each to be reported with what the
// file had then. That is so where the file is looked at late, and where there were many mappings.
func TestToldAsMapped(t *testing.T) {
	l := newMappedLibrary(t)
	a, b := proctest.FileID(t, l.a), proctest.FileID(t, l.b)
	p := newPassingWatch(t)
	l.become(l.a)
	p.see(l.record())
	p.wantTold(a)

	var asked []objects.Job
	prompt := p.objects.Divert(func(_ uint32, j objects.Job) bool { asked = append(asked, j); return true })
	l.become(l.b)
	p.see(l.record())
	if ev := p.queue.next(^uint64(0)); ev != nil {
		t.Fatalf("told before the file was looked at: %v (%v)", ev.Library.ID, ev.Library.Reason)
	}
	for _, j := range asked {
		prompt(0, j)
	}
	asked = nil
	p.wantTold(b)
	p.opts.patience = time.Nanosecond
	p.see(l.record())
	if ev := p.told(); !ev.Library.ID.IsZero() || ev.Library.Reason != reason.NotRead {
		t.Errorf("told without a look at the file: %v (%v)", ev.Library.ID, ev.Library.Reason)
	}

	p.objects.Divert(prompt)
	p.opts.patience = testenv.Patience
	for range reach.MaxAttempts + 1 {
		p.see(l.record())
		p.wantTold(b)
	}
	l.become(l.a)
	p.see(l.record())
	p.wantTold(a)
}

// TestToldByItsRecord changes a library after it was mapped, before anybody looked at it: in its place, and by another
// file. The kernel read its build ID when it was mapped. Its content is known only if the file is still there.
func TestToldByItsRecord(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, l *mappedLibrary){
		"unchanged":   func(*testing.T, *mappedLibrary) {},
		"overwritten": func(_ *testing.T, l *mappedLibrary) { l.become(l.b) },
		"replaced": func(t *testing.T, l *mappedLibrary) {
			if err := os.Remove(l.path); err != nil {
				t.Fatal(err)
			}
			l.become(l.b)
		},
		"gone": func(t *testing.T, l *mappedLibrary) {
			if err := os.Remove(l.path); err != nil {
				t.Fatal(err)
			}
		},
	} {
		for _, pid := range []uint32{uint32(os.Getpid()), 1<<22 + 1} { // a process that runs, and one that is over
			t.Run(fmt.Sprintf("%s, process %d", name, pid), func(t *testing.T) {
				testenv.Root(t)
				l := newMappedLibrary(t)
				l.become(l.a)
				r := l.record()
				f, err := os.Open(l.path)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				generation, err := contentcache.AskGeneration(f)
				testenv.Need(t, err == nil, "a file system that shows generations")
				r.Owner, r.BuildID, r.Generation = pid, proctest.FileID(t, l.a).Bytes(), uint64(generation)
				change(t, l)
				p := newPassingWatch(t)
				p.see(r)
				ev := p.told()
				if ev.Library.ID != proctest.FileID(t, l.a) {
					t.Errorf("the library is %v (%v)", ev.Library.ID, ev.Library.Reason)
				}
				isKnown, want := !ev.Library.Content.IsZero(), name == "unchanged"
				if isKnown != want || want && ev.Library.Content != proctest.FileContent(t, l.a) {
					t.Errorf("its content is %v", ev.Library.Content)
				}
			})
		}
	}
}

// TestToldYoung wants no identity of a file that may have changed after it was mapped: its time
// may be older than the mapping by fstimes.Delay.
func TestToldYoung(t *testing.T) {
	l := newMappedLibrary(t)
	a := proctest.FileID(t, l.a)
	p := newPassingWatch(t)
	l.become(l.a)
	r := l.record()
	changed := proctest.Stat(t, l.path).Ctim
	after := func(d time.Duration) uint64 {
		return r.Time - uint64(perfring.WallTime(r.Time).Sub(time.Unix(changed.Unix()))-d)
	}
	r.Time = after(fstimes.Delay() * 3 / 4)
	p.see(r)
	if ev := p.told(); ev.Library.Reason != reason.FileChanged {
		t.Errorf("it is %v (%v)", ev.Library.ID, ev.Library.Reason)
	}
	r.Time = after(fstimes.Delay() * 9 / 8)
	p.see(r)
	p.wantTold(a)
}

// TestLibrariesAreNotLookedAt has a process execute and map a library: its program and interpreter are looked at,
// and the library only where it is wanted. Where the mappings come before the execution, which another CPU wrote,
// they are looked at when their turn comes.
func TestLibrariesAreNotLookedAt(t *testing.T) {
	exec := &perfdata.Comm{ID: perfdata.ID{PID: 7, TID: 7, Time: 1}, OwnerPID: 7, OwnerTID: 7, Name: "program", Exec: true}
	var ran []perfdata.Record
	for i, name := range []string{"/bin/program", "/lib/ld.so", vdsoName, "/lib/libc.so"} {
		r := &perfdata.Mmap2{ID: perfdata.ID{PID: 7, TID: 7, Time: uint64(2 + i)}, Owner: 7, Name: name, Start: 0x1000, Size: 0x1000, Prot: perfdata.ProtExec}
		if name != vdsoName {
			r.Major, r.Inode = 8, 1
		}
		ran = append(ran, r)
	}
	for _, test := range []struct {
		name  string
		come  []perfdata.Record // in this order
		libs  bool
		first []string // looked at when they come
		all   []string // and when all were handled
	}{
		{"in order", append([]perfdata.Record{exec}, ran...), false, []string{"/bin/program", "/lib/ld.so"}, []string{"/bin/program", "/lib/ld.so"}},
		{"with libraries", append([]perfdata.Record{exec}, ran...), true, []string{"/bin/program", "/lib/ld.so", "/lib/libc.so"}, []string{"/bin/program", "/lib/ld.so", "/lib/libc.so"}},
		{"from another CPU", append(slices.Clone(ran), exec), false, nil, []string{"/bin/program", "/lib/ld.so"}},
		{"ran before", ran, false, nil, nil},
	} {
		p := &perfWatch{queue: newWatchQueue(), objects: objects.NewPassing(), tasks: map[uint32]*watchedTask{}, begins: map[uint32]bool{}, opts: Options{Libs: test.libs}}
		defer p.objects.Close()
		var asked []string
		p.objects.Divert(func(_ uint32, j objects.Job) bool { asked = append(asked, j.Object.Path); return true })
		for _, r := range test.come {
			p.takeRecord(r)
		}
		if !slices.Equal(asked, test.first) {
			t.Errorf("%s: %q are looked at when they come, want %q", test.name, asked, test.first)
		}
		slices.SortStableFunc(p.records, func(a, b watchRecord) int { return cmp.Compare(a.time, b.time) })
		for i := range p.records {
			p.handle(&p.records[i])
		}
		if !slices.Equal(asked, test.all) {
			t.Errorf("%s: %q are looked at, want %q", test.name, asked, test.all)
		}
	}
}
