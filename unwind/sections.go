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
	virt, at, size, count, err := f.EHFrame()
	if err != nil {
		return nil, err
	}
	data, err := f.readCFI(at, min(size, f.maxCFI))
	if err != nil {
		return nil, err
	}
	return &cfiSection{data: data, off: at, virt: virt, eh: true, open: true, count: count}, nil
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
