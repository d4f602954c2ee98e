package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"hallmark/internal/testenv"
)

// event is one line of test2json, see 'go doc test2json'.
type event struct {
	Action  string
	Package string
	Test    string
	Elapsed float64
	Output  string
}

// A test is one of a job. Jobs may run the same package in different ways.
type test struct{ job, name string }

func (t test) String() string { return t.job + " " + t.name }

// A timing is how long a test took, by the clock.
type timing struct {
	test
	seconds float64
}

// A lack is a test that got too few samples or too little time.
type lack struct {
	test
	text string
}

// results are what became of all tests and checks.
type results struct {
	console *console
	now     sync.Mutex           // of the next three; nothing else is locked under it, as the console asks for them
	running map[string]string    // what each job does just now
	since   map[string]time.Time // when each job began
	waiting int                  // jobs that have not begun
	mu      sync.Mutex           // of the rest
	output  map[test][]string
	failed  []string
	skips   map[string][]string // tests by reason
	skipped int
	passed  int
	well    map[test]bool // have passed when run alone
	lacks   []lack
	alone   []string // have passed when run alone, with what they lacked
	times   []timing // of tests that are in no other
}

func newResults(c *console) *results {
	return &results{console: c, output: map[test][]string{}, running: map[string]string{}, since: map[string]time.Time{}, skips: map[string][]string{}, well: map[test]bool{}}
}

// begin notes that a job runs, and returns what notes its end.
func (r *results) begin(job string) (end func()) {
	r.now.Lock()
	defer r.now.Unlock()
	r.running[job], r.since[job] = "", time.Now()
	return func() {
		r.now.Lock()
		defer r.now.Unlock()
		delete(r.running, job)
		delete(r.since, job)
	}
}

// doing describes the jobs that run.
func (r *results) doing() string {
	r.now.Lock()
	defer r.now.Unlock()
	var list []string
	for _, job := range slices.Sorted(maps.Keys(r.running)) {
		list = append(list, strings.TrimSpace(fmt.Sprintf("%s %s (%.0fs)", job, r.running[job], time.Since(r.since[job]).Seconds())))
	}
	return strings.Join(list, " · ")
}

// unfinished names the jobs that have not come to their end, and says how many never began.
func (r *results) unfinished() string {
	r.now.Lock()
	defer r.now.Unlock()
	return fmt.Sprintf("not finished: %s; not begun: %d packages and checks", strings.Join(slices.Sorted(maps.Keys(r.running)), ", "), r.waiting)
}

func (r *results) setWaiting(n int) {
	r.now.Lock()
	defer r.now.Unlock()
	r.waiting = n
}

// failure counts something that is no test.
func (r *results) failure(name, text string) {
	r.console.printf("%s: %s\n", name, text)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = append(r.failed, name)
}

func (r *results) pass() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.passed++
}

// skip counts a check, or a suite, that was not run.
func (r *results) skip(name, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.skips[reason] = append(r.skips[reason], name)
	r.skipped++
}

// take reads the events of a job to their end, and reports whether its tests came to a good
// one, and whether there were any. The rest is what was printed outside of tests.
func (r *results) take(ctx context.Context, job string, events io.Reader, only string) (ok, tests bool, rest string) {
	lines := bufio.NewReader(events)
	s := stream{results: r, job: job, only: only}
	for {
		line, err := lines.ReadString('\n')
		var e event
		if json.Unmarshal([]byte(line), &e) == nil {
			s.take(e)
		}
		if err != nil {
			if ctx.Err() == nil { // else it was ended by us
				s.close()
			}
			return s.passed && s.failed == 0, s.tests, strings.Join(s.rest, "")
		}
	}
}

// A stream is the events of one job.
type stream struct {
	*results
	job    string
	only   string // count this test and those below it, unless ""
	failed int
	passed bool
	tests  bool     // there were any
	rest   []string // what was printed outside of tests
}

// close takes account of tests that did not end, and of a package that failed by itself.
func (s *stream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range slices.SortedFunc(maps.Keys(s.output), func(a, b test) int { return strings.Compare(a.name, b.name) }) {
		if key.job == s.job {
			s.rest = append(s.rest, s.output[key]...)
			delete(s.output, key)
		}
	}
	if !s.passed && s.failed == 0 {
		s.fail(test{s.job, "(package)"}, s.rest)
	}
}

func (s *stream) take(e event) {
	key := test{s.job, e.Test}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e.Action {
	case "run":
		s.now.Lock()
		s.running[s.job] = e.Test
		s.now.Unlock()
	case "output":
		s.output[key] = append(s.output[key], e.Output)
	case "pass", "skip", "fail":
		output := s.output[key]
		delete(s.output, key)
		if e.Test == "" {
			s.passed = e.Action != "fail"
			s.rest = append(output, s.rest...)
			return
		}
		if !strings.Contains(e.Test, "/") {
			s.times = append(s.times, timing{key, e.Elapsed})
		}
		if s.only == "" || e.Test == s.only || strings.HasPrefix(e.Test, s.only+"/") {
			s.end(key, e.Action, output)
		} else if e.Action == "fail" {
			s.end(key, e.Action, output) // a parent's: it may be wrong itself
		}
	}
}

func (s *stream) end(key test, action string, output []string) {
	s.tests = true
	text := strings.Join(output, "")
	switch action {
	case "fail":
		s.fail(key, output)
	case "pass":
		s.results.passed++
		if s.only != "" {
			s.well[key] = true
		}
		if _, what, found := strings.Cut(text, testenv.AloneMarker); found {
			s.alone = append(s.alone, key.String()+": "+firstLine(what))
		}
	case "skip":
		if _, what, found := strings.Cut(text, testenv.LackMarker); found {
			s.lacks = append(s.lacks, lack{key, firstLine(what)})
			return
		}
		reason := why(output)
		s.skips[reason] = append(s.skips[reason], key.String())
		s.skipped++
	}
}

// fail counts a failure and shows what the test printed at once.
func (s *stream) fail(key test, output []string) {
	s.failed++
	s.results.failed = append(s.results.failed, key.String())
	s.console.printf("%sFAIL  %s\n", strings.Join(output, ""), key)
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// scriptSkip matches how a test script says that it is skipped.
var scriptSkip = regexp.MustCompile(`^> \[.*\] (?:skip|stop) '(.*)'$`)

// why finds the reason in the output of a skipped test.
func why(output []string) string {
	for _, line := range slices.Backward(output) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "---") || strings.HasPrefix(line, "===") {
			continue
		}
		if file, rest, found := strings.Cut(line, ": "); found && strings.Contains(file, ".go:") {
			line = rest
		}
		if m := scriptSkip.FindStringSubmatch(line); m != nil {
			line = m[1]
		}
		return strings.TrimPrefix(line, "NOT CHECKED: ")
	}
	return "no reason given"
}

// hasPassed reports whether a test has passed when it was run again.
func (r *results) hasPassed(t test) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.well[t]
}

// takeLacks returns the tests that are to be run again, and forgets them.
func (r *results) takeLacks() []lack {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.lacks
	r.lacks = nil
	return l
}
