// Package symbol turns an address of a file, of the kernel or of generated code
// into functions and lines.
//
// Every source of symbols answers in the same form, a Result: the frames at the
// address, innermost first, where they come from, or the reason why there are
// none. File answers for an ELF file, on disk or in memory as the vdso is, by
// file offset or by virtual address. Index gives the same answers faster, for a file
// that was prepared. Kallsyms answers for the kernel, and PerfMap for code that a
// process generated. Each length and position that is read is checked, because a file
// may be damaged or hostile.
//
// # Which source names an address
//
// A function of the debug information is the best answer, with all calls that were
// inlined there. Else Go's pclntab may have one. Where neither does, as in code that
// was written in assembler, the symbol's name stands with the line that the debug
// information has, if any. Where no symbol covers the address either, as in the padding
// between functions, the line stands alone, without any name: that of a neighbour would be
// a guess. If several compilation units claim an address, the first in
// the file has it, even if it knows only the line. A later unit may describe a function that the
// linker discarded. If the symbol
// has another name than the function, the frame has both.
//
// # Which symbol names an address
//
// A symbol table can have several candidates, and none. A wrong name is worse than
// none, so what lies between symbols stays without, however near the next one is:
// it is padding, or code whose symbol was stripped. In detail:
//
//   - Only symbols of code count, each within its own executable section. Data in
//     the midst of code is a hole.
//   - The smallest symbol that covers the address wins.
//   - Among equals: a function before a symbol without type, one that is visible to
//     other files before a local one, fewer leading underscores, the shorter name,
//     the first in the alphabet. Weak or not says nothing: the names that libc
//     documents are weak, and their aliases with underscores are not.
//   - A symbol without a size that lies in one with a size is a label, and does not
//     count. Elsewhere it reaches to the next symbol or the end of the section; not
//     so in .dynsym, where the next symbol is not the neighbour.
//   - Symbols of sections and source files (STT_SECTION, STT_FILE) name no code.
//   - What .gnu_debugdata and .dynsym have is settled as if it were one table, which it
//     was before the file was stripped.
//   - An entry of a procedure linkage table is NAME@plt, unless a table names it.
//
// # The index format
//
// An Index is a file that answers without being read: it is mapped into memory, and
// a lookup touches a few of its pages. Everything in it is relative, numbers are
// little-endian, and the same input gives the same bytes. Each block of 4096 bytes of the
// file has a checksum, so that damage by disks, memory and programs that were cut off gives no wrong
// answer. That is no help against somebody who may write the file: who may, is up to the
// directory that it is in. A lookup checks a block when it is the first to look into it. The
// index starts with a header of 128 bytes:
//
//	  0  "hallmark"
//	  8  uint32  version, 5
//	 12  uint32  flags: 1 there are columns, 2 made from a file that holds its code
//	 16  uint32  bits of the Sources it was made from
//	 20  uint8   bytes that a granule has in the part granules
//	 24  uint32  CRC-32C of the checksums of blocks, and what fills up behind them
//	 28  uint32  size of the file
//	 32  uint64  base: the virtual address that all others are relative to
//	 40  uint32  offset in the file and uint32 size of each of the ten parts
//	124  uint32  CRC-32C of the 124 bytes before
//
// Behind it is the CRC-32C of each block, from that of the first block on, as uint32. Of the
// header and these checksums themselves a block's checksum has nothing: it is of what the
// block has behind them, and 0 where that is nothing.
//
// The parts follow in this order, each at a multiple of 8:
//
//	identity   text of the identity of the file that the index is of, and, on a line of
//	           its own, what the maker wrote of that file (IndexOptions.Origin)
//	segments   its PT_LOAD segments: p_offset, p_vaddr, p_filesz, p_memsz, p_flags as
//	           uint64 each. They turn a file offset into a virtual address.
//	directory  uint32 for each chapter, which is 128 granules: number of its first
//	           one in the part granules. Chapters that are alike may have the same.
//	granules   for each granule, which is 128 addresses, the offset of its block in
//	           the stream, 0 if nothing is known of it; and a byte more
//	stream     sites and blocks, see below, and 32 bytes more
//	functions  a record for each function that is inlined somewhere, those first that
//	           are most often, so that their numbers are short
//	files      uint32 offset and uint32 size of each path in the text; file 0 is none
//	long       the same of names of 4095 bytes and more
//	text       the bytes of all strings
//	starts     where functions start that have an address without a name, see below
//
// The record of a function has 12 bytes. From the lowest bit on, there are 32 bits of
// offset of the name in the text, 12 of its size, 24 of the line where the function
// starts, 22 of the file and 6 of the Lang. If the size is 4095 then the name is the
// one with that number in the part long.
//
// The bytes that a lookup needs are close together in the stream, behind a byte that is not
// used. A site is a function in the code, or one call inlined into another site. One
// that is not inlined is
//
//	byte    flags: 2 has a symbol; the Source from bit 2 on
//	record  the function, with the file of this site
//	number  offset in the text of the ELF symbol's name, if flag 2; unsigned LEB128
//	number  size of the symbol's name, if flag 2
//
// and an inlined one is
//
//	byte      1, and the sizes of the numbers below, less 1, from bits 1, 3, 5 and 7 on
//	1-4 bytes twice the number of the function, and 1 if it is in another file here
//	1-4 bytes distance back to the site of the caller
//	1-4 bytes line of the call, from the line where the caller starts
//	1-2 bytes column of the call, if there are columns
//	number    file, if it is another one; unsigned LEB128
//
// A caller stands before its callees, so that every chain ends. It stands close
// before them: a site that is needed again farther down is written again.
//
// Lines that no function has are entries of a site that is not inlined, whose function
// has no name and starts on line 0, of SourceDWARF.
//
// A block has up to 128 entries, which are stretches of code with one answer:
//
//	24 bits   header: 7 bits of how many entries there are behind the first, and how
//	          wide the fields below are: 3 bits of the site's number, 4 codes for the
//	          line and for the column, 3 for the distance and for the first line
//	bytes     where each entry but the first starts in the granule
//	bits      of each entry: number of the site in this block, line from the first
//	          line of that site, column
//	bits      of each site: its distance back from the block, 0 if nothing is known;
//	          first line, from the line where its function starts
//
// Bits are packed from the lowest one on. Lines are modulo 2^32. The codes of 4 bits
// stand for themselves, only 15 is 32 bits of line and 16 of column. Those of 3 bits
// are 6, 7, 8, 9, 10, 11, 13 or 28 bits of distance, and 0, 2, 4, 6, 8, 10, 13 or 32
// of first line.
//
// For example: caller, which starts on line 10 of file 1, has code of its lines 10,
// 12 and 14, and on line 13 calls callee, which starts on line 3, is inlined, and has
// code of its lines 4 and 5. The text starts with "a.ccallercallee".
// Without columns the stream is
//
//	00           not used
//	04           at 1: a site by SourceDWARF, of the function whose
//	03 00 00 00    name is at 3 in the text,
//	06 a0 00 00    has 6 bytes, and starts on line 10
//	10 00 00 04    of file 1, in C
//	01 00 0d 03  at 14: function 0, inlined into the site 13 bytes before, on line 10+3
//	05 0d 20     at 18, the block: 6 entries, with 2 bits of site and 3 of line; for
//	               sites there are 6 bits of distance and 2 of first line
//	06 0b 14     the other entries start at 6, 11 and 20,
//	28 2f          40 and 47
//	00 85 02 45  (0, 0), (0, 2), (1, 0), (1, 1), (0, 4), (2, 0), and the sites:
//	04 11 00       17 back, from line 10+0; 4 back, from line 3+1; nothing known
//
// The first entry is on line 10, which is the first line of site 0; the third one on
// line 4, which is that of site 1.
//
// The part starts is empty, or has the code that the call frame information describes, as
// far as something of it has no name. Ranges are in order and disjoint, in groups of 64:
// first uint32 number of groups; then for each uint32 start of its first range, from the
// base, and uint32 offset of the group in the part. In a group is the size of each range,
// and between two of them the gap from the end of one to the start of the next, all of it
// as unsigned LEB128.
//
// A lookup takes the granule of the address from the directory and the chapter, counts
// how many entries of its block start at or before the address, takes the fields of
// the last one and of its site, and follows the callers.
package symbol
