package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf/btf"
)

// errOldTree says why a kernel is too old whatever else it has.
var errOldTree = errors.New("before Linux 6.1 a process has its VMAs in another kind of tree than the programs walk")

// checkKernel says in plain words what would otherwise be an error of the loader.
func checkKernel() error {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return fmt.Errorf("the kernel does not describe its types (CONFIG_DEBUG_INFO_BTF): %w", err)
	}
	var tree *btf.Struct
	if err := kernel.TypeByName("maple_tree", &tree); err != nil {
		return errOldTree
	}
	return nil
}
