package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// builds measures how long an index takes, of uncompressed debug information with one
// thread and with two, and of files as they are shipped.
func builds(b *bench) error {
	t := b.report.table("Building an index: we take of what the other takes",
		"input", "", "wall s", "CPU s", "peak MiB", "size MB", "wall, ours ÷ theirs", "CPU", "peak", "size")
	for _, in := range b.inputs {
		for _, threads := range []int{1, 2} {
			if err := b.build(t, in.name, in.raw, threads); err != nil {
				return err
			}
		}
		if in.compressed {
			if err := b.build(t, in.name+", compressed", in.shipped, 2); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *bench) build(t *table, name, file string, threads int) error {
	contenders := b.builders(file, threads)
	if err := measure(contenders, b.rounds); err != nil {
		return err
	}
	first := contenders[0]
	for _, c := range contenders {
		size, peak := fileSize(c.writes), c.peak()
		row := []any{
			fmt.Sprintf("%s, %d threads", name, threads), c.name, seconds(c.middle(wall)), seconds(c.middle(cpu)),
			peak >> 20, fmt.Sprintf("%.2f", float64(size)/1e6), "", "", "", "",
		}
		if c != first {
			copy(row[6:], []any{
				versus(first, c, wall), versus(first, c, cpu),
				quotient(first.peak(), peak), quotient(fileSize(first.writes), size),
			})
		}
		t.row(row...)
	}
	return nil
}

// builders returns who can make an index of a file, us first.
func (b *bench) builders(file string, threads int) []*contender {
	var contenders []*contender
	add := func(name string, args func(out, file string) []string) {
		out := filepath.Join(b.work, "built."+name)
		c := task{args: args(out, file)}.contender(name)
		c.writes = out
		contenders = append(contenders, c)
	}
	add("hallmark index", func(out, file string) []string {
		return []string{b.hallmark, "index", fmt.Sprintf("--threads=%d", threads), "-o", out, file}
	})
	add("llvm-gsymutil", func(out, file string) []string { return gsymutil(threads, out, file) })
	for _, p := range b.indexPeers() {
		if p.name != gsym {
			add(p.name, p.index)
		}
	}
	return contenders
}

func fileSize(name string) int64 {
	info, err := os.Stat(name)
	if err != nil {
		return 0
	}
	return info.Size()
}
