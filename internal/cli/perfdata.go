package cli

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	pprof "github.com/google/pprof/profile"
	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/capture"
	"hallmark/debuginfo"
	"hallmark/perfdata"
	"hallmark/profile/fromperf"
	"hallmark/profile/local"
	"hallmark/profile/toperf"
)

// readPerf reads a recording by perf, in the file called name or on standard input for
// "-", where it may be a file, too. ok is false when it is none; then nothing has been read from the
// input that it returns, standard input for "-".
func (in *input) readPerf(e *env, name string) (p *pprof.Profile, rest io.Reader, ok bool, err error) {
	if name == "-" {
		stdin := bufio.NewReader(e.stdin)
		head, _ := stdin.Peek(perfdata.MagicSize) // shorter input is no recording
		if !perfdata.HasMagic(head) {
			return nil, stdin, false, nil
		}
		p, err = in.convertInput(e, stdin)
		return p, nil, true, err
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, false, nil // whoever reads profiles says so
	}
	defer f.Close()
	var head [perfdata.MagicSize]byte
	if _, err := f.ReadAt(head[:], 0); err != nil || !perfdata.HasMagic(head[:]) {
		return nil, nil, false, nil
	}
	p, err = in.convertPerf(e, name, f)
	return p, nil, true, err
}

// convertInput reads a recording on standard input.
func (in *input) convertInput(e *env, stdin *bufio.Reader) (*pprof.Profile, error) {
	const name = "standard input"
	if head, _ := stdin.Peek(perfdata.HeadSize); !perfdata.IsFile(head) {
		return in.convertPerf(e, name, stdin)
	}
	kept, err := keep(stdin)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	defer kept.Close()
	size, err := kept.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	// Not as a file: when this one was written says nothing.
	return in.convertPerf(e, name, io.NewSectionReader(kept, 0, size))
}

func (in *input) convertPerf(e *env, name string, from io.Reader) (*pprof.Profile, error) {
	r, err := perfdata.NewReader(from, perfdata.ReaderOptions{})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	defer r.Close()
	tables, done := in.tables()
	defer done()
	p, stats, err := fromperf.Read(r, fromperf.Options{Event: in.event, Tables: tables, Identify: identifier(r, from), Times: in.times})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if f, ok := from.(*os.File); ok && !r.Pipe() && !in.nameless {
		if stat, err := f.Stat(); err == nil {
			nameGenerated(p, r.Info(), stat.ModTime())
		}
	}
	for _, problem := range r.Problems() {
		fmt.Fprintf(e.stderr, "hallmark: %s: %v\n", name, problem)
	}
	switch {
	case in.tell:
		for _, note := range stats.Notes() {
			fmt.Fprintf(e.stderr, "hallmark: %s: %s\n", name, note)
		}
	case stats.Damage != nil:
		fmt.Fprintf(e.stderr, "hallmark: %s: %v\n", name, stats.Damage)
	}
	return p, nil
}

// identifier returns what finds the identities that a file of perf's lacks, of files
// that are proven to be those that were mapped; nil where nothing can be proven: in a
// stream, because when it began is not known before it ends.
func identifier(r *perfdata.Reader, from io.Reader) func(file, kernel *perfdata.Mmap2) buildid.ID {
	f, ok := from.(*os.File)
	info := r.Info()
	if !ok || r.Pipe() || info.FirstSample == 0 || info.Hostname == "" {
		return nil
	}
	stat, err := f.Stat()
	if err != nil {
		return nil
	}
	p := &prover{info: info}
	var once sync.Once
	return func(file, kernel *perfdata.Mmap2) buildid.ID {
		p.image = kernel
		once.Do(func() { p.began = p.beganBefore(info.FirstSample, info.LastSample, stat.ModTime()) })
		return p.mapped(file).id
	}
}

// isPerfName reports whether a file of this name is to be one of perf's.
func isPerfName(output string) bool { return strings.HasSuffix(output, "perf.data") }

// writePerfHere writes a profile of this machine in perf's format.
func writePerfHere(w io.Writer, p *pprof.Profile) error {
	info := perfdata.Info{Version: "hallmark", Cmdline: os.Args}
	var uts unix.Utsname
	if unix.Uname(&uts) == nil {
		info.Hostname = unix.ByteSliceToString(uts.Nodename[:])
		info.OSRelease = unix.ByteSliceToString(uts.Release[:])
		info.Arch = unix.ByteSliceToString(uts.Machine[:])
	}
	return toperf.Write(w, p, toperf.Options{Info: info})
}

// tables returns where the unwind tables come from for stacks that perf copied, until done
// is called: from the files that symbols come from, as far as they are on this machine, and
// from the tables that recordings keep.
func (in *input) tables() (tables fromperf.Tables, done func()) {
	kept := capture.NewFileTables(cacheDir())
	from := &local.Tables{Finder: new(debuginfo.Finder), Build: kept.Build}
	if in.symbols != nil {
		from.Finder.Extra = in.symbols.extra
	}
	return from.Table, kept.Close
}

// cacheDir is where what is the same each time is kept for this user, "" for nowhere.
func cacheDir() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "hallmark")
}
