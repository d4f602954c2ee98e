package symbol

import (
	"bytes"
	"debug/elf"
	"math/rand/v2"
	"testing"

	"hallmark/addr"
	"hallmark/internal/dwarftest"
)

// FuzzDWARFPrograms damages generated programs: each mutation changes the structure of a
// section rather than one of its bytes. No answer is wanted, but an end, and no panic.
func FuzzDWARFPrograms(f *testing.F) {
	for seed := range uint64(30) {
		f.Add(seed, seed+1, []byte{byte(seed), byte(7 * seed), 200, 3, 90, 14, byte(seed / 3)})
	}
	f.Fuzz(func(t *testing.T, seed, other uint64, mutations []byte) {
		p, q := dwarftest.Generate(seed%10_000), dwarftest.Generate(other%10_000)
		mutateProgram(p, q, mutations[:min(len(mutations), 64)])
		bounded(t, 1<<20, func() {
			file, err := openProgram(p)
			if err != nil {
				return
			}
			defer file.Close()
			var addresses []addr.Virt
			for _, a := range p.Answers {
				addresses = append(addresses, addr.Virt(a.Addr))
			}
			for _, v := range addresses[:min(len(addresses), 20)] {
				checkResult(t, file.LookupVirt(v))
			}
			for _, r := range file.LookupVirts(addresses) {
				checkResult(t, r)
			}
			if x, err := file.Index(IndexOptions{Open: file.Companion, Threads: 1}); err == nil {
				checkIndex(t, x)
			}
		})
	})
}

// mutateProgram damages the debug sections of a program, some from another program.
func mutateProgram(p, q *dwarftest.Program, mutations []byte) {
	for i := 0; i+3 <= len(mutations); i += 3 {
		random := rand.New(rand.NewPCG(uint64(mutations[i+1]), uint64(mutations[i+2])))
		for _, name := range []string{p.Main, p.Main + ".dwp", p.Main + ".sup", p.Main + "-0.dwo"} {
			if data, ok := p.Files[name]; ok {
				mutateFile(data, q.Files[q.Main], mutations[i], random)
			}
		}
	}
}

// mutateFile makes one mutation in a debug section of a file, in place.
func mutateFile(data, other []byte, how byte, random *rand.Rand) {
	sections := debugParts(data)
	if len(sections) == 0 {
		return
	}
	s := sections[random.IntN(len(sections))]
	body := data[s.Offset : s.Offset+s.FileSize]
	at := random.IntN(len(body))
	switch how % 7 {
	case 0: // a byte is left out
		copy(body[at:], body[at+1:])
	case 1: // the end is zeros
		clear(body[at:])
	case 2: // a number, such as a form or a size, is another one
		body[at] = byte(random.IntN(0x30))
	case 3: // a part of it is elsewhere
		copy(body[at:], body[random.IntN(len(body)):])
	case 4: // it has another byte
		copy(body[at+1:], bytes.Clone(body[at:]))
	case 5: // it is shorter
		s.shrink(data, uint64(at))
	default: // it is the section of another program
		for _, o := range debugParts(other) {
			if o.Name == s.Name {
				copy(body, other[o.Offset:o.Offset+o.FileSize])
			}
		}
	}
}

// debugPart is a debug section with the place of its header.
type debugPart struct {
	*elf.Section
	header uint64
	file   *elf.File
}

// shrink sets the size of the section.
func (p *debugPart) shrink(data []byte, size uint64) {
	if p.file.Class == elf.ELFCLASS64 {
		p.file.ByteOrder.PutUint64(data[p.header+0x20:], size)
	} else {
		p.file.ByteOrder.PutUint32(data[p.header+0x14:], uint32(size))
	}
}

// debugParts returns the debug sections of a file that have contents.
func debugParts(data []byte) (parts []debugPart) {
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil
	}
	start, entry := uint64(f.ByteOrder.Uint32(data[0x20:])), uint64(40)
	if f.Class == elf.ELFCLASS64 {
		start, entry = f.ByteOrder.Uint64(data[0x28:]), 64
	}
	for i, s := range f.Sections {
		if s.FileSize > 0 && s.Flags&elf.SHF_ALLOC == 0 && s.Type == elf.SHT_PROGBITS && s.Offset+s.FileSize <= uint64(len(data)) {
			parts = append(parts, debugPart{s, start + uint64(i)*entry, f})
		}
	}
	return parts
}
