package cli

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/internal/proftest"
	"hallmark/profile"
	"hallmark/reason"
)

func TestGapTextNamesBinaries(t *testing.T) {
	gap := func(r reason.Reason, files ...string) profile.Gap {
		g := profile.Gap{Reason: r}
		for _, f := range files {
			g.Binaries = append(g.Binaries, profile.BinaryGap{File: f})
		}
		return g
	}
	for _, test := range []struct {
		gap  profile.Gap
		want string
	}{
		{gap(reason.NotMapped, "[not-mapped]"), ""},
		{gap(reason.FileGone, "[file-gone]", "[file-gone] /opt/old"), ": old"},
		{gap(reason.NoSymbolTable, "/lib/a.so", "[kernel]"), ": a.so, [kernel]"},
		{gap(reason.NoFile, "/a", "/b", "/c", "/d", "/e", "/f"), ": a, b, c, d, 2 more"},
	} {
		if got := gapText(test.gap); got != test.gap.Reason.String()+test.want {
			t.Errorf("got %q, want %q at the end", got, test.want)
		}
	}
}

func TestReportReadsStandardInput(t *testing.T) {
	var file, stdout, stderr bytes.Buffer
	if err := proftest.CPU(t).Write(&file); err != nil {
		t.Fatal(err)
	}
	e := &verb.Env{Stdout: &stdout, Stderr: &stderr, Stdin: &file}
	if status := run(context.Background(), e, []string{"report", "-"}); status != 0 {
		t.Errorf("status %d, %s", status, &stderr)
	}
	if !strings.Contains(stdout.String(), "go/parser.") {
		t.Errorf("the report has no function of the work that was done:\n%s", &stdout)
	}
	e = &verb.Env{Stdout: io.Discard, Stderr: &stderr, Stdin: strings.NewReader("")}
	if status := run(context.Background(), e, []string{"report", "-"}); status != 1 || !strings.Contains(stderr.String(), "standard input") {
		t.Errorf("an empty standard input: status %d, %s", status, &stderr)
	}
}

// TestStacksOfTheKernel says what the samples are that have no stack of a process.
func TestStacksOfTheKernel(t *testing.T) {
	var out strings.Builder
	writeStacks(&out, &profile.Stacks{Samples: 60, Complete: 60, KernelOnly: 26})
	if want := "Stacks: 60 samples, 100% known to be complete; 26 more are of the kernel alone\n"; out.String() != want {
		t.Errorf("%q, want %q", &out, want)
	}
}

// TestTreeNamesBinaries has functions whose names begin as those of their binaries do, and code without a
// symbol, which is called by its binary.
func TestTreeNamesBinaries(t *testing.T) {
	m := proftest.New()
	app := m.Mapping("/usr/bin/w", proftest.AppID, 0x400000)
	main, work := m.Location(app, 0x401000, "main"), m.Location(app, 0x402000, "work")
	m.Sample("w", 7, 3, work, main)
	m.Sample("w", 7, 1, m.Location(app, 0x403000), work, main)
	got := hallmark(t, "report", "--tree", proftest.Save(t, m.Profile))
	for _, want := range []string{"main  w\n", "work  w\n", "w [unknown]\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("there is no %q in\n%s", want, got)
		}
	}
}

// TestAdviceIsGivenOnce: a file that claims its identity lacks names and proof for one reason.
func TestAdviceIsGivenOnce(t *testing.T) {
	gap := func(lacks profile.Lack) profile.Gap {
		return profile.Gap{Lacks: lacks, Reason: reason.Unproven, Frames: 2}
	}
	var out bytes.Buffer
	writeCoverage(&out, &profile.Coverage{Frames: 4, Gaps: []profile.Gap{gap("symbol"), gap("proof")}})
	if n := strings.Count(out.String(), reason.Unproven.String()); n != 2 {
		t.Errorf("%d reasons:\n%s", n, &out)
	}
	if n := strings.Count(out.String(), reason.Unproven.Advice()); n != 1 {
		t.Errorf("advice %d times:\n%s", n, &out)
	}
}
