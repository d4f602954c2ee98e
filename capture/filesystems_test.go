package capture

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/execwatch"
	"hallmark/internal/fstimes"
	"hallmark/internal/perfring"
	"hallmark/internal/testenv"
	"hallmark/launch"
)

// fsTorture changes files in every way on every file system, while programs and libraries that
// know which content they are run from them.
type fsTorture struct {
	*torture
	// images are contents: of programs ('p'), of libraries ('l'), and of libraries whose
	// identities are too long for the kernel to report ('m').
	images map[byte][]*image
	places []*fsPlace
	scenes []*fsScene
	mu     sync.Mutex // of truth
}

// An fsScene is one way to change the files of a place.
type fsScene struct {
	*fsPlace
	way   string
	nth   int  // of the ways of its place
	hides bool // changes show when a cache expires, after the test
	// What became of executions, of loaded libraries, and of samples.
	execs, loads, samples fsTally
}

func (s *fsScene) String() string { return s.name + ": " + s.way }

// An fsTally is what a recorder said of a scene. Late is what is right by the rule, and not of the
// code that ran: an identity that the file had after it was mapped, and before it changed.
type fsTally struct {
	right, late, wrong int64
	unknown            map[string]int64 // by reason
	errors             []string
}

func (c *fsTally) without() (n int64) {
	for _, u := range c.unknown {
		n += u
	}
	return n
}

func (c *fsTally) all() int64 { return c.right + c.late + c.wrong + c.without() }

func (c *fsTally) add(d *fsTally) {
	c.right, c.late, c.wrong = c.right+d.right, c.late+d.late, c.wrong+d.wrong
	for why, n := range d.unknown {
		c.miss(why, n)
	}
}

func (c *fsTally) miss(why string, n int64) {
	if c.unknown == nil {
		c.unknown = map[string]int64{}
	}
	c.unknown[why] += n
}

// judge counts an answer: an identity, or why there is none, for a file that had the contents
// of these images since it was mapped.
func (c *fsTally) judge(id buildid.ID, why string, images []*image, what string) {
	switch {
	case id.IsZero():
		c.miss(why, 1)
	case slices.ContainsFunc(images, func(i *image) bool { return i.id == id }):
		c.right++
	default:
		c.wrong++
		c.errors = append(c.errors, fmt.Sprintf("%s is %s", what, id))
	}
}

// sample counts samples. Where the code is says which image they are of.
func (c *fsTally) sample(s sampled, images []*image) {
	has := func(i *image) bool { return i.id.String() == s.id }
	switch {
	case s.id == "":
		c.miss(s.why, s.n)
	case slices.ContainsFunc(images, func(i *image) bool { return has(i) && i.has(s.offset) }):
		c.right += s.n
	case slices.ContainsFunc(images, has):
		c.late += s.n
	default:
		c.wrong += s.n
		c.errors = append(c.errors, fmt.Sprintf("%d samples of process %d at %s %#x, %s", s.n, s.pid, s.id, s.offset, s.file))
	}
}

// fsUses is how many times the scenes are played, each time with files of their own.
const fsUses = 4

func newFSTorture(t testing.TB, systems []fileSystem) *fsTorture {
	t.Helper()
	x := &fsTorture{torture: newTorture(t), images: map[byte][]*image{}}
	for content := range contents {
		x.images['p'] = append(x.images['p'], x.image(form{program: true, rounds: 1_500_000, status: byte(1 + content)}))
		x.images['l'] = append(x.images['l'], x.image(form{}))
		x.images['m'] = append(x.images['m'], x.image(form{idSize: 32}))
	}
	x.places = places(t, systems, x.images, fsUses)
	match := regexp.MustCompile(*only)
	for _, p := range x.places {
		for nth, way := range p.ways {
			if s := (&fsScene{fsPlace: p, way: way, nth: nth, hides: p.keeps && strings.HasPrefix(way, "behind:")}); match.MatchString(s.String()) {
				x.scenes = append(x.scenes, s)
			}
		}
	}
	return x
}

// each does something with all scenes, and with those of several file systems at a time.
func (x *fsTorture) each(do func(s *fsScene)) {
	var group sync.WaitGroup
	for _, p := range x.places {
		group.Go(func() {
			for _, s := range x.scenes {
				if s.fsPlace == p {
					do(s)
				}
			}
		})
	}
	group.Wait()
}

