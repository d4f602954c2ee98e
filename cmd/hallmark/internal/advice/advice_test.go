package advice

import (
	"slices"
	"strings"
	"testing"

	"hallmark/capture"
	"hallmark/cmd/hallmark/internal/input"
	"hallmark/profile"
	"hallmark/profile/fromperf"
	"hallmark/reason"
)

// TestStackAdvice: what is advised depends on how a profile was recorded.
func TestStackAdvice(t *testing.T) {
	cut, continued := []string{"12 " + capture.CutNote}, []string{"3 " + capture.ContinuedNote}
	ofPerf := &input.Reader{Events: []fromperf.EventCount{{}}}
	for _, test := range []struct {
		why      reason.Reason
		comments []string
		in       *input.Reader
		want     string
	}{
		{reason.StackUnreadable, nil, &input.Reader{}, ""}, // by bpf, which copies nothing that more of would help
		{reason.StackUnreadable, cut, &input.Reader{}, copyMore},
		{reason.StackUnreadable, nil, ofPerf, copyMore},
		{reason.FramePointers, nil, &input.Reader{}, ""}, // the usual
		{reason.FramePointers, nil, ofPerf, "record with perf record --call-graph dwarf"},
		{reason.FramePointers, continued, &input.Reader{}, copyMore},
		{reason.NoTable, nil, &input.Reader{Advice: "inject"}, "identify the files, as above"},
		{reason.NoTable, nil, &input.Reader{}, ""},
	} {
		if got := stackAdvice(test.why, test.comments, test.in); got != test.want {
			t.Errorf("%v with %q: %q, want %q", test.why, test.comments, got, test.want)
		}
	}
}

// TestServersAreAdvised: who has named no servers is advised to do so for files that these may know.
func TestServersAreAdvised(t *testing.T) {
	const id = "a1b2c3d4e5f60718293a4b5c6d7e8f9001020304"
	gap := func(r reason.Reason, file, id string) *profile.Coverage {
		return &profile.Coverage{Gaps: []profile.Gap{{Reason: r, Binaries: []profile.BinaryGap{{File: file, BuildID: id}}}}}
	}
	for _, test := range []struct {
		name string
		c    *profile.Coverage
		want bool
	}{
		{"stripped", gap(reason.NoSymbolTable, "/bin/gzip", id), true},
		{"not covered", gap(reason.NoSymbol, "/bin/gzip", id), true},
		{"not here", gap(reason.NoFile, "/bin/gzip", id), true},
		{"of the kernel", gap(reason.NoSymbol, "[vdso]", id), false},
		{"by content", gap(reason.NoSymbolTable, "/bin/x", "content:"+id), false},
		{"another reason", gap(reason.NotPermitted, "/bin/gzip", id), false},
	} {
		for _, servers := range []string{"", "https://example.org"} {
			t.Setenv("DEBUGINFOD_URLS", servers)
			c := *test.c
			c.Gaps = slices.Clone(c.Gaps)
			fitCoverage(&c, nil, &input.Reader{})
			g := &c.Gaps[0]
			if is := strings.Contains(g.Advice(), "DEBUGINFOD_URLS"); is != (test.want && servers == "") {
				t.Errorf("%s with servers %q: %q", test.name, servers, g.Advice())
			}
			if g.Advice() != "" && !strings.HasSuffix(g.Advice(), g.Reason.Advice()) {
				t.Errorf("%s: %q lacks the usual advice", test.name, g.Advice())
			}
		}
	}
}

// TestAdviceHelps: no reason that any way of recording may meet advises one of these ways.
func TestAdviceHelps(t *testing.T) {
	for _, why := range []reason.Reason{reason.TooDeep, reason.StackUnreadable} {
		if advice := why.Advice(); advice != "" {
			t.Errorf("%v: %q", why, advice)
		}
	}
	// Up to 3.14 'python -X perf' ends whole stacks at each call of a function.
	if advice := reason.NoPerfMap.Advice(); strings.Contains(advice, "python") && !strings.Contains(advice, "python 3.15 and later") {
		t.Errorf("%q", advice)
	}
	for why := reason.None; !strings.HasPrefix(why.Code(), "reason-"); why++ {
		advice := why.Advice()
		if strings.Contains(advice, "as root") && !strings.Contains(advice, "CAP_") {
			t.Errorf("%v asks for root and not for capabilities: %q", why, advice)
		}
		if strings.Contains(advice, "on Linux") && strings.HasSuffix(advice, "or later") {
			t.Errorf("%v asks for a kernel that may run already: %q", why, advice)
		}
	}
}
