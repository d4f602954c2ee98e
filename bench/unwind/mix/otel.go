package main

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/binary"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// receiver takes what the OpenTelemetry profiler sends (OTLP, gRPC without encryption) and
// puts the messages one behind the other into a file: 4 bytes of length, message.
type receiver struct {
	address string
	mu      sync.Mutex
	out     *os.File
}

func newReceiver() (*receiver, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &receiver{address: l.Addr().String()}
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{Handler: r, Protocols: protocols}
	go func() { _ = s.Serve(l) }()
	return r, nil
}

// to says which file messages go to from now on.
func (r *receiver) to(file string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.out != nil {
		r.out.Close()
	}
	var err error
	r.out, err = os.Create(file)
	return err
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err == nil && len(body) >= 5 {
		message := body[5:]
		if body[0] == 1 {
			message = gunzip(message)
		}
		r.mu.Lock()
		if r.out != nil {
			_, _ = r.out.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(message))))
			_, _ = r.out.Write(message)
		}
		r.mu.Unlock()
	}
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Trailer", "Grpc-Status")
	_, _ = w.Write(make([]byte, 5))
	w.Header().Set("Grpc-Status", "0")
}

func gunzip(b []byte) []byte {
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil
	}
	out, _ := io.ReadAll(z)
	return out
}

// readOTLP reads what a receiver wrote: ExportProfilesServiceRequest of
// opentelemetry/proto/collector/profiles/v1development.
func readOTLP(file string) ([]stack, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var list []stack
	for len(b) >= 4 {
		n := binary.LittleEndian.Uint32(b)
		list = append(list, requestStacks(b[4:4+n])...)
		b = b[4+n:]
	}
	return list, nil
}

// dictionary is ProfilesDictionary, its tables still encoded.
type dictionary struct {
	mappings, locations, functions, stacks, attributes [][]byte
	strings                                            []string
}

func requestStacks(b []byte) []stack {
	var d dictionary
	var resources [][]byte
	each(b, func(field int, _ uint64, data []byte) {
		switch field {
		case 1:
			resources = append(resources, data)
		case 2:
			d.read(data)
		}
	})
	var list []stack
	for _, r := range resources {
		list = append(list, d.resource(r)...)
	}
	return list
}

func (d *dictionary) read(b []byte) {
	each(b, func(field int, _ uint64, data []byte) {
		switch field {
		case 1:
			d.mappings = append(d.mappings, data)
		case 2:
			d.locations = append(d.locations, data)
		case 3:
			d.functions = append(d.functions, data)
		case 5:
			d.strings = append(d.strings, string(data))
		case 6:
			d.attributes = append(d.attributes, data)
		case 7:
			d.stacks = append(d.stacks, data)
		}
	})
}

// resource reads ResourceProfiles: those of a process.
func (d *dictionary) resource(b []byte) []stack {
	pid := 0
	var list []stack
	each(b, func(field int, _ uint64, data []byte) {
		switch field {
		case 1:
			each(data, func(field int, _ uint64, attribute []byte) {
				if field == 1 && bytes.Contains(attribute, []byte("process.pid")) {
					pid = int(number(sub(attribute, 2), 3))
				}
			})
		case 2:
			each(data, func(field int, _ uint64, p []byte) {
				if field == 2 {
					list = append(list, d.profile(p)...)
				}
			})
		}
	})
	for i := range list {
		list[i].pid = pid
	}
	return list
}

// profile reads Profile. Each time in a sample is of one sample.
func (d *dictionary) profile(b []byte) []stack {
	var list []stack
	each(b, func(field int, _ uint64, data []byte) {
		if field != 2 {
			return
		}
		s := stack{count: max(len(sub(data, 5))/8, 1)}
		if at := number(data, 1); at < uint64(len(d.stacks)) {
			for _, l := range packed(sub(d.stacks[at], 1)) {
				d.location(&s, l)
			}
		}
		if s.depth > 0 {
			list = append(list, s)
		}
	})
	return list
}

// location makes a location that is no kernel code the outermost frame of a stack.
func (d *dictionary) location(s *stack, at uint64) {
	if at >= uint64(len(d.locations)) {
		return
	}
	l := d.locations[at]
	for _, a := range packed(sub(l, 4)) {
		if a >= uint64(len(d.attributes)) {
			continue
		}
		switch kind := string(sub(sub(d.attributes[a], 2), 1)); kind {
		case "kernel":
			return
		case "abort-marker":
			s.end = "aborted"
			return
		}
	}
	s.depth++
	s.file, s.symbol = "", ""
	if m := number(l, 1); m < uint64(len(d.mappings)) {
		s.file = pathOf(d.text(number(d.mappings[m], 4)))
	}
	s.offset = fileOffset(s.file, number(l, 2))
	if line := sub(l, 3); line != nil {
		if f := number(line, 1); f < uint64(len(d.functions)) {
			s.symbol = d.text(number(d.functions[f], 1))
		}
	} else {
		s.symbol = symbolOf(s.file, number(l, 2))
	}
}