// A line says which processes a word in the output of testdata/host.c is of.
type line struct {
	path string   // of the program, "" for what the host itself runs
	next []*image // contents that the file had since besides those that the process has seen
}

// fsScript is a script of testdata/host.c whose output says what ran.
type fsScript struct {
	args  []string
	lines []line
}

func (s *fsScript) add(script ...any) {
	args, _ := words(script...)
	s.args = append(s.args, args...)
}

// word returns the word that stands for a line.
func (s *fsScript) word(l line) string {
	s.lines = append(s.lines, l)
	return fmt.Sprint("line", len(s.lines)-1)
}

// settled is how long, in ms, at most, what was just changed has no identity yet.
var settled = int((fstimes.Delay() * 5 / 4).Milliseconds())

// rounds is how often each scene changes its files. In one half of the rounds the file has
// settled before it is used. A place with one scene has as many rounds as others in all of theirs.
func (s *fsScene) rounds() int {
	n := 4
	if len(s.ways) == 1 {
		n = 24
	}
	if testenv.Thorough() {
		n *= 30
	}
	return n
}

// play plays a scene with files of its own.
func (x *fsTorture) play(s *fsScene, use int) {
	script := &fsScript{}
	for kind := range x.images {
		s.create(x.t, fileName(kind, use, s.nth), x.images)
	}
	program := fileName('p', use, s.nth)
	for r := range s.rounds() {
		if s.executes() {
			now := r % contents
			script.add(s.change(s.way, program, now, x.images)...)
			script.pause(r)
			path := s.path(program, now)
			script.add("run", script.word(line{path: path}), path)
		}
		library, now := fileName("lm"[r%2], use, s.nth), r/2%contents
		script.add(s.change(s.way, library, now, x.images)...)
		script.pause(r)
		script.inChild(x.libraryRound(script, s, library, now, (now+1)%contents))
	}
	x.runScript(s, script)
}

// executes reports whether programs can be executed in a scene: not what is mapped to be
// written by somebody whom the kernel knows.
func (s *fsScene) executes() bool {
	return s.way != "kept-mapping"
}

func (s *fsScript) pause(round int) {
	if round%4 >= 2 {
		s.add("sleep", settled)
	}
}

// libraryRound is what a process does with a library that changes while it is mapped.
func (x *fsTorture) libraryRound(script *fsScript, s *fsScene, library string, now, next int) []any {
	const us = 1500
	a, b := x.images[library[0]][now], x.images[library[0]][next]
	l := line{}
	if !s.hides {
		l.next = []*image{b}
	}
	word := script.word(l)
	do := []any{"map a", s.path(library, now), 0, imageSize, "tell", word, "a", markAt, "call a", a.from, us}
	switch s.way {
	case "mount": // not while it is in use
		return do
	case "snapshot":
		return append(do, "map b", s.path(library, next), 0, imageSize, "tell", word, "b", markAt, "call b", b.from, us)
	}
	do = append(do, s.change(s.way, library, next, x.images)...)
	return append(do, "call a", a.from, us, "tell", word, "a", markAt)
}

func (s *fsScript) inChild(do []any) {
	args, _ := words(do...)
	s.add("in-child", len(args))
	s.args = append(s.args, args...)
}

