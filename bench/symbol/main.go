// Command symbol shows whether Hallmark's symbols are right, and how fast they are,
// beside those of other programs and libraries on the same files in the same run.
//
//	symbol/fetch.sh && symbol/peers.sh    # once: the files, and who they are compared with
//	go run ./symbol                       # all tables
//	go run ./symbol -agree                # does everybody say the same of random addresses?
//	go run ./symbol -build -lookup        # how long it takes to prepare an index, to ask it …
//	go run ./symbol -command -direct      # … a million times by a command, or without one
//
// Other libraries take part by -peer and -indexer, as programs like those that
// peers.sh builds.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"hallmark/bench/internal/trial"
)

// options are what the flags say.
type options struct {
	dir       string
	inputs    string
	addresses int
	rounds    int
	seed      uint64
	json      string
	peers     named
	indexers  named
}

// named is a flag that may be given several times: name=program.
type named map[string]string

func (n named) String() string { return "" }

func (n named) Set(s string) error {
	name, program, ok := strings.Cut(s, "=")
	if !ok {
		return fmt.Errorf("%q is not NAME=PROGRAM", s)
	}
	n[name] = program
	return nil
}

// A part is one of the tables.
type part struct {
	name, usage string
	run         func(*bench) error
	chosen      bool
}

func main() {
	log.SetFlags(0)
	if len(os.Args) > 2 && os.Args[1] == measuredArg {
		if err := printMeasured(os.Args[2:]); err != nil {
			log.Fatal(err)
		}
		return
	}
	opt := options{peers: named{}, indexers: named{}}
	parts := []*part{
		{name: "agree", usage: "compare answers to random addresses", run: agreement},
		{name: "build", usage: "measure building indexes", run: builds},
		{name: "lookup", usage: "measure lookups in a process", run: lookups},
		{name: "command", usage: "measure a million addresses through a command", run: commands},
		{name: "direct", usage: "measure answers without an index", run: direct},
	}
	for _, p := range parts {
		flag.BoolVar(&p.chosen, p.name, false, p.usage)
	}
	flag.StringVar(&opt.dir, "dir", defaultDir(), "where fetch.sh put the files")
	flag.StringVar(&opt.inputs, "inputs", "libc,vmlinux,prometheus,ceph", "which of them")
	flag.IntVar(&opt.addresses, "addresses", 100_000, "how many addresses are asked for in each file")
	rounds := trial.Rounds("rounds", 3, "how often everything is measured; what takes long two times less")
	flag.Uint64Var(&opt.seed, "seed", 1, "start of the random numbers")
	flag.StringVar(&opt.json, "json", "", "also write the tables to this `file`")
	flag.Var(opt.peers, "peer", "`NAME=PROGRAM` that answers as peers/addr2line/src/main.rs does; may be repeated")
	flag.Var(opt.indexers, "indexer", "`NAME=PROGRAM` that answers so from an index, which PROGRAM -index OUT FILE makes; may be repeated")
	flag.Parse()
	opt.rounds = *rounds
	if err := run(&opt, parts); err != nil {
		log.Fatal(err)
	}
}

func defaultDir() string {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "."
	}
	return filepath.Join(cache, "hallmark", "bench", "symbol")
}

// bench is what all parts need.
type bench struct {
	options
	hallmark string // the program
	work     string // a directory for what they write
	inputs   []*input
	report   *report
	missing  map[string]bool // peers that are not there, and were reported so
}

func run(opt *options, parts []*part) error {
	work, err := os.MkdirTemp("", "bench-symbol")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	b := &bench{options: *opt, hallmark: filepath.Join(work, "hallmark"), work: work, report: &report{}, missing: map[string]bool{}}
	build := exec.Command("go", "build", "-C", "..", "-o", b.hallmark, "./cmd/hallmark")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	for name := range strings.SplitSeq(opt.inputs, ",") {
		in, err := openInput(opt, name)
		if err != nil {
			return err
		}
		b.inputs = append(b.inputs, in)
	}
	all := !slices.ContainsFunc(parts, func(p *part) bool { return p.chosen })
	for _, p := range parts {
		if !all && !p.chosen {
			continue
		}
		if err := p.run(b); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		b.report.print()
	}
	if opt.json == "" {
		return nil
	}
	return b.report.write(opt.json)
}
