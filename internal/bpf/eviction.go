package bpf

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// eviction marks entries of the table of files whose inode is gone. It makes the
// table forget them first, and is right to be missing.
type eviction struct {
	hooks   []string // where the programs are attached
	closers []interface{ Close() error }
	gone    []*ebpf.Variable
}

// evictionHooks are the programs of evict.bpf.c, by where they are attached. One of
// those for every file system makes all others needless.
var evictionHooks = []struct {
	program, hook string
	all           bool // file systems
}{
	{"free_fentry", "security_inode_free", true},
	{"free_lsm", "lsm/inode_free_security", true},
	{"evict_ext4", "ext4_evict_inode", false},
	{"evict_btrfs", "btrfs_inode_evict", false},
	{"evict_f2fs", "f2fs_evict_inode", false},
	{"evict_xfs", "xfs_destroy_inode", false},
}

// newEviction attaches what this kernel takes, for one table of files. A hook that it refuses
// is no error.
func newEviction(files *ebpf.Map) *eviction {
	e := new(eviction)
	for _, h := range evictionHooks {
		if err := e.attach(h.program, files); err != nil {
			continue
		}
		e.hooks = append(e.hooks, h.hook)
		if h.all {
			break
		}
	}
	return e
}

func (e *eviction) attach(program string, files *ebpf.Map) error {
	spec, err := loadEviction()
	if err != nil {
		return err
	}
	for name := range spec.Programs {
		if name != program {
			delete(spec.Programs, name)
		}
	}
	spec.Maps["files"].MaxEntries = files.MaxEntries()
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: map[string]*ebpf.Map{"files": files}})
	if err != nil {
		return err
	}
	defer c.Close()
	l, err := attachHook(c.Programs[program])
	if err != nil {
		return err
	}
	e.closers = append(e.closers, l)
	e.gone = append(e.gone, c.Variables["gone"])
	return nil
}

func attachHook(p *ebpf.Program) (link.Link, error) {
	if p.Type() == ebpf.LSM {
		return link.AttachLSM(link.LSMOptions{Program: p})
	}
	return link.AttachTracing(link.TracingOptions{Program: p})
}

// count returns how many entries were marked.
func (e *eviction) count() (uint64, error) {
	var sum uint64
	for _, v := range e.gone {
		var n uint64
		if err := v.Get(&n); err != nil {
			return 0, fmt.Errorf("counting inodes that are gone: %w", err)
		}
		sum += n
	}
	return sum, nil
}

func (e *eviction) close() error {
	var errs []error
	for _, c := range slices.Backward(e.closers) {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// String names the hooks.
func (e *eviction) String() string { return strings.Join(e.hooks, ", ") }
