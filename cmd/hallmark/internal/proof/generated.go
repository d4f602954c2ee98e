package proof

import (
	"fmt"
	"io"
	"os"
	"time"

	pprof "github.com/google/pprof/profile"

	"hallmark/internal/perfmap"
	"hallmark/perfdata"
	"hallmark/profile"
	"hallmark/symbol"
)

// maxPerfMaps bounds how much is read of the maps of all processes together, in bytes: anybody
// can write one for each process that they start. A line counts as lineCost at least.
const (
	maxPerfMaps = 192 << 20
	lineCost    = 32
)

// NameGenerated names the generated code in a recording by perf, from the maps that the
// processes wrote, /tmp/perf-PID.map, where the recording is of this machine, with the kernel
// that runs now (many machines have one name), and the map is of the process: that still runs,
// or its map was written last while perf recorded. Another process may have had the number
// before and after.
func NameGenerated(p *pprof.Profile, info *perfdata.Info, written time.Time) {
	here := (&prover{info: info}).proveRelease() == nil && info.Hostname != ""
	if !here || info.FirstSample == 0 {
		return
	}
	began := beganAt(info, info.FirstSample, info.LastSample, written)
	// That is up to a second too early, and files have the times of the kernel's ticks.
	ended := began.Add(time.Duration(info.LastSample-info.FirstSample) + 2*time.Second)
	maps := &perfMaps{began: began, ended: ended, left: maxPerfMaps}
	profile.NameGenerated(p, func(pid int64) *symbol.PerfMap { return maps.of(int(pid)) })
	p.Comments = append(p.Comments, maps.notes...)
}

// perfMaps reads the maps of the processes of which there are samples between two times.
type perfMaps struct {
	began, ended time.Time
	left         int64    // bytes that may be read
	notes        []string // on maps that were not
}

// of returns the map of a process, nil where there is none.
func (m *perfMaps) of(pid int) *symbol.PerfMap {
	started, err := perfmap.StartTime(pid)
	runs := err == nil && !started.After(m.ended)
	if !runs {
		started = m.began
	}
	f, err := perfmap.Open(pid, started)
	if err != nil {
		return nil
	}
	defer f.Close()
	if !runs && writtenAfter(f, m.ended) {
		return nil
	}
	read, err := m.read(f)
	if err != nil {
		m.notes = append(m.notes, fmt.Sprintf("generated code of process %d has no names: %v", pid, err))
	}
	return read
}

// read reads a map, if there is room for it.
func (m *perfMaps) read(f *os.File) (*symbol.PerfMap, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > m.left {
		return nil, fmt.Errorf("%s has %d MiB, and of all maps together %d MiB are read", f.Name(), info.Size()>>20, maxPerfMaps>>20)
	}
	read, err := symbol.ReadPerfMap(io.LimitReader(f, info.Size()))
	if err != nil {
		m.left -= symbol.MaxPerfMap // it has too many lines
		return nil, err
	}
	m.left -= max(info.Size(), lineCost*int64(read.Lines()))
	return read, nil
}

func writtenAfter(f *os.File, t time.Time) bool {
	info, err := f.Stat()
	return err != nil || info.ModTime().After(t)
}