// runScript runs a script, and remembers what its processes have run.
func (x *fsTorture) runScript(s *fsScene, script *fsScript) {
	out, err := exec.Command(x.host, script.args...).Output()
	if err != nil {
		x.t.Errorf("%s: %v %s", s, err, stderrOf(err))
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for text := range strings.Lines(string(out)) {
		words := strings.Fields(text)
		if len(words) < 3 {
			continue // the host's number
		}
		pid, err := strconv.Atoi(words[0])
		n, err2 := strconv.Atoi(strings.TrimPrefix(words[1], "line"))
		if err := errors.Join(err, err2); err != nil || n >= len(script.lines) {
			x.t.Errorf("%s: %q: %v", s, text, err)
			continue
		}
		x.told(s, pid, &script.lines[n], words[2])
	}
}

// told remembers what a process has run: programs end with a status that says which they are,
// and of libraries the host says what it sees.
func (x *fsTorture) told(s *fsScene, pid int, l *line, what string) {
	w, i := who{pid, nameOf(x.host)}, x.marked(what)
	if l.path != "" {
		status, _ := strconv.Atoi(what)
		w.name, i = nameOf(l.path), nil
		if status > 0 && status <= contents {
			i = x.images['p'][status-1]
		}
	}
	if i == nil {
		x.t.Errorf("%s: process %d has run something else: %s", s, pid, what)
		return
	}
	if t := x.truth[w]; t == nil || t.of != s.String() || l.path != "" {
		x.truth[w] = &truth{of: s.String(), images: slices.Clone(l.next)}
	}
	x.truth[w].images = append(x.truth[w].images, i)
}

// marked returns the library that has these bytes at markAt.
func (x *fsTorture) marked(bytes string) *image {
	mark, _ := strconv.ParseUint(bytes, 16, 64)
	for _, i := range slices.Concat(x.images['l'], x.images['m']) {
		if i.mark == mark {
			return i
		}
	}
	return nil
}

// sceneOf returns the scene of a process, and what it has run.
func (x *fsTorture) sceneOf(w who) (*fsScene, []*image) {
	t := x.truth[w]
	if t == nil {
		return nil, nil
	}
	i := slices.IndexFunc(x.scenes, func(s *fsScene) bool { return s.String() == t.of })
	return x.scenes[i], t.images
}

// fsRecorders are the ways to record and to watch.
var fsRecorders = []struct {
	name   string
	need   func(t testing.TB)
	record Options
	watch  execwatch.Options
}{
	{"bpf", needBPF, Options{Backend: BPF, PIDs: []int{os.Getpid()}}, execwatch.Options{Backend: BPF, Libs: true}},
	{"bpf without task work", needBPF, Options{Backend: BPF, PIDs: []int{os.Getpid()}, noTaskWork: true}, execwatch.Options{Backend: BPF, Libs: true, NoTaskWork: true}},
	{"perf", needPerf, Options{Backend: Perf, SystemWide: true, CallGraph: CallGraph{By: ByFP}}, execwatch.Options{Backend: Perf, Libs: true}},
}

// TestNeverWrongOnFileSystems changes files in every way that their file systems allow, and wants
// no execution, loaded library, sample or mapping under an identity that the file had at no time
// since it was mapped. It logs the share that has none.
func TestNeverWrongOnFileSystems(t *testing.T) {
	needTimes(t)
	newFSTorture(t, fileSystems).judgeAll(t)
}

// TestNeverWrongOnFAT does the same on the one file system whose times have steps of two seconds,
// where there is one: on the kernels of internal/vmtest.
func TestNeverWrongOnFAT(t *testing.T) {
	i := slices.IndexFunc(fileSystems, func(fs fileSystem) bool { return fs.name == "vfat" })
	x := newFSTorture(t, fileSystems[i:i+1])
	if len(x.places) == 0 {
		t.Skip("left to kernels that have it: internal/vmtest")
	}
	x.judgeAll(t)
}

// judgeAll plays all scenes for each recorder and watch, and for what looks at processes.
func (x *fsTorture) judgeAll(t *testing.T) {
	for use, r := range fsRecorders {
		t.Run(r.name, func(t *testing.T) {
			r.need(t)
			x.begin(t)
			var samples []sampled
			events := watchDuring(t, r.watch, func() {
				samples = recordOurs(t, r.record, func() { x.each(func(s *fsScene) { x.play(s, use) }) })
			})
			for _, s := range samples {
				if scene, images := x.sceneOf(s.who); scene != nil && !x.isOther(s) {
					scene.samples.sample(s, images)
				}
			}
			for _, ev := range events {
				x.judgeEvent(ev)
			}
			x.report(t, "executions", "libraries", "samples")
			if r.watch.Backend == Perf {
				x.wantExecutions(t)
			}
		})
	}
	t.Run("ps and maps", func(t *testing.T) {
		x.begin(t)
		x.lookAtAll(t, len(fsRecorders))
		x.report(t, "", "maps", "ps")
	})
}

// wantExecutions wants executions by perf to have an identity: the kernel has read it when it mapped the program,
// whatever becomes of the file afterwards.
func (x *fsTorture) wantExecutions(t *testing.T) {
	if perfring.Try(false, func(attr *unix.PerfEventAttr) { attr.Bits |= perfring.BitBuildID }) != nil {
		t.Log("left to kernels with build IDs in records of mappings (5.12)")
		return
	}
	var all fsTally
	for _, s := range x.scenes {
		all.add(&s.execs)
	}
	t.Logf("of %d executions, these have no identity: %v", all.all(), all.unknown)
	testenv.AtMost(t, fmt.Sprintf("executions without an identity (%v)", all.unknown), all.without(), all.all(), 0.005)
}

// begin forgets what was counted.
func (x *fsTorture) begin(t testing.TB) {
	x.t, x.truth = t, map[who]*truth{}
	for _, s := range x.scenes {
		s.execs, s.loads, s.samples = fsTally{}, fsTally{}, fsTally{}
	}
}

// watched returns the events of a command.
func watched(t *testing.T, o execwatch.Options, args ...string) (told []*execwatch.Event) {
	t.Helper()
	c, err := launch.Start(args)
	if err != nil {
		t.Fatal(err)
	}
	o.Command = c
	w, err := execwatch.Start(o)
	if err != nil {
		c.Kill()
		c.Wait()
		t.Fatal(err)
	}
	err = w.Run(t.Context(), func(ev *execwatch.Event) error {
		told = append(told, ev)
		return nil
	})
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	c.Wait()
	return told
}

// watchDuring returns the events while something is done.
func watchDuring(t testing.TB, o execwatch.Options, during func()) (told []*execwatch.Event) {
	t.Helper()
	w, err := execwatch.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- w.Run(ctx, func(ev *execwatch.Event) error {
			told = append(told, ev)
			return nil
		})
	}()
	during()
	cancel()
	if err := errors.Join(<-done, w.Close()); err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", w.Stats())
	return told
}

