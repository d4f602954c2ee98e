package local

import (
	"io"
	"os"
	"slices"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/debuginfo"
	"hallmark/procmap"
	"hallmark/reason"
	"hallmark/symbol"
)

// addRunning fills in what vmlinux does not have, from what the running kernel says of
// itself, if that is the kernel meant. Its offsets in a profile count from _text.
func (s *Symbols) addRunning(id buildid.ID, offsets []addr.Offset, results []symbol.Result) {
	missing := func(r symbol.Result) bool { return len(r.Named().Frames) == 0 }
	if !slices.ContainsFunc(results, missing) {
		return
	}
	running, why := kallsyms(id)
	if running != nil {
		s.keep(id, running)
	}
	for i, o := range offsets {
		switch {
		case !missing(results[i]):
		case running != nil:
			results[i] = running.Lookup(running.Text() + addr.Abs(o))
		case results[i].Reason == reason.NoFile:
			results[i] = symbol.Miss(why)
		}
	}
}

// keep makes an index of the running kernel, unless there is one. The kernel takes long to
// write what it says of itself, every time, and most of the symbols are not asked for.
func (s *Symbols) keep(id buildid.ID, running *symbol.Kallsyms) {
	known, err := s.Library.Indexes.Open(id, buildid.Content{})
	if err == nil {
		known.Close()
		return
	}
	x, err := running.Index(symbol.IndexOptions{Identity: id.String(), Origin: debuginfo.FromKernel})
	if err != nil {
		return
	}
	defer x.Close()
	_, _ = s.Library.Indexes.Store(x) // without it the next one waits as long
}

// kallsyms returns the symbols of the running kernel, if it is the one with this
// identity, or why there are none.
func kallsyms(id buildid.ID) (*symbol.Kallsyms, reason.Reason) {
	running, err := buildid.ReadKernel()
	if err != nil || running.ID != id {
		return nil, reason.NoFile
	}
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		return nil, reason.KernelHidden
	}
	defer f.Close()
	symbols, err := symbol.ReadKallsyms(f)
	switch {
	case err != nil:
		return nil, reason.BadSymbols
	case symbols.Text() == 0:
		return nil, reason.KernelHidden
	}
	return symbols, reason.None
}

// vdso answers for the code that the running kernel maps into every process, of
// which this process has a copy, if it has this identity.
func vdso(id buildid.ID) (table debuginfo.Symbols, ok bool) {
	running, err := buildid.ReadVDSO()
	if err != nil || running.ID != id {
		return nil, false
	}
	memory, err := os.Open("/proc/self/mem")
	if err != nil {
		return nil, false
	}
	file, err := vdsoFile(memory)
	if err != nil {
		memory.Close()
		return nil, false
	}
	return &inMemory{file, memory}, true
}

// inMemory is a file that is read from a process.
type inMemory struct {
	*symbol.File
	memory io.Closer
}

func (m *inMemory) Close() error { return m.memory.Close() }

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
