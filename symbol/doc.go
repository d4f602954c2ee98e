// # The index format
//
// An Index is a file that answers without being read: it is mapped into memory, and
// a lookup touches a few of its pages. Everything in it is relative, numbers are
// little-endian, and the same input gives the same bytes. It starts with a header of
// 128 bytes:
//
//	  0  "hallmark"
//	  8  uint32  version, 1
//	 12  uint32  flags: 1 there are columns, 2 made from a file that holds its code
//	 16  uint32  bits of the Sources it was made from
//	 20  uint8   shift: bits of an address that do not tell its bucket
//	 24  uint32  CRC-32C of everything behind the header
//	 32  uint64  base: the virtual address that all others are relative to
//	 40  uint32  offset in the file and uint32 size of each of the nine parts
//	124  uint32  CRC-32C of the 124 bytes before
//
// The parts follow in this order, each at a multiple of 8:
//
//	identity   text of the identity of the file that the index is of
//	segments   its PT_LOAD segments: p_offset, p_vaddr, p_filesz, p_memsz, p_flags as
//	           uint64 each. They turn a file offset into a virtual address.
//	buckets    uint32 for each 2^shift addresses: the block that its first one is in,
//	           or the first block; and one more behind the last
//	blocks     in the order of addresses: uint32 address, uint32 offset in the stream
//	stream     sites and blocks, see below
//	functions  uint32 string of the name, uint32 line where it starts, and in a uint32
//	           the file in 24 bits and the Lang in the high 8. Those used most come
//	           first, so that their numbers are short.
//	files      uint32 string of each path; file 0 is none
//	strings    uint32 end in the text of each string, after a 0: string n is between
//	           the ends n and n+1. String 0 is empty.
//	text       the bytes of all strings
//
// In the stream a number is an unsigned LEB128, and a signed one has its sign in the
// lowest bit (0, -1, 1, -2 … are 0, 1, 2, 3 …). Lines are counted from the line where
// the function starts, which makes them small.
//
// A site is a function in the code, or one call inlined into another site:
//
//	byte    flags: 1 inlined, 2 in another file than its function's, 4 has a symbol;
//	        the Source from bit 3 on
//	number  function
//	number  file, if flag 2
//	number  string of the ELF symbol's name, if flag 4
//	number  distance back to the site of the caller, if inlined
//	signed  line of the call, if inlined
//	number  column of the call, if inlined and there are columns
//
// A caller stands before its callees, so that every chain ends. A block is up to 12
// entries for addresses that follow each other. The first byte of an entry has the
// length in its low four bits: 1 to 14 bytes, 15 for what follows as a number, less
// 15, and 0 for all up to the next block. The high four bits say what is there:
//
//	0     nothing is known
//	1     a site: number, its distance back from the block; signed, the line
//	2     the same site as before, the line moved: signed
//	3     the site that called the one before: signed, the line from that of the call
//	4-15  the same site, the line moved by 1, 2, 3, 4, 5, 6, 8, -1, -2, -3, -4, -5
//
// and all but 0 end with the column as a number, if there are columns. The last block
// is behind the last code, and says that nothing is known.
//
// For example: caller, which starts on line 10, has code of its lines 10, 12 and 14,
// and on line 13 calls callee, which starts on line 3, is inlined, and has code of its
// lines 4 and 5. Without columns the stream is
//
//	08 00        at 0: a site of function 0, by SourceDWARF
//	01 01 02 06  at 2: function 1, inlined into the site 2 bytes before, from line 10+3
//	16 06 00     at 6, the block: 6 bytes of the site 6 before the block, line 10+0
//	55           5 bytes, line moved by 2: 12
//	19 04 02     9 bytes of the site 4 before the block, line 3+1
//	4f 05        15+5 bytes, line moved by 1: 5
//	37 02        7 bytes of the caller, line 13+1
//	00           and nothing more
//
// A lookup takes the bucket of the address, finds the last block that starts at or
// before it among the blocks that the bucket and the next one name, reads its entries
// until the one that reaches beyond the address, and follows the callers.
package symbol
