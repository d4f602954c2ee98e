package bpf

import (
	"cmp"
	"encoding/hex"
	"slices"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"hallmark/addr"
)

// ProgramCode knows the code of BPF programs that are loaded, by addresses.
type ProgramCode struct {
	functions []codeFunction // in the order of addresses, as are the lines
	lines     []codeLine
}

// codeFunction is the code of a program, or of one of its functions.
type codeFunction struct {
	start, end addr.Abs
	name       string
}

// codeLine is code of one line. It reaches to the next one, or to end.
type codeLine struct {
	start, end addr.Abs // the end is that of the function
	file       string
	line       int
}

// ReadProgramCode returns the code of those programs that have one of these addresses. Functions have the names that
// they have in /proc/kallsyms, where they come last: the kernel takes long to write what comes before. One whose name is
// so long that the kernel may have cut it there has no name here, only lines. The kernel
// reports them with the addresses to who may read those: root (struct bpf_prog_info in include/uapi/linux/bpf.h).
func ReadProgramCode(addresses []addr.Abs) *ProgramCode {
	code := new(ProgramCode)
	addresses = slices.Sorted(slices.Values(addresses))
	for id, err := ebpf.ProgramGetNextID(0); err == nil; id, err = ebpf.ProgramGetNextID(id) {
		if p, err := ebpf.NewProgramFromID(id); err == nil {
			code.add(p, addresses)
			p.Close()
		}
	}
	slices.SortFunc(code.functions, func(a, b codeFunction) int { return cmp.Compare(a.start, b.start) })
	slices.SortStableFunc(code.lines, func(a, b codeLine) int { return cmp.Compare(a.start, b.start) })
	return code
}

// add adds the code of a program, if an address is in it.
func (c *ProgramCode) add(p *ebpf.Program, addresses []addr.Abs) {
	functions, tags := compiled(p.FD())
	isWanted := func(f codeFunction) bool {
		i, _ := slices.BinarySearch(addresses, f.start)
		return i < len(addresses) && addresses[i] < f.end
	}
	if !slices.ContainsFunc(functions, isWanted) {
		return
	}
	info, err := p.Info()
	if err != nil {
		return
	}
	named, _ := info.FuncInfos() // a program that came without types has none
	for i, f := range functions {
		if f.name = functionName(tags[i], i, named, info.Name); len(f.name) < leastNameRoom {
			c.functions = append(c.functions, f)
		}
	}
	c.addLines(info, functions)
}

// leastNameRoom is for how many bytes of a name, and a NUL, every kernel has room: KSYM_NAME_LEN of
// include/linux/kallsyms.h, which is 512 since Linux 6.1. The kernel cuts what is longer.
const leastNameRoom = 128

// functionName returns the name of a program's function in /proc/kallsyms: bpf_prog_ksym_set_name of
// kernel/bpf/core.c, and jit_subprogs of kernel/bpf/verifier.c for those that types do not name.
func functionName(t tag, i int, named btf.FuncOffsets, program string) string {
	name := "bpf_prog_" + hex.EncodeToString(t[:])
	switch {
	case i < len(named):
		return name + "_" + named[i].Func.Name
	case i > 0:
		return name + "_F"
	case program != "":
		return name + "_" + program
	}
	return name
}

// addLines adds the lines of a program: what its loader said of each instruction (struct bpf_line_info) and
// where the kernel's compiler put it (jited_line_info of struct bpf_prog_info). Programs that came without
// lines have none.
func (c *ProgramCode) addLines(info *ebpf.ProgramInfo, functions []codeFunction) {
	places, _ := info.JitedLineInfos()
	lines, err := info.LineInfos()
	if err != nil || len(places) != len(lines) {
		return
	}
	for i, place := range places {
		for _, f := range functions {
			if at := addr.Abs(place); at >= f.start && at < f.end {
				c.lines = append(c.lines, codeLine{at, f.end, lines[i].Line.FileName(), int(lines[i].Line.LineNumber())})
			}
		}
	}
}

// tag is the beginning of a hash of the instructions of a program, or of one of its functions.
type tag [unix.BPF_TAG_SIZE]byte

// programInfo is the beginning of the kernel's struct bpf_prog_info: the library does not give the tags of
// functions. The numbers are those that there is room for, and the kernel makes them those that there are.
type programInfo struct {
	_             [8]byte
	tag           tag
	_             [88]byte
	starts, sizes uint32         // nr_jited_ksyms, nr_jited_func_lens
	startsAt      unsafe.Pointer // jited_ksyms, of uint64
	sizesAt       unsafe.Pointer // jited_func_lens, of uint32
	_             [52]byte
	tags          uint32         // nr_prog_tags
	tagsAt        unsafe.Pointer // prog_tags
}

// ask asks the kernel for the information on a program.
func (i *programInfo) ask(fd int) error {
	request := struct { // union bpf_attr, for BPF_OBJ_GET_INFO_BY_FD
		fd, size uint32
		info     unsafe.Pointer
	}{uint32(fd), uint32(unsafe.Sizeof(*i)), unsafe.Pointer(i)}
	_, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_OBJ_GET_INFO_BY_FD, uintptr(unsafe.Pointer(&request)), unsafe.Sizeof(request))
	if errno != 0 {
		return errno
	}
	return nil
}

// compiled returns the functions of a program, without their names, and their tags. There are none where the
// kernel does not compile programs, or hides their addresses.
func compiled(fd int) ([]codeFunction, []tag) {
	var count programInfo
	if count.ask(fd) != nil || count.starts == 0 || count.sizes != count.starts || count.tags != count.starts {
		return nil, nil
	}
	starts, sizes, tags := make([]uint64, count.starts), make([]uint32, count.starts), make([]tag, count.starts)
	info := programInfo{
		starts: count.starts, startsAt: unsafe.Pointer(&starts[0]),
		sizes: count.sizes, sizesAt: unsafe.Pointer(&sizes[0]),
		tags: count.tags, tagsAt: unsafe.Pointer(&tags[0]),
	}
	if info.ask(fd) != nil || info.starts != count.starts {
		return nil, nil
	}
	tags[0] = info.tag // by which bpf_prog_load of kernel/bpf/syscall.c lists the program itself
	functions := make([]codeFunction, len(starts))
	for i, start := range starts {
		if start == 0 {
			return nil, nil // addresses are hidden
		}
		functions[i].start, functions[i].end = addr.Abs(start), addr.Abs(start)+addr.Abs(sizes[i])
	}
	return functions, tags
}

// Name returns the name of the function that has the code at an address.
func (c *ProgramCode) Name(a addr.Abs) (name string, ok bool) {
	after, _ := slices.BinarySearchFunc(c.functions, a+1, func(f codeFunction, a addr.Abs) int { return cmp.Compare(f.start, a) })
	if after == 0 || a >= c.functions[after-1].end {
		return "", false
	}
	return c.functions[after-1].name, true
}

// Line returns the source file and line of the code at an address.
func (c *ProgramCode) Line(a addr.Abs) (file string, line int, ok bool) {
	// Of lines at one address only the last has code.
	after, _ := slices.BinarySearchFunc(c.lines, a+1, func(l codeLine, a addr.Abs) int { return cmp.Compare(l.start, a) })
	if after == 0 || a >= c.lines[after-1].end {
		return "", 0, false
	}
	return c.lines[after-1].file, c.lines[after-1].line, true
}
