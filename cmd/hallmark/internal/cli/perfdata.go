package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	pprof "github.com/google/pprof/profile"
	"golang.org/x/sys/unix"

	"hallmark/debuginfo"
	"hallmark/internal/cachedir"
	"hallmark/internal/plaintext"
	"hallmark/internal/unwindtables"
	"hallmark/perfdata"
	"hallmark/profile/fromperf"
	"hallmark/profile/local"
	"hallmark/profile/toperf"
)

// findRecording opens a recording by perf, in the file or directory called name or on standard
// input for "-", where it may be a file, too; gzip is seen through. rec is nil where there is
// none. rest is what is to be read then, nil for the file called name, of which nothing was read.
func (in *input) findRecording(e *env, name string) (rec *recording, rest io.Reader, err error) {
	from := e.stdin
	if name != "-" {
		info, err := os.Stat(name)
		if err != nil || info.IsDir() || info.Mode().IsRegular() {
			rec, err = in.openRecording(name)
			return rec, nil, err
		}
		f, err := os.Open(name) // a pipe that has a name
		if err != nil {
			return nil, nil, err
		}
		from = f
	}
	buffered := bufio.NewReaderSize(from, 1<<16)
	rec, err = in.recordingFrom(inputName(name), buffered)
	return rec, buffered, err
}

// convertPerf makes the profile of a recording, or one of each event.
func (in *input) convertPerf(e *env, rec *recording, each bool) ([]*pprof.Profile, error) {
	r, err := rec.reader(perfdata.ReaderOptions{}, false)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", rec.name, err)
	}
	defer r.Close()
	tables, done := in.tables()
	defer done()
	know := &identifier{rec: rec, reader: r, trust: in.trust}
	o := fromperf.Options{Event: in.event, Tables: tables, Identify: know.identify, Content: know.content, Times: in.times, Memory: in.recordingMemory()}
	if o.Event == everyEvent {
		o.Event, o.All = "", true
	}
	var all []*pprof.Profile
	var stats fromperf.Stats
	if each {
		all, stats, err = fromperf.ReadEach(r, o)
	} else {
		all = make([]*pprof.Profile, 1)
		all[0], stats, err = fromperf.Read(r, o)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", rec.name, err)
	}
	isDamage := func(problem error) bool { return !errors.Is(problem, perfdata.ErrNotEnded) }
	in.events, in.damage = stats.Events, stats.Damage != nil || slices.ContainsFunc(r.Problems(), isDamage)
	notes := know.notes()
	for _, p := range all {
		p.Comments = append(p.Comments, notes...)
		p.Comments = append(p.Comments, pathsDisagree(p)...)
		if !rec.written.IsZero() && !r.Pipe() && !in.nameless {
			nameGenerated(p, know.timed(), rec.written)
		}
	}
	in.advice = know.advice(stats.Unrecorded)
	in.say(e, rec.name, r, &stats, notes)
	return all, nil
}

// everyEvent is what --event calls all events.
const everyEvent = "all"

// say says on standard error what was wrong with a recording, and where the output has no room
// for it, what the profile lacks.
func (in *input) say(e *env, name string, r *perfdata.Reader, stats *fromperf.Stats, notes []string) {
	say := func(what string) {
		fmt.Fprintf(e.stderr, "hallmark: %s: %s\n", plaintext.Name(name), plaintext.Line(what))
	}
	for _, problem := range r.Problems() {
		say(problem.Error())
	}
	switch {
	case in.tell:
		for _, note := range append(stats.Notes(), notes...) {
			say(note)
		}
		if in.advice != "" {
			say(in.advice)
		}
	case stats.Damage != nil:
		say(stats.Damage.Error())
	}
}

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
	kept := unwindtables.NewFileTables(cacheDir())
	from := &local.Tables{Finder: new(debuginfo.Finder), Build: kept.Build}
	if in.symbols != nil {
		from.Finder.Extra = in.symbols.extra
	}
	return from.Table, kept.Close
}

// cacheDir is where what is the same each time is kept for this user, "" for nowhere.
func cacheDir() string {
	dir, err := cachedir.InUserCache("")
	if err != nil {
		return ""
	}
	return dir
}
