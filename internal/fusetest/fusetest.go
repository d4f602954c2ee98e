package fusetest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"hallmark/internal/testenv"
)

// Options are what a file system is like. The zero value caches no attributes, and forgets the
// content of a file when somebody opens it.
type Options struct {
	// Attributes is how long the kernel may believe the size and times of a file.
	Attributes time.Duration
	// Entries is how long the kernel may believe which file has a name.
	Entries time.Duration
	// KeepContent has the kernel keep the content of files that are opened again, until
	// [Server.Forget].
	KeepContent bool
	// FollowTimes has the kernel forget the content of a file when it sees a new time or size.
	FollowTimes bool
	// Seconds has times of whole seconds, and NoChangeTime has the time of the last write stand
	// for that of the last change, which somebody may set back: as over SFTP.
	Seconds, NoChangeTime bool
	// User is whose server it is, for who looks at what is mounted. 0 is root.
	User int
}

// SSHFS are the options of sshfs, if its user gives none.
var SSHFS = Options{Attributes: 20 * time.Second, Entries: 20 * time.Second, Seconds: true, NoChangeTime: true}

// A Server serves a file system.
type Server struct {
	// Dir is where it is mounted.
	Dir string
	// Backing is the directory that it serves. Changes there are changes on the server's side:
	// the kernel learns of them when its caches expire.
	Backing string

	t    testing.TB
	cmd  *exec.Cmd
	mu   sync.Mutex // one command at a time
	in   io.WriteCloser
	out  *bufio.Reader
	once sync.Once
}

// roleVar names the environment variable that makes a server of the test's executable, and says
// which.
const roleVar = "HALLMARK_FUSE_SERVER"

// Mount mounts a file system, until the test ends.
func Mount(t testing.TB, o Options) *Server {
	t.Helper()
	testenv.Root(t)
	_, err := os.Stat("/dev/fuse")
	testenv.Need(t, err == nil, "FUSE in the kernel, and /dev/fuse")
	s := &Server{t: t, Dir: filepath.Join(t.TempDir(), "fuse"), Backing: t.TempDir()}
	if err := os.Mkdir(s.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := s.start(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// start starts the process, and waits until the file system is mounted.
func (s *Server) start(o Options) error {
	s.cmd = exec.Command("/proc/self/exe")
	// Under the race detector a process ends a second after its end, unless configured otherwise.
	s.cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", roleVar+"="+role{o, s.Dir, s.Backing}.String())
	s.cmd.Stderr = os.Stderr
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // else ^C would end it before it has unmounted
	var err error
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	s.out = bufio.NewReader(out)
	if err := s.cmd.Start(); err != nil {
		return err
	}
	if err := s.answered("mount"); err != nil {
		s.stop()
		return err
	}
	return nil
}

// answered reads the server's answer to a command.
func (s *Server) answered(command string) error {
	line, err := s.out.ReadString('\n')
	switch {
	case err != nil:
		return fmt.Errorf("FUSE server: %s: %w", command, err)
	case line != "ok\n":
		return fmt.Errorf("FUSE server: %s: %s", command, strings.TrimSpace(line))
	}
	return nil
}

// command gives the server a command, and waits until it has obeyed.
func (s *Server) command(command string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := io.WriteString(s.in, command+"\n")
	if err == nil {
		err = s.answered(command)
	}
	if err != nil {
		s.t.Error(err)
	}
}

// Path returns the path of a file below the mount.
func (s *Server) Path(name string) string { return filepath.Join(s.Dir, name) }

// Behind returns the path of a file on the server's side.
func (s *Server) Behind(name string) string { return filepath.Join(s.Backing, name) }

// Forget has the kernel forget the content and attributes of a file, as a server does that
// watches its side.
func (s *Server) Forget(name string) { s.t.Helper(); s.command("forget " + name) }

// SilenceReads has the server answer no request for content from now on. Who reads or touches
// a page that the kernel does not have waits, and cannot be killed. A test that starts programs
// of the file system now has a shell do it: else its own fork waits for their execve.
func (s *Server) SilenceReads() { s.t.Helper(); s.command("silence reads") }

// Silence has the server answer nothing from now on.
func (s *Server) Silence() { s.t.Helper(); s.command("silence") }

// Die ends the connection, as if the server had died. The mount stays: who uses it gets
// ENOTCONN, or SIGBUS for a page that the kernel does not have, and who waits for an answer gets
// ECONNABORTED.
func (s *Server) Die() { s.t.Helper(); s.command("die") }

// PID returns the number of the server's process.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Close takes the file system away: who has files of it open gets errors from now on. The end
// of the test does it too.
func (s *Server) Close() {
	s.once.Do(func() {
		s.stop()
		_ = syscall.Unmount(s.Dir, syscall.MNT_DETACH) // where the server could not
	})
}

// closing is how long a server may take to end.
const closing = 10 * time.Second

// stop ends the process. It does nothing that waits for its own file system, so that it can be
// killed.
func (s *Server) stop() {
	_, _ = io.WriteString(s.in, "end\n")
	s.in.Close()
	kill := time.AfterFunc(closing, func() { _ = s.cmd.Process.Kill() })
	defer kill.Stop()
	if err := s.cmd.Wait(); err != nil {
		s.t.Errorf("FUSE server: %v", err)
	}
}
