package symbol

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/xi2/xz"
)

// Limits on a compressed kernel module. With debug information one is 100 MB at most, and shrinks to a fifth.
const (
	maxModule         = 512 << 20 // bytes
	moduleRoom        = 1 << 20   // bytes that any may have unpacked
	moduleInflation   = 32        // and this many for each byte of it
	maxModuleWindow   = 64 << 20
	moduleSuffix      = ".ko"
	moduleDebugSuffix = ".ko.debug"
)

// packings are the ways in which "make modules_install" compresses modules (scripts/Makefile.modinst): by the name's end.
var packings = map[string]func(io.Reader) (io.Reader, error){
	".gz": func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) },
	".xz": func(r io.Reader) (io.Reader, error) { return xz.NewReader(r, maxModuleWindow) },
	".zst": func(r io.Reader) (io.Reader, error) {
		return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxModuleWindow))
	},
}

// UnpackedModule returns the name of a kernel module's file without the end that says how it is compressed, and whether
// it has one.
func UnpackedModule(name string) (string, bool) {
	for end := range packings {
		base, ok := strings.CutSuffix(name, end)
		if ok && (strings.HasSuffix(base, moduleSuffix) || strings.HasSuffix(base, moduleDebugSuffix)) {
			return base, true
		}
	}
	return name, false
}

// unpackModule returns what a compressed module is, in memory.
func unpackModule(f *os.File, name string) ([]byte, error) {
	fail := func(format string, args ...any) error {
		return &FormatError{Name: name, Err: fmt.Errorf("compressed module: "+format, args...)}
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	limit := min(moduleRoom+moduleInflation*info.Size(), maxModule)
	base, _ := UnpackedModule(name)
	r, err := packings[name[len(base):]](io.NewSectionReader(f, 0, info.Size()))
	if err != nil {
		return nil, fail("%w", err)
	}
	if z, ok := r.(*zstd.Decoder); ok {
		defer z.Close()
	}
	var data bytes.Buffer
	n, err := data.ReadFrom(io.LimitReader(r, limit+1))
	switch {
	case err != nil:
		return nil, fail("offset %d, uncompressed: %w", n, err)
	case n > limit:
		return nil, fail("it unpacks to more than %d bytes", limit)
	}
	return data.Bytes(), nil
}
