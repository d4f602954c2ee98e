package input

import (
	"errors"
	"fmt"
	"slices"

	pprof "github.com/google/pprof/profile"

	"hallmark/cmd/hallmark/internal/perffile"
	"hallmark/cmd/hallmark/internal/proof"
	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/debuginfo"
	"hallmark/internal/cachedir"
	"hallmark/internal/plaintext"
	"hallmark/internal/unwindtables"
	"hallmark/perfdata"
	"hallmark/profile/fromperf"
	"hallmark/profile/local"
)

// convertPerf makes the profile of a recording, or one of each event.
func (in *Reader) convertPerf(e *verb.Env, rec *perffile.Recording, each bool) ([]*pprof.Profile, error) {
	if len(in.binaries) > 0 {
		return nil, verb.Usagef("--binary is for profiles, and %s is a recording by perf: --trust-paths takes the files at its paths", rec.Name)
	}
	r, err := rec.Reader(perfdata.ReaderOptions{}, false)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", rec.Name, err)
	}
	defer r.Close()
	tables, done := in.tables()
	defer done()
	know := &proof.Identifier{Recording: rec, Reader: r, Trust: in.trust}
	o := fromperf.Options{Event: in.Event, Tables: tables, Identify: know.Identify, Content: know.Content, Times: in.Times, Memory: in.recordingMemory()}
	if o.Event == EveryEvent {
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
		return nil, fmt.Errorf("%s: %w", rec.Name, err)
	}
	isDamage := func(problem error) bool { return !errors.Is(problem, perfdata.ErrNotEnded) }
	in.Events, in.damage = stats.Events, stats.Damage != nil || slices.ContainsFunc(r.Problems(), isDamage)
	notes := know.Notes()
	for _, p := range all {
		p.Comments = append(p.Comments, notes...)
		p.Comments = append(p.Comments, proof.PathsDisagree(p)...)
		if !rec.Written.IsZero() && !r.Pipe() && !in.Nameless {
			proof.NameGenerated(p, know.Timed(), rec.Written)
		}
	}
	in.Advice = know.Advice(stats.Unrecorded)
	in.say(e, rec.Name, r, &stats, notes)
	return all, nil
}

// EveryEvent is what --event calls all events.
const EveryEvent = "all"

// say says on standard error what was wrong with a recording, and where the output has no room
// for it, what the profile lacks.
func (in *Reader) say(e *verb.Env, name string, r *perfdata.Reader, stats *fromperf.Stats, notes []string) {
	say := func(what string) {
		fmt.Fprintf(e.Stderr, "hallmark: %s: %s\n", plaintext.Name(name), plaintext.Line(what))
	}
	for _, problem := range r.Problems() {
		say(problem.Error())
	}
	switch {
	case in.ReportLacks:
		for _, note := range append(stats.Notes(), notes...) {
			say(note)
		}
		if in.Advice != "" {
			say(in.Advice)
		}
	case stats.Damage != nil:
		say(stats.Damage.Error())
	}
}

// tables returns where the unwind tables come from for stacks that perf copied, until done
// is called: from the files that symbols come from, as far as they are on this machine, and
// from the tables that recordings keep.
func (in *Reader) tables() (tables fromperf.Tables, done func()) {
	kept := unwindtables.NewFileTables(CacheDir())
	from := &local.Tables{Finder: new(debuginfo.Finder), Build: kept.Build}
	if in.DebugPaths != nil {
		from.Finder.Extra = *in.DebugPaths
	}
	return from.Table, kept.Close
}

// CacheDir is where what is the same each time is kept for this user, "" for nowhere.
func CacheDir() string {
	dir, err := cachedir.InUserCache("")
	if err != nil {
		return ""
	}
	return dir
}
