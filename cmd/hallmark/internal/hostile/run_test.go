package hostile

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"hallmark/internal/testenv"
)

const (
	mib = 1 << 20

	// A run may take so much memory, and so many times its input.
	memoryBase  = 512 * mib
	memoryTimes = 10

	// A run that has not ended after so long hangs.
	hangs = 10 * time.Minute

	// killMemory ends a run before the machine suffers.
	killMemory = 3 << 30
)

// commandVariable names another build that is to be attacked.
const commandVariable = "HALLMARK_COMMAND"

// hallmark is the command, built as users have it: without the race detector, which takes
// memory of its own.
var hallmark = sync.OnceValues(func() (string, error) {
	if name := os.Getenv(commandVariable); name != "" {
		return name, nil
	}
	dir, err := os.MkdirTemp("", "hostile")
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "hallmark")
	build := exec.Command("go", "build", "-race=false", "-cover", "-covermode=count", "-coverpkg="+counted, "-o", name, "hallmark/cmd/hallmark")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return name, nil
})

func TestMain(m *testing.M) {
	status := testenv.Isolated(m).Run()
	if name, err := hallmark(); err == nil && os.Getenv(commandVariable) == "" {
		os.RemoveAll(filepath.Dir(name))
	}
	if dir, err := countsDir(); err == nil {
		os.RemoveAll(dir)
	}
	os.Exit(status)
}

// A place is a directory for one input and what reads it.
type place struct {
	t   *testing.T
	dir string
}

