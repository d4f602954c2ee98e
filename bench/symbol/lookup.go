package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"hallmark/addr"
	"hallmark/symbol"
)

// passes is how often a program goes through its list; the fastest counts, the others
// were disturbed by something else, or had to load what they keep.
const passes = 3

// lookups measures answers inside of a process: function, file and line of every frame.
func lookups(b *bench) error {
	t := b.report.table("Lookups in a process, of the whole chain of inlined calls: we take of what the other takes",
		"input", "addresses", "", "ns a lookup", "ours ÷ theirs", "allocations")
	for _, in := range b.inputs {
		for _, list := range []struct {
			name      string
			addresses []uint64
		}{{"uniform", in.uniform}, {"as in profiles", in.profile}, {"sorted", in.sortedUniform}} {
			if err := b.lookups(t, in, list.name, list.addresses); err != nil {
				return fmt.Errorf("%s: %w", in.name, err)
			}
		}
	}
	return nil
}

func (b *bench) lookups(t *table, in *input, kind string, addresses []uint64) error {
	own, allocations, err := b.ownLookups(in, addresses)
	if err != nil {
		return err
	}
	contenders := []*contender{own}
	for _, p := range append(b.indexPeers(), b.found([]*peer{b.crate()})...) {
		c, err := b.peerLookups(p, in, kind, addresses)
		if err != nil {
			return err
		}
		contenders = append(contenders, c)
	}
	if err := measure(contenders, b.rounds); err != nil {
		return err
	}
	for _, c := range contenders {
		if c == own {
			t.row(in.name, kind, c.name, c.middle(wall).Nanoseconds(), "", allocations())
		} else {
			t.row(in.name, kind, c.name, c.middle(wall).Nanoseconds(), versus(own, c, wall), "")
		}
	}
	return nil
}

// ownLookups returns ourselves, and how many allocations a pass makes.
func (b *bench) ownLookups(in *input, addresses []uint64) (c *contender, allocations func() uint64, err error) {
	index, err := b.index(in.raw)
	if err != nil {
		return nil, nil, err
	}
	var allocated uint64
	run := func() (cost, error) {
		x, err := symbol.OpenIndex(index)
		if err != nil {
			return cost{}, err
		}
		defer x.Close()
		var buffer []symbol.Frame
		frames := func(v addr.Virt) { buffer, _ = x.AppendFrames(buffer[:0], v) }
		if slices.IsSorted(addresses) {
			c := x.Cursor()
			frames = func(v addr.Virt) { c.Frames(v) }
		}
		best := time.Duration(math.MaxInt64)
		for range passes {
			before := mallocs()
			start := time.Now()
			for _, a := range addresses {
				frames(addr.Virt(a))
			}
			best = min(best, time.Since(start))
			allocated = mallocs() - before
		}
		return cost{wall: best / time.Duration(len(addresses))}, nil
	}
	return &contender{name: "hallmark", run: run}, func() uint64 { return allocated }, nil
}

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

func (b *bench) peerLookups(p *peer, in *input, kind string, addresses []uint64) (*contender, error) {
	file := in.raw
	if p.index != nil {
		file = filepath.Join(b.work, in.name+"."+p.name)
		if _, err := os.Stat(file); err != nil {
			if _, err := (task{args: p.index(file, in.raw)}).run(); err != nil {
				return nil, err
			}
		}
	}
	list := filepath.Join(b.work, in.name+"."+kind+"."+p.name)
	if err := writeAddresses(list, p.share(addresses)); err != nil {
		return nil, err
	}
	args := p.command(file)
	args = append([]string{args[0], "-time", strconv.Itoa(passes)}, args[1:]...)
	return &contender{name: p.name, run: func() (cost, error) {
		out, err := readOutput(args, list)
		if err != nil {
			return cost{}, err
		}
		best, err := parsePasses(out)
		return cost{wall: best / time.Duration(len(p.share(addresses)))}, err
	}}, nil
}

func readOutput(args []string, stdin string) (string, error) {
	f, err := os.Open(stdin)
	if err != nil {
		return "", err
	}
	defer f.Close()
	var stderr bytes.Buffer
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stderr = f, &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%w %s", err, stderr.Bytes())
	}
	return string(out), nil
}

// parsePasses returns the time of the fastest pass, of the lines that -time prints:
// nanoseconds for opening, then those for each pass with a sum that says nothing.
func parsePasses(out string) (time.Duration, error) {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	best := time.Duration(math.MaxInt64)
	for _, line := range lines[1:] {
		ns, err := strconv.ParseInt(strings.Fields(line + " ?")[0], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%q is not the time of a pass", line)
		}
		best = min(best, time.Duration(ns))
	}
	if len(lines) < 2 {
		return 0, fmt.Errorf("%q has no passes", out)
	}
	return best, nil
}
