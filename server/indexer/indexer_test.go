package indexer

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"hallmark/internal/testenv"
)

// asServer has this process make an index as a server does: of its own program, into the descriptor 3.
const asServer = "HALLMARK_TEST_AS_SERVER"

func TestMain(m *testing.M) {
	RunIfChild()
	if os.Getenv(asServer) != "" {
		self, err := os.Open("/proc/self/exe")
		if err == nil {
			err = Make(context.Background(), os.NewFile(3, "the index"), Files{Executable: self}, Limits{})
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// childOf returns the process that makes an index for a server, 0 where there is none.
func childOf(pid int) int {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return 0
	}
	for _, task := range tasks {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, task.Name()))
		if child, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil {
			return child
		}
	}
	return 0
}

// TestNoOrphan kills a server while its child makes an index, which waits for a pipe that nobody reads: the child ends. As root
// the child becomes another user, for which the kernel forgets that it has to.
func TestNoOrphan(t *testing.T) {
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), asServer+"=1")
	cmd.ExtraFiles = []*os.File{in}
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	first := make([]byte, 1)
	if _, err := out.Read(first); err != nil { // the index is made, and being written
		t.Fatal(err)
	}
	child := childOf(cmd.Process.Pid)
	if child == 0 {
		t.Fatal("no process makes an index")
	}
	cmd.Process.Kill()
	cmd.Wait()
	testenv.Await(t, "the end of the process that makes an index", func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", child))
		return err != nil || strings.Contains(string(b), ") Z ") // where nobody asks for orphans
	})
}
