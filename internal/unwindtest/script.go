package unwindtest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
)

// A Key says which sample is meant: no task has two at one time.
type Key struct {
	TID  uint32
	Time uint64 // ns
}

// A Site is a frame as a witness reports it.
type Site struct {
	Address uint64 // offset in the file, or the address itself where there is no file
	File    string // as perf names it, in kernel code too; "" where there is none
	Symbol  string
}

// Kernel reports whether the frame is the kernel's.
func (p *Site) Kernel() bool { return p.Address >= 1<<63 }

// A WitnessStack is the stack of a sample as a witness reports it, innermost frame first.
type WitnessStack struct {
	Key
	Frames []Site
}

// Script returns the stacks that perf finds in a file that it recorded, in its order.
// Kernel code is left out.
func Script(ctx context.Context, file string) ([]WitnessStack, error) {
	cmd := exec.CommandContext(ctx, "perf", "script", "-i", file, "--ns", "--no-inline", "--max-stack", "4096", "-F", "tid,time,ip,sym,dso")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	told, err := ParseScript(out)
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, fmt.Errorf("perf script: %w", err)
	}
	return told, cmd.Wait()
}

// ParseScript reads what perf script prints of tid, time, ip, sym and dso.
func ParseScript(r io.Reader) ([]WitnessStack, error) {
	var told []WitnessStack
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case line == "":
		case line[0] == '\t':
			if len(told) == 0 {
				return nil, fmt.Errorf("a frame without a sample: %q", line)
			}
			frame, err := parseFrame(line)
			if err != nil {
				return nil, err
			}
			if !frame.Kernel() {
				last := &told[len(told)-1]
				last.Frames = append(last.Frames, frame)
			}
		default:
			key, err := parseKey(line)
			if err != nil {
				return nil, err
			}
			told = append(told, WitnessStack{Key: key})
		}
	}
	return told, lines.Err()
}

// parseKey reads "16584  1361.598131491: ".
func parseKey(line string) (Key, error) {
	f := strings.Fields(line)
	if len(f) < 2 {
		return Key{}, fmt.Errorf("no sample: %q", line)
	}
	s, ns, ok := strings.Cut(strings.TrimSuffix(f[1], ":"), ".")
	tid, err1 := strconv.ParseInt(f[0], 10, 32) // -1 of a task that has ended
	seconds, err2 := strconv.ParseUint(s, 10, 32)
	rest, err3 := strconv.ParseUint(ns, 10, 64)
	if err1 != nil || err2 != nil || err3 != nil || !ok || len(ns) != 9 {
		return Key{}, fmt.Errorf("no sample: %q", line)
	}
	return Key{uint32(tid), seconds*1e9 + rest}, nil
}

// parseFrame reads "\t    1286 leaf (/usr/bin/program)".
func parseFrame(line string) (Site, error) {
	text := strings.TrimSpace(line)
	address, rest, _ := strings.Cut(text, " ")
	n, err := strconv.ParseUint(address, 16, 64)
	if err != nil {
		return Site{}, fmt.Errorf("no frame: %q", line)
	}
	p := Site{Address: n, Symbol: rest}
	if open := strings.LastIndex(rest, " ("); open >= 0 && strings.HasSuffix(rest, ")") {
		p.Symbol, p.File = rest[:open], rest[open+2:len(rest)-1]
	}
	if p.File == "[unknown]" || p.File == "inlined" {
		p.File = ""
	}
	return p, nil
}
