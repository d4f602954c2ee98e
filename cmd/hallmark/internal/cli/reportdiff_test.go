package cli

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/internal/proftest"
)

// TestDiffWithText compares a profile with its own folded stacks, which have no identities: no
// function is the same in both. The report and the pages have the reason.
func TestDiffWithText(t *testing.T) {
	whole, text := proftest.Save(t, proftest.Mixed()), filepath.Join(t.TempDir(), "text.folded")
	hallmark(t, "convert", "--no-symbols", "-o", text, whole)
	isReason := func(note string) bool { return strings.Contains(note, "so no function is the same in both") }

	var stdout, stderr strings.Builder
	e := &verb.Env{Stdout: &stdout, Stderr: &stderr, Stdin: strings.NewReader("")}
	if status := run(context.Background(), e, []string{"report", "--sample-type", "samples", "--diff", whole, text}); status != 0 || !isReason(stderr.String()) {
		t.Errorf("report: status %d, %s", status, &stderr)
	}
	stderr.Reset()
	v := viewer{env: e, base: whole}
	p, _, err := v.read(text)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(p.Notes(), isReason) || !isReason(stderr.String()) {
		t.Errorf("view: notes %q, %s", p.Notes(), &stderr)
	}
}
