package capture

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"hallmark/internal/testenv"
)

// who is a process while it has one name: numbers are used again.
type who struct {
	pid  int
	name string // of its first thread; empty for any
}

// torture runs programs that know what code they run, and remembers it.
type torture struct {
	maker
	host string
	at   string // the case that runs
	// truth is which images' code a process may have run, and in which case.
	truth map[who]*truth
}

type truth struct {
	of     string // a case
	images []*image
}

func newTorture(t testing.TB) *torture {
	return &torture{maker: maker{t: t, dir: t.TempDir()}, host: buildHost(t), truth: map[who]*truth{}}
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
	cmd := exec.Command(args[0], args[1:]...)
	if out, err := cmd.CombinedOutput(); err != nil {
		x.t.Errorf("%s: %v\n%s", x.at, err, out)
		return
	}
	x.ran(who{pid: cmd.Process.Pid}, i)
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

// run runs a program that becomes the host, and tells its number and those of its
// children.
func (x *torture) run(images []*image, args ...string) {
	out, err := exec.Command(args[0], args[1:]...).Output()
	if err != nil {
		x.t.Errorf("%s: %v %s", x.at, err, stderrOf(err))
	}
	for _, line := range strings.Fields(string(out)) {
		if pid, err := strconv.Atoi(line); err == nil {
			x.ran(who{pid: pid}, images...)
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

func (x *torture) startCommand(images []*image, args ...string) (resume func()) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stderr = os.Stderr
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		x.t.Fatal(err)
	}
	x.ran(who{pid: cmd.Process.Pid}, images...)
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "ready" {
	}
	at := x.at
	return func() {
		_, _ = in.Write([]byte("."))
		_, _ = io.Copy(io.Discard, out)
		if err := cmd.Wait(); err != nil {
			x.t.Errorf("%s: %v", at, err)
		}
	}
}

// A scene is one way of confusing who remembers files.
type scene struct {
	name string
	// run plays it while everything is recorded.
	run func(x *torture)
	// prepare plays its first part before that, and returns the second.
	prepare func(x *torture) (resume func())
}

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
			r()
		}
		for _, s := range scenes {
			if x.at = s.name; s.run != nil {
				s.run(x)
			}
		}
	})
}

// sampled is the innermost frame of user code of some samples.
type sampled struct {
	who
	file   string // as the recorder shows it
	id     string // empty for none
	offset uint64
	why    string // there is no identity
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
		if t == nil {
			t = x.truth[who{pid: s.pid}]
		}
		if t == nil || x.isOther(s.file) {
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

// isOther reports whether a file is one that the processes run besides images. What
// is before exec is the test itself.
func (x *torture) isOther(file string) bool {
	if file == x.host || file == self || file == "[vdso]" {
		return true
	}
	_, path, pseudo := strings.Cut(file, "] ")
	if !pseudo {
		path = file
	}
	return slices.ContainsFunc([]string{"/usr", "/lib", "/bin"}, func(dir string) bool { return strings.HasPrefix(path, dir) })
}

var self, _ = os.Executable()

func (v *verdict) count(s sampled, images []*image) {
	right := func(i *image) bool {
		return i.id.String() == s.id && i.from <= s.offset && s.offset < i.to
	}
	switch {
	case s.id == "":
		v.unknown[s.why] += s.n
	case slices.ContainsFunc(images, right):
		v.right += s.n
	default:
		v.wrong += s.n
		v.errors = append(v.errors, fmt.Sprintf("%d samples of process %d at %s %#x, %s", s.n, s.pid, s.id, s.offset, s.file))
	}
}

// TestNeverWrong records everything while files are treated in every way that may
// confuse who remembers them, and wants no frame of a program under an identity or
// at an offset that it never ran.
func TestNeverWrong(t *testing.T) {
	for _, r := range ours {
		t.Run(r.name, func(t *testing.T) {
			r.need(t)
			x := newTorture(t)
			verdicts := x.judge(x.play(scenes, func(during func()) []sampled { return r.record(t, during) }))
			for _, s := range scenes {
				check(t, s, verdicts[s.name])
			}
		})
	}
}

// check wants no wrong frame, and some that were found.
func check(t *testing.T, s scene, v *verdict) {
	if v == nil {
		t.Errorf("%s: no samples", s.name)
		return
	}
	t.Logf("%-45s %6d samples, %5.1f %% right, unknown %v", s.name, v.all(), 100*float64(v.right)/float64(v.all()), v.unknown)
	for _, e := range v.errors {
		t.Errorf("%s: WRONG: %s", s.name, e)
	}
}

// recordOurs records with a backend of this package.
func recordOurs(t testing.TB, opts Options, during func()) []sampled {
	t.Helper()
	opts.SystemWide, opts.Frequency = true, tortureFrequency
	s := startSession(t, opts)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	during()
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	r := s.Finish()
	if n := s.Stats().Disagreed; n > 0 {
		t.Errorf("the kernel side read %d identities that the files did not have", n)
	}
	t.Logf("%+v", s.Stats())
	return ofProfile(r.Profile)
}

// cut returns the content of a file for comparison by other means.
func cut(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(b)
}

var _ = filepath.Join
var _ = unix.Getpid
var _ = testenv.Root
var _ = cut
