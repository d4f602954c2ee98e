package debuginfo

import (
	"context"
	"runtime"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/reason"
	"hallmark/symbol"
)

// OpenKernel returns the symbols of a kernel, for the caller to close. Its offsets count
// from _text, which no KASLR moves: vmlinux, the kernel's ELF file, says which virtual
// address that is. The error is the reason.Reason why there are none.
func (l *Library) OpenKernel(ctx context.Context, id buildid.ID, addresses int) (Symbols, error) {
	s, err := l.Get(ctx, Request{Query: Query{ID: id, Kernel: true}, Addresses: addresses})
	if err != nil {
		return nil, err
	}
	text, ok := textOf(s)
	if !ok {
		s.Close()
		return nil, reason.BadSymbols
	}
	return &placed{s, func(o addr.Offset) (addr.Virt, bool) { return text + addr.Virt(o), true }}, nil
}

// textOf returns the address of _text in a kernel: it is where the code begins
// (vmlinux.lds.S of every architecture).
func textOf(s Symbols) (addr.Virt, bool) {
	headers, ok := s.(interface{ Segments() []symbol.Segment })
	if !ok {
		return 0, false
	}
	var text addr.Virt
	found := false
	for _, g := range headers.Segments() {
		if g.Executable() && g.MemSize > 0 && (!found || g.Virt < text) {
			text, found = g.Virt, true
		}
	}
	return text, found
}

// OpenModule returns the symbols of a kernel module, for the caller to close. Its offsets
// count from where the kernel put the module's code. The name is that in /proc/modules.
// The error is the reason.Reason why there are none.
func (l *Library) OpenModule(ctx context.Context, id buildid.ID, name string) (Symbols, error) {
	if runtime.GOARCH != "amd64" {
		return nil, reason.NotLookedUp // see File.ModuleVirt
	}
	file, err := l.Finder.Search(ctx, Query{ID: id, Module: name})
	if err != nil {
		return nil, err
	}
	return &placed{file, file.ModuleVirt}, nil
}

// placed are symbols of code whose offsets do not count from the start of a file. Where
// they know a line and no name, they leave the answer to the running kernel.
type placed struct {
	Symbols
	virt func(addr.Offset) (addr.Virt, bool)
}

func (p *placed) Virt(o addr.Offset) (addr.Virt, bool) { return p.virt(o) }

func (p *placed) LookupOffset(o addr.Offset) symbol.Result {
	v, ok := p.virt(o)
	if !ok {
		return symbol.Miss(reason.NoSymbol)
	}
	return p.LookupVirt(v).Named()
}

func (p *placed) LookupOffsets(offsets []addr.Offset) []symbol.Result {
	results := make([]symbol.Result, len(offsets))
	file, isFile := p.Symbols.(*symbol.File)
	var addresses []addr.Virt
	var asked []int // which have an address
	for i, o := range offsets {
		if v, ok := p.virt(o); ok && isFile {
			addresses, asked = append(addresses, v), append(asked, i)
			continue
		}
		results[i] = p.LookupOffset(o)
	}
	if isFile {
		for i, r := range file.LookupVirts(addresses) {
			results[asked[i]] = r.Named()
		}
	}
	return results
}
