package procmap

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"hallmark/internal/fusetest"
	"hallmark/internal/testenv"
	"hallmark/reason"
)

// TestWithoutHelper looks at a process with a file of a file system that does not answer, as a
// program does that cannot have a helper: nothing waits, and all other files have their
// identities. So it is while the file system answers.
func TestWithoutHelper(t *testing.T) {
	testenv.Root(t)
	s := fusetest.Mount(t, fusetest.SSHFS)
	if msg, err := exec.Command("cp", gnuFile(t), s.Behind("library.so")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, msg)
	}
	victim := start(t, play("map", s.Path("library.so"), gnuFile(t)))
	t.Cleanup(s.Close) // before the victim ends, which closes the file
	for _, silence := range []func(){func() {}, s.Silence} {
		silence()
		done := make(chan struct{})
		go func() {
			defer close(done)
			lookWithoutHelper(t, s, victim.pid)
		}()
		select {
		case <-done:
		case <-time.After(testenv.Patience):
			s.Close()
			<-done
			t.Fatal("waited for a file system that does not answer")
		}
	}
}

func lookWithoutHelper(t *testing.T, s *fusetest.Server, pid int) {
	for _, m := range methods(t) {
		p, err := OpenOptions(pid, Options{Method: m})
		must(t, err)
		list, err := p.Executable()
		must(t, err)
		foreign := 0
		for _, v := range list {
			id, err := p.Identity(v)
			must(t, err)
			if !strings.HasPrefix(v.Name, s.Dir) {
				if id.ID.IsZero() {
					t.Errorf("%s: %v has no identity: %v", m, v, id.Reason)
				}
				continue
			}
			foreign++
			if id.Reason != reason.FileUnresponsive {
				t.Errorf("%s: identity of %v: %+v", m, v, id)
			}
			if f, err := p.OpenFile(v); f != nil || !errors.Is(err, reason.FileUnresponsive) {
				t.Errorf("%s: %v was opened: %v", m, v, err)
			}
			if f, err := p.Open(v); f != nil || !errors.Is(err, reason.FileUnresponsive) {
				t.Errorf("%s: %v was opened: %v", m, v, err)
			}
		}
		if foreign == 0 {
			t.Errorf("%s: the file is not mapped: %v", m, list)
		}
		must(t, p.Close())
	}
	if info, err := Program(os.Getpid()); err != nil || info.ID.IsZero() {
		t.Errorf("own program: %+v, %v", info, err)
	}
	if _, err := Program(2); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a kernel thread: %v", err)
	}
}
