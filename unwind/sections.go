package unwind

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"

	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"

	"hallmark/internal/cursor"
)

// ehFrame is the source .eh_frame.
func (b *builder) ehFrame() error {
	s, err := b.file.ehFrame()
	if s == nil {
		return b.damaged(err)
	}
	return b.rows(s, EHFrame)
}

// debugFrame is the source .debug_frame, which programs without exceptions have, and
// which has what assemblers were told with ".cfi_sections .debug_frame".
func (b *builder) debugFrame() error {
	s, err := b.file.debugFrame()
	if s == nil {
		return b.damaged(err)
	}
	return b.rows(s, DebugFrame)
}

// damaged warns of an error in what a file says, and returns any other.
func (b *builder) damaged(err error) error {
	var damage *cursor.Error
	if errors.As(err, &damage) {
		b.warn(err)
		return nil
	}
	return err
}

// ehFrame finds .eh_frame: by its section, or, in files without section headers and in
// images in memory, by .eh_frame_hdr.
func (f *elfFile) ehFrame() (*cfiSection, error) {
	if s := f.section(".eh_frame"); s != nil && s.flags&shfCOMPRESSED == 0 {
		data, err := f.readCFI(s.off, s.bytes)
		if err == nil {
			return &cfiSection{data: data, off: s.off, virt: s.virt, eh: true}, nil
		}
		if f.ehSize == 0 {
			return nil, err
		}
	}
	if f.ehSize == 0 {
		return nil, nil
	}
	virt, count, err := f.ehFrameAddress()
	if err != nil {
		return nil, err
	}
	s := f.at(virt)
	if s == nil {
		return nil, &cursor.Error{Offset: 0, Msg: ".eh_frame_hdr leads to no part of the file"}
	}
	in := virt - s.virt
	data, err := f.readCFI(s.off+in, min(s.size-in, maxCFI))
	if err != nil {
		return nil, err
	}
	return &cfiSection{data: data, off: s.off + in, virt: virt, eh: true, open: true, count: count}, nil
}

// ehFrameAddress returns where .eh_frame is and how many functions it has, 0 if that is
// not told, as .eh_frame_hdr says (LSB Core 10.6.2).
func (f *elfFile) ehFrameAddress() (virt, count uint64, err error) {
	s := f.at(f.ehHeader)
	if s == nil {
		return 0, 0, &cursor.Error{Offset: 0, Msg: "PT_GNU_EH_FRAME leads to no part of the file"}
	}
	in := f.ehHeader - s.virt
	off := s.off + in
	head, err := f.read(off, min(f.ehSize, s.size-in, 32))
	if err != nil {
		return 0, 0, err
	}
	r := reader{b: head}
	version, encoding, countEncoding := r.u8(), r.u8(), r.u8()
	r.u8()               // of the table
	const dataRel = 0x30 // from the header's start
	raw, virt := r.address(f.ehHeader, encoding)
	if encoding&0xf0 == dataRel {
		virt = f.ehHeader + raw
	}
	known := encoding&0xf0 == dataRel || encoding&0xf0 == 0 || encoding&0xf0 == pePCRel
	if version != 1 || r.bad || !known {
		return 0, 0, &cursor.Error{Offset: int64(off), Msg: "malformed .eh_frame_hdr"}
	}
	if countEncoding != peOmit {
		count, _ = r.address(f.ehHeader, countEncoding&0x0f)
	}
	return virt, count, nil
}

// readCFI reads call frame information.
func (f *elfFile) readCFI(off, n uint64) ([]byte, error) {
	if n > maxCFI {
		return nil, &cursor.Error{Offset: int64(off), Msg: "call frame information of implausible size"}
	}
	return f.read(off, n)
}

// debugFrame reads .debug_frame, compressed or not.
func (f *elfFile) debugFrame() (*cfiSection, error) {
	s := f.section(".debug_frame")
	if s == nil {
		s = f.section(".zdebug_frame")
	}
	if s == nil {
		return nil, nil
	}
	data, err := f.readCFI(s.off, s.bytes)
	if err != nil {
		return nil, err
	}
	switch {
	case s.flags&shfCOMPRESSED != 0:
		data, err = inflate(data, s.off)
	case strings.HasPrefix(s.name, ".zdebug"):
		data, err = inflateOld(data, s.off)
	}
	if err != nil {
		return nil, err
	}
	return &cfiSection{data: data, off: s.off}, nil
}

// The kinds of compression of the gABI, "Section Compression".
const (
	compressZLIB = 1
	compressZSTD = 2
	chdrSize     = 24
)

// inflate decompresses what the gABI's Elf64_Chdr begins.
func inflate(data []byte, off uint64) ([]byte, error) {
	if len(data) < chdrSize {
		return nil, compressedError(off, "no header")
	}
	size, packed := binary.LittleEndian.Uint64(data[8:]), data[chdrSize:]
	switch binary.LittleEndian.Uint32(data) {
	case compressZLIB:
		return inflateZlib(packed, size, off)
	case compressZSTD:
		z, err := zstd.NewReader(bytes.NewReader(packed), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(64<<20))
		if err != nil {
			return nil, compressedError(off, err.Error())
		}
		defer z.Close()
		return readInflated(z, len(packed), size, off)
	}
	return nil, compressedError(off, "unknown kind")
}

// inflateOld decompresses what GNU tools wrote before there was a standard: "ZLIB", the
// size in big-endian, a stream.
func inflateOld(data []byte, off uint64) ([]byte, error) {
	if len(data) < 12 || string(data[:4]) != "ZLIB" {
		return nil, compressedError(off, "no header")
	}
	return inflateZlib(data[12:], binary.BigEndian.Uint64(data[4:]), off)
}

func inflateZlib(packed []byte, size, off uint64) ([]byte, error) {
	z, err := zlib.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, compressedError(off, err.Error())
	}
	defer z.Close()
	return readInflated(z, len(packed), size, off)
}

// maxRatio is how many times as large as it is a compressed section may become. Call
// frame information becomes less than ten times as large.
const maxRatio = 64

func readInflated(z io.Reader, packed int, size, off uint64) ([]byte, error) {
	if size > maxCFI || size > uint64(packed)*maxRatio+4096 {
		return nil, compressedError(off, "implausible size")
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(z, data); err != nil {
		return nil, compressedError(off, err.Error())
	}
	return data, nil
}

func compressedError(off uint64, msg string) error {
	return &cursor.Error{Offset: int64(off), Msg: "compressed section: " + msg}
}
