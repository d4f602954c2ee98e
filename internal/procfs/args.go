package procfs

import (
	"fmt"
	"io"
	"os"

	"hallmark/internal/aside"
)

// argsFar reads the arguments of a process, which lie in its memory.
var argsFar = aside.New("procfs.args", func(pid uint32) ([]byte, error) { return readArgs(pid) })

// readArgs returns the arguments of a process, and a byte more than MaxArgs where there are
// more.
func readArgs(pid uint32) ([]byte, error) {
	cmdline, err := os.Open(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return nil, err
	}
	defer cmdline.Close()
	return io.ReadAll(io.LimitReader(cmdline, MaxArgs+1))
}

// ArgsOf is readArgs by a helper, where there is one.
func ArgsOf(pid uint32) []byte {
	var args []byte
	if aside.Available() {
		args, _ = argsFar.Ask(fmt.Sprintf("memory of process %d", pid), pid)
	} else {
		args, _ = readArgs(pid)
	}
	return args
}

// MaxArgs is MAX_EXEC_ARGS of internal/bpf/c/events/exec.h: both backends report as much.
const MaxArgs = 4096
