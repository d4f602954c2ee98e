package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/internal/testenv"
)

// TestMain is the command itself where a test starts it.
func TestMain(m *testing.M) {
	if os.Getenv("TESTRUN_MAIN") != "" {
		os.Unsetenv("TESTRUN_MAIN")
		main()
	}
	os.Exit(m.Run())
}

// module makes a module whose packages have these tests, by the name of the package.
func module(t *testing.T, tests map[string]string) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "a module") // with a space
	files := map[string]string{"go.mod": "module example.org/tested\n\ngo 1.26\n"}
	for name, body := range tests {
		files[name+"/x_test.go"] = "package " + name[len(name)-1:] + "\n\nimport (\n\t\"os\"\n\t\"os/exec\"\n\t\"testing\"\n)\n\nvar _, _ = os.Getenv, exec.Command\n\n" + body
	}
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// command returns the command for the tests of a module.
func command(t *testing.T, dir string, args ...string) (cmd *exec.Cmd, scratch string) {
	t.Helper()
	testenv.Tool(t, "go")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	scratch = filepath.Join(t.TempDir(), "scratch")
	cmd = exec.Command(self, append([]string{"--no-install", "--scratch", scratch}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TESTRUN_MAIN=1", "PWD="+dir, testenv.LackVar+"=", "HALLMARK_THOROUGH=")
	return cmd, scratch
}

const (
	passes = "func TestPass(t *testing.T) {}\n"
	fails  = "func TestFail(t *testing.T) { t.Run(\"sub\", func(t *testing.T) { t.Error(\"wrong\") }) }\n"
	// lacks is a test that finds enough only when it is run alone.
	lacks = "func TestLack(t *testing.T) { t.Run(\"a b\", func(t *testing.T) { if os.Getenv(\"HALLMARK_LACK\") == \"later\" { t.Skip(\"LACK: 3 samples\") } }) }\n"
	// lacking never does; and one that is wrong as well does not come into the favour.
	lacking = "func TestLack(t *testing.T) { if os.Getenv(\"HALLMARK_LACK\") == \"later\" { t.Skip(\"LACK: 3 samples\") }; t.Fatal(\"LACK: 4 samples\") }\n"
	both    = "func TestBoth(t *testing.T) { t.Error(\"wrong\"); t.Skip(\"LACK: 3 samples\") }\n"
)

// TestVerdicts runs modules whose tests end in every way there is.
func TestVerdicts(t *testing.T) {
	for _, test := range []struct {
		name   string
		tests  map[string]string
		args   []string
		status int
		last   string
		has    []string // regular expressions that match what is printed
	}{
		{"pass", map[string]string{"a": passes, "b": passes}, nil, 0, "2 passed, 0 failed, 0 skipped", nil},
		{"fail", map[string]string{"a": fails, "b": passes}, nil, 1, "1 passed, 2 failed, 0 skipped", []string{`x_test.go:\d+: wrong`, "\n  a TestFail/sub\n"}},
		{"alone", map[string]string{"a": lacks, "b": passes}, nil, 0, "3 passed, 0 failed, 0 skipped", []string{"passed when run alone: a TestLack/a_b: 3 samples"}},
		{"lacking", map[string]string{"a": lacking}, nil, 1, "0 passed, 1 failed, 0 skipped", []string{"LACK: 4 samples"}},
		{"both", map[string]string{"a": both, "b": passes}, nil, 1, "1 passed, 1 failed, 0 skipped", nil},
		{"skip", map[string]string{"a": passes + "func TestSkip(t *testing.T) { t.Skip(\"NOT CHECKED: needs a moon\") }\n"}, nil, 0, "1 passed, 0 failed, 1 skipped", []string{"needs a moon: a TestSkip"}},
		{"panic", map[string]string{"a": passes + "func TestPanic(t *testing.T) { panic(\"oh\") }\n", "b": passes}, nil, 1, "2 passed, 1 failed, 0 skipped", []string{"panic: oh"}},
		{"exit", map[string]string{"a": passes + "func TestExit(t *testing.T) { os.Exit(0) }\n"}, nil, 1, "", nil},
		{"main", map[string]string{"a": passes + "func TestMain(m *testing.M) { m.Run(); println(\"leaks\"); os.Exit(3) }\n"}, nil, 1, "1 passed, 1 failed, 0 skipped", []string{"leaks"}},
		{"leftover", map[string]string{"a": "func TestLeft(t *testing.T) { exec.Command(\"sleep\", \"1000\").Start() }\n"}, nil, 1, "1 passed, 1 failed, 0 skipped", []string{`leave processes behind: sleep`}},
		{"holder", map[string]string{"a": "func TestHold(t *testing.T) { c := exec.Command(\"sleep\", \"1000\"); c.Stdout, c.Stderr = os.Stdout, os.Stderr; c.Start() }\n"}, nil, 1, "1 passed, 1 failed, 0 skipped", nil},
		{"build", map[string]string{"a": "func TestX(t *testing.T) { undefined() }\n", "b": passes}, nil, 1, "1 passed, 1 failed, 0 skipped", []string{"undefined: undefined", `a \(build\)`}},
		{"race", map[string]string{"a": "func TestRace(t *testing.T) { n := 0; c := make(chan int); go func() { n++; c <- 1 }(); n++; <-c }\n"}, nil, 1, "", []string{"DATA RACE"}},
		{"run", map[string]string{"a": passes + fails, "b": fails}, []string{"--run", "Pass"}, 0, "1 passed, 0 failed, 0 skipped", nil},
		{"package", map[string]string{"a": passes, "b": fails}, []string{"./a"}, 0, "1 passed, 0 failed, 0 skipped", nil},
		{"alternatives", map[string]string{"a": passes, "b": fails}, []string{"--run", "TestPass/x|TestFail", "./..."}, 1, "", []string{"b TestFail/sub"}},
		{"nothing run", map[string]string{"a": "func TestMain(m *testing.M) { println(\"PASS\"); os.Exit(0) }\n" + passes, "b": passes}, nil, 1, "", nil},
		{"parent", map[string]string{"a": "func TestP(t *testing.T) { t.Run(\"sub\", func(t *testing.T) { if os.Getenv(\"HALLMARK_LACK\") == \"later\" { t.Skip(\"LACK: 3 samples\") } }); if os.Getenv(\"HALLMARK_LACK\") == \"\" { t.Error(\"wrong\") } }\n", "b": passes}, nil, 1, "", []string{"FAILED:\n  a TestP"}},
		{"same name", map[string]string{"a-b": passes, "a/b": fails}, nil, 1, "1 passed, 2 failed, 0 skipped", nil},
		{"usage", map[string]string{"a": passes}, []string{"./nosuch"}, 2, "", []string{`test.sh: .*nosuch`}},
		{"regexp", map[string]string{"a": passes}, []string{"--run", "("}, 2, "", []string{`test.sh: --run`}},
		{"none", map[string]string{"a": passes}, []string{"--run", "Nothing"}, 1, "0 passed, 1 failed, 0 skipped", []string{"no test of these packages matches Nothing"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			args := test.args
			if len(args) == 0 {
				args = []string{"./..."}
			}
			if test.name == "race" {
				testenv.Tool(t, "gcc")
			} else {
				args = append([]string{"--quick"}, args...) // which is built sooner
			}
			cmd, scratch := command(t, module(t, test.tests), args...)
			out, err := cmd.CombinedOutput()
			if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != test.status {
				t.Fatalf("%v, want status %d\n%s", err, test.status, out)
			}
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			if last := lines[len(lines)-1]; test.last != "" && last != test.last {
				t.Errorf("last line %q, want %q\n%s", last, test.last, out)
			}
			for _, want := range test.has {
				if !regexp.MustCompile(want).Match(out) {
					t.Errorf("there is no %q in\n%s", want, out)
				}
			}
			if _, err := os.Stat(scratch); err == nil {
				t.Errorf("%s is left", scratch)
			}
		})
	}
}

// TestInterrupted ends a run in every way and wants all that it has started to end, even
// what has left its process group and has lost its parents, and the summary to be printed.
func TestInterrupted(t *testing.T) {
	waits := `func TestWait(t *testing.T) {
	println("begun")
	exec.Command("sh", "-c", "setsid sleep 1234 & exec setsid sleep 1234").Run()
	select {}
}
`
	for _, how := range []string{"interrupt", "terminated", "hangup", "timeout", "killed"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			mark := fmt.Sprintf("HALLMARK_TEST_MARK=%d-%s", os.Getpid(), how)
			args := []string{"--quick", "./..."}
			if how == "timeout" {
				args = []string{"--quick", "--timeout", "5s", "./..."}
			}
			cmd, scratch := command(t, module(t, map[string]string{"a": waits, "b": passes}), args...)
			cmd.Env = append(cmd.Env, mark)
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			waitUntil(t, "two sleep", func() bool { return len(marked(mark, "sleep")) == 2 || how == "timeout" })
			signals := map[string]syscall.Signal{"interrupt": syscall.SIGINT, "terminated": syscall.SIGTERM, "hangup": syscall.SIGHUP, "killed": syscall.SIGKILL}
			if s, ok := signals[how]; ok {
				if err := cmd.Process.Signal(s); err != nil {
					t.Fatal(err)
				}
			}
			if how == "killed" { // the kernel ends what it started itself
				_ = cmd.Wait()
				waitUntil(t, "the tests ended", func() bool { return len(marked(mark, "a.test")) == 0 })
				for _, pid := range marked(mark, "sleep") {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
				return
			}
			printed, err := io.ReadAll(bufio.NewReader(out))
			if err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != 1 {
				t.Errorf("status %d", code)
			}
			if !regexp.MustCompile(`not finished: .*(a|building)`).Match(printed) || !regexp.MustCompile(`\n[01] passed, 1 failed, 0 skipped\n$`).Match(printed) {
				t.Errorf("%s", printed)
			}
			if left := marked(mark, ""); len(left) > 0 {
				t.Errorf("processes %v are left", left)
			}
			if _, err := os.Stat(scratch); err == nil {
				t.Errorf("%s is left", scratch)
			}
		})
	}
}

func waitUntil(t *testing.T, what string, ready func() bool) {
	t.Helper()
	for range 1200 {
		if ready() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	testenv.Lack(t, "two minutes: not yet %s", what)
}

// marked returns the processes with a variable in their environment, and with a name unless
// it is "".
func marked(variable, name string) (pids []int) {
	for _, p := range processes() {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.pid))
		if err == nil && strings.Contains("\x00"+string(env), "\x00"+variable+"\x00") && (name == "" || p.name == name) {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

// TestAptWaits has a package manager that is locked at first, and one that lacks a package.
func TestAptWaits(t *testing.T) {
	dir := t.TempDir()
	script := `#!/bin/sh
echo "$*" >>"` + dir + `/calls"
case "$*" in
*update*) if [ ! -e "` + dir + `/once" ]; then : >"` + dir + `/once"; echo "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)"; exit 100; fi ;;
*install*nowhere*) echo "E: Unable to locate package nowhere"; exit 100 ;;
esac
`
	if err := os.WriteFile(filepath.Join(dir, "apt-get"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
	var printed strings.Builder
	c := &console{out: &printed}
	r := &runner{console: c, results: newResults(c), procs: newProcs()}
	err := r.apt(context.Background(), []string{"nowhere", "here"})
	calls, _ := os.ReadFile(filepath.Join(dir, "calls"))
	if err == nil || !strings.Contains(err.Error(), "Unable to locate package nowhere") {
		t.Errorf("%v", err)
	}
	if n := strings.Count(string(calls), " update"); n != 2 || !strings.Contains(printed.String(), "Another program uses the package manager") {
		t.Errorf("%d updates; %s", n, &printed)
	}
	if !strings.HasSuffix(string(calls), " install --no-download here\n") {
		t.Errorf("%s", calls)
	}
}

// TestOnATerminal has a test fail while the line of progress is drawn.
func TestOnATerminal(t *testing.T) {
	cmd, _ := command(t, module(t, map[string]string{"a": "func TestSlow(t *testing.T) { exec.Command(\"sleep\", \"1.5\").Run(); t.Error(\"bad\") }\n"}), "--quick", "./...")
	master, slave, err := openTerminal()
	testenv.Need(t, err == nil, fmt.Sprint("a terminal: ", err))
	defer master.Close()
	cmd.Stdout, cmd.Stderr = slave, slave
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	ended := make(chan error, 1)
	printed := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(master) // ends with an error, when the other side is closed
		printed <- string(text)
	}()
	go func() { ended <- cmd.Wait() }()
	select {
	case <-ended:
	case <-time.After(testenv.Patience):
		cmd.Process.Kill()
		<-ended
		t.Error("the run does not end")
	}
	if text := <-printed; !strings.Contains(text, "0 passed, 1 failed, 0 skipped") || !strings.Contains(text, "\x1b[K") {
		t.Errorf("%q", text)
	}
}

// openTerminal returns the two ends of a terminal: pty(7).
func openTerminal() (master, slave *os.File, err error) {
	if master, err = os.OpenFile("/dev/ptmx", os.O_RDWR, 0); err != nil {
		return nil, nil, err
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	}
	if err != nil {
		master.Close()
		return nil, nil, err
	}
	return master, slave, nil
}

// TestSplitTestsAreThere wants each pattern of split to match tests of its package, and each
// package to be there.
func TestSplitTestsAreThere(t *testing.T) {
	for name, of := range split {
		pattern := of.raced + strings.TrimSuffix(strings.TrimPrefix(of.scenes, "^Test("), ")")
		for part := range strings.SplitSeq(pattern, "|") {
			if strings.ContainsAny(part, "()") {
				continue // a part of a group
			}
			match, err := firstNames(part)
			if err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join("..", "..", filepath.FromSlash(name))
			files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
			if err != nil {
				t.Fatal(err)
			}
			for i := range files {
				files[i] = filepath.Base(files[i])
			}
			if !declares(dir, files, match) {
				t.Errorf("%s has no test that matches %s", name, part)
			}
		}
	}
}
