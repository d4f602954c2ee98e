package symbolize

import (
	"hallmark/symbol"
)

// segfault knows what the Linux kernel logs of a process that a signal ends (show_signal_msg in arch/x86/mm/fault.c,
// show_signal in arch/x86/kernel/traps.c, print_vma_addr in mm/memory.c):
//
//	prog[3017]: segfault at 18 ip 00007782ccbca89d sp 00007fff7f99ef40 error 4 in libx.so[3ca89d,7782cc824000+430000]
//	traps: prog[3017] general protection fault ip:5581e2c0b1cf sp:7ffd5d5e0f20 error:0 in prog[5581e2c0b000+1000]
//
// The first number in the brackets is the offset in the file; older kernels do not print it. Then the file answers
// whose only mapping of code has that size. Others are an address of the process and no place in a file.
type segfault struct{ *resolver }

var segfaultLine = pattern(`^(.* ip[ :])([0-9a-f]+)( sp[ :][0-9a-f]+ error[ :][0-9a-f]+ in )(\S.*)\[(?:([0-9a-f]+),)?([0-9a-f]+)\+([0-9a-f]+)\]`)

func (s *segfault) rewrite(line string) ([]string, bool) {
	m := segfaultLine().FindStringSubmatch(line)
	if m == nil {
		return nil, false
	}
	ip, _, ok := cutHex(m[2])
	start, _, ok2 := cutHex(m[6])
	size, _, ok3 := cutHex(m[7])
	if !ok || !ok2 || !ok3 || ip < start || ip-start >= size {
		return nil, false
	}
	p := place{module: m[4], at: ip - start, offset: true}
	if m[5] != "" {
		offset, _, ok := cutHex(m[5])
		if !ok || (offset-p.at)%pageSize != 0 {
			return nil, false
		}
		p.at = offset
	} else if base, ok := s.codeOf(p, size); ok {
		p.at += base
	} else {
		p.unplaced = true
	}
	r := s.lookup(p)
	if len(r.Frames) == 0 {
		return []string{line}, true
	}
	return annotated(m[0], line[len(m[0]):], r), true
}

// pageSize is the least that a mapping begins and ends at.
const pageSize = 4096

// codeOf returns the offset of the only mapping of code in a place's file, if it has a size in memory.
func (s *segfault) codeOf(p place, size uint64) (offset uint64, ok bool) {
	file, isFile := s.source(p).symbols.(interface{ Segments() []symbol.Segment })
	if !isFile {
		return 0, false
	}
	found := 0
	for _, segment := range file.Segments() {
		if !segment.Executable() {
			continue
		}
		found++
		begin := uint64(segment.Offset) &^ (pageSize - 1)
		end := (uint64(segment.Offset) + segment.FileSize + pageSize - 1) &^ (pageSize - 1)
		offset, ok = begin, end-begin == size
	}
	return offset, ok && found == 1
}
