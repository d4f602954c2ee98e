package bpf

import (
	"errors"
	"fmt"
)

// errOldTree says why a kernel is too old whatever else it has.
var errOldTree = errors.New("before Linux 6.1 a process has its VMAs in another kind of tree than the programs walk")

const mapleTree = "maple_tree"

// checkKernel says in plain words what would otherwise be an error of the loader.
func checkKernel() error {
	has, err := kernelHas()
	if err != nil {
		return fmt.Errorf("the kernel does not describe its types (CONFIG_DEBUG_INFO_BTF): %w", err)
	}
	if !has[mapleTree] {
		return errOldTree
	}
	return nil
}
