package procmap

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"hallmark/internal/mounts"
)

// roleVar makes the test binary play another program: the tests need processes
// whose mappings they know.
const roleVar = "PROCMAP_TEST_ROLE"

func TestMain(m *testing.M) {
	if name := os.Getenv(roleVar); name != "" {
		role, ok := roles[name]
		if !ok {
			fmt.Fprintln(os.Stderr, "no such role:", name)
			os.Exit(2)
		}
		role(os.Args[1:])
		os.Exit(0)
	}
	_, _ = mounts.OpenMapFile("self", 0, 0) // its instance of procfs stays open
	before := openFiles()
	code := m.Run()
	if after := openFiles(); code == 0 && after > before {
		fmt.Fprintf(os.Stderr, "leaked descriptors: %d open before the tests, %d after\n", before, after)
		code = 1
	}
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, "leaked goroutines:", err)
		code = 1
	}
	os.Exit(code)
}

// openFiles counts the descriptors, without those of Go's network poller and the one by which
// the kernel says what is mounted, which stay once they exist.
func openFiles() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		panic(err)
	}
	n := 0
	for _, e := range entries {
		link, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && !strings.HasPrefix(link, "anon_inode:[event") && !strings.HasSuffix(link, "/mountinfo") {
			n++
		}
	}
	return n
}

// roles are the programs. Each prints a line when it is ready and then waits or
// works until its standard input ends.
var roles = map[string]func(args []string){
	"wait":  func([]string) { ready() },
	"map":   func(files []string) { mapFiles(files); ready() },
	"twins": func(args []string) { twins(args[0], args[1], args[2]) },
	"forge": func(args []string) { forge(args[0], args[1]) },
	"exec":  func(args []string) { ready(); check(syscall.Exec(args[0], args, nil)) },
	"churn": func([]string) { churn() },
	"many":  func([]string) { mapMany(); ready() },
	"remap": func(files []string) { remap(files[0]) },
	"memfd": func(args []string) { execMemfd(args[0]) },
	"mount": func(args []string) { mounted(args[0], args[1]) },
	"cover": func(args []string) { overlaid(args) },
	"look":  func(args []string) { look(args[0]) },
	"deep":  func(args []string) { mapDeep(args[0]) },
}

func ready(words ...any) {
	fmt.Println(words...)
	io.Copy(io.Discard, os.Stdin)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// forge maps a file, and puts the head of another one over its own in memory: as much of it as has the
// header and the notes. It maps the file once more, and overwrites the notes alone there.
func forge(path, other string) {
	head, err := os.ReadFile(other)
	check(err)
	size := os.Getpagesize()
	for _, from := range []int{0, size} {
		m := mapFile(path, 0)
		check(syscall.Mprotect(m, syscall.PROT_READ|syscall.PROT_WRITE))
		copy(m[from:], head[from:min(len(m), len(head))])
		check(syscall.Mprotect(m, syscall.PROT_READ|syscall.PROT_EXEC))
	}
	ready()
}

// mapFiles maps the files executable and keeps no descriptor of them.
func mapFiles(names []string) {
	for _, name := range names {
		mapFile(name, 0)
	}
}

// mapFile maps a file from an offset to its end and returns the memory.
func mapFile(name string, offset int64) []byte {
	f, err := os.Open(name)
	check(err)
	defer f.Close()
	info, err := f.Stat()
	check(err)
	m, err := syscall.Mmap(int(f.Fd()), offset, int(info.Size()-offset),
		syscall.PROT_READ|syscall.PROT_EXEC, syscall.MAP_PRIVATE)
	check(err)
	return m
}

// A child is a process that plays a role.
type child struct {
	pid   int
	line  string // what it said when it was ready
	stdin io.WriteCloser
	cmd   *exec.Cmd
}

// start runs cmd, whose program plays a role, until the test ends.
func start(t testing.TB, cmd *exec.Cmd) *child {
	t.Helper()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{pid: cmd.Process.Pid, stdin: stdin, cmd: cmd}
	t.Cleanup(c.stop)
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		c.stop()
		t.Fatalf("child was not ready: %v\n%s", err, &stderr)
	}
	c.line = strings.TrimSuffix(line, "\n")
	return c
}

// stop ends the child and waits for it.
func (c *child) stop() {
	c.stdin.Close()
	c.cmd.Wait()
}

// play returns the command that plays a role in the test binary.
func play(role string, args ...string) *exec.Cmd {
	return playAs("/proc/self/exe", role, args...)
}

// playAs is play with a copy of the test binary.
func playAs(program, role string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	// One P: the runtime of the child maps next to nothing once it waits.
	cmd.Env = append(os.Environ(), roleVar+"="+role, "GOMAXPROCS=1", "GODEBUG=")
	return cmd
}

// open opens a process for the test.
func open(t testing.TB, pid int, m Method) *Process {
	t.Helper()
	p, err := OpenOptions(pid, Options{Method: m})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// copyFile copies an executable into the test's directory.
func copyFile(t testing.TB, from, name string) string {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(to, data, 0o755); err != nil {
		t.Fatal(err)
	}
	return to
}

// methods are those that this kernel has.
func methods(t testing.TB) []Method {
	p := open(t, os.Getpid(), Auto)
	if p.Method() == Query {
		return []Method{Query, Text}
	}
	t.Log("NOT CHECKED: queries, which need Linux 6.11")
	return []Method{Text}
}

// mappingOf returns the executable VMA of a file.
func mappingOf(t testing.TB, p *Process, match func(VMA) bool) VMA {
	t.Helper()
	list, err := p.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range list {
		if v.Perm&Exec != 0 && match(v) {
			return v
		}
	}
	t.Fatalf("process %d has no such mapping", p.PID())
	return VMA{}
}