func (d *dictionary) text(i uint64) string {
	if i < uint64(len(d.strings)) {
		return d.strings[i]
	}
	return ""
}

// each calls f for each field of an encoded message, with its number or its bytes.
func each(b []byte, f func(field int, value uint64, data []byte)) {
	for len(b) > 0 {
		key, n := binary.Uvarint(b)
		if n <= 0 {
			return
		}
		b = b[n:]
		var size uint64
		switch key & 7 {
		case 0:
			v, n := binary.Uvarint(b)
			if n <= 0 {
				return
			}
			f(int(key>>3), v, nil)
			b = b[n:]
			continue
		case 1:
			size = 8
		case 5:
			size = 4
		case 2:
			if size, n = binary.Uvarint(b); n <= 0 {
				return
			}
			b = b[n:]
		}
		if size > uint64(len(b)) {
			return
		}
		f(int(key>>3), 0, b[:size])
		b = b[size:]
	}
}

// sub returns the bytes of a message's field.
func sub(b []byte, want int) (out []byte) {
	each(b, func(field int, _ uint64, data []byte) {
		if field == want && out == nil {
			out = data
		}
	})
	return out
}

// number returns the value of a message's field, 0 when it has none.
func number(b []byte, want int) (out uint64) {
	each(b, func(field int, v uint64, _ []byte) {
		if field == want {
			out = v
		}
	})
	return out
}

func packed(b []byte) (list []uint64) {
	for len(b) > 0 {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			break
		}
		list = append(list, v)
		b = b[n:]
	}
	return list
}

// places are where the programs of the load are.
var places = []string{"/usr/bin", "/usr/lib/x86_64-linux-gnu", "/usr/libexec", "/usr/lib/gcc", "/usr/local/go/bin", "/usr/local/go/pkg/tool"}

var paths map[string]string

// pathOf finds a file by its name, which is all that the profiler has.
func pathOf(name string) string {
	if paths == nil {
		paths = map[string]string{}
		for _, dir := range places {
			_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
				if err == nil && !e.IsDir() {
					paths[e.Name()] = path
				}
				return nil
			})
		}
	}
	if p, ok := paths[filepath.Base(name)]; ok && !strings.HasPrefix(name, "/") {
		return p
	}
	return name
}

// image is what symbolOf and fileOffset know of a file.
type image struct {
	progs   []*elf.Prog
	entries []elf.Symbol
}

var images = map[string]*image{}

func imageOf(file string) *image {
	if i, ok := images[file]; ok {
		return i
	}
	i := &image{}
	images[file] = i
	f, err := elf.Open(file)
	if err != nil {
		return i
	}
	i.progs = f.Progs
	i.addEntries(f)
	if n := f.Section(".note.gnu.build-id"); n != nil {
		if id, err := n.Data(); err == nil && len(id) > 17 {
			if d, err := elf.Open(debugFile(id[16:])); err == nil {
				i.addEntries(d)
			}
		}
	}
	return i
}

func (i *image) addEntries(f *elf.File) {
	symbols, _ := f.Symbols()
	for _, s := range symbols {
		if entries.MatchString(s.Name) {
			i.entries = append(i.entries, s)
		}
	}
}

// debugFile is where Debian has the symbols of a file.
func debugFile(id []byte) string {
	const digits = "0123456789abcdef"
	var b strings.Builder
	for _, c := range id {
		b.WriteByte(digits[c>>4])
		b.WriteByte(digits[c&15])
	}
	return "/usr/lib/debug/.build-id/" + b.String()[:2] + "/" + b.String()[2:] + ".debug"
}

// symbolOf returns the name of an entry that an address of the file lies in, or "".
func symbolOf(file string, virt uint64) string {
	for _, s := range imageOf(file).entries {
		if virt >= s.Value && virt < s.Value+s.Size {
			return s.Name
		}
	}
	return ""
}

func fileOffset(file string, virt uint64) uint64 {
	for _, p := range imageOf(file).progs {
		if p.Type == elf.PT_LOAD && virt >= p.Vaddr && virt < p.Vaddr+p.Filesz {
			return virt - p.Vaddr + p.Off
		}
	}
	return 0
}
