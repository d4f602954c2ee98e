package local

import (
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	"hallmark/addr"
	"hallmark/debuginfo"
	"hallmark/profile"
	"hallmark/symbol"
)

// Code is the instructions of a function, from a file that has the identity which was asked for,
// and the content if that is known.
type Code struct {
	Machine elf.Machine
	Name    string      // of the symbol, "" where there is none
	Start   addr.Offset // file offset of the first byte
	Virt    addr.Virt   // virtual address of the same
	Bytes   []byte

	file *symbol.File
}

// maxCode is how many bytes of a function are read.
const maxCode = 256 << 10

// beyond is how many bytes are read behind an instruction whose function has no known end.
const beyond = 512

var (
	errNoFile     = errors.New("no file of this identity is on this machine")
	errNoCode     = errors.New("the file of this identity that is on this machine has no code, only debug information")
	errNoFunction = errors.New("nothing says where the function starts")
)

// Code returns the function that has an instruction at a file offset, for the caller to close. No
// server is asked, as they send debug information and no code.
func (s *Symbols) Code(ctx context.Context, b *profile.Binary, at addr.Offset) (*Code, error) {
	s.once.Do(s.init)
	var candidates []string
	if isRegular(b.Path) {
		candidates = []string{b.Path}
	}
	if strings.HasPrefix(b.Path, "[") {
		return nil, errNoFile // the kernel, its modules, the vdso
	}
	var file *symbol.File
	var err error
	if b.Claimant != nil {
		file, err = s.openClaimed(ctx, b)
	} else {
		file, err = s.Library.Finder.Search(ctx, debuginfo.Query{ID: b.ID, Content: b.Content, Rival: b.Rival, Paths: candidates, Local: true})
	}
	if err != nil {
		return nil, err
	}
	c := &Code{file: file}
	if err := c.read(at); err != nil {
		file.Close()
		return nil, err
	}
	return c, nil
}

// Close gives the file back.
func (c *Code) Close() error { return c.file.Close() }

// Function returns the name of the function at a virtual address, "" where it is not known.
func (c *Code) Function(v addr.Virt) string {
	r := c.file.LookupVirt(v)
	if len(r.Frames) == 0 {
		return ""
	}
	return strings.Clone(r.Frames[len(r.Frames)-1].Func)
}

// Lines returns the innermost source line at each of the addresses.
func (c *Code) Lines(addresses []addr.Virt) []symbol.Frame {
	frames := make([]symbol.Frame, len(addresses))
	results := c.file.LookupVirts(addresses)
	debuginfo.Detach(results)
	for i, r := range results {
		if len(r.Frames) > 0 {
			frames[i] = r.Frames[0]
		}
	}
	return frames
}

func (c *Code) read(at addr.Offset) error {
	if !holdsCode(c.file) {
		return errNoCode
	}
	v, ok := c.file.Virt(at)
	if !ok {
		return errNoFunction
	}
	start, end, err := c.bounds(at, v)
	if err != nil {
		return err
	}
	end = min(end, start+maxCode)
	if end <= v { // a function so long that the wanted instruction is far behind
		end = v + beyond
	}
	offset, ok := c.file.Offset(start)
	if !ok {
		return errNoFunction
	}
	code := make([]byte, min(uint64(end-start), maxCode))
	n, err := c.file.Reader().ReadAt(code, int64(offset))
	if n == 0 && err != nil {
		return err
	}
	var header [20]byte
	if _, err := c.file.Reader().ReadAt(header[:], 0); err != nil {
		return err
	}
	c.Machine = elf.Machine(binary.LittleEndian.Uint16(header[18:]))
	c.Start, c.Virt, c.Bytes = offset, start, code[:n]
	return nil
}

// bounds returns where the function of an instruction starts and ends: by its symbol, or by the
// call frame information.
func (c *Code) bounds(at addr.Offset, v addr.Virt) (start, end addr.Virt, err error) {
	functions, _ := c.file.Functions()
	next := addr.Virt(1<<64 - 1)
	var best *symbol.Function
	for i := range functions {
		f := &functions[i]
		if f.Virt > v {
			next = min(next, f.Virt)
			continue
		}
		if best == nil || f.Virt > best.Virt || f.Virt == best.Virt && f.Size > best.Size {
			best = f
		}
	}
	if best != nil && (best.Size == 0 || uint64(v-best.Virt) < best.Size) {
		c.Name = strings.Clone(best.Name)
		if best.Size > 0 {
			return best.Virt, best.Virt + addr.Virt(best.Size), nil
		}
		return best.Virt, min(next, v+beyond), nil
	}
	starts, err := c.file.Starts([]addr.Offset{at})
	if err != nil || len(starts) == 0 || starts[0] == symbol.NoStart {
		return 0, 0, errNoFunction
	}
	start, ok := c.file.Virt(starts[0])
	if !ok || start > v {
		return 0, 0, errNoFunction
	}
	return start, c.endOf(at, v, starts[0]), nil
}

// endOf returns where the code ends that has the start of an instruction's function, as far as that
// is near.
func (c *Code) endOf(at addr.Offset, v addr.Virt, start addr.Offset) addr.Virt {
	offsets := make([]addr.Offset, beyond)
	for i := range offsets {
		offsets[i] = at + addr.Offset(i)
	}
	starts, err := c.file.Starts(offsets)
	if err != nil {
		return v + 1
	}
	n := slices.IndexFunc(starts, func(s addr.Offset) bool { return s != start })
	if n < 0 {
		n = len(starts)
	}
	return v + addr.Virt(n)
}
