package local

import (
	"io"
	"os"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/procmap"
	"hallmark/reason"
	"hallmark/symbol"
)

// kernel answers for the running kernel, whose offsets in a profile count from
// _text.
func kernel(id buildid.ID) func(addr.Offset) symbol.Result {
	running, err := buildid.ReadKernel()
	if err != nil || running.ID != id {
		return miss(reason.NoFile)
	}
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		return miss(reason.KernelHidden)
	}
	defer f.Close()
	symbols, err := symbol.ReadKallsyms(f)
	switch {
	case err != nil:
		return miss(reason.BadSymbols)
	case symbols.Text() == 0:
		return miss(reason.KernelHidden)
	}
	return func(o addr.Offset) symbol.Result { return symbols.Lookup(symbols.Text() + addr.Abs(o)) }
}

// vdso answers for the code that the running kernel maps into every process, of
// which this process has a copy.
func vdso(id buildid.ID) (find func(addr.Offset) symbol.Result, done func()) {
	nothing := func() {}
	running, err := buildid.ReadVDSO()
	if err != nil || running.ID != id {
		return miss(reason.NoFile), nothing
	}
	memory, err := os.Open("/proc/self/mem")
	if err != nil {
		return miss(reason.NoFile), nothing
	}
	file, err := vdsoFile(memory)
	if err != nil {
		memory.Close()
		return miss(reason.NoFile), nothing
	}
	return file.LookupOffset, func() { memory.Close() }
}

func vdsoFile(memory io.ReaderAt) (*symbol.File, error) {
	p, err := procmap.Open(os.Getpid())
	if err != nil {
		return nil, err
	}
	defer p.Close()
	all, err := p.All()
	if err != nil {
		return nil, err
	}
	for _, v := range all {
		if v.Name == "[vdso]" {
			return symbol.NewFile(io.NewSectionReader(memory, int64(v.Start), int64(v.End-v.Start)), v.Name)
		}
	}
	return nil, os.ErrNotExist
}