// newPlace returns an empty place: in has the input, out is where output is asked for, and
// home, tmp and cwd are where nothing may appear but caches.
func newPlace(t *testing.T) *place {
	p := &place{t, t.TempDir()}
	for _, name := range []string{"in", "out", "home", "tmp", "cwd"} {
		if err := os.Mkdir(filepath.Join(p.dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// in returns the path of an input file.
func (p *place) in(name string) string { return filepath.Join(p.dir, "in", name) }

// out returns the path of an output file.
func (p *place) out(name string) string { return filepath.Join(p.dir, "out", name) }

// write makes an input file and returns its path.
func (p *place) write(name string, data []byte) string {
	p.t.Helper()
	if err := os.WriteFile(p.in(name), data, 0o755); err != nil {
		p.t.Fatal(err)
	}
	return p.in(name)
}

// A command is one run of the command line.
type command struct {
	args  []string
	stdin string   // a file, none where it is empty
	env   []string // besides those of every run
	extra int64    // bytes of input that are not in the directory in
	raw   bool     // standard output is for programs, and may have any bytes
}

// line makes a command of its arguments.
func line(args ...string) command { return command{args: args} }

// result is what a run did.
type result struct {
	status         int
	memory         int64
	steps          int64  // statements that were executed
	hottest        int64  // of these, in one place
	hot            string // that place
	stdout, stderr []byte // the first bytes of each
	input          int64
	problems       []string
}

// kept is how many bytes of an output are looked at.
const kept = 4 * mib

// run runs the command and reports everything that it must not do.
func (p *place) run(c command) result {
	p.t.Helper()
	name, err := hallmark()
	if err != nil {
		p.t.Fatal(err)
	}
	before := p.list()
	cmd := p.command(name, c)
	stdout, stderr := p.stream("stdout"), p.stream("stderr")
	defer stdout.Close()
	defer stderr.Close()
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if c.stdin != "" {
		in, err := os.Open(c.stdin)
		if err != nil {
			p.t.Fatal(err)
		}
		defer in.Close()
		cmd.Stdin = in
	}
	r := result{input: p.size("in") + c.extra}
	forget()
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	killed := guard(cmd.Process.Pid)
	_ = cmd.Wait() // its state says it
	why := killed()
	r.measure(cmd)
	r.stdout, r.stderr = head(stdout), head(stderr)
	p.judge(&r, why, c)
	r.compare(before, p.list())
	p.report(c, &r)
	return r
}

func (p *place) command(name string, c command) *exec.Cmd {
	cmd := exec.Command(name, c.args...)
	home := filepath.Join(p.dir, "home")
	cmd.Dir = filepath.Join(p.dir, "cwd")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "XDG_CACHE_HOME=" + filepath.Join(home, ".cache"),
		"XDG_CONFIG_HOME=" + filepath.Join(home, ".config"), "XDG_DATA_HOME=" + filepath.Join(home, ".local", "share"),
		"XDG_STATE_HOME=" + filepath.Join(home, ".local", "state"), "XDG_RUNTIME_DIR=" + filepath.Join(home, "run"),
		"TMPDIR=" + filepath.Join(p.dir, "tmp"), "DEBUGINFOD_URLS=", "TERM=xterm", "LANG=C.UTF-8",
		countsVariable + "=" + p.newCounts(),
	}, c.env...)
	return cmd
}

// stream returns a file for an output, which has no name.
func (p *place) stream(name string) *os.File {
	p.t.Helper()
	f, err := os.CreateTemp(p.dir, name)
	if err != nil {
		p.t.Fatal(err)
	}
	os.Remove(f.Name())
	return f
}

func head(f *os.File) []byte {
	b := make([]byte, kept)
	n, _ := f.ReadAt(b, 0)
	return b[:n]
}

// guard ends a process that takes far too much, and returns what says why it did.
func guard(pid int) (stop func() string) {
	done, why := make(chan struct{}), make(chan string, 1)
	go func() {
		deadline := time.Now().Add(hangs)
		for {
			select {
			case <-done:
				why <- ""
				return
			case <-time.After(20 * time.Millisecond):
			}
			text := ""
			if time.Now().After(deadline) {
				text = fmt.Sprintf("hangs: killed after %v", hangs)
			} else if resident(pid) > killMemory {
				text = fmt.Sprintf("killed at more than %d MiB", killMemory/mib)
			}
			if text != "" {
				syscall.Kill(pid, syscall.SIGKILL)
				why <- text
				return
			}
		}
	}()
	return func() string { close(done); return <-why }
}

// resident returns how many bytes of a process are in memory now.
func resident(pid int) int64 {
	var total, pages int64
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err == nil {
		fmt.Sscan(string(text), &total, &pages)
	}
	return pages * int64(os.Getpagesize())
}

func (r *result) memoryLimit() int64 { return memoryBase + memoryTimes*r.input }

// forget makes the kernel forget how much memory this process has had (proc_pid_clear_refs(5)):
// between fork and exec the child has the same memory, and inherits the mark.
func forget() {
	debug.FreeOSMemory()
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)
}

// measure takes what the kernel counted. The peak is the child's (its VmHWM), or what this
// process has when it starts the child, if that is more: it is never too low.
func (r *result) measure(cmd *exec.Cmd) {
	state := cmd.ProcessState
	usage := state.SysUsage().(*syscall.Rusage)
	r.memory = usage.Maxrss << 10
	r.status = state.ExitCode()
	if status := state.Sys().(syscall.WaitStatus); status.Signaled() {
		r.problem("died of %v", status.Signal())
	}
	for _, v := range cmd.Env {
		if dir, ok := strings.CutPrefix(v, countsVariable+"="); ok {
			if err := r.countSteps(dir); err != nil {
				r.problem("what it counted cannot be read: %v", err)
			}
		}
	}
}

func (r *result) problem(format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

// crashes are what Go's runtime prints when a program dies.
var crashes = []string{"panic:", "fatal error:", "goroutine 1 [", "SIGSEGV", "SIGBUS", "unexpected fault address", "runtime error"}

func (p *place) judge(r *result, killed string, c command) {
	if killed != "" {
		r.problem("%s", killed)
	}
	if limit := r.memoryLimit(); r.memory > limit {
		r.problem("takes %d MiB of memory, more than %d MiB", r.memory/mib, limit/mib)
	}
	if limit := p.stepsLimit(r); r.steps > limit {
		r.problem("takes %d steps, more than %d: most of them, %d, at %s", r.steps, limit, r.hottest, r.hot)
	}
	for _, crash := range crashes {
		if bytes.Contains(r.stderr, []byte(crash)) {
			r.problem("crashes: %s", crash)
			break
		}
	}
	if r.status > 2 {
		r.problem("exit status %d", r.status)
	}
	if r.status != 0 && len(r.stderr)+len(r.stdout) == 0 && killed == "" {
		r.problem("fails without a word")
	}
	r.plain("standard error", r.stderr)
	if !c.raw {
		r.plain("standard output", r.stdout)
	}
}

// plain wants text that a terminal shows and does not execute.
func (r *result) plain(name string, text []byte) {
	for len(text) > 0 {
		c, n := utf8.DecodeRune(text)
		if c == utf8.RuneError && n == 1 && len(text) < utf8.UTFMax {
			return // cut off
		}
		if c == utf8.RuneError && n == 1 || c != '\n' && c != '\t' && unicode.In(c, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
			r.problem("%s has %+q", name, text[:min(n+20, len(text))])
			return
		}
		text = text[n:]
	}
}

// file is what is known of a name: when it was changed, its size and mode.
type file struct {
	mode fs.FileMode
	size int64
	time time.Time
}

// list returns everything below the place.
func (p *place) list() map[string]file {
	p.t.Helper()
	all := map[string]file{}
	err := filepath.WalkDir(p.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(p.dir, path)
		f := file{mode: info.Mode(), size: info.Size(), time: info.ModTime()}
		if d.IsDir() {
			f.size, f.time = 0, time.Time{}
		}
		all[rel] = f
		return nil
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return all
}

// cache is where the command may keep what it wants; the other one is debuginfod's.
var caches = []string{"home/.cache/hallmark", "home/.cache/debuginfod_client"}

// compare wants no change but in out and in the caches.
func (r *result) compare(before, after map[string]file) {
	asked := func(name string) bool {
		if strings.HasPrefix(name, "out/") || name == "home/.cache" {
			return true
		}
		for _, c := range caches {
			if name == c || strings.HasPrefix(name, c+"/") {
				return true
			}
		}
		return false
	}
	for name, f := range after {
		if old, known := before[name]; (!known || old != f) && !asked(name) {
			r.problem("writes %s", name)
		}
		if strings.HasPrefix(filepath.Base(name), ".") && strings.HasPrefix(name, "out/") {
			r.problem("leaves %s behind", name)
		}
	}
	for name := range before {
		if _, there := after[name]; !there && !asked(name) {
			r.problem("removes %s", name)
		}
	}
}

// size returns how many bytes are in a directory of the place, holes not counted.
func (p *place) size(name string) (sum int64) {
	filepath.WalkDir(filepath.Join(p.dir, name), func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			sum += inBlocks(d)
		}
		return nil
	})
	return sum
}

// inBlocks returns how many bytes of a file are stored.
func inBlocks(d fs.DirEntry) int64 {
	info, err := d.Info()
	if err != nil {
		return 0
	}
	return min(info.Size(), 512*info.Sys().(*syscall.Stat_t).Blocks)
}

// report fails the test with what the run did wrong.
func (p *place) report(c command, r *result) {
	p.t.Helper()
	what := strings.ReplaceAll(strings.Join(c.args, " "), p.dir+"/", "")
	if len(what) > 100 {
		what = what[:100] + "…"
	}
	p.t.Logf("%4d MiB %7.1f million steps of %.1f KiB: %+q: status %d: %.300q", r.memory/mib, float64(r.steps)/1e6, float64(r.input)/1024, what, r.status, first(r.stderr))
	for _, problem := range r.problems {
		p.t.Errorf("%+q: %s", what, problem)
	}
}

func first(text []byte) string {
	s, _, _ := strings.Cut(string(text), "\n")
	return s
}

// size returns how large an input is in the short form, and in the long one.
func size(short, long int) int {
	if testenv.Thorough() {
		return long
	}
	return short
}

// some returns the commands that a run of the short form takes for an attack: another one for
// each attack of a kind. The long form takes all.
func some(attack string, commands []command) []command {
	if testenv.Thorough() {
		return commands
	}
	sum := 0
	for _, b := range []byte(attack) {
		sum += int(b)
	}
	i := sum % len(commands)
	return commands[i : i+1]
}

// runAll runs several commands, one after the other, and removes what they wrote. In the short
// form it is one of them.
func (p *place) runAll(commands ...command) {
	p.t.Helper()
	for _, c := range some(p.t.Name(), commands) {
		p.run(c)
		p.clear("out")
		p.clear("home")
	}
}

func (p *place) clear(name string) {
	p.t.Helper()
	dir := filepath.Join(p.dir, name)
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755)); err != nil {
		p.t.Fatal(err)
	}
}

