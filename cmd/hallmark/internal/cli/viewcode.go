package cli

import (
	"context"
	"debug/elf"

	"hallmark/addr"
	"hallmark/profile"
	"hallmark/profile/local"
	"hallmark/web"
)

// codeOf shows instructions of the files on this machine.
type codeOf struct{ symbols *local.Symbols }

// Code returns the function that has an instruction at an offset.
func (c codeOf) Code(ctx context.Context, b *profile.Binary, at addr.Offset) (*web.Function, error) {
	code, err := c.symbols.Code(ctx, b, at)
	if err != nil {
		return nil, err
	}
	f := &web.Function{
		Start: code.Start, Virt: code.Virt, Bytes: code.Bytes,
		Name:  code.Function,
		Close: func() { code.Close() },
		Lines: func(addresses []addr.Virt) []web.Line {
			lines := make([]web.Line, len(addresses))
			for i, frame := range code.Lines(addresses) {
				lines[i] = web.Line{File: frame.File, Line: int64(frame.Line)}
			}
			return lines
		},
	}
	switch code.Machine {
	case elf.EM_X86_64:
		f.Arch = "amd64"
	case elf.EM_AARCH64:
		f.Arch = "arm64"
	}
	return f, nil
}
