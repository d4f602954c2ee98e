package otlp

import (
	otlp "go.opentelemetry.io/proto/slim/otlp/profiles/v1development"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/profile"
	"hallmark/symbol"
)

// File is the code of a file in a message whose functions nobody has named.
type File struct {
	ID buildid.ID
	// Content is that of the file, zero where the message does not say it.
	Content   buildid.Content
	Addresses []Address
	// Mapped are the mappings of the file in the message.
	Mapped []symbol.Mapping
}

// Address is where an instruction is in a file: at a file offset, or at a virtual address.
type Address struct {
	At      uint64
	Virtual bool
}

// Named counts what Symbolize did.
type Named struct {
	Locations int  // that got names
	Bare      int  // that have an identity, and stay without
	Cut       bool // names are missing because the message would have grown too much
}

// Symbolize gives functions and lines, with inlined calls, to the locations that have none and whose
// file has an identity, and leaves all else as it is. lookup is called once for each file; it returns a
// result for each address, or none. The encoded message grows by no more than so many bytes.
//
// The kernel and its modules are left out, whose addresses do not count from the start of a file, and so are
// files whose only identity is an htlhash, which is no proof of a file, or a claim (profile.Claimants).
func (m *Message) Symbolize(most int64, lookup func(File) []symbol.Result) (n Named) {
	d := dictionary{m.in.GetDictionary()}
	names := newNames(d, most)
	for _, f := range bareFiles(d) {
		results := lookup(f.File)
		for i, l := range f.locations {
			if i >= len(results) || !names.give(l, results[i].Named().Frames) {
				n.Bare++
				continue
			}
			n.Locations++
		}
	}
	n.Cut = names.cut
	return n
}

// bareFile is a file with the locations of its addresses.
type bareFile struct {
	File
	locations []*otlp.Location
}

// maxMapped bounds the mappings of a file: it is in many processes.
const maxMapped = 1 << 10

// bareFiles returns the files of which locations have no names, in the order in which they are there.
func bareFiles(d dictionary) (files []*bareFile) {
	known := map[file]*bareFile{}
	ofMapping := make([]*bareFile, len(d.GetMappingTable()))
	for i, m := range d.GetMappingTable() {
		f := d.file(m)
		name := d.text(m.GetFilenameStrindex())
		isClaimed := profile.IsClaimedRange(m.GetMemoryStart(), m.GetMemoryLimit())
		if i == 0 || isClaimed || f.id.IsZero() || f.id.Kind() == buildid.HTL || isKernelName(name) {
			continue
		}
		if known[f] == nil {
			known[f] = &bareFile{File: File{ID: f.id, Content: f.content}}
			files = append(files, known[f])
		}
		ofMapping[i] = known[f]
		if mapped := &known[f].Mapped; len(*mapped) < maxMapped {
			start, limit := m.GetMemoryStart(), m.GetMemoryLimit()
			*mapped = append(*mapped, symbol.Mapping{Start: addr.Virt(start), Size: max(limit, start) - start, Offset: addr.Offset(m.GetFileOffset())})
		}
	}
	for _, l := range d.GetLocationTable() {
		if int(l.GetMappingIndex()) >= len(ofMapping) || len(l.GetLines()) > 0 {
			continue
		}
		f := ofMapping[l.GetMappingIndex()]
		if kind := d.frameType(l); f == nil || !isNative(kind) || kind == kernelFrame {
			continue
		}
		a, m := Address{l.GetAddress(), true}, d.MappingTable[l.GetMappingIndex()]
		if isWithin(m, a.At) {
			a = Address{a.At - m.GetMemoryStart() + m.GetFileOffset(), false}
		}
		f.Addresses = append(f.Addresses, a)
		f.locations = append(f.locations, l)
	}
	return files
}

// isKernelName reports whether the name of a mapping is that of the kernel or of a module: such are in
// brackets, as areas of a process without a file are.
func isKernelName(name string) bool { return len(name) > 0 && name[0] == '[' && name != "[vdso]" }

// names are the functions of a dictionary, each of which is there once.
type names struct {
	d         dictionary
	left      int64 // bytes by which the message may still grow
	cut       bool
	strings   map[string]int32
	functions map[functionKey]int32
}

type functionKey struct {
	name, system, file int32
	start              int64
}

func newNames(d dictionary, most int64) *names {
	n := &names{d: d, left: most, strings: map[string]int32{}, functions: map[functionKey]int32{}}
	for i, s := range d.GetStringTable() {
		if _, again := n.strings[s]; !again {
			n.strings[s] = int32(i)
		}
	}
	for i, f := range d.GetFunctionTable() {
		n.functions[functionKey{f.GetNameStrindex(), f.GetSystemNameStrindex(), f.GetFilenameStrindex(), f.GetStartLine()}] = int32(i)
	}
	return n
}

// Bytes of what is added, at most: tags, lengths, indices.
const (
	addedString   = 6
	addedFunction = 32
	addedLine     = 24
)

// give gives a location the functions of frames, innermost first. It reports false if there are none, or
// no room.
func (n *names) give(l *otlp.Location, frames []symbol.Frame) bool {
	if len(frames) == 0 {
		return false
	}
	need := int64(0)
	for _, f := range frames {
		need += addedLine + addedFunction + 3*addedString + int64(len(f.Func)+len(f.Linkage)+len(f.File))
	}
	if need > n.left {
		n.cut = true
		return false
	}
	for _, f := range frames {
		n.left -= addedLine
		l.Lines = append(l.Lines, &otlp.Line{FunctionIndex: n.function(f), Line: int64(f.Line), Column: int64(f.Column)})
	}
	return true
}

func (n *names) function(f symbol.Frame) int32 {
	k := functionKey{n.string(f.Func), n.string(f.Linkage), n.string(f.File), int64(f.Start)}
	i, ok := n.functions[k]
	if !ok {
		if len(n.d.FunctionTable) == 0 {
			n.d.FunctionTable = append(n.d.FunctionTable, &otlp.Function{})
		}
		i = int32(len(n.d.FunctionTable))
		n.d.FunctionTable = append(n.d.FunctionTable, &otlp.Function{NameStrindex: k.name, SystemNameStrindex: k.system, FilenameStrindex: k.file, StartLine: k.start})
		n.functions[k] = i
		n.left -= addedFunction
	}
	return i
}

func (n *names) string(s string) int32 {
	s = valid(s)
	i, ok := n.strings[s]
	if !ok {
		if len(n.d.StringTable) == 0 {
			n.d.StringTable = append(n.d.StringTable, "")
		}
		i = int32(len(n.d.StringTable))
		n.d.StringTable = append(n.d.StringTable, s)
		n.strings[s] = i
		n.left -= addedString + int64(len(s))
	}
	return i
}
