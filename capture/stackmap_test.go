package capture

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/internal/backend"
	"hallmark/internal/bpf"
	"hallmark/internal/objects"
	"hallmark/internal/proctest"
	"hallmark/internal/reach"
	"hallmark/internal/testenv"
	"hallmark/procmap"
	"hallmark/profile"
	"hallmark/reason"
)

// triedStackmap is what tryStackmap says, once as triedBPF is.
var triedStackmap = sync.OnceValue(backend.TryStackmap)

// needStackmap ends the test where the programs cannot be loaded.
func needStackmap(t testing.TB) {
	t.Helper()
	testenv.Root(t)
	err := triedStackmap()
	testenv.Need(t, err == nil, fmt.Sprint("the kernel's stackmap (see hallmark doctor): ", err))
}

// TestStackmapSeesTheSame samples one C program by both mechanisms at the same
// time. The callers of the function that is busy must be the same ones, at the same
// offsets, and nearly all samples must be in it in both.
func TestStackmapSeesTheSame(t *testing.T) {
	needStackmap(t)
	needBPF(t)
	file := proctest.BuildC(t)
	want := proctest.FileID(t, file)
	pid := proctest.Start(t, file)
	profiles := map[Backend]*pprof.Profile{}
	done := make(chan *pprof.Profile)
	opts := Options{PIDs: []int{pid}, Duration: 700 * time.Millisecond, CallGraph: CallGraph{By: ByFP}}
	sessions := map[Backend]*Session{}
	for _, b := range []Backend{BPF, Stackmap} {
		opts.Backend = b
		sessions[b] = startSession(t, opts)
	}
	go func() { done <- finished(t, sessions[BPF]) }()
	profiles[Stackmap], profiles[BPF] = finished(t, sessions[Stackmap]), <-done
	for b, p := range profiles {
		checkMost(t, fmt.Sprintf("burn (%v)", b), samplesIn(p, "burn")[want], samples(p), 0.2)
	}
	of, by := callSites(profiles[BPF]), callSites(profiles[Stackmap])
	if !maps.Equal(of, by) || len(of) == 0 {
		t.Errorf("callers are %v, by the stackmap %v", of, by)
	}
}