// judgeEvent judges an event of a process.
func (x *fsTorture) judgeEvent(ev *execwatch.Event) {
	scene, images := x.sceneOf(who{ev.PID, ev.Name})
	if scene == nil {
		return
	}
	switch {
	case ev.Kind == execwatch.Executed:
		scene.execs.judge(ev.Program.ID, ev.Program.Reason.Code(), images, ev.Program.Path)
	case ev.Kind == execwatch.Loaded && !x.isOther(sampled{id: idText(ev.Library.ID), file: ev.Library.Path}):
		scene.loads.judge(ev.Library.ID, ev.Library.Reason.Code(), images, ev.Library.Path)
	}
}

// idText is an identity as profiles have it.
func idText(id buildid.ID) string {
	if id.IsZero() {
		return ""
	}
	return id.String()
}

// report logs a table of what became of each file system, with three columns for each of three
// kinds of answers, and wants none to be wrong.
func (x *fsTorture) report(t testing.TB, execs, loads, samples string) {
	var table strings.Builder
	fmt.Fprintf(&table, "\n%-26s", "file system")
	kinds := []string{execs, loads, samples}
	for _, kind := range kinds {
		if kind != "" {
			fmt.Fprintf(&table, " | %10s  late wrong  none", kind)
		}
	}
	for _, p := range x.places {
		var sums [3]fsTally
		for _, s := range x.scenes {
			if s.fsPlace != p {
				continue
			}
			for i, of := range []*fsTally{&s.execs, &s.loads, &s.samples} {
				sums[i].add(of)
				if of.wrong > 0 {
					t.Errorf("%s: WRONG: %d of %d %s, for instance: %s", s, of.wrong, of.all(), kinds[i], strings.Join(of.errors[:min(2, len(of.errors))], "; "))
				}
			}
		}
		fmt.Fprintf(&table, "\n%-26s", p.name)
		for i, kind := range kinds {
			if c := &sums[i]; kind != "" {
				fmt.Fprintf(&table, " | %10d %5d %5d %4.0f%%", c.all(), c.late, c.wrong, 100*float64(c.without())/float64(max(1, c.all())))
			}
		}
		fmt.Fprintf(&table, "  %s", whyNone(sums[:]))
	}
	t.Log(table.String())
}

// whyNone names the reasons for which identities are missing, the most frequent first.
func whyNone(tallies []fsTally) string {
	var all fsTally
	for i := range tallies {
		all.add(&tallies[i])
	}
	reasons := slices.SortedFunc(maps.Keys(all.unknown), func(a, b string) int { return int(all.unknown[b] - all.unknown[a]) })
	return strings.Join(reasons[:min(3, len(reasons))], ", ")
}
