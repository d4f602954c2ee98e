package bpf

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// Census counts what census.bpf.c sees.
type Census struct {
	Descriptors int // of processes: of those that share theirs, one counts
	// Open are the instances of struct file behind the descriptors, Mapped those behind
	// mappings, and All are both, each once.
	Open, Mapped, All int
	Inodes            int // behind all of them
	Spaces            int // address spaces
	Mappings          int // of files
	CodeMappings      int // those of them that are executable
	CodeInodes        int // behind these
}

// TakeCensus has the kernel go through the descriptors and the mappings of all tasks
// (Linux 5.12). An object that comes or goes meanwhile is counted or not; a number that the kernel
// gives to one thing after another within this time counts once.
func TakeCensus() (*Census, error) {
	c, err := takeCensus()
	if err != nil {
		return nil, fmt.Errorf("census by BPF: %w", err)
	}
	return c, nil
}

func takeCensus() (*Census, error) {
	spec, err := loadCensus()
	if err != nil {
		return nil, err
	}
	var programs censusPrograms
	if err := spec.LoadAndAssign(&programs, loadOptions(spec)); err != nil {
		return nil, err
	}
	defer programs.Close()
	open, mapped, inodes := set{}, set{}, set{}
	c := new(Census)
	err = eachRecord(programs.Descriptors, 2, func(r []uint64) {
		c.Descriptors++
		open.add(r[0])
		inodes.add(r[1])
	})
	if err != nil {
		return nil, err
	}
	type area struct{ mm, start uint64 }
	areas, spaces, code := map[area]bool{}, set{}, set{}
	err = eachRecord(programs.Mappings, 5, func(r []uint64) {
		mm, start, file, inode, executable := r[0], r[1], r[2], r[3], r[4] != 0
		spaces.add(mm)
		if at := (area{mm, start}); file == 0 || areas[at] {
			return
		} else {
			areas[at] = true
		}
		c.Mappings++
		mapped.add(file)
		inodes.add(inode)
		if executable {
			c.CodeMappings++
			code.add(inode)
		}
	})
	if err != nil {
		return nil, err
	}
	c.Open, c.Mapped, c.Inodes, c.Spaces, c.CodeInodes = len(open), len(mapped), len(inodes), len(spaces), len(code)
	for file := range open {
		mapped.add(file)
	}
	c.All = len(mapped)
	return c, nil
}

type set map[uint64]struct{}

func (s set) add(n uint64) { s[n] = struct{}{} }

// eachRecord calls f with each record, of so many words, that an iterator writes. The
// words are valid until f returns.
func eachRecord(p *ebpf.Program, words int, f func([]uint64)) error {
	l, err := link.AttachIter(link.IterOptions{Program: p})
	if err != nil {
		return err
	}
	defer l.Close()
	r, err := l.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	in := bufio.NewReaderSize(r, 1<<16)
	record, values := make([]byte, 8*words), make([]uint64, words)
	for {
		if _, err := io.ReadFull(in, record); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		for i := range values {
			values[i] = binary.NativeEndian.Uint64(record[8*i:])
		}
		f(values)
	}
}
