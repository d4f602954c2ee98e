package bpf

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// hook reads the identities of files when their code is mapped: hook.h.
type hook struct {
	objects hookObjects
	link    link.Link
}

type hookObjects struct {
	SeeMapping *ebpf.Program  `ebpf:"see_mapping"`
	HookCalled *ebpf.Variable `ebpf:"hook_called"`
	HookDone   *ebpf.Variable `ebpf:"hook_done"`
}

// newHook attaches the program, where it is called.
func newHook(spec *ebpf.CollectionSpec, opts *ebpf.CollectionOptions) (*hook, error) {
	h := new(hook)
	if err := h.attach(spec, opts); err != nil {
		return nil, errors.Join(fmt.Errorf("hook where files are mapped: %w", err), h.close())
	}
	return h, nil
}

func (h *hook) attach(spec *ebpf.CollectionSpec, opts *ebpf.CollectionOptions) error {
	err := spec.LoadAndAssign(&h.objects, opts)
	if err != nil {
		return err
	}
	if h.link, err = link.AttachLSM(link.LSMOptions{Program: h.objects.SeeMapping}); err != nil {
		return err
	}
	return h.try()
}

// try maps something: where bpf is not one of the kernel's security modules, the hook
// is not called.
func (h *hook) try() error {
	b, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	if err := unix.Munmap(b); err != nil {
		return err
	}
	var called bool
	if err := h.objects.HookCalled.Get(&called); err != nil {
		return err
	}
	if !called {
		return errors.New("bpf is not in the kernel's list of security modules (lsm=)")
	}
	return nil
}

func (h *hook) close() error {
	var err error
	if h.link != nil {
		err = h.link.Close()
	}
	return errors.Join(err, h.objects.SeeMapping.Close())
}

// HookStats count what the hook did.
type HookStats struct {
	Mapped  uint64 // mappings of code
	Read    uint64 // identities that were read, or found not to be there
	Owed    uint64 // readings that were put off to the next mapping
	Left    uint64 // those left to user space
	Busy    uint64 // files that no memory was free for
	Refused uint64 // files that the table took no entry for
	Written uint64 // files that were being written, or just were
}

// HookStats returns what the hook where files are mapped did; the error says why there
// is none. It is only attached where there is no task work, which reads the identities
// of what is sampled and of nothing else.
func (s *Sampler) HookStats() (HookStats, error) {
	if s.hook == nil {
		return HookStats{}, s.noHook
	}
	var n samplerHookCounters
	if err := s.hook.objects.HookDone.Get(&n); err != nil {
		return HookStats{}, fmt.Errorf("reading the counters of BPF: %w", err)
	}
	return HookStats{n.Mapped, n.Read, n.Owed, n.Left, n.Busy, n.Refused, n.Written}, nil
}

// errTaskWork says why there is no hook.
var errTaskWork = errors.New("identities are read in the sampled tasks")

// setHook attaches the hook where it is of use.
func (s *Sampler) setHook() {
	if s.taskWork {
		s.noHook = errTaskWork
		return
	}
	s.hook, s.noHook = newHook(s.spec, s.shared())
}
