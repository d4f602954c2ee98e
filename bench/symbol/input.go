package main

import (
	"bufio"
	"cmp"
	"debug/elf"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sort"
)

// An input is a file with debug information, as it is shipped and uncompressed.
type input struct {
	name          string
	shipped, raw  string
	compressed    bool     // as it is shipped
	uniform       []uint64 // virtual addresses, all equally probable
	profile       []uint64 // some often, most seldom, as profiles have them
	sortedUniform []uint64
}

func openInput(opt *options, name string) (*input, error) {
	in := &input{
		name:    name,
		shipped: filepath.Join(opt.dir, name),
		raw:     filepath.Join(opt.dir, name+".raw"),
	}
	var err error
	if in.compressed, err = isCompressed(in.shipped); err != nil {
		return nil, fmt.Errorf("%w: symbol/fetch.sh gets the files", err)
	}
	text, err := readText(in.raw)
	if err != nil {
		return nil, err
	}
	r := rand.New(rand.NewPCG(opt.seed, 0))
	in.uniform = uniform(r, text, opt.addresses)
	in.profile = profile(r, text, opt.addresses)
	in.sortedUniform = slices.Sorted(slices.Values(in.uniform))
	return in, nil
}

// isCompressed says whether a file has compressed debug information.
func isCompressed(name string) (bool, error) {
	f, err := elf.Open(name)
	if err != nil {
		return false, err
	}
	defer f.Close()
	return slices.ContainsFunc(f.Sections, func(s *elf.Section) bool { return s.Flags&elf.SHF_COMPRESSED != 0 }), nil
}

// A span is the addresses from start up to end.
type span struct{ start, end uint64 }

// readText returns the code of the functions of a file: all that a symbol covers in
// an executable section. The bytes between them are padding.
func readText(name string) ([]span, error) {
	f, err := elf.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var text []span
	for _, s := range symbols {
		if s.Size > 0 && isCode(f, s) {
			text = append(text, span{s.Value, s.Value + s.Size})
		}
	}
	if len(text) == 0 {
		return nil, fmt.Errorf("%s: no code", name)
	}
	return union(text), nil
}

func isCode(f *elf.File, s elf.Symbol) bool {
	if int(s.Section) >= len(f.Sections) || f.Sections[s.Section].Flags&elf.SHF_EXECINSTR == 0 {
		return false
	}
	switch elf.ST_TYPE(s.Info) {
	case elf.STT_FUNC, elf.STT_GNU_IFUNC, elf.STT_NOTYPE:
		return true
	}
	return false
}

// union returns what spans cover, in order and each address once.
func union(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	var all []span
	for _, s := range spans {
		if n := len(all); n > 0 && s.start <= all[n-1].end {
			all[n-1].end = max(all[n-1].end, s.end)
		} else {
			all = append(all, s)
		}
	}
	return all
}

// uniform returns n addresses in text, each as probable as every other.
func uniform(r *rand.Rand, text []span, n int) []uint64 {
	ends := make([]uint64, len(text)) // of the spans put one behind the other
	var size uint64
	for i, s := range text {
		size += s.end - s.start
		ends[i] = size
	}
	addresses := make([]uint64, n)
	for i := range addresses {
		at := r.Uint64N(size)
		s := sort.Search(len(ends), func(i int) bool { return ends[i] > at })
		addresses[i] = text[s].end - (ends[s] - at)
	}
	return addresses
}

// profile returns n addresses out of 50,000, which are the more seldom the later they
// come (Zipf, 1.1): the distribution that samples of busy programs have.
func profile(r *rand.Rand, text []span, n int) []uint64 {
	sites := uniform(r, text, 50_000)
	zipf := rand.NewZipf(r, 1.1, 4, uint64(len(sites)-1))
	addresses := make([]uint64, n)
	for i := range addresses {
		addresses[i] = sites[zipf.Uint64()]
	}
	return addresses
}

// writeAddresses writes addresses as all programs here read them.
func writeAddresses(name string, addresses []uint64) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	w := bufio.NewWriter(f)
	for _, a := range addresses {
		fmt.Fprintf(w, "%#x\n", a)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Close()
}
