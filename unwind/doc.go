// Package unwind finds the callers of a frame in code that keeps no frame pointers.
// Its main source is the call frame information that compilers write: .eh_frame of the
// System V ABI and .debug_frame of DWARF section 6.4. Go's pclntab and the forms of
// known code, such as PLT entries, are others.
//
// A [Table] says for each place in a file, by file offset, where the caller's stack
// and registers are. It is one piece of bytes that means the same wherever it lies: in
// a file, mapped, in the memory of BPF programs. A rule that cannot be said in it is marked
// with a reason, and never guessed.
//
// # The format
//
// All numbers are little-endian. Everything begins at a multiple of eight bytes, and
// positions are in bytes from the start of the table.
//
//	 0  magic    u32  "HUW3"
//	 4  machine  u8   a Machine
//	 5  flags    u8   Flags
//	 6  reserved u16  0
//	 8  base     u64  file offset of the first granule, a multiple of 256
//	16  granules u32  how many granules of 256 bytes of the file there are
//	20  rows     u32
//	24  rules    u32  at most 65536
//	28  directory u32 position of granules+1 numbers, u32: the first row of each
//	                  granule, and the number of rows
//	32  rowsAt   u32  position of the rows, 3 bytes each, a block for each granule
//	36  ruleAt   u32  position of the rules, 16 bytes each
//	40  size     u32  of the table, a multiple of 8
//	44  reserved u32  0
//
// The block of a granule has a byte for each of its rows, at most 256: where in the granule it
// begins. Then it has a u16 for each: the number of its rule. So a lookup takes a line of
// memory of the directory, mostly one of the rows, and one of the rules, of which there are few.
// Two bytes of 0 are before the rows: a block of no rows, of rule 0, for what comes before the first.
//
// Rows are in the order of the file. A row holds until the next one begins; what comes
// before the first row, and behind the last granule, has no rule. Where one function ends
// and none follows, a row says so. So the row of an offset is the last one of its
// granule that does not begin behind it, or else the last one of all granules before.
//
// Rule 0 is always the one that says nothing. A rule is:
//
//	 0  kind     u8   how the canonical frame address (CFA) is found, a Kind
//	 1  register u8   that it is found from, by its DWARF number; for None a Silence
//	 2  flags    u8   bit 0: saved registers lie relative to that register's value,
//	                  not to the CFA; bit 1: the caller may be on another stack, whose
//	                  addresses may be lower; bit 2: the caller was interrupted, and
//	                  the return address is where it stood; bit 3: the return address
//	                  lies as bit 0 says of registers; bit 4: saved registers lie
//	                  relative to the frame pointer's value, see SavedAtFramePointer;
//	                  bits 5 to 7: the Source
//	 3  ra       i8   the return address is at CFA + 8·ra, or in link if it is Same
//	 4  offset   i32  bytes
//	 8  saved    6×i8 the registers that functions must preserve (see Machine.Saved):
//	                  each is at CFA (or a register's value) + 8·saved, or Same, or Unknown
//	14  addend   i8   of Deref
//	15  link     u8   the register that the return address is in, if ra is Same
package unwind
