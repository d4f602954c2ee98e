package buildid

import (
	"fmt"
	"strconv"

	"hallmark/addr"
)

// ReadProcess returns the identity of the program that a process runs, also if
// its file is deleted or not visible from here. Kernel threads run none: their
// error wraps fs.ErrNotExist.
func ReadProcess(pid int) (Info, error) {
	return ReadFile("/proc/" + strconv.Itoa(pid) + "/exe")
}

// ReadMapFile returns the identity of the file that a process has mapped from
// start to end, which must be the exact range of a VMA. The file may be deleted
// or not visible from here. Linux wants CAP_CHECKPOINT_RESTORE for it.
func ReadMapFile(pid int, start, end addr.Abs) (Info, error) {
	return ReadFile(fmt.Sprintf("/proc/%d/map_files/%x-%x", pid, uint64(start), uint64(end)))
}
