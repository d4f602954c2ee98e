package capture

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/internal/bpf"
	"hallmark/internal/reach"
	"hallmark/internal/testenv"
	"hallmark/procmap"
	"hallmark/profile"
	"hallmark/reason"
)

// who is a process while it has one name: numbers are used again. The names are those of
// files that have this process's number in theirs, so that no foreign process has them.
type who struct {
	pid  int
	name string // of its first thread
}

// torture runs programs that know what code they run, and remembers it.
type torture struct {
	maker
	host string
	at   string // the case that runs
	// truth is which images' code a process may have run, and in which case.
	truth map[who]*truth
	// others are the files that the scenes' processes run besides images, by their identities
	// and by their paths.
	others  struct{ ids, paths map[string]bool }
	running []int             // what was started to wait for a word
	beyond  sync.WaitGroup    // what runs beside the scenes that follow
	lacks   map[string]string // why a scene has too few samples
}

type truth struct {
	of     string // a case
	images []*image
}

func newTorture(t testing.TB) *torture {
	t.Helper()
	processNumbers.hold(t)
	x := &torture{maker: maker{t: t, dir: t.TempDir()}, host: ours(buildHost(t)), truth: map[who]*truth{}, lacks: map[string]string{}}
	x.others.ids, x.others.paths = map[string]bool{}, map[string]bool{"[vdso]": true}
	if vdso, err := buildid.ReadVDSO(); err == nil {
		x.others.ids[vdso.ID.String()] = true
	}
	x.addOthers(os.Getpid()) // what is before exec is the test itself
	host := exec.Command(x.host, "wait")
	in, _ := host.StdinPipe()
	out, _ := host.StdoutPipe()
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != "ready"; {
	}
	x.addOthers(host.Process.Pid)
	in.Close()
	_ = host.Wait() // it misses its word
	return x
}

// processNumbers are those of the machine. One scene sets which is given next, and the truth is by
// number, so no two tests that judge it run at a time, in whatever process.
var processNumbers numberLock

type numberLock struct {
	mu      sync.Mutex
	holders int
	file    *os.File
}

// hold waits for the numbers, and gives them back when the test ends. A test may hold them several times.
func (l *numberLock) hold(t testing.TB) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holders == 0 {
		f, err := os.Open(lastNumber)
		if errors.Is(err, fs.ErrNotExist) {
			return // no kernel with CONFIG_CHECKPOINT_RESTORE: nobody can set it
		}
		if err != nil {
			t.Fatal(err)
		}
		for err = unix.EINTR; err == unix.EINTR; {
			err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		}
		if err != nil {
			t.Fatal(err)
		}
		l.file = f
	}
	l.holders++
	t.Cleanup(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.holders--; l.holders == 0 {
			l.file.Close()
		}
	})
}

// addOthers adds the files that a process has mapped.
func (x *torture) addOthers(pid int) {
	x.t.Helper()
	vmas, err := reach.Mappings(pid)
	if err != nil {
		x.t.Fatal(err)
	}
	for _, v := range vmas {
		if v.Perm&procmap.Exec == 0 || !v.FileBacked() {
			continue
		}
		info, err := buildid.ReadFile(v.Path())
		if err != nil {
			x.t.Fatal(err)
		}
		x.others.ids[info.ID.String()], x.others.paths[v.Path()] = true, true
	}
}

// ours gives a program a name that no foreign process has.
func ours(path string) string {
	name := fmt.Sprintf("%s-%d", path, os.Getpid())
	if err := os.Rename(path, name); err != nil {
		panic(err)
	}
	return name
}

// nameOf is the name that a process has which executed a file: TASK_COMM_LEN of
// include/linux/sched.h.
func nameOf(path string) string {
	name := filepath.Base(path)
	return name[:min(15, len(name))]
}

// ran says what a process may have run.
func (x *torture) ran(w who, images ...*image) {
	if x.truth[w] == nil {
		x.truth[w] = &truth{of: x.at}
	}
	x.truth[w].images = append(x.truth[w].images, images...)
}

// exec runs an image that is a program, through a path of its file.
func (x *torture) exec(i *image, args ...string) {
	if len(args) == 0 {
		args = []string{i.path}
	}
	x.execAs(nameOf(args[0]), i, args...)
}

