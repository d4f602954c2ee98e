// Compare records the corpus of hallmark/internal/unwindtest with perf, unwinds the copied
// stacks with package unwind, and prints how many frames and stacks are the same as
// perf's (libunwind) and elfutils'.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"regexp"

	"hallmark/internal/unwindtest"
)

type options struct {
	dir      string
	run      *regexp.Regexp
	record   unwindtest.Recording
	examples int
	ends     int
	each     int
	verbose  bool
	keep     bool
	elfutils bool
	file     string
	stack    string
}

func main() {
	log.SetFlags(0)
	var o options
	run := flag.String("run", ".", "programs of the corpus whose names match")
	flag.StringVar(&o.dir, "dir", "", "directory to build and record in, which is kept; a temporary one otherwise")
	flag.IntVar(&o.record.Milliseconds, "ms", 2000, "how long each program works")
	flag.IntVar(&o.record.Hz, "F", 999, "samples a second")
	flag.IntVar(&o.record.StackSize, "stack", 65528, "bytes of stack in a sample")
	flag.IntVar(&o.examples, "classes", 0, "classes of differences to show, for each program")
	flag.IntVar(&o.ends, "ends", 0, "classes of incomplete stacks to show, for each program")
	flag.IntVar(&o.each, "each", 0, "classes of differences from each of the two to show, for each program")
	flag.BoolVar(&o.verbose, "v", false, "show an example of each class")
	flag.BoolVar(&o.keep, "keep", false, "keep the recordings in -dir and use those that are there")
	flag.BoolVar(&o.elfutils, "elfutils", true, "ask elfutils as well")
	flag.StringVar(&o.file, "file", "", "compare in this recording of perf record --call-graph dwarf instead")
	flag.StringVar(&o.stack, "time", "", "show the stack at this time only (seconds.nanoseconds), with -file")
	flag.Parse()
	o.run = regexp.MustCompile(*run)
	if err := compare(context.Background(), o); err != nil {
		log.Fatal(err)
	}
}

func compare(ctx context.Context, o options) error {
	if o.dir == "" {
		dir, err := os.MkdirTemp("", "hallmark-unwind")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		o.dir = dir
	}
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return err
	}
	o.dir = dir
	if err := unwindtest.Unpack(o.dir); err != nil {
		return err
	}
	tables := &unwindtest.Tables{Warn: func(file string, err error) { fmt.Printf("%s: %v\n", file, err) }}
	var elfutils *unwindtest.Elfutils
	if o.elfutils {
		var err error
		if elfutils, err = unwindtest.NewElfutils(ctx, o.dir, tables); err != nil {
			return err
		}
	}
	w := witnesses{o, tables, elfutils}
	if o.file != "" {
		return w.file(ctx, o.file, o.file)
	}
	fmt.Println("| program | samples | frames | same as perf % | same as either % | stacks as perf % | as elfutils % | as either % | perf as elfutils % | ours complete % | frames a stack, ours / perf |")
	fmt.Println("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
	for _, p := range unwindtest.Corpus() {
		if !o.run.MatchString(p.Name) {
			continue
		}
		if err := w.program(ctx, &p); err != nil {
			fmt.Printf("| %s | %v |\n", p.Name, err)
		}
	}
	return nil
}

type witnesses struct {
	options
	tables   *unwindtest.Tables
	elfutils *unwindtest.Elfutils
}

func (w *witnesses) program(ctx context.Context, p *unwindtest.Program) error {
	if tool := p.Missing(); tool != "" {
		return fmt.Errorf("needs %s", tool)
	}
	file := filepath.Join(w.dir, p.Name+".data")
	if _, err := os.Stat(file); err != nil || !w.keep {
		if err := p.Make(ctx, w.dir); err != nil {
			return err
		}
		if file, err = p.Record(ctx, w.dir, w.record); err != nil {
			return err
		}
	}
	if !w.keep {
		defer os.Remove(file)
	}
	return w.file(ctx, p.Name, file)
}

func (w *witnesses) file(ctx context.Context, name, file string) error {
	samples, err := unwindtest.Samples(file)
	if err != nil {
		return err
	}
	told, err := unwindtest.Script(ctx, file)
	if err != nil {
		return err
	}
	cases := unwindtest.Cases(samples, w.tables, told)
	if w.elfutils != nil {
		if err := w.elfutils.Ask(ctx, cases); err != nil {
			return err
		}
	}
	if w.stack != "" {
		show(cases, w.stack)
		return nil
	}
	w.report(name, unwindtest.Summarize(cases, w.elfutils != nil))
	return nil
}

func show(cases []unwindtest.Case, at string) {
	for i := range cases {
		if c := &cases[i]; fmt.Sprintf("%d.%09d", c.Time/1e9, c.Time%1e9) == at {
			fmt.Print(c)
		}
	}
}

func percent(n, of int) float64 { return 100 * float64(n) / float64(max(of, 1)) }

func (w *witnesses) report(name string, s unwindtest.Summary) {
	fmt.Printf("| %s | %d | %d | %.3f | %.3f | %.2f | %.2f | %.2f | %.2f | %.2f | %.1f / %.1f |\n", name, s.Samples, s.Frames, percent(s.SamePerf, s.Frames),
		percent(s.SameOne, s.FramesOne), percent(s.EqualPerf, s.Samples), percent(s.EqualElfutils, s.Samples), percent(s.EqualOne, s.Samples), percent(s.Agree, s.Samples), percent(s.Complete, s.Samples),
		float64(s.OurFrames)/float64(max(s.Samples, 1)), float64(s.PerfFrames)/float64(max(s.Samples, 1)))
	w.classes("differ from both witnesses", s.Alone, w.examples)
	w.classes("differ from perf", s.WithPerf, w.each)
	w.classes("differ from elfutils", s.WithElfutils, w.each)
	w.classes("end incomplete", s.Ends, w.ends)
}

// classes shows the most frequent of them.
func (w *witnesses) classes(what string, list []unwindtest.Count, n int) {
	for _, c := range list[:min(n, len(list))] {
		fmt.Printf("%d %s: %s at %s\n", c.N, what, c.How, c.File)
		if w.verbose {
			fmt.Print(c.Example)
		}
	}
}
