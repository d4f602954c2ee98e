package unwind

import (
	"bytes"

	"hallmark/addr"
)

// What a signal handler returns to ends with a system call, during which execution stands
// behind it: where, by the call frame information, another function begins, or nothing is.
// There the registers are still in the signal frame: once the kernel has taken them from
// it, execution stands elsewhere.

var systemCalls = map[Machine][]byte{
	X86_64: {0x0f, 0x05},             // syscall
	ARM64:  {0x01, 0x00, 0x00, 0xd4}, // svc #0
}

// maxSigreturns is how many such functions are looked at in a file, which has one.
const maxSigreturns = 64

// sigreturns adds a layer below l that says so of the gaps behind such code.
func (b *builder) sigreturns(l *layer) error {
	var behind *part
	call, found := systemCalls[b.file.machine], 0
	for _, p := range l.parts {
		for i := range p.spans {
			s := &p.spans[i]
			if s.n == 0 || p.spanEnd(s).Kind != Signal || s.end-s.start < uint32(len(call)) {
				continue
			}
			if found++; found > maxSigreturns {
				return nil
			}
			end := l.base + addr.Offset(s.end)
			code, err := b.file.read(uint64(end)-uint64(len(call)), uint64(len(call)))
			if err != nil {
				return b.damaged(err)
			}
			if !bytes.Equal(code, call) {
				continue
			}
			if behind == nil {
				behind = b.layer(l.source).part()
			}
			behind.add(end, end+1, p.spanEnd(s))
		}
	}
	return nil
}

// spanEnd returns what there is to know of a function's last rule if it is of kind
// Signal; of others only the kind.
func (p *part) spanEnd(s *span) Rule {
	first := p.rules.list[p.rows[s.first+s.n-1].rule][0]
	return Rule{Kind: Kind(first), Register: Register(first >> 8), Offset: int32(first >> 32)}
}
