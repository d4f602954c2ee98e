package main

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"hallmark/addr"
	"hallmark/symbol"
)

// A peer answers for addresses in a file.
type peer struct {
	name  string
	most  int  // addresses that it is asked for, 0 for all: it is slow
	exact bool // reads the same of debug information as we do, so that it counts
	index func(out, file string) []string
	// command returns what reads addresses and prints answers; file is the index
	// where there is one.
	command func(file string) []string
	read    func(io.Reader) (map[uint64]answer, error)
}

// found returns the peers that are there, and says which are not.
func (b *bench) found(peers []*peer) []*peer {
	return slices.DeleteFunc(peers, func(p *peer) bool {
		program := p.command("")[0]
		_, err := exec.LookPath(program)
		if err != nil && !b.missing[p.name] {
			fmt.Printf("%s is left out: %s is not there\n\n", p.name, filepath.Base(program))
			b.missing[p.name] = true
		}
		return err != nil
	})
}

func (b *bench) built(name string) string { return filepath.Join(b.dir, "peers", name) }

// directPeers read debug information.
func (b *bench) directPeers() []*peer {
	peers := []*peer{llvmSymbolizer(), b.crate()}
	for _, name := range slices.Sorted(maps.Keys(b.peers)) {
		peers = append(peers, b.driver(name, b.peers[name]))
	}
	return b.found(append(peers, euAddr2line(), gnuAddr2line()))
}

// gsym is the index of llvm-gsymutil, which is measured by itself when it is built.
const gsym = "gsym"

// indexPeers make an index first.
func (b *bench) indexPeers() []*peer {
	reader := b.driver(gsym, b.built("gsym-peer"))
	reader.index = func(out, file string) []string { return gsymutil(1, out, file) }
	reader.most = 10_000
	peers := []*peer{reader}
	for _, name := range slices.Sorted(maps.Keys(b.indexers)) {
		p := b.driver(name, b.indexers[name])
		p.index = func(out, file string) []string { return []string{b.indexers[name], "-index", out, file} }
		peers = append(peers, p)
	}
	return b.found(peers)
}

func gsymutil(threads int, out, file string) []string {
	return []string{"llvm-gsymutil-19", "--quiet", fmt.Sprintf("--num-threads=%d", threads), "--convert=" + file, "--out-file=" + out}
}

func (b *bench) crate() *peer { return b.driver("addr2line crate", b.built("addr2line-peer")) }

// driver is a small program that asks a library.
func (b *bench) driver(name, program string) *peer {
	return &peer{
		name: name, exact: true, read: readBlocks,
		command: func(file string) []string { return []string{program, file} },
	}
}

func llvmSymbolizer() *peer {
	return &peer{
		name: "llvm-symbolizer", exact: true, read: readBlocks,
		command: func(file string) []string {
			return []string{"llvm-symbolizer-19", "--obj=" + file, "--no-demangle", "--functions=linkage", "--inlines",
				"--output-style=LLVM", "-a"}
		},
	}
}

func euAddr2line() *peer {
	return &peer{
		name: "eu-addr2line", most: 2000, read: readLines,
		command: func(file string) []string { return []string{"eu-addr2line", "-a", "-f", "-i", "-e", file} },
	}
}

func gnuAddr2line() *peer {
	return &peer{
		name: "GNU addr2line", most: 500, read: readLines,
		command: func(file string) []string { return []string{"addr2line", "-a", "-f", "-i", "-e", file} },
	}
}

// ask returns the peer's answers for addresses of a file.
func (p *peer) ask(file string, addresses []uint64) (map[uint64]answer, error) {
	var in, stderr bytes.Buffer
	for _, a := range p.share(addresses) {
		fmt.Fprintf(&in, "%#x\n", a)
	}
	args := p.command(file)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stderr = &in, &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	answers, err := p.read(out)
	if _, drained := io.Copy(io.Discard, out); err == nil {
		err = drained
	}
	// Programs that found nothing at some address may say so by their exit status.
	if waited := cmd.Wait(); waited != nil && !hasAll(answers, p.share(addresses)) {
		err = waited
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w %s", p.name, err, stderr.Bytes())
	}
	return answers, nil
}

func hasAll(answers map[uint64]answer, addresses []uint64) bool {
	return !slices.ContainsFunc(addresses, func(a uint64) bool {
		_, ok := answers[a]
		return !ok
	})
}

// share returns as many of the addresses as the peer is asked for.
func (p *peer) share(addresses []uint64) []uint64 {
	if p.most > 0 {
		return addresses[:min(p.most, len(addresses))]
	}
	return addresses
}

// ownAnswers returns Hallmark's answers, of the index in a file.
func ownAnswers(index string, addresses []uint64) (map[uint64]answer, error) {
	x, err := symbol.OpenIndex(index)
	if err != nil {
		return nil, err
	}
	defer x.Close()
	answers := map[uint64]answer{}
	var frames []symbol.Frame
	for _, a := range addresses {
		frames, _ = x.AppendFrames(frames[:0], addr.Virt(a))
		var own answer
		for _, f := range frames {
			// Strings from the index are gone when it is closed.
			own = append(own, frame{
				name: strings.Clone(f.Linkage), also: strings.Clone(f.Symbol),
				file: base(strings.Clone(f.File)), line: f.Line,
			})
		}
		answers[a] = own.normal()
	}
	return answers, nil
}

// index makes Hallmark's index of a file and returns its name.
func (b *bench) index(file string) (string, error) {
	out := filepath.Join(b.work, filepath.Base(file)+".index")
	if _, err := os.Stat(out); err == nil {
		return out, nil
	}
	if msg, err := exec.Command(b.hallmark, "index", "-o", out, file).CombinedOutput(); err != nil {
		return "", fmt.Errorf("hallmark index: %w: %s", err, msg)
	}
	return out, nil
}
