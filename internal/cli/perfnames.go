package cli

import (
	"io"
	"os"
	"time"

	pprof "github.com/google/pprof/profile"

	"hallmark/internal/perfmap"
	"hallmark/perfdata"
	"hallmark/profile"
	"hallmark/symbol"
)

// maxPerfMap bounds how much of a map is read, in bytes: anybody can write one.
const maxPerfMap = 128 << 20

// nameGenerated names the generated code in a recording by perf, from the maps that the
// processes wrote, /tmp/perf-PID.map, where the recording is of this machine, with the kernel
// that runs now (many machines have one name), and the map is of the process: that still runs,
// or its map was written last while perf recorded. Another process may have had the number
// before and after.
func nameGenerated(p *pprof.Profile, info *perfdata.Info, written time.Time) {
	here := (&prover{info: info}).proveRelease() == nil && info.Hostname != ""
	if !here || info.FirstSample == 0 {
		return
	}
	began := beganAt(info, info.FirstSample, info.LastSample, written)
	// That is up to a second too early, and files have the times of the kernel's ticks.
	ended := began.Add(time.Duration(info.LastSample-info.FirstSample) + 2*time.Second)
	profile.NameGenerated(p, func(pid int64) *symbol.PerfMap { return generatedMap(int(pid), began, ended) })
}

// generatedMap returns the map of a process of which there are samples between two times,
// nil where there is none.
func generatedMap(pid int, began, ended time.Time) *symbol.PerfMap {
	started, err := perfmap.StartTime(pid)
	runs := err == nil && !started.After(ended)
	if !runs {
		started = began
	}
	f, err := perfmap.Open(pid, started)
	if err != nil {
		return nil
	}
	defer f.Close()
	if !runs && writtenAfter(f, ended) {
		return nil
	}
	m, err := symbol.ReadPerfMap(io.LimitReader(f, maxPerfMap))
	if err != nil {
		return nil
	}
	return m
}

func writtenAfter(f *os.File, t time.Time) bool {
	info, err := f.Stat()
	return err != nil || info.ModTime().After(t)
}