// execAs runs what becomes an image, and has this name then.
func (x *torture) execAs(name string, i *image, args ...string) {
	cmd := exec.Command(args[0], args[1:]...)
	if out, err := cmd.CombinedOutput(); err != nil {
		x.t.Errorf("%s: %v\n%s", x.at, err, out)
		return
	}
	x.ran(who{cmd.Process.Pid, name}, i)
}

// words turns the words of a script into arguments, and finds the images in them.
func words(script ...any) (args []string, images []*image) {
	for _, word := range script {
		switch word := word.(type) {
		case string:
			args = append(args, strings.Fields(word)...)
		case *image:
			args = append(args, word.path)
			images = append(images, word)
		default:
			args = append(args, fmt.Sprint(word))
		}
	}
	return args, images
}

// script runs a script of testdata/host.c, which may run the images that it names.
func (x *torture) script(script ...any) {
	args, images := words(script...)
	x.run(images, append([]string{x.host}, args...)...)
}

// run runs a program that becomes the host, and returns its number and those of its
// children.
func (x *torture) run(images []*image, args ...string) {
	out, err := exec.Command(args[0], args[1:]...).Output()
	if err != nil {
		x.t.Errorf("%s: %v %s", x.at, err, stderrOf(err))
	}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		pid, err := strconv.Atoi(words[0])
		switch {
		case err != nil:
		case len(words) == 1:
			x.ran(who{pid, nameOf(x.host)}, images...)
		default:
			i := slices.IndexFunc(images, func(i *image) bool { return i.path == words[1] })
			x.ran(who{pid, nameOf(words[2])}, images[i])
		}
	}
}

func stderrOf(err error) []byte {
	if exit, ok := err.(*exec.ExitError); ok {
		return exit.Stderr
	}
	return nil
}

// start starts a script that waits for a word, and returns how to give it.
func (x *torture) start(script ...any) (resume func()) {
	args, images := words(script...)
	return x.startCommand(images, append([]string{x.host}, args...)...)
}

// startCommand is start for a command, which has to end well.
func (x *torture) startCommand(images []*image, args ...string) (resume func()) {
	resumed, at := x.startAny(images, args...), x.at
	return func() {
		if err := resumed(); err != nil {
			x.t.Errorf("%s: %v", at, err)
		}
	}
}

// startAny is startCommand for a command that may end in any way.
func (x *torture) startAny(images []*image, args ...string) (resume func() error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stderr = os.Stderr
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		x.t.Fatal(err)
	}
	x.ran(who{cmd.Process.Pid, nameOf(x.host)}, images...)
	x.running = append(x.running, cmd.Process.Pid)
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "ready" {
	}
	return func() error {
		_, _ = in.Write([]byte("."))
		_, _ = io.Copy(io.Discard, out)
		return cmd.Wait()
	}
}

// beside resumes what was started, beside the scenes that follow.
func (x *torture) beside(resume func()) { x.beyond.Go(resume) }

// A scene is one way of confusing who remembers files.
type scene struct {
	name string
	// run plays it while everything is recorded.
	run func(x *torture)
	// prepare plays its first part before that, and returns the second.
	prepare func(x *torture) (resume func())
	// changes is how many times a file changes while its code runs: see momentary.
	changes int64
	// open says that much may be unknown: of what is being written, above all.
	open bool
	// caught says that it is known all the same where the sampled task is asked.
	caught bool
	// private says that only the process can reach its file, and lives some 50 ms: so whether
	// user space comes in time, where it must, is luck.
	private bool
	// brief marks a scene whose file is at its path for some 50 ms, several times. Where user
	// space has to open it, it comes in time by luck, but not each time too late.
	brief bool
	// looked marks a scene whose process user space has to look at while it lives.
	looked bool
	// doubted marks a scene whose files records do not know apart by number, and which are written in one tick of the
	// clock: one run in twelve on a busy machine has samples that are file-changed for it, and proves nothing.
	doubted bool
	// narrow marks a scene of a program of 32 bits.
	narrow bool
}

