package dwarftest

import (
	"bytes"
	"maps"
	"slices"
	"testing"
)

// TestSame generates programs twice.
func TestSame(t *testing.T) {
	for seed := range uint64(50) {
		p, q := Generate(seed), Generate(seed)
		if !maps.EqualFunc(p.Files, q.Files, bytes.Equal) || !slices.Equal(p.Traits, q.Traits) || len(p.Answers) != len(q.Answers) {
			t.Errorf("seed %d gives another program each time", seed)
		}
	}
}

// TestTraits wants some hundred programs to have what only few of them have.
func TestTraits(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(400) {
		for _, trait := range Generate(seed).Traits {
			seen[trait]++
		}
	}
	for _, trait := range []string{
		"version 2", "version 3", "version 4", "version 5", "64-bit DWARF", "zlib", "zstd", "zdebug", "package", "split 4", "split 5",
		"form 0x1", "form 0x3", "form 0x4", "form 0x5", "form 0x6", "form 0x7", "form 0x8", "form 0x9", "form 0xa", "form 0xb", "form 0xc",
		"form 0xd", "form 0xe", "form 0xf", "form 0x10", "form 0x11", "form 0x12", "form 0x13", "form 0x14", "form 0x15", "form 0x16",
		"form 0x17", "form 0x18", "form 0x19", "form 0x1a", "form 0x1b", "form 0x1c", "form 0x1d", "form 0x1e", "form 0x1f", "form 0x20",
		"form 0x21", "form 0x22", "form 0x23", "form 0x24", "form 0x25", "form 0x26", "form 0x27", "form 0x28", "form 0x29", "form 0x2a",
		"form 0x2b", "form 0x2c", "form 0x1f01", "form 0x1f02", "form 0x1f20", "form 0x1f21",
		"path 0x8", "path 0xe", "path 0x1f", "path 0x1d", "more parts", "define_file", "max_ops", "const_add_pc", "fixed_advance_pc",
		"unknown opcodes", "unknown extended opcode", "discriminator", "base selection", "rnglistx", "type unit 4", "type unit 5", "partial unit",
		"supplementary strings", "supplementary entries", "ref_addr", "sibling", "huge codes", "shared abbreviations", "nested function",
		"lexical block", "empty unit", "unit without addresses", "aranges", "code known by its symbol", "implicit_const", "indirect", "high_pc as a length",
	} {
		if seen[trait] == 0 {
			t.Errorf("no program has %q", trait)
		}
	}
}
