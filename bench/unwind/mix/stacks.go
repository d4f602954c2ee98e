package main

import (
	"bufio"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/google/pprof/profile"
)

// A stack is the user part of one that was recorded count times.
type stack struct {
	pid, count int
	depth      int    // user frames
	end        string // what the recorder says of how it ended
	file       string // of the outermost frame
	offset     uint64 // in that file
	symbol     string
}

// entries are the functions that nobody calls: those of threads in the C library, and those
// that Go's scheduler begins with. Those that switch to the stack of a goroutine are none.
var entries = regexp.MustCompile(`^(_start|_dl_start_user|_?_?_?clone3?|thread_start|__GI___clone3?|` +
	`runtime\.(goexit|mstart|rt0_go)(\.abi0|0|1)?|_rt0_amd64_linux|crosscall1)(@.*)?$`)

// entrySize is how many bytes of a program's first function are taken to be it.
const entrySize = 48

// complete reports whether the outermost frame is an entry.
func (s *stack) complete() bool {
	if entries.MatchString(s.symbol) {
		return true
	}
	at, ok := entryOf(s.file)
	return ok && s.offset >= at && s.offset < at+entrySize
}

func (s *stack) last() string { return filepath.Base(s.file) }

var entryOffsets = map[string]uint64{}

// entryOf returns the offset in an ELF file of its first instruction.
func entryOf(file string) (uint64, bool) {
	if off, ok := entryOffsets[file]; ok {
		return off, off != 0
	}
	entryOffsets[file] = 0
	f, err := elf.Open(file)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && f.Entry >= p.Vaddr && f.Entry < p.Vaddr+p.Filesz {
			entryOffsets[file] = f.Entry - p.Vaddr + p.Off
		}
	}
	return entryOffsets[file], entryOffsets[file] != 0
}

// readPprof reads a profile of hallmark record. Kernel frames come first in its stacks.
func readPprof(file string) ([]stack, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p, err := profile.Parse(f)
	if err != nil {
		return nil, err
	}
	var list []stack
	for _, sample := range p.Sample {
		s := stack{count: int(sample.Value[0])}
		if pid := sample.NumLabel["pid"]; len(pid) > 0 {
			s.pid = int(pid[0])
		}
		if end := sample.Label["stack"]; len(end) > 0 {
			s.end = end[0]
		}
		for _, l := range sample.Location {
			if l.Mapping != nil && strings.HasPrefix(l.Mapping.File, "[kernel") || l.Address >= 1<<63 {
				continue
			}
			s.depth++
			s.file, s.offset, s.symbol = place(l)
		}
		if s.depth > 0 {
			list = append(list, s)
		}
	}
	return list, nil
}

// place returns where a location is. Of inlined calls the last line is the function's.
func place(l *profile.Location) (file string, offset uint64, symbol string) {
	if m := l.Mapping; m != nil {
		file, offset = m.File, l.Address-m.Start+m.Offset
	}
	if n := len(l.Line); n > 0 && l.Line[n-1].Function != nil {
		symbol = l.Line[n-1].Function.SystemName
	}
	return file, offset, symbol
}

// readPerf reads what perf script says of a recording.
func readPerf(file string) ([]stack, error) {
	cmd := exec.Command("perf", "script", "-i", file, "--no-inline", "--max-stack", "1024", "-F", "pid,time,ip,sym,dso")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	var list []stack
	var s stack
	put := func() {
		if s.depth > 0 {
			list = append(list, s)
		}
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		switch {
		case len(f) == 0:
		case lines.Text()[0] != '\t':
			put()
			s = stack{count: 1}
			s.pid, _ = strconv.Atoi(f[0])
		default:
			s.frame(lines.Text(), f)
		}
	}
	put()
	if err := lines.Err(); err != nil {
		return nil, err
	}
	return list, cmd.Wait()
}

// frame takes "\t  1286 leaf (/usr/bin/program)".
func (s *stack) frame(line string, f []string) {
	n, err := strconv.ParseUint(f[0], 16, 64)
	if err != nil || n >= 1<<63 && n < 1<<64-4096 {
		return
	}
	s.depth++
	s.offset, s.symbol, s.file = n, "", ""
	if len(f) > 1 {
		s.symbol = f[1]
	}
	if open := strings.LastIndex(line, " ("); open >= 0 {
		s.file = strings.TrimSuffix(line[open+2:], ")")
	}
}

var task = regexp.MustCompile(`([0-9]+)\.([0-9]{9}): +PERF_RECORD_(FORK|EXIT)\(([0-9]+):([0-9]+)\):\(([0-9]+):`)

// history is what perf noted of processes.
type history struct {
	parent map[int]int
	lives  map[int]time.Duration // of those that began and ended while perf watched
}

// readHistory reads when the processes began and ended that a recording of no events reports.
func readHistory(file string) (history, error) {
	h := history{map[int]int{}, map[int]time.Duration{}}
	out, err := exec.Command("perf", "script", "-i", file, "--ns", "--show-task-events", "-F", "tid,time").Output()
	if err != nil {
		return h, fmt.Errorf("perf script: %w", err)
	}
	born := map[int]time.Duration{}
	for _, m := range task.FindAllStringSubmatch(string(out), -1) {
		if m[4] != m[5] {
			continue
		}
		s, _ := strconv.ParseInt(m[1], 10, 64)
		ns, _ := strconv.ParseInt(m[2], 10, 64)
		pid, _ := strconv.Atoi(m[4])
		parent, _ := strconv.Atoi(m[6])
		at := time.Duration(s)*time.Second + time.Duration(ns)
		if m[3] == "FORK" {
			born[pid], h.parent[pid] = at, parent
		} else if b, ok := born[pid]; ok {
			h.lives[pid] = at - b
		}
	}
	return h, nil
}

// descends reports whether a process is another one's child's child, or it itself.
func (h *history) descends(pid, from int) bool {
	for range 100 {
		if pid == from {
			return true
		}
		pid = h.parent[pid]
	}
	return false
}
