package proof

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/cmd/hallmark/internal/perffile"
	"hallmark/internal/fstimes"
	"hallmark/internal/testenv"
	"hallmark/perfdata"
	"hallmark/profile/fromperf"
)

// thisMachine is what perf would record of it.
func thisMachine(t *testing.T) *perfdata.Info {
	t.Helper()
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		t.Fatal(err)
	}
	return &perfdata.Info{
		Hostname: unix.ByteSliceToString(uts.Nodename[:]), OSRelease: unix.ByteSliceToString(uts.Release[:]),
	}
}

// recordedFile is a file as perf would have recorded it now.
func recordedFile(t *testing.T, name string) File {
	t.Helper()
	var s unix.Stat_t
	if err := unix.Stat(name, &s); err != nil {
		t.Fatal(err)
	}
	return File{Name: name, major: unix.Major(s.Dev), minor: unix.Minor(s.Dev), Inode: s.Ino}
}

// TestProver changes one thing after the other that a proof needs.
func TestProver(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(name, data, 0o755); err != nil {
		t.Fatal(err)
	}
	good := recordedFile(t, name)
	later := time.Now().Add(time.Hour)
	for _, test := range []struct {
		what   string
		change func(*prover, *File)
		want   string // part of the reason, "" for an identity
	}{
		{"nothing", func(*prover, *File) {}, ""},
		{"host", func(p *prover, _ *File) { p.info.Hostname += "2" }, "recorded on"},
		{"host without a name", func(p *prover, _ *File) { p.info.Hostname = "" }, ""},
		{"device", func(_ *prover, f *File) { f.minor++ }, "on device"},
		{"inode", func(_ *prover, f *File) { f.Inode++ }, "another file"},
		{"no inode", func(_ *prover, f *File) { f.Inode = 0 }, "has no inode"},
		{"time", func(p *prover, _ *File) { p.began = time.Now().Add(-time.Hour) }, "was changed"},
		{"unknown time", func(p *prover, _ *File) { p.began = time.Time{} }, "is not known"},
		{"deleted", func(_ *prover, f *File) { f.Name += " (deleted)" }, "deleted"},
		{"path", func(_ *prover, f *File) { f.Name += "2" }, "no such file"},
		{"directory", func(_ *prover, f *File) { f.Name = filepath.Dir(f.Name) }, "is a directory"},
	} {
		p, file := &prover{info: thisMachine(t), began: later}, good
		test.change(p, &file)
		v := p.file(file)
		switch {
		case test.want == "" && (v.Err != nil || v.ID.IsZero() || v.Trusted):
			t.Errorf("%s: %+v", test.what, v)
		case test.want != "" && (v.Err == nil || !v.ID.IsZero() || !strings.Contains(v.Err.Error(), test.want)):
			t.Errorf("%s: %+v, want %q", test.what, v, test.want)
		}
	}
}

// TestKeptStream has recordings that come through a pipe: one that was recorded just now, and
// ones that were kept, of which nobody knows when they were recorded.
func TestKeptStream(t *testing.T) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}
	ago := func(d time.Duration) uint64 { return uint64(now.Nano() - int64(d)) }
	for _, test := range []struct {
		what        string
		first, last uint64
		clock       *perfdata.ClockData
		written     time.Time
		known       bool
	}{
		{"now", ago(3 * time.Second), ago(time.Second), nil, time.Time{}, true},
		{"another boot, which had run for longer", ago(-50 * time.Hour), ago(-48 * time.Hour), nil, time.Time{}, false},
		{"no times", 0, 0, nil, time.Time{}, false},
		{"a file", ago(3 * time.Hour), ago(2 * time.Hour), nil, time.Now(), true},
		{"a file of another boot", ago(-50 * time.Hour), ago(-48 * time.Hour), nil, time.Now(), false},
		{"with the time of day", ago(-50 * time.Hour), ago(-48 * time.Hour), &perfdata.ClockData{Wall: 1 << 60, Time: 1}, time.Time{}, true},
	} {
		p := &prover{info: thisMachine(t)} // and no mapping of the kernel
		p.info.Clock = test.clock
		if began := p.beganBefore(test.first, test.last, test.written); began.IsZero() == test.known {
			t.Errorf("%s: it began at %v", test.what, began)
		}
	}
	for at, want := range map[uint64]bool{0: false, 1e9: false, 999e9: true, 1001e9: true, 1100e9: false} {
		if isRecent(at, 1000e9) != want {
			t.Errorf("%d is recent: %v, want %v", at, !want, want)
		}
	}
}

