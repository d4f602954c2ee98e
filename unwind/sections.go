package unwind

import (
	"errors"

	"hallmark/internal/cursor"
	"hallmark/internal/elffile"
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
// which has what assemblers were asked for with ".cfi_sections .debug_frame".
func (b *builder) debugFrame() error {
	views := new(elffile.Views)
	defer views.Close()
	s, err := b.file.debugFrame(views)
	if s == nil || err != nil {
		return b.damaged(err)
	}
	return b.rows(s, DebugFrame)
}

// damaged warns of an error in what a file says, and returns any other.
func (b *builder) damaged(err error) error {
	var damage *cursor.Error
	var ofFile *elffile.FormatError
	if errors.As(err, &damage) || errors.As(err, &ofFile) {
		b.warn(err)
		return nil
	}
	return err
}

// ehFrame finds .eh_frame: by its section, or, in files without section headers and in
// images in memory, by .eh_frame_hdr.
func (f *elfFile) ehFrame() (*cfiSection, error) {
	if s := f.Section(".eh_frame"); s != nil && s.Flags&elffile.SHF_COMPRESSED == 0 {
		data, err := f.readCFI(s.Offset, s.Size)
		if err == nil {
			return &cfiSection{data: data, off: s.Offset, virt: s.Addr, eh: true}, nil
		}
		if f.EHFrameHeader.FileSize == 0 {
			return nil, err
		}
	}
	if f.EHFrameHeader.FileSize == 0 {
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
	data, err := f.readCFI(s.off+in, min(s.size-in, f.maxCFI))
	if err != nil {
		return nil, err
	}
	return &cfiSection{data: data, off: s.off + in, virt: virt, eh: true, open: true, count: count}, nil
}

// ehFrameAddress returns where .eh_frame is and how many functions it has, 0 if that is
// not given, as .eh_frame_hdr says (LSB Core 10.6.2).
func (f *elfFile) ehFrameAddress() (virt, count uint64, err error) {
	header := uint64(f.EHFrameHeader.Virt)
	s := f.at(header)
	if s == nil {
		return 0, 0, &cursor.Error{Offset: 0, Msg: "PT_GNU_EH_FRAME leads to no part of the file"}
	}
	in := header - s.virt
	off := s.off + in
	head, err := f.read(off, min(f.EHFrameHeader.FileSize, s.size-in, 32))
	if err != nil {
		return 0, 0, err
	}
	r := reader{b: head}
	version, encoding, countEncoding := r.u8(), r.u8(), r.u8()
	r.u8()               // of the table
	const dataRel = 0x30 // from the header's start
	raw, virt := r.address(header, encoding)
	if encoding&0xf0 == dataRel {
		virt = header + raw
	}
	known := encoding&0xf0 == dataRel || encoding&0xf0 == 0 || encoding&0xf0 == pePCRel
	if version != 1 || r.bad || !known {
		return 0, 0, &cursor.Error{Offset: int64(off), Msg: "malformed .eh_frame_hdr"}
	}
	if countEncoding != peOmit {
		count, _ = r.address(header, countEncoding&0x0f)
	}
	return virt, count, nil
}

// readCFI reads call frame information.
func (f *elfFile) readCFI(off, n uint64) ([]byte, error) {
	if n > f.maxCFI {
		return nil, implausible(off)
	}
	return f.read(off, n)
}

func implausible(off uint64) error {
	return &cursor.Error{Offset: int64(off), Msg: "call frame information of implausible size"}
}

// debugFrame reads .debug_frame, compressed or not. It is there until views is closed.
func (f *elfFile) debugFrame(views *elffile.Views) (*cfiSection, error) {
	s := f.DebugSection("frame")
	if s == nil {
		return nil, nil
	}
	if s.Size > f.maxCFI {
		return nil, implausible(s.Offset)
	}
	b, err := f.Content(views, s)
	if err != nil {
		return nil, err
	}
	if b.Want > f.maxCFI || b.Want > uint64(len(b.Raw))*maxRatio+4096 {
		return nil, &cursor.Error{Offset: int64(s.Offset), Msg: "compressed section: implausible size"}
	}
	section := &cfiSection{off: s.Offset}
	b.To = &section.data
	if err := f.Admit(views, []*elffile.Content{b}); err != nil {
		return nil, err
	}
	return section, f.Load(views, []*elffile.Content{b}, 1)
}

// maxRatio is how many times as large as it is a compressed section may become. Call
// frame information becomes less than ten times as large.
const maxRatio = 64