// A scene may have these samples besides right ones, by rule:
//
//   - A wrong sample is a failure, with one exception. A CPU that was stopped in a loop before
//     the file changed goes on there in the new content, and is sampled before it does: the
//     kernel, which says where it is, is right, and so is the recorder, who says what is there.
//     That takes a sample in the first instruction after a stop, once for each change at most.
//     A sample is due there in one of 100 cases, when the timer has to wait for the kernel
//     to return, which has interrupts off for some µs of the 500 from one sample to the next.
//   - A sample without an identity says why. Of these there is now and then one, where its
//     process has just begun or its mappings change; never more than one of 50 was seen.
//     In scenes that are open it is the right answer, and nothing is judged.
//   - Where user space must open a file that is gone soon, nothing can be promised, as it may
//     not run in time. If it never did there was no time to judge in.
const (
	momentary = 0.01
	unknown   = 0.05
)

// play plays all scenes while record records.
func (x *torture) play(scenes []scene, record func(during func()) []sampled) []sampled {
	var resume []func()
	for _, s := range scenes {
		if x.at = s.name; s.prepare != nil {
			resume = append(resume, s.prepare(x))
		}
	}
	return record(func() {
		for _, r := range resume {
			x.beside(r)
		}
		for _, s := range scenes {
			if x.at = s.name; s.run != nil {
				s.run(x)
			}
		}
		x.beyond.Wait()
	})
}

// sampled is the innermost frame of user code of some samples.
type sampled struct {
	who
	file   string // as the recorder shows it
	id     string // empty for none
	offset uint64
	why    string // there is no identity
	proof  profile.Proof
	n      int64
}

// verdict is what became of the samples of a scene.
type verdict struct {
	right, wrong int64
	unknown      map[string]int64 // by reason
	errors       []string
}

func (v *verdict) all() int64 {
	n := v.right + v.wrong
	for _, u := range v.unknown {
		n += u
	}
	return n
}

// judge compares samples with the truth.
func (x *torture) judge(samples []sampled) map[string]*verdict {
	verdicts := map[string]*verdict{}
	for _, s := range samples {
		t := x.truth[s.who]
		if t == nil || x.isOther(s) {
			continue
		}
		v := verdicts[t.of]
		if v == nil {
			v = &verdict{unknown: map[string]int64{}}
			verdicts[t.of] = v
		}
		v.count(s, t.images)
	}
	return verdicts
}

// isOther reports whether a sample is in a file that the processes run besides images. Files
// of one identity have one path in a profile, whichever of them on the whole machine it is: so
// the path counts only where there is no identity, or if it is that of an image. The vdso of
// 32-bit processes is of another build than this process's: it is known by its name, which no
// file has, and by its size, and no image has its identity.
func (x *torture) isOther(s sampled) bool {
	if s.file == "[vdso]" && s.offset < maxVDSO && !x.isImage(s.id) {
		return true
	}
	if s.id != "" {
		return x.others.ids[s.id] && !strings.HasPrefix(s.file, x.dir)
	}
	return x.others.paths[s.path()]
}

// path returns the path of the file that a sample without an identity is in.
func (s sampled) path() string {
	if _, path, pseudo := strings.Cut(s.file, "] "); pseudo {
		return path
	}
	return s.file
}

// touched is the reason of samples in a file that another process touched meanwhile, as 'perf record' does
// with a link for its cache: the file's time of change is another one then, and its content is not.
const touched = "touched"

// reason returns why a sample in one of the images has no identity.
func (s sampled) reason(images []*image) string {
	i := slices.IndexFunc(images, func(i *image) bool { return i.path == s.path() })
	if s.why != reason.FileChanged.Code() || i < 0 {
		return s.why
	}
	var now unix.Stat_t
	if made := images[i].made; unix.Stat(s.path(), &now) == nil && now.Mtim == made.Mtim && now.Ctim != made.Ctim {
		return touched
	}
	return s.why
}

// maxVDSO is more than a vdso has, bytes.
const maxVDSO = 4 << 12

// isImage reports whether an identity is that of a file that a scene has made.
func (x *torture) isImage(id string) bool {
	for _, t := range x.truth {
		if slices.ContainsFunc(t.images, func(i *image) bool { return i.id.String() == id }) {
			return true
		}
	}
	return false
}