// TestProverOpensNoOther wants nothing opened that is no regular file, even where its path is
// trusted: whoever recorded chose it, and a device may notice. A socket cannot be opened, so
// to say what it is takes less.
func TestProverOpensNoOther(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "socket")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: socket}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{socket, "/dev/null", testenv.Trap(t, filepath.Join(t.TempDir(), "trap"))} {
		p := &prover{info: thisMachine(t), began: time.Now(), trust: true}
		if v := p.file(File{Name: name, Inode: 1}); v.Err == nil || !strings.Contains(v.Err.Error(), "no regular file") {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// TestProveModule takes a module for the one that was loaded where it is now, only.
func TestProveModule(t *testing.T) {
	dir := t.TempDir()
	list := "nf_tables 380928 2 nft_ct,nft_chain_nat, Live 0xffffffffc0800000 (E)\nhidden 16384 0 - Live 0x0000000000000000\nshort line\n"
	if err := os.WriteFile(filepath.Join(dir, "modules"), []byte(list), 0o644); err != nil {
		t.Fatal(err)
	}
	loads, err := readModules(filepath.Join(dir, "modules"))
	if err != nil || len(loads) != 2 || loads["nf_tables"] != 0xffffffffc0800000 || loads["hidden"] != 0 {
		t.Errorf("modules %v, %v", loads, err)
	}
	for file, want := range map[string]string{
		"/lib/modules/6.1.0/kernel/net/netfilter/nf-tables.ko.xz": "nf_tables",
		"/lib/modules/6.1.0/kernel/net/netfilter/nf_tables.ko":    "nf_tables",
		"[nf_tables]": "nf_tables",
	} {
		if got := moduleName(file); got != want {
			t.Errorf("%s is %s, want %s", file, got, want)
		}
	}
	text, err := kernelSymbol("_text")
	if err != nil || text == 0 {
		t.Skip("the kernel hides where it is")
	}
	for _, test := range []struct {
		name  string
		start uint64
		want  string
	}{
		{"nf_tables", 0xffffffffc0800000, ""},
		{"nf_tables", 0xffffffffc0900000, "loaded again"},
		{"hidden", 0, "loaded again"},
		{"gone", 0xffffffffc0800000, "not loaded"},
	} {
		p := &prover{info: thisMachine(t), image: &perfdata.Mmap2{Name: kernelName + "_text", Offset: 0}, proc: dir}
		if err := p.proveModule(test.name, test.start); err == nil {
			t.Errorf("%s: proven with the kernel elsewhere", test.name)
		}
		p.image.Offset = addr.Offset(text)
		err := p.proveModule(test.name, test.start)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s at %#x: %v, want %q", test.name, test.start, err, test.want)
		}
	}
}

// TestProvenMappings reads a recording whose mappings have no build ID: those of files that
// are proven have one in the profile, and others say that nothing was recorded.
func TestProvenMappings(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	info, err := buildid.ReadFile(self)
	if err != nil || info.ID.IsZero() {
		t.Fatalf("%v, %v", info, err)
	}
	for _, test := range []struct {
		began time.Time
		other string // name of the host
		want  string
	}{
		{time.Now().Add(time.Hour), "", fmt.Sprintf("%x", info.ID.Bytes())},
		{time.Now().Add(time.Hour), "another", ""},
		{time.Unix(1e9, 0), "", ""},
	} {
		name := filepath.Join(t.TempDir(), "perf.data")
		writeRecording(t, name, recordedFile(t, self), test.began, test.other)
		rec, err := perffile.Open(name, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer rec.Close()
		r, err := rec.Reader(perfdata.ReaderOptions{}, false)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		know := &Identifier{Recording: rec, Reader: r}
		p, _, err := fromperf.Read(r, fromperf.Options{Identify: know.Identify, Content: know.Content})
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Mapping[0].BuildID; got != test.want {
			t.Errorf("began %v, host %q: build ID %q, want %q", test.began, test.other, got, test.want)
		}
	}
}

// writeRecording writes a recording with one sample, in a file that has no build ID there.
func writeRecording(t *testing.T, name string, file File, began time.Time, host string) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w, err := perfdata.NewWriter(f, perfdata.WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.Info = *thisMachine(t)
	w.Info.Hostname = cmp.Or(host, w.Info.Hostname)
	w.Info.Clock = &perfdata.ClockData{Wall: uint64(began.UnixNano()), Time: 1000}
	err = w.AddEvent(&perfdata.Event{Name: "cpu-clock", IDs: []uint64{1}, Attr: perfdata.Attr{
		Type: 1, Period: 1000, Flags: perfdata.AttrSampleIDAll,
		Fields: perfdata.SampleIP | perfdata.SampleTID | perfdata.SampleTime | perfdata.SampleIdentifier,
	}})
	id := perfdata.ID{PID: 7, TID: 7, Time: 1000, Event: 1, Misc: uint16(perfdata.ModeUser)}
	mapping := &perfdata.Mmap2{
		ID: id, Type: perfdata.TypeMmap2, Owner: 7, Thread: 7, Start: 0x10000, Size: 0x10000, Prot: 5, Name: file.Name,
		Major: file.major, Minor: file.minor, Inode: file.Inode,
	}
	err = errors.Join(err, w.Write(mapping, nil), w.Write(&perfdata.Sample{ID: id, IP: 0x10010}, nil), w.Close())
	if err != nil {
		t.Fatal(err)
	}
}

// TestProvesNoFileOfOthers has a file that another user can write, and could have had other content
// when it was recorded without a trace in its times, where the file system allows that.
func TestProvesNoFileOfOthers(t *testing.T) {
	testenv.Root(t)
	for _, dir := range []string{t.TempDir(), "/dev/shm"} {
		t.Run(dir, func(t *testing.T) { provesNoFileOfOthers(t, dir) })
	}
}

func provesNoFileOfOthers(t *testing.T, dir string) {
	temporary, err := os.CreateTemp(dir, "hallmark-test")
	testenv.Need(t, err == nil, dir)
	temporary.Close()
	name := temporary.Name()
	t.Cleanup(func() { os.Remove(name) })
	for _, owner := range []int{0, 65534} {
		if err := os.Chown(name, owner, -1); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		var fs unix.Statfs_t
		if err := errors.Join(unix.Fstat(int(f.Fd()), &st), unix.Fstatfs(int(f.Fd()), &fs)); err != nil {
			t.Fatal(err)
		}
		err = prove(f, File{Inode: st.Ino, major: unix.Major(st.Dev), minor: unix.Minor(st.Dev)}, time.Now().Add(time.Minute))
		// A user could have mounted a file system that ignores set-user-ID bits, and be root's namesake there.
		want := (owner != 0 || fs.Flags&unix.ST_NOSUID != 0) && !fstimes.IsImage(int64(fs.Type))
		if is := err != nil && strings.Contains(err.Error(), "without a change of its times"); is != want {
			t.Errorf("owner %d: %v, want that others can forge it: %v", owner, err, want)
		}
		f.Close()
	}
}

// TestFilesInSharedMemory counts files of a tmpfs below /dev, and neither memory nor what is on no disk.
func TestFilesInSharedMemory(t *testing.T) {
	for name, want := range map[string]bool{
		"/dev/shm/lib.so": true, "/usr/lib/lib.so": true, "[vdso]": true,
		"/dev/zero": false, "/dev/zero (deleted)": false, "/SYSV00000000 (deleted)": false, "/anon_hugepage (deleted)": false, "//anon": false, "[heap]": false, "": false,
	} {
		if is := isFile(&perfdata.Mmap2{Name: name}); is != want {
			t.Errorf("%q: %v", name, is)
		}
	}
	if !isFile(&perfdata.Mmap2{Name: "/dev/zero", Major: 8}) {
		t.Error("a file on a disk is taken for memory")
	}
}
