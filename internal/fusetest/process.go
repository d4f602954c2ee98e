package fusetest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// A role is what the server's process is started for.
type role struct {
	Options      Options
	Dir, Backing string
}

func (r role) String() string {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err) // of strings and numbers
	}
	return string(b)
}

// init turns a process that [Server.start] started into a server.
func init() {
	text := os.Getenv(roleVar)
	if text == "" {
		return
	}
	var r role
	err := json.Unmarshal([]byte(text), &r)
	if err == nil {
		err = r.run(os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Println(err) // an answer that is not "ok"
		os.Exit(1)
	}
	os.Exit(0)
}

// run mounts the file system, and serves it until there are no more commands or nobody to give
// them.
func (r role) run(commands io.Reader, answers io.Writer) error {
	parent := os.Getppid()
	fd, err := syscall.Open("/dev/fuse", syscall.O_RDWR|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("/dev/fuse: %w", err)
	}
	data := fmt.Sprintf("fd=%d,rootmode=40755,user_id=%d,group_id=0,allow_other", fd, r.Options.User)
	if err := syscall.Mount("hallmark-test", r.Dir, "fuse", syscall.MS_NODEV|syscall.MS_NOSUID, data); err != nil {
		syscall.Close(fd)
		return fmt.Errorf("mount on %s: %w", r.Dir, err)
	}
	// Only now: the kernel lets nobody wait for requests of what is not mounted (fuse_dev_poll).
	// Reads end when it is closed.
	s := newServing(os.NewFile(uintptr(fd), "/dev/fuse"), r.Backing, r.Options)
	defer func() {
		s.die() // first: to unmount may mean to write, and to wait for this process
		_ = syscall.Unmount(r.Dir, syscall.MNT_DETACH)
	}()
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := s.serve(); err != nil {
			fmt.Fprintln(os.Stderr, "FUSE server:", err)
			s.die()
		}
	}()
	select {
	case <-served:
		return errors.New("the kernel ended the connection")
	case <-s.begun:
	}
	fmt.Fprintln(answers, "ok")
	obeyed := make(chan struct{})
	go func() {
		defer close(obeyed)
		s.obey(commands, answers)
	}()
	for tick := time.NewTicker(orphaned); os.Getppid() == parent; {
		select {
		case <-obeyed:
			return nil
		case <-tick.C:
		}
	}
	return nil
}

// orphaned is how often the server looks whether its test is still there. The end of the
// commands does not say so where a child of the test waits for this file system in execve: it
// has inherited the pipe.
const orphaned = 200 * time.Millisecond

// obey follows commands until there are none.
func (s *serving) obey(commands io.Reader, answers io.Writer) {
	for lines := bufio.NewScanner(commands); lines.Scan(); {
		command, name, _ := strings.Cut(lines.Text(), " ")
		var err error
		switch command {
		case "forget":
			err = s.forget(filepath.Base(name))
		case "silence":
			s.silence(name == "reads")
		case "die":
			s.die()
		case "end":
			return
		default:
			err = fmt.Errorf("no such command: %s", command)
		}
		answer := "ok"
		if err != nil {
			answer = strings.ReplaceAll(err.Error(), "\n", " ")
		}
		if _, err := fmt.Fprintln(answers, answer); err != nil {
			return // the test is gone
		}
	}
}
