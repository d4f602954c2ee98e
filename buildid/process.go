package buildid

import (
	"context"
	"fmt"
	"strconv"

	"hallmark/addr"
)

// ReadProcess returns the identity of the program that a process runs, also if
// its file is deleted or not visible from here. Kernel threads run none: their
// error wraps fs.ErrNotExist. A file system that does not answer (FUSE, a network) makes it wait:
// procmap.Program does not.
func ReadProcess(pid int) (Info, error) {
	return ReadProcessContext(context.Background(), pid)
}

// ReadProcessContext is ReadProcess. Hashing ends early when ctx is done, see [ReadContext].
func ReadProcessContext(ctx context.Context, pid int) (Info, error) {
	return ReadFileContext(ctx, "/proc/"+strconv.Itoa(pid)+"/exe")
}

// ReadMapFile returns the identity of the file that a process has mapped from
// start to end, which must be the exact range of a VMA. The file may be deleted
// or not visible from here. Linux wants CAP_CHECKPOINT_RESTORE for it. A file system that does
// not answer makes it wait: procmap.Process.Identity does not.
func ReadMapFile(pid int, start, end addr.Abs) (Info, error) {
	return ReadFile(fmt.Sprintf("/proc/%d/map_files/%x-%x", pid, uint64(start), uint64(end)))
}
