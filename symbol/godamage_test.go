package symbol

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"hallmark/internal/pclntab"
	"hallmark/reason"
)

// damaged returns the program with Go's newest tables, damaged.
func damaged(damage func(*goParts)) *bytes.Reader {
	p := goProgram{magic: pclntab.Go120, ptr: 8, order: binary.LittleEndian, damage: damage}
	return bytes.NewReader(p.build())
}

// at returns 8 bytes of the pclntab from the nth table of the header on.
func (p *goParts) at(table int, off uint64) []byte {
	start := binary.LittleEndian.Uint64(p.pclntab[8+8*table:])
	return p.pclntab[start+off:]
}

// Tables of the header.
const namesTable, pcsTable, functabTable = 3, 6, 7

func put32(b []byte, n uint32) { binary.LittleEndian.PutUint32(b, n) }
func put64(b []byte, n uint64) { binary.LittleEndian.PutUint64(b, n) }

func TestDamagedPclntab(t *testing.T) {
	for name, damage := range map[string]func(*goParts){
		"empty":                  func(p *goParts) { p.pclntab = p.pclntab[:4] },
		"magic":                  func(p *goParts) { p.pclntab[0]++ },
		"pointer size":           func(p *goParts) { p.pclntab[7] = 2 },
		"quantum":                func(p *goParts) { p.pclntab[6] = 0 },
		"padding":                func(p *goParts) { p.pclntab[4] = 1 },
		"no functions":           func(p *goParts) { put64(p.pclntab[8:], 0); p.moduledata[pclntab.MDFunctabN] = 1 },
		"too many functions":     func(p *goParts) { put64(p.pclntab[8:], 1<<60); p.moduledata[pclntab.MDFunctabN] = 1<<60 + 1 },
		"tables out of order":    func(p *goParts) { put64(p.pclntab[8+8*namesTable:], 1<<40) },
		"table beyond the end":   func(p *goParts) { put64(p.pclntab[8+8*functabTable:], 1<<20) },
		"functions out of order": func(p *goParts) { put32(p.at(functabTable, 8), 0x61) },
		"record beyond the end":  func(p *goParts) { put32(p.at(functabTable, 4), 1<<30) },
		"record cut off":         func(p *goParts) { p.pclntab = p.pclntab[:len(p.pclntab)-8] },
		"name within a name":     func(p *goParts) { put32(p.at(functabTable, 24+4), 3) },
		"name beyond the end":    func(p *goParts) { put32(p.at(functabTable, 24+4), 1<<20) },
		"no moduledata":          func(p *goParts) { p.moduledata[pclntab.MDPCHeader]++ },
		"moduledata cut off":     func(p *goParts) { p.moduledata = p.moduledata[:pclntab.MDWords-1] },
		"other names":            func(p *goParts) { p.moduledata[pclntab.MDNames]++ },
		"other units":            func(p *goParts) { p.moduledata[pclntab.MDCUs]++ },
		"other files":            func(p *goParts) { p.moduledata[pclntab.MDFiles]++ },
		"other values":           func(p *goParts) { p.moduledata[pclntab.MDPCs]++ },
		"other records":          func(p *goParts) { p.moduledata[pclntab.MDRecords]++ },
		"other functab":          func(p *goParts) { p.moduledata[pclntab.MDFunctab]++ },
		"number of functions":    func(p *goParts) { p.moduledata[pclntab.MDFunctabN]++ },
		"first address":          func(p *goParts) { p.moduledata[pclntab.MDMinPC]++ },
		"last address":           func(p *goParts) { p.moduledata[pclntab.MDMaxPC]++ },
		"text":                   func(p *goParts) { p.moduledata[pclntab.MDText]++ },
		"end of text":            func(p *goParts) { p.moduledata[pclntab.MDEtext] = goText },
		"text elsewhere": func(p *goParts) {
			p.moduledata[pclntab.MDText], p.moduledata[pclntab.MDMinPC], p.moduledata[pclntab.MDMaxPC], p.moduledata[pclntab.MDEtext] = goRodata, goRodata, goRodata+0x60, goRodata+0x60
		},
	} {
		f, err := NewFile(damaged(damage), "built")
		if err != nil {
			t.Fatal(err)
		}
		var malformed *FormatError
		if err := f.Load(); !errors.As(err, &malformed) {
			t.Errorf("%s: %v", name, err)
		}
		if got := f.LookupVirt(goText); got.Reason != reason.BadSymbols || got.Frames != nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestDamagedInlineTrees: where a tree is not what it should be there are no
// inlined calls, and the rest is as it was.
func TestDamagedInlineTrees(t *testing.T) {
	const tree, call = 8, 16 // where it starts, and the bytes of a call
	for name, damage := range map[string]func(*goParts){
		"not known where":            func(p *goParts) { p.moduledata[pclntab.MDGofunc120] = 0 },
		"elsewhere":                  func(p *goParts) { p.moduledata[pclntab.MDGofunc120] += 4 },
		"beyond the section":         func(p *goParts) { p.moduledata[pclntab.MDGofunc120] += 0x1000 },
		"name within a name":         func(p *goParts) { put32(p.rodata[tree+4:], 3) },
		"name beyond the end":        func(p *goParts) { put32(p.rodata[tree+4:], 1<<20) },
		"call site elsewhere":        func(p *goParts) { put32(p.rodata[tree+8:], 0x40) },
		"padding":                    func(p *goParts) { p.rodata[tree+3] = 1 },
		"second call has no name":    func(p *goParts) { put32(p.rodata[tree+call+4:], nameInner-1) },
		"second call inlines itself": func(p *goParts) { put32(p.rodata[tree+call+8:], 0x18) },
		"cut off":                    func(p *goParts) { p.rodata = p.rodata[:tree+call+4] },
	} {
		f, err := NewFile(damaged(damage), "built")
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Load(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		t.Run(name, func(t *testing.T) {
			checkFrames(t, f, 0x18, "main.outer b.go:31")
			checkFrames(t, f, 0x30, "main.outer a.go:13")
			checkFrames(t, f, 0x40, "main.leaf a.go:41")
		})
	}
}

// TestDamagedLines: a table of lines that breaks off ends the function there.
func TestDamagedLines(t *testing.T) {
	f, err := NewFile(damaged(func(p *goParts) {
		pcs := p.at(pcsTable, 0)
		for i := 1; i < 20; i++ {
			pcs[i] |= 0x80 // numbers without an end
		}
	}), "built")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Load(); err != nil {
		t.Error(err)
	}
	checkFrames(t, f, 0x18)
}
