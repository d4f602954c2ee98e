package capture

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"hallmark/internal/bpf"
	"hallmark/internal/fusetest"
	"hallmark/internal/testenv"
	"hallmark/reason"
)

// silent are file systems whose times do not show each change.
var silent = []fileSystem{
	{"tmpfs", (*mounter).tmpfs, anywhere},
	{"ramfs", (*mounter).ramfs, anywhere},
	{"memfd", (*mounter).memfd, anywhere},
	{"overlay over tmpfs", over((*mounter).tmpfs), anywhere},
	{"FUSE", fuse(fusetest.Options{}), anywhere},
}

// unreadShare is the share of processes in which a sample may lack its identity: the kernel has more to
// do than samples that wait at a time, or the process forks or ends before it has read what was not in
// memory.
const unreadShare = 1e-2

// firstSamples are programs on silent file systems, to be sampled.
type firstSamples struct {
	*torture
	places   []*fsPlace
	programs map[string]*image // by the names of places: one build ID on two of them would be a forgery
}

// newFirstSamples makes a program on each silent file system, which runs so many rounds.
func newFirstSamples(t *testing.T, rounds uint32) *firstSamples {
	t.Helper()
	needTimes(t)
	needBPF(t)
	testenv.Need(t, bpf.HasTaskWork(), "reading identities in the sampled task: Linux 6.18")
	x := &firstSamples{torture: newTorture(t), programs: map[string]*image{}}
	images := map[byte][]*image{}
	for i := range silent {
		images[programKind(i)] = []*image{x.image(form{program: true, rounds: rounds, status: 1})}
	}
	x.places = places(t, silent, images, 1)
	for _, p := range x.places {
		kind := programKind(indexOf(p))
		p.create(t, fileName(kind, 0, 0), images)
		x.programs[p.name] = images[kind][0]
	}
	return x
}

// indexOf returns which of the silent file systems a place is.
func indexOf(p *fsPlace) int {
	return slices.IndexFunc(silent, func(fs fileSystem) bool { return fs.name == p.name })
}

// programKind is the first letter of the program's name on one of the silent file systems.
func programKind(i int) byte { return byte('p' + i) }

// path returns where the program of a place is.
func (x *firstSamples) path(p *fsPlace) string {
	return p.path(fileName(programKind(indexOf(p)), 0, 0), 0)
}

// judge wants all samples of the programs of these processes to have their identity.
func (x *firstSamples) judge(t *testing.T, samples []sampled, pids map[int]string) {
	t.Helper()
	all, lacks := map[int]bool{}, map[int]string{}
	for _, s := range samples {
		place, ours := pids[s.pid]
		if !ours || s.why == reason.Anonymous.Code() || x.isOther(s) { // before exec, or no file at all
			continue
		}
		all[s.pid] = true
		if s.id == "" {
			lacks[s.pid] = fmt.Sprintf("%s: %s", place, s.why)
		} else if s.id != x.programs[place].id.String() {
			t.Errorf("%s: process %d has samples of %s", place, s.pid, s.id)
		}
	}
	t.Logf("%d of %d sampled processes lack an identity: %v", len(lacks), len(all), lacks)
	testenv.AtMost(t, "processes with samples without identity", int64(len(lacks)), int64(len(all)), unreadShare)
}

// TestRecordFirstSample records programs on silent file systems that end soon: their first samples have
// an identity, which each process reads in its own mapping.
func TestRecordFirstSample(t *testing.T) {
	const runs = 40
	x := newFirstSamples(t, 4_000_000)
	pids := map[int]string{}
	samples := recordOurs(t, Options{Backend: BPF, PIDs: []int{os.Getpid()}}, func() {
		for _, p := range x.places {
			script := &fsScript{}
			script.add("sleep", settled)
			for range runs {
				script.add("run", "one", x.path(p))
			}
			out, err := exec.Command(x.host, script.args...).Output()
			if err != nil {
				t.Errorf("%s: %v %s", p.name, err, stderrOf(err))
			}
			for line := range strings.Lines(string(out)) {
				var pid, status int
				if n, _ := fmt.Sscanf(line, "%d one %d", &pid, &status); n == 2 {
					pids[pid] = p.name
				}
			}
		}
	})
	x.judge(t, samples, pids)
}

// TestRecordFirstSampleOfRunning records programs on silent file systems that run already.
func TestRecordFirstSampleOfRunning(t *testing.T) {
	const each = 3
	x := newFirstSamples(t, 1<<32-1)
	pids := map[int]string{}
	var list []int
	for _, p := range x.places {
		for range each {
			cmd := exec.Command(x.path(p))
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer cmd.Wait()
			defer cmd.Process.Kill()
			pids[cmd.Process.Pid] = p.name
			list = append(list, cmd.Process.Pid)
		}
	}
	slices.Sort(list)
	samples := recordOurs(t, Options{Backend: BPF, PIDs: list}, func() {
		wait := exec.Command(x.host, "sleep", "2000")
		if err := wait.Run(); err != nil {
			t.Error(err)
		}
	})
	x.judge(t, samples, pids)
}