func (v *verdict) count(s sampled, images []*image) {
	// A file that others can have written has its content for an identity, if another file that claims
	// its build ID was gone before its content was read: the same file of another mount, maybe.
	right := func(i *image) bool {
		isIts := i.id.String() == s.id || !i.content.IsZero() && i.content.String() == s.id
		return isIts && i.has(s.offset)
	}
	switch {
	case s.id == "":
		v.unknown[s.reason(images)] += s.n
	case slices.ContainsFunc(images, right):
		v.right += s.n
	default:
		v.wrong += s.n
		v.errors = append(v.errors, fmt.Sprintf("%d samples of process %d at %s %#x, %s", s.n, s.pid, s.id, s.offset, s.file))
	}
}

var only = flag.String("scenes", "", "play only the scenes of TestNeverWrong that match this regular expression")

// chosen returns the scenes that are to be played, of those that this machine can play.
func chosen() []scene {
	match := regexp.MustCompile(*only)
	return slices.DeleteFunc(slices.Clone(scenes), func(s scene) bool {
		return !match.MatchString(s.name) || s.narrow && !testenv.Runs32()
	})
}

// moving returns those of the chosen scenes in which files or mappings change, and with
// HALLMARK_THOROUGH=1 all.
func moving() []scene {
	all := chosen()
	if testenv.Thorough() {
		return all
	}
	return slices.DeleteFunc(all, func(s scene) bool {
		first := slices.IndexFunc(scenes, func(other scene) bool { return other.name == firstMoving })
		return slices.IndexFunc(scenes, func(other scene) bool { return other.name == s.name }) < first
	})
}

// firstMoving is the first of scenes in which files or mappings change.
const firstMoving = "note page not in memory"

// TestNeverWrong records everything while files are treated in every way that may
// confuse who remembers them, and wants no frame of a program under an identity or
// at an offset that it never ran.
func TestNeverWrong(t *testing.T) { neverWrong(t, chosen()) }

// mostPlays is how many times a scene is played until it has enough samples: on a busy machine it may
// not have them the first time.
const mostPlays = 4

func neverWrong(t *testing.T, all []scene) {
	for _, r := range recorders {
		t.Run(r.name, func(t *testing.T) {
			r.need(t)
			scenes := all
			for plays := 1; ; plays++ {
				x := newTorture(t)
				verdicts := x.judge(x.play(scenes, func(during func()) []sampled { return r.record(t, x.running, during) }))
				var again []scene
				for _, s := range scenes {
					if x.check(s, verdicts[s.name], r.name == "bpf" && bpf.HasTaskWork()); x.lacks[s.name] != "" {
						again = append(again, s)
						t.Logf("play %d: %s: %s", plays, s.name, x.lacks[s.name])
					}
				}
				switch {
				case len(again) == 0 || t.Failed():
					return
				case plays == mostPlays:
					testenv.Lack(t, "%d plays were too few: %v", plays, x.lacks)
					return
				}
				scenes = again
			}
		})
	}
}

// TestNeverWrongWhenRecordsAreLost has little room for what the kernel's records say of mappings,
// and wants no frame under an identity that was mapped there before.
func TestNeverWrongWhenRecordsAreLost(t *testing.T) {
	needPerf(t)
	x := newTorture(t)
	opts := Options{Backend: Perf, SystemWide: true, CallGraph: CallGraph{By: ByFP}, changePages: 2}
	var wrong, right, lost int64
	for scene, v := range x.judge(x.play(moving(), func(during func()) []sampled { return recordOurs(t, opts, during) })) {
		wrong, right, lost = wrong+v.wrong, right+v.right, lost+v.unknown[reason.RecordsLost.Code()]
		if v.wrong > 0 {
			t.Errorf("%s: WRONG: %s", scene, strings.Join(v.errors, "\n"))
		}
	}
	t.Logf("%d samples right, %d wrong, %d when records were lost", right, wrong, lost)
	if right == 0 || lost == 0 {
		testenv.Lack(t, "%d samples right, %d when records were lost", right, lost)
	}
}

