// Package addr gives each kind of address a type of its own, so that the
// compiler refuses to mix them.
//
// One instruction has three numbers that people call "the address". Abs is where it
// runs, Virt is the address that its ELF file gives it, and Offset is where its bytes
// are in that file.
//
//	Offset = Abs − vm_start + vm_pgoff·4096     (one mapping of a process)
//	Offset = Virt − p_vaddr + p_offset          (one PT_LOAD of a file)
//	Abs    = Virt + load bias
package addr

import "strconv"

// Abs is an address in the address space of one process, or of the kernel, as
// an instruction pointer holds it.
type Abs uint64

// Virt is an address in the p_vaddr space of one ELF file: what symbol tables
// and DWARF speak of.
type Virt uint64

// Offset is a position in a file, in bytes from its start. It is not an address.
type Offset uint64

// String returns a in hexadecimal with the prefix 0x.
func (a Abs) String() string { return hex(uint64(a)) }

// String returns v in hexadecimal with the prefix 0x.
func (v Virt) String() string { return hex(uint64(v)) }

// String returns o in hexadecimal with the prefix 0x.
func (o Offset) String() string { return hex(uint64(o)) }

func hex(n uint64) string { return "0x" + strconv.FormatUint(n, 16) }
