package bpf

import (
	"cmp"
	"slices"

	"github.com/cilium/ebpf"

	"hallmark/addr"
)

// CodeLines reports the source lines of BPF programs by the addresses of their code.
type CodeLines struct {
	lines []codeLine // in the order of addresses
}

// codeLine is code of one line. It reaches to the next one, or to end.
type codeLine struct {
	start, end addr.Abs // the end is that of the function
	file       string
	line       int
}

// ReadCodeLines returns the lines of the BPF programs that are loaded: what their
// loader said of each instruction (struct bpf_line_info) and where the kernel's compiler
// put it (jited_line_info of struct bpf_prog_info; both are in the kernel's
// include/uapi/linux/bpf.h). Programs that came without lines, or that may not be read,
// have none; reading needs root.
func ReadCodeLines() *CodeLines {
	all := new(CodeLines)
	for id, err := ebpf.ProgramGetNextID(0); err == nil; id, err = ebpf.ProgramGetNextID(id) {
		if p, err := ebpf.NewProgramFromID(id); err == nil {
			all.add(p)
			p.Close()
		}
	}
	slices.SortStableFunc(all.lines, func(a, b codeLine) int { return cmp.Compare(a.start, b.start) })
	return all
}

// add adds the lines of a program.
func (c *CodeLines) add(p *ebpf.Program) {
	info, err := p.Info()
	if err != nil {
		return
	}
	starts, _ := info.JitedKsymAddrs()
	sizes, _ := info.JitedFuncLens()
	places, _ := info.JitedLineInfos()
	lines, err := info.LineInfos()
	if err != nil || len(places) != len(lines) || len(starts) != len(sizes) {
		return
	}
	for i, place := range places {
		for j, start := range starts {
			if place-uint64(start) < uint64(sizes[j]) {
				end := addr.Abs(start) + addr.Abs(sizes[j])
				c.lines = append(c.lines, codeLine{addr.Abs(place), end, lines[i].Line.FileName(), int(lines[i].Line.LineNumber())})
			}
		}
	}
}

// Find returns the source file and line of the code at an address.
func (c *CodeLines) Find(a addr.Abs) (file string, line int, ok bool) {
	// Of lines at one address only the last has code.
	after, _ := slices.BinarySearchFunc(c.lines, a+1, func(l codeLine, a addr.Abs) int { return cmp.Compare(l.start, a) })
	if after == 0 || a >= c.lines[after-1].end {
		return "", 0, false
	}
	return c.lines[after-1].file, c.lines[after-1].line, true
}
