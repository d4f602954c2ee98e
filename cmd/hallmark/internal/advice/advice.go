// Package advice returns what helps against a reason here and now, where that depends on the machine, on
// who asks, or on how a profile was recorded.
package advice

import (
	"os"
	"slices"
	"strings"

	"hallmark/capture"
	"hallmark/cmd/hallmark/internal/input"
	"hallmark/profile"
	"hallmark/profile/compact"
	"hallmark/profile/summary"
	"hallmark/reason"
)

// Fit sets what helps against the gaps of a profile that was read from in, where that
// depends on how it was recorded. Advice that cannot help is none.
func Fit(s *summary.Summary, in *input.Reader) {
	fitCoverage(&s.Coverage, s.Comments, in)
}

// fitCoverage is Fit for a coverage, of a profile with these comments.
func fitCoverage(c *profile.Coverage, comments []string, in *input.Reader) {
	for i := range c.Gaps {
		switch g := &c.Gaps[i]; g.Reason {
		case reason.NotRecorded:
			g.Fitting = in.Advice
		case reason.FileChanged: // what was recorded may have ended long ago
			g.Fitting = "name the build that ran with --debug-path (perf keeps copies below ~/.debug)"
		case reason.NoSymbolTable, reason.NoSymbol, reason.NoFile:
			g.Fitting = orAskServers(g)
		}
	}
	if c.Stacks == nil {
		return
	}
	for i := range c.Stacks.Gaps {
		g := &c.Stacks.Gaps[i]
		g.Fitting = stackAdvice(g.Reason, comments, in)
	}
}

// orAskServers returns what helps against a gap, and that servers can be asked, if nobody has named any and
// they may know one of its files. It is "" for the usual.
func orAskServers(g *profile.Gap) string {
	usual := g.Advice()
	mayKnow := func(b profile.BinaryGap) bool { // by a GNU build ID, which is digits alone
		return b.BuildID != "" && strings.Trim(b.BuildID, "0123456789abcdef") == "" && !strings.HasPrefix(b.File, "[")
	}
	if usual == "" || os.Getenv("DEBUGINFOD_URLS") != "" || !slices.ContainsFunc(g.Binaries, mayKnow) {
		return ""
	}
	return "set DEBUGINFOD_URLS (Debian: https://debuginfod.debian.net), or " + usual
}

// Fitter returns what fits advice to p, which was read from in now.
func Fitter(in *input.Reader, p *compact.Profile) func(*profile.Coverage) {
	own, comments := *in, p.Notes()
	return func(c *profile.Coverage) { fitCoverage(c, comments, &own) }
}

// liveAdvice returns what helps this process against a reason, now: root has the capabilities that others
// are advised to take.
func liveAdvice(why reason.Reason) string {
	if why == reason.NotPermitted && os.Geteuid() == 0 {
		return "a sandbox or a security module refuses it, also to root"
	}
	return why.Advice()
}

// copyMore is what helps where the copies of stacks were too short.
const copyMore = "copy more of the stacks, with --call-graph dwarf,65528"

// stackAdvice returns what helps against stacks that end for a reason, "" for the usual.
func stackAdvice(why reason.Reason, comments []string, in *input.Reader) string {
	noted := func(note string) bool {
		return slices.ContainsFunc(comments, func(c string) bool { return strings.Contains(c, note) })
	}
	switch why {
	case reason.NoTable:
		switch {
		case in.Advice != "": // without the identity of a file there is no table of it either
			return "identify the files, as above"
		case len(in.Events) > 0: // perf's stacks are walked here, by the files that are at hand
			return "name the files with --debug-path, if they are the right ones: they are missing, or others can have written them"
		}
	case reason.StackUnreadable:
		if noted(capture.CutNote) || len(in.Events) > 0 { // of hallmark's own copies, and of perf's
			return copyMore
		}
	case reason.FramePointers:
		switch {
		case noted(capture.ContinuedNote):
			return copyMore
		case len(in.Events) > 0: // perf's own, which has no backends
			return "record with perf record --call-graph dwarf"
		}
	}
	return ""
}