// check wants no wrong frame, and few that were not found. A file that is gone before its content
// was read claims a build ID that another file has: that is why it has none. Where the reader was
// too slow for the kernel's records, they may be too few to judge.
func (x *torture) check(s scene, v *verdict, inTask bool) {
	if v == nil {
		x.lack(s.name, "no samples")
		return
	}
	n := v.all()
	x.t.Logf("%-45s %6d samples, %5.1f %% right, %d wrong, unknown %v", s.name, n, 100*float64(v.right)/float64(n), v.wrong, v.unknown)
	if v.wrong > 0 && testenv.TooMany(v.wrong, s.changes, momentary) {
		x.t.Errorf("%s: WRONG: %s", s.name, strings.Join(v.errors, "\n"))
	}
	// Nobody can identify a sample whose records the kernel had no room for, whose file was gone, or whose file has another
	// time of change.
	lost := v.unknown[reason.RecordsLost.Code()] + v.unknown[reason.ContentUnknown.Code()] + v.unknown[touched]
	if s.doubted {
		lost += v.unknown[reason.FileChanged.Code()]
	}
	n -= lost
	// While the machine's clock of times stands still, as one does whose processor is held up, no file is old enough. The
	// scene is played again, and a file that is written to by nobody has this reason each time if the programs are wrong.
	written := v.unknown[reason.FileWritten.Code()]
	switch {
	case s.open && !(inTask && s.caught), s.private && !inTask:
	case s.looked, s.brief && !inTask:
		if v.right == 0 {
			x.lack(s.name, "none of %d samples came in time: %v", n, v.unknown)
		}
	case !testenv.Judges(n, unknown) || s.doubted && lost > 0:
		x.lack(s.name, "%d samples are too few, and %d when records were lost, or contents were gone, or others touched the files", n, lost)
	case testenv.TooMany(written, v.all(), unknown) && !testenv.TooMany(n-v.right-v.wrong-written, v.all(), unknown):
		x.lack(s.name, "%d of %d samples came when no file was old enough: %v%s", written, v.all(), v.unknown, x.times(s.name))
	// Those without an identity for another reason are a part of all samples, whatever was lost.
	case v.right == 0, testenv.TooMany(n-v.right-v.wrong, v.all(), unknown):
		x.t.Errorf("%s: %d of %d samples identified; the others %v%s", s.name, v.right, n, v.unknown, x.times(s.name))
	}
}

// times returns the times of the files of a scene, when they were made and now.
func (x *torture) times(scene string) string {
	var text strings.Builder
	for _, t := range x.truth {
		for _, i := range t.images {
			var now unix.Stat_t
			if err := unix.Stat(i.path, &now); t.of == scene {
				fmt.Fprintf(&text, "\n%s: %d links, changed %v %v, made %v %v (%v)", i.path, now.Nlink, now.Mtim, now.Ctim, i.made.Mtim, i.made.Ctim, err)
			}
		}
	}
	return text.String()
}

// lack says why a scene has too few samples.
func (x *torture) lack(scene, format string, args ...any) {
	x.lacks[scene] = fmt.Sprintf(format, args...)
}

// recordOurs records with a backend of this package.
func recordOurs(t testing.TB, opts Options, during func()) []sampled {
	t.Helper()
	opts.Frequency = tortureFrequency
	samples, _ := recordDuring(t, opts, during)
	return samples
}

// recordDuring records what happens during a function.
func recordDuring(t testing.TB, opts Options, during func()) ([]sampled, Stats) {
	t.Helper()
	begun := make(chan struct{})
	var once sync.Once
	opts.Progress = func(time.Duration, Stats) { once.Do(func() { close(begun) }) }
	s := startSession(t, opts)
	s.tally.stacks.most = maxCounts // whatever else the machine does
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	select {
	case <-begun:
		during()
	case err := <-done:
		t.Fatal(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	r, err := s.Finish(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := s.Stats().Disagreed; n > 0 {
		t.Errorf("the kernel side read %d identities that the files did not have", n)
	}
	t.Logf("%+v", s.Stats())
	return ofProfile(r.Profile), s.Stats()
}
