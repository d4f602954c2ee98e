package capture

import (
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"hallmark/internal/bpf"
	"hallmark/internal/testenv"
	"hallmark/profile"
	"hallmark/reason"
)

// unidentifiedShare and unprovenShare are the shares of samples that may have no identity, and of those with one that
// may not be proven, where one build runs from many places. Records of perf have no times of files.
var (
	unidentifiedShare = map[Backend]float64{BPF: 0.003, Perf: 0.01}
	unprovenShare     = map[Backend]float64{BPF: 0.05, Perf: 0.25} // a fifth, on a quiet machine
)

// isServed reports whether another program serves the files of a place: they stay claims.
func (p *fsPlace) isServed() bool {
	return strings.HasPrefix(p.name, "FUSE") || strings.HasPrefix(p.name, "network")
}

// oneBuild is a build that runs from many places, for long and for short.
type oneBuild struct {
	*torture
	places      []*fsPlace
	long, short *image
	of          map[who]*fsPlace
}

// start starts the long program of a place, until the test ends.
func (x *oneBuild) start(t *testing.T, p *fsPlace) {
	path := p.path(fileName('l', 0, 0), 0)
	cmd := exec.Command(path)
	if err := cmd.Start(); err != nil {
		t.Fatalf("%s: %v", p.name, err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	x.of[who{cmd.Process.Pid, nameOf(path)}] = p
}

// runShort runs the short program of a place so many times.
func (x *oneBuild) runShort(t *testing.T, p *fsPlace, times int) {
	path := p.path(fileName('s', 0, 0), 0)
	script := &fsScript{}
	for range times {
		script.add("run", "one", path)
	}
	out, err := exec.Command(x.host, script.args...).Output()
	if err != nil {
		t.Errorf("%s: %v %s", p.name, err, stderrOf(err))
	}
	for line := range strings.Lines(string(out)) {
		var pid, status int
		if n, _ := fmt.Sscanf(line, "%d one %d", &pid, &status); n == 2 {
			x.of[who{pid, nameOf(path)}] = p
		}
	}
}

// shareOf is what became of samples in the files of the build.
type shareOf struct {
	all, identified, proven int64
	why                     map[string]int64 // those without identity
}

func (v *shareOf) count(s sampled) {
	v.all += s.n
	switch {
	case s.id == "":
		v.why[s.why] += s.n
	case s.proof == profile.Proven:
		v.proven += s.n
		fallthrough
	default:
		v.identified += s.n
	}
}

// TestOneBuildInManyPlaces runs one build from all file systems at once: programs that run before the recording, such
// that start during it, and such that live for tens of milliseconds. No copy takes the identity from another one.
func TestOneBuildInManyPlaces(t *testing.T) { eachBackend(t, recordOneBuild) }

func recordOneBuild(t *testing.T, b Backend) {
	needTimes(t)
	testenv.Need(t, bpf.HasTaskWork(), "reading identities in the sampled task: Linux 6.18")
	x := &oneBuild{torture: newTorture(t), of: map[who]*fsPlace{}}
	x.long, x.short = x.image(form{program: true, rounds: 1_000_000_000}), x.image(form{program: true, rounds: 50_000_000, status: 1})
	images := map[byte][]*image{'l': {x.long}, 's': {x.short}}
	x.places = places(t, slices.DeleteFunc(slices.Clone(fileSystems), func(fs fileSystem) bool {
		return fs.ways[0] == "snapshot" || fs.ways[0] == "mount" // one content each
	}), images, 1)
	for _, p := range x.places {
		p.create(t, fileName('l', 0, 0), images)
		p.create(t, fileName('s', 0, 0), images)
	}
	if out, err := exec.Command(x.host, "sleep", fmt.Sprint(settled)).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, p := range x.places {
		x.start(t, p)
	}
	before := maps.Clone(x.of)
	options := Options{Backend: b, SystemWide: true, Frequency: 499, CallGraph: CallGraph{By: ByFP}}
	samples, stats := recordDuring(t, options, func() {
		for _, p := range x.places {
			x.start(t, p)
			x.runShort(t, p, 5)
		}
	})
	places := map[string]*shareOf{}
	judged, provable := shareOf{why: map[string]int64{}}, shareOf{why: map[string]int64{}}
	for _, s := range samples {
		p := x.of[s.who]
		if p == nil || x.isOther(s) || s.why == reason.Anonymous.Code() || s.why == reason.NotMapped.Code() { // in the middle of exec
			continue
		}
		name := p.name + map[byte]string{'l': ", long", 's': ", short"}[s.name[0]]
		if places[name] == nil {
			places[name] = &shareOf{why: map[string]int64{}}
		}
		places[name].count(s)
		// On a busy machine the backend perf does not look in time at what runs already.
		if b == BPF || before[s.who] == nil {
			judged.count(s)
		}
		// Records of perf do not say which file of a layer it is.
		isLayer := b == Perf && strings.HasPrefix(p.name, "overlay")
		if s.id != "" && !p.isServed() && !isLayer {
			provable.count(s)
		}
		if s.id != "" && s.id != x.long.id.String() && s.id != x.short.id.String() {
			if stats.Lost > 0 { // it may be one of a process that had the number before
				testenv.Lack(t, "%d records were lost", stats.Lost)
			}
			t.Errorf("%s: %d samples of %s, %s", name, s.n, s.id, s.file)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(places)) {
		v := places[name]
		t.Logf("%-32s %5d samples, %5d identified, %5d proven %v", name, v.all, v.identified, v.proven, v.why)
	}
	t.Logf("%d samples, %d identified; %d of root's files, %d proven", judged.all, judged.identified, provable.all, provable.proven)
	testenv.AtMost(t, "samples without identity", judged.all-judged.identified, judged.all, unidentifiedShare[b])
	testenv.AtMost(t, "samples not proven", provable.all-provable.proven, provable.all, unprovenShare[b])
}