// serve runs a verb that serves pages until it is asked to end, and asks for pages.
func (p *place) serve(c command, pages ...string) {
	p.t.Helper()
	name, err := hallmark()
	if err != nil {
		p.t.Fatal(err)
	}
	cmd := p.command(name, c)
	out, err := cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	var problems bytes.Buffer
	cmd.Stderr = &problems
	r := result{input: p.size("in")}
	forget()
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	killed := guard(cmd.Process.Pid)
	first, _ := bufio.NewReader(out).ReadString('\n')
	if at := strings.Index(first, "http://"); at >= 0 {
		base, _, _ := strings.Cut(first[at:], " ")
		p.fetch(strings.TrimSpace(base), pages)
		_ = cmd.Process.Signal(syscall.SIGTERM)
	}
	_ = cmd.Wait()
	why := killed()
	r.measure(cmd)
	r.stderr = problems.Bytes()
	if r.status == 143 || r.status == -1 && why == "" {
		r.status, r.problems = 0, nil // it was asked to
	}
	p.judge(&r, why, c)
	p.report(c, &r)
}

// fetch asks for pages, as a browser that was given a URL with a key does.
func (p *place) fetch(base string, pages []string) {
	p.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		p.t.Fatal(err)
	}
	client := http.Client{Jar: jar, Timeout: hangs}
	root, err := url.Parse(base)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, page := range append([]string{""}, pages...) {
		at := *root
		if page != "" {
			next, err := root.Parse(page)
			if err != nil {
				p.t.Fatal(err)
			}
			at = *next
		}
		answer, err := client.Get(at.String())
		if err != nil {
			p.t.Logf("%s: %v", page, err)
			continue
		}
		if page == "" {
			root = answer.Request.URL // without the key
		}
		n, _ := io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		p.t.Logf("page %q: %s, %d bytes", page, answer.Status, n)
	}
}