// finished runs a session to its end and symbolizes the profile.
func finished(t testing.TB, s *Session) *pprof.Profile {
	if err := s.Run(context.Background()); err != nil {
		t.Error(err)
	}
	r, err := s.Finish(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Symbolize(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r.Profile
}

func samples(p *pprof.Profile) (sum int64) {
	for _, s := range p.Sample {
		sum += s.Value[0]
	}
	return sum
}

// site is a place in a file.
type site struct {
	id     string
	offset addr.Offset
}

// callSites returns what stands above burn in the stacks, with the function each is
// in. The compiler gives no frame to a function that calls none, so its caller is
// left out, but for samples at its very beginning and end.
func callSites(p *pprof.Profile) map[site]string {
	sites := map[site]string{}
	for _, s := range p.Sample {
		for i, l := range s.Location[1:] {
			if f := functionOf(l); functionOf(s.Location[i]) == "burn" && f != "main" {
				sites[site{l.Mapping.BuildID, profile.FileOffset(l)}] = f
			}
		}
	}
	return sites
}

// function returns the name of the innermost function of a location.
func functionOf(l *pprof.Location) string {
	if len(l.Line) == 0 {
		return ""
	}
	return l.Line[0].Function.Name
}

// TestStackmapBlindToGo wants no identity for the frames of a Go program, whose
// GNU note is in no PT_NOTE segment, with the reason; and every sample in the profile.
func TestStackmapBlindToGo(t *testing.T) {
	needStackmap(t)
	p, _, stats := recordCommand(t, Options{Backend: Stackmap}, proctest.BuildGo(t), "400ms")
	user := 0
	for _, s := range p.Sample {
		for _, l := range s.Location {
			switch why := profile.ReasonOf(l.Mapping); why {
			case reason.StackmapIP:
				user++
			case reason.None, reason.Anonymous, reason.ModuleUnknown:
				if l.Mapping.File[0] != '[' {
					t.Fatalf("a frame is in %s", l.Mapping.File)
				}
			default:
				t.Fatalf("a frame has no identity because of %v", why)
			}
		}
	}
	if all := samples(p); user == 0 || all != int64(stats.Samples) {
		t.Errorf("%d frames without build ID, %d samples of %d", user, all, stats.Samples)
	}
}

// TestStackmapPaddedIDs wants the true length of build IDs that the kernel pads with
// zeros, and of one that ends in a zero.
func TestStackmapPaddedIDs(t *testing.T) {
	needStackmap(t)
	for _, flag := range []string{"0x0102030405060708", "md5", "sha1", "0x00112233445566778899aabbccddeeff00112200"} {
		t.Run(flag, func(t *testing.T) {
			file := proctest.BuildC(t, "-Wl,--build-id="+flag)
			p, _, stats := recordCommand(t, Options{Backend: Stackmap}, file, "400")
			found := samplesIn(p, "burn")
			checkMost(t, fmt.Sprintf("burn (%v)", found), found[proctest.FileID(t, file)], int64(stats.Samples), 0.2)
			for _, m := range p.Mapping {
				if m.BuildID != "" && m.File == file && m.BuildID != proctest.FileID(t, file).String() {
					t.Errorf("%s has identity %s", file, m.BuildID)
				}
			}
		})
	}
}

// TestStackmapOfExited records programs that are gone, file and all, before anybody
// looks. A whole build ID is an identity all the same; one that may be shorter than
// it looks is not, and says so.
func TestStackmapOfExited(t *testing.T) {
	needStackmap(t)
	script := `for i in 1 2 3 4; do cp "$0" "$1" && "$1" 60 && rm "$1"; done`
	for _, test := range []struct {
		flag string
		want func(m *pprof.Mapping, id buildid.ID) bool
	}{
		{"sha1", func(m *pprof.Mapping, id buildid.ID) bool { return m.BuildID == id.String() }},
		{"md5", func(m *pprof.Mapping, id buildid.ID) bool {
			return m.BuildID == id.String() || profile.ReasonOf(m) == reason.IDLength
		}},
	} {
		t.Run(test.flag, func(t *testing.T) {
			file := proctest.BuildC(t, "-Wl,--build-id="+test.flag)
			id := proctest.FileID(t, file)
			gone := filepath.Join(t.TempDir(), "gone")
			p, _, _ := recordCommand(t, Options{Backend: Stackmap}, "sh", "-c", script, file, gone)
			seen, all := 0, 0
			for _, s := range p.Sample {
				if name, _ := profile.Process(s); name != "gone" {
					continue
				}
				all++
				if m := innermostUser(s); m != nil && test.want(m, id) {
					seen++
				} else if m != nil && m.BuildID != "" && m.BuildID[:8] == id.String()[:8] {
					t.Errorf("a frame has identity %s, want %v", m.BuildID, id)
				}
			}
			if all == 0 {
				testenv.Lack(t, "no stacks of the program")
			}
			if seen == 0 {
				t.Errorf("none of %d stacks is in %v", all, id)
			}
		})
	}
}

// innermostUser returns the mapping of the first frame that is not in the kernel.
func innermostUser(s *pprof.Sample) *pprof.Mapping {
	for _, l := range s.Location {
		if l.Mapping.File != "[kernel]" {
			return l.Mapping
		}
	}
	return nil
}

// TestStackmapHoles records a program that has a return address in a hole, for which
// the kernel reports the next file, or in data. It must not get the identity of a file.
func TestStackmapHoles(t *testing.T) {
	testenv.Need(t, runtime.GOARCH == "amd64", "x86-64, for which the program is written")
	file := filepath.Join(t.TempDir(), "hole")
	proctest.Compile(t, "gcc", file, "-O1", "-fno-omit-frame-pointer", "testdata/hole.c")
	for _, test := range []struct {
		name      string
		args      []string
		bpf, kern reason.Reason
	}{
		{"offset below 0", []string{"0", "0x800"}, reason.NotMapped, reason.BadOffset},
		{"offset before the code", []string{"0x1000", "0x800"}, reason.NotMapped, reason.BadOffset},
		{"no hole, but data", []string{"0", "-0x800"}, reason.NotExecutable, reason.BadOffset},
	} {
		for backend, want := range map[Backend]reason.Reason{BPF: test.bpf, Stackmap: test.kern} {
			t.Run(backend.String()+" "+test.name, func(t *testing.T) {
				needStackmap(t)
				needBPF(t)
				p, _, _ := recordCommand(t, Options{Backend: backend, CallGraph: CallGraph{By: ByFP}}, append(append([]string{file}, test.args...), "300")...)
				if why := callersOfBurn(p, file); why[want] == 0 || why[reason.None] > 0 {
					t.Errorf("callers are identified, or not because of: %v", why)
				}
			})
		}
	}
}

// callersOfBurn counts why the callers of burn have no identity. At its beginning and
// its end these are main and the caller of that, in the C library.
func callersOfBurn(p *pprof.Profile, file string) map[reason.Reason]int64 {
	why := map[reason.Reason]int64{}
	for _, s := range p.Sample {
		i := slices.IndexFunc(s.Location, func(l *pprof.Location) bool { return functionOf(l) == "burn" })
		if i < 0 || i+1 == len(s.Location) {
			continue
		}
		caller := s.Location[i+1]
		r := profile.ReasonOf(caller.Mapping)
		if r != reason.None || caller.Mapping.File == file && functionOf(caller) != "main" {
			why[r] += s.Value[0]
		}
	}
	return why
}

// TestStackmapPlaces wants a reason for each frame without a build ID that can be
// believed, and callers in the call before the address they return to.
func TestStackmapPlaces(t *testing.T) {
	set := objects.New()
	defer set.Close()
	s := &stackmapSampler{bpfEvents: bpfEvents{tally: &tally{objects: set}}}
	s.files = stackmapFiles{objects: set, byID: map[paddedID]*stackmapClaim{}}
	whole := paddedID{19: 1}
	for _, test := range []struct {
		frame bpf.StackmapFrame
		index int
		why   reason.Reason
		at    uint64
	}{
		{bpf.StackmapFrame{Status: bpf.StatusIP, At: 0x1234}, 0, reason.StackmapIP, 0x1234},
		{bpf.StackmapFrame{Status: bpf.StatusIP, At: 0x1234}, 1, reason.StackmapIP, 0x1233},
		{bpf.StackmapFrame{Status: bpf.StatusEmpty, At: 1}, 0, reason.StackmapIP, 1},
		{bpf.StackmapFrame{Status: bpf.StatusValid, BuildID: whole, At: 0x10}, 0, reason.None, 0x10},
		{bpf.StackmapFrame{Status: bpf.StatusValid, BuildID: whole, At: 0x10}, 3, reason.None, 0xf},
		{bpf.StackmapFrame{Status: bpf.StatusValid, BuildID: whole, At: 0}, 3, reason.BadOffset, 1<<64 - 1},
		{bpf.StackmapFrame{Status: bpf.StatusValid, BuildID: whole, At: 1<<64 - 0x800}, 0, reason.BadOffset, 1<<64 - 0x800},
		{bpf.StackmapFrame{Status: bpf.StatusValid, BuildID: paddedID{1}, At: 0x10}, 0, reason.IDLength, 0x10},
		{bpf.StackmapFrame{Status: bpf.StatusValid, At: 0x10}, 0, reason.IDLength, 0x10},
	} {
		p := s.place(test.frame, test.index, 1)
		why := p.object.Why
		if !p.object.ID.IsZero() {
			why = reason.None
		}
		if why != test.why || p.at != test.at {
			t.Errorf("%+v, frame %d: at %#x because of %v", test.frame, test.index, p.at, why)
		}
	}
}

// TestStackPlaces bounds the memory for stacks.
func TestStackPlaces(t *testing.T) {
	for _, test := range []struct{ hz, cpus, want int }{{99, 1, 1 << 10}, {99, 2, 1 << 10}, {997, 2, 1 << 13}, {50000, 256, 1 << 14}} {
		if got := stackPlaces(test.hz, test.cpus); got != test.want {
			t.Errorf("%d places for %d Hz on %d CPUs, want %d", got, test.hz, test.cpus, test.want)
		}
	}
}

// TestStackmapTwoBuildsOfOneID: the kernel's map has no more than the build ID, and which
// process it was.
func TestStackmapTwoBuildsOfOneID(t *testing.T) {
	needStackmap(t)
	recordTwoBuildsOfOneID(t, Stackmap)
}

// TestStackmapAssumes has processes that are gone: their file is taken for what others of its
// build ID are, unless these differ.
func TestStackmapAssumes(t *testing.T) {
	one, two := proctest.TwoBuilds(t, proctest.SharedID)
	id, ok := pad(proctest.FileID(t, one))
	if !ok {
		t.Fatal("not the build ID of a stackmap")
	}
	copied := filepath.Join(t.TempDir(), "copied")
	proctest.CopyTo(t, one, copied)
	for name, test := range map[string]struct {
		files []string
		taken bool
	}{
		"one file": {[]string{one}, true}, "a copy": {[]string{one, copied}, true}, "another build": {[]string{one, two}, false}, "none": {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			set := objects.New()
			defer set.Close()
			s := &stackmapFiles{objects: set, byID: map[paddedID]*stackmapClaim{}}
			gone := s.object(id, 1<<30)
			var there []*objects.Object
			for i, file := range test.files {
				there = append(there, s.object(id, uint32(1<<30+1+i)))
				j := reach.Request{VMA: procmap.VMA{Name: file}}
				found := s.reach(j)
				j.PID = uint32(1<<30 + 1 + i)
				s.offer(j, found, file)
				s.byID[id].known[len(s.byID[id].known)-1].way.PID = 0 // the file stays where it is
			}
			s.assume(s.byID[id])
			for i, o := range there {
				if o.Path != test.files[i] || o.Content == nil {
					t.Errorf("process %d has %s", i, o.Path)
				}
			}
			if taken := gone.Content != nil; taken != test.taken || taken && gone.Path != test.files[0] {
				t.Errorf("the file of a process that is gone is taken for %q", gone.Path)
			}
		})
	}
}
