package unwindtest

import (
	"bufio"
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"hallmark/addr"
	"hallmark/unwind"
)

// Elfutils asks libdw for stacks. It needs a C compiler and libdw's headers.
type Elfutils struct {
	dir    string
	tables *Tables
	biases map[string]*elf.File
}

// NewElfutils builds the program that asks, in a directory that Unpack filled.
func NewElfutils(ctx context.Context, dir string, tables *Tables) (*Elfutils, error) {
	cmd := exec.CommandContext(ctx, "gcc", "-O2", "-o", "witness", "witness.c", "-ldw")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	vdso, err := tables.VDSO()
	if err != nil {
		return nil, err
	}
	return &Elfutils{dir, tables, map[string]*elf.File{}}, os.WriteFile(filepath.Join(dir, "vdso.so"), vdso, 0o644)
}

// Stacks returns the address of every frame of the samples: of the instruction that was
// executed or of the last byte of the call.
func (e *Elfutils) Stacks(ctx context.Context, samples []Sample) ([][]addr.Abs, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(e.dir, "witness"))
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	err = e.send(in, samples)
	if wait := cmd.Wait(); wait != nil {
		return nil, fmt.Errorf("witness: %w\n%s", wait, stderr.Bytes())
	}
	if err != nil {
		return nil, err
	}
	return parseStacks(&out, len(samples))
}

func parseStacks(r io.Reader, n int) ([][]addr.Abs, error) {
	var stacks [][]addr.Abs
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<22)
	for lines.Scan() {
		var stack []addr.Abs
		for _, word := range strings.Fields(lines.Text()) {
			digits, exact := strings.CutSuffix(word, "!")
			pc, err := strconv.ParseUint(digits, 16, 64)
			if err != nil {
				return nil, err
			}
			if !exact {
				pc--
			}
			stack = append(stack, addr.Abs(pc))
		}
		stacks = append(stacks, stack)
	}
	if len(stacks) != n {
		return nil, fmt.Errorf("witness: %d stacks of %d", len(stacks), n)
	}
	return stacks, lines.Err()
}

// send writes what testdata/witness.c reads, and closes w.
func (e *Elfutils) send(w io.WriteCloser, samples []Sample) error {
	defer w.Close()
	b := bufio.NewWriterSize(w, 1<<20)
	var last *Maps
	for i := range samples {
		s := &samples[i]
		if s.Maps != last {
			e.sendMaps(b, s.Maps)
			last = s.Maps
		}
		b.WriteByte('S')
		for n := range 16 {
			v, _ := s.Registers.Get(unwind.Register(n))
			put(b, v)
		}
		put(b, uint64(s.IP))
		put(b, uint64(len(s.Stack.Bytes)))
		if _, err := b.Write(s.Stack.Bytes); err != nil {
			return err
		}
	}
	return b.Flush()
}

func put(b *bufio.Writer, v uint64) {
	var word [8]byte
	binary.NativeEndian.PutUint64(word[:], v)
	b.Write(word[:])
}

// sendMaps writes where each file lies, once each.
func (e *Elfutils) sendMaps(b *bufio.Writer, maps *Maps) {
	type module struct {
		bias uint64
		path string
	}
	seen := map[module]bool{}
	var list []module
	for i := range maps.list {
		m := &maps.list[i]
		if bias, path, ok := e.module(m); ok && m.Code && !seen[module{bias, path}] {
			seen[module{bias, path}] = true
			list = append(list, module{bias, path})
		}
	}
	b.WriteByte('M')
	put(b, uint64(len(list)))
	for _, m := range list {
		put(b, m.bias)
		put(b, uint64(len(m.path)))
		b.WriteString(m.path)
	}
}

// module returns how far the file of a mapping lies from its own addresses.
func (e *Elfutils) module(m *Map) (bias uint64, path string, ok bool) {
	path = m.Name
	if path == "[vdso]" {
		path = filepath.Join(e.dir, "vdso.so")
	} else if m.Generated() {
		return 0, "", false
	}
	f, seen := e.biases[path]
	if !seen {
		f, _ = elf.Open(path)
		e.biases[path] = f
	}
	if f == nil {
		return 0, "", false
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && uint64(m.Offset) < p.Off+p.Filesz && uint64(m.End-m.Start)+uint64(m.Offset) > p.Off {
			return uint64(m.Start) - uint64(m.Offset) + p.Off - p.Vaddr, path, true
		}
	}
	return 0, "", false
}

// Ask adds what elfutils says to cases.
func (e *Elfutils) Ask(ctx context.Context, cases []Case) error {
	samples := make([]Sample, len(cases))
	for i := range cases {
		samples[i] = *cases[i].Sample
	}
	stacks, err := e.Stacks(ctx, samples)
	for i := range stacks {
		cases[i].Elfutils = stacks[i]
	}
	return err
}
