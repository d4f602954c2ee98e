package backend

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"

	"hallmark/internal/bpf"
	"hallmark/internal/procfs"
	"hallmark/internal/reach"
	"hallmark/unwind"
)

// TryBPF loads the programs of BPF and lets them go again. It returns what they take.
func TryBPF() (string, error) {
	if err := procfs.CheckPIDNamespace(); err != nil {
		return "", Unusable(BPF, err)
	}
	s, err := bpf.NewSampler(bpf.Options{})
	if err != nil {
		return "", Unusable(BPF, err)
	}
	detail, err := describeTable(s)
	return detail, errors.Join(err, s.Close())
}

// TryUnwinding does the same with the programs that find callers by unwind tables, and has
// them take a table.
func TryUnwinding() (string, error) {
	if unwind.MachineOf(runtime.GOARCH) == 0 {
		return "", fmt.Errorf("stacks of %s: %w", runtime.GOARCH, errors.ErrUnsupported)
	}
	if err := procfs.CheckPIDNamespace(); err != nil {
		return "", Unusable(BPF, err)
	}
	s, err := bpf.NewSampler(bpf.Options{Unwind: true})
	if err != nil {
		return "", Unusable(BPF, err)
	}
	defer s.Close()
	vdso, err := reach.CopyOwnVDSO()
	if err != nil {
		return "", err
	}
	table, err := unwind.Build(vdso, unwind.BuildOptions{})
	if err == nil {
		err = s.Tables().Put(bpf.VDSOSerial, table)
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("unwind tables take up to %d MiB in the kernel", s.Tables().Stats().Capacity>>20), nil
}

// TryStackmap does the same with the programs of Stackmap.
func TryStackmap() error {
	if err := procfs.CheckPIDNamespace(); err != nil {
		return Unusable(Stackmap, err)
	}
	s, err := bpf.NewStackmap(bpf.StackmapOptions{Stacks: 64}) // little memory
	if err != nil {
		return Unusable(Stackmap, err)
	}
	return s.Close()
}

// describeTable says what the table takes, and how it learns of inodes that are gone. The kernel
// says what maps take to those with CAP_SYS_ADMIN alone.
func describeTable(s *bpf.Sampler) (string, error) {
	m, err := s.Memory()
	if IsRefusal(err) {
		return fmt.Sprintf("a table of %d files; what it takes is not shown to this user", bpf.DefaultEntries), nil
	}
	if err != nil {
		return "", err
	}
	hooks := cmp.Or(s.EvictionHooks(), "nothing here")
	const mega = 1e6
	return fmt.Sprintf("a table of %d files takes %.1f MB, all maps %.1f MB; inodes that are gone are reported by %s",
		bpf.DefaultEntries, float64(m.Table)/mega, float64(m.All)/mega, hooks), nil
}
