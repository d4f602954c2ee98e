package kernelcode

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"strconv"

	"hallmark/addr"
	"hallmark/symbol"
)

// The lines of /proc/kallsyms are kept in pieces, in the order of their addresses, so that only those pieces
// are read in which there are symbols for the addresses that are asked for. The first piece has the
// lines that bound the kernel's code, which every answer needs.
//
// In the file the number of pieces comes first, and a checksum of their list. Each entry of the list has
// the address of its first line, its size in bytes, and its checksum. The lines follow.

// piece is an entry of the list.
type piece struct {
	Start uint64
	Size  uint32
	Sum   uint32
}

// listHeader is before the list.
type listHeader struct {
	Count uint32
	Sum   uint32
}

const (
	// pieceSize is how many bytes a piece has at least, but the first one and the last.
	pieceSize = 16 << 10
	// maxPieces bounds the list that is read. The largest kernels have a thousand.
	maxPieces = 1 << 16
	// maxLines bounds the text that is kept, in bytes. That of a kernel with all modules has 20 MB.
	maxLines = 256 << 20
)

var sums = crc32.MakeTable(crc32.Castagnoli)

// writePieces writes the lines of a text in pieces.
func writePieces(w io.Writer, text []byte) error {
	list, pieces := cut(text)
	entries, err := binary.Append(nil, binary.LittleEndian, list)
	if err != nil {
		return err
	}
	if err := binary.Write(w, binary.LittleEndian, listHeader{uint32(len(list)), crc32.Checksum(entries, sums)}); err != nil {
		return err
	}
	for _, b := range append([][]byte{entries}, pieces...) {
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// kallsymsLine is a line with its end.
type kallsymsLine struct {
	at   uint64
	text []byte
}

// cut returns the pieces of a text. Lines of one address are in one piece; those without any are in none.
func cut(text []byte) (list []piece, pieces [][]byte) {
	if !bytes.HasSuffix(text, []byte("\n")) {
		text = append(bytes.Clone(text), '\n')
	}
	var lines []kallsymsLine
	var bounds, now []byte
	for line := range bytes.Lines(text) {
		if at := addressOf(line); at != 0 {
			lines = append(lines, kallsymsLine{at, line})
		}
		if isBound(line) {
			bounds = append(bounds, line...)
		}
	}
	slices.SortStableFunc(lines, func(a, b kallsymsLine) int { return cmp.Compare(a.at, b.at) })
	add := func(start uint64, b []byte) {
		list = append(list, piece{start, uint32(len(b)), crc32.Checksum(b, sums)})
		pieces = append(pieces, b)
	}
	add(0, bounds)
	var start, last uint64
	for _, l := range lines {
		if len(now) >= pieceSize && l.at != last {
			add(start, now)
			now = nil
		}
		if len(now) == 0 {
			start = l.at
		}
		now, last = append(now, l.text...), l.at
	}
	if len(now) > 0 {
		add(start, now)
	}
	return list, pieces
}

// addressOf returns the address at the beginning of a line, 0 for none.
func addressOf(line []byte) uint64 {
	digits, _, _ := bytes.Cut(line, []byte(" "))
	at, err := strconv.ParseUint(string(digits), 16, 64)
	if err != nil {
		return 0
	}
	return at
}

// isBound reports whether a line has a symbol that bounds the kernel's code.
func isBound(line []byte) bool {
	fields := bytes.Fields(line)
	if len(fields) < 3 {
		return false
	}
	switch string(fields[2]) {
	case "_text", "_stext", "_etext":
		return true
	}
	return false
}

var errDamaged = errors.New("damaged copy of the kernel's symbols")

// readPieces reads the symbols for these addresses from pieces that begin at an offset of a file and
// end with it.
func readPieces(f *os.File, begin int64, addresses []addr.Abs) (*symbol.Kallsyms, error) {
	list, at, err := readList(f, begin)
	if err != nil {
		return nil, err
	}
	wanted := make([]bool, len(list))
	wanted[0] = true
	for _, a := range addresses {
		i, _ := slices.BinarySearchFunc(list[1:], uint64(a), func(p piece, a uint64) int {
			if p.Start <= a {
				return -1
			}
			return 1
		})
		wanted[i] = true // the last that begins at or below the address
	}
	var lines []byte
	for i, p := range list {
		if wanted[i] {
			start := len(lines)
			lines = append(lines, make([]byte, p.Size)...)
			if _, err := f.ReadAt(lines[start:], at); err != nil || crc32.Checksum(lines[start:], sums) != p.Sum {
				return nil, errDamaged
			}
		}
		at += int64(p.Size)
	}
	return symbol.ReadKallsymsAt(bytes.NewReader(lines), addresses)
}

// readList reads the list of pieces, and returns where the first one begins. The pieces have the rest of
// the file, and their starts ascend.
func readList(f *os.File, begin int64) (list []piece, at int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	var header listHeader
	size := int64(binary.Size(header))
	r := io.NewSectionReader(f, begin, info.Size()-begin)
	if err := binary.Read(r, binary.LittleEndian, &header); err != nil || header.Count == 0 || header.Count > maxPieces {
		return nil, 0, errDamaged
	}
	entries := make([]byte, int(header.Count)*binary.Size(piece{}))
	if _, err := io.ReadFull(r, entries); err != nil || crc32.Checksum(entries, sums) != header.Sum {
		return nil, 0, errDamaged
	}
	list = make([]piece, header.Count)
	if _, err := binary.Decode(entries, binary.LittleEndian, list); err != nil {
		return nil, 0, errDamaged
	}
	at = begin + size + int64(len(entries))
	total := at
	for i, p := range list {
		if total += int64(p.Size); i > 1 && p.Start <= list[i-1].Start {
			return nil, 0, errDamaged
		}
	}
	if total != info.Size() || total-at > maxLines {
		return nil, 0, errDamaged
	}
	return list, at, nil
}
