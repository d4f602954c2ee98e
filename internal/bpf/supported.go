package bpf

import (
	"errors"
	"fmt"
	"os"
)

// errOldTree says why a kernel is too old whatever else it has.
var errOldTree = errors.New("before Linux 6.1 a process has its VMAs in another kind of tree than the programs walk")

// errPageSize says why a kernel with other pages (arm64 has them of 16 and 64 KiB) is not
// sampled: it counts file offsets in pages, and the programs take one for 4 KiB.
var errPageSize = errors.New("the kernel has pages of another size than the 4 KiB that the programs count with")

const mapleTree = "maple_tree"

// checkKernel says in plain words what would otherwise be an error of the loader.
func checkKernel() error {
	facts, err := factsOfKernel()
	if err != nil {
		return fmt.Errorf("the kernel does not describe its types (CONFIG_DEBUG_INFO_BTF): %w", err)
	}
	if !facts.has[mapleTree] {
		return errOldTree
	}
	return checkPageSize(os.Getpagesize())
}

func checkPageSize(bytes int) error {
	if bytes != 4096 {
		return errPageSize
	}
	return nil
}
