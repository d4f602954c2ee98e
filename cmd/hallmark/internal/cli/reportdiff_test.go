package cli

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hallmark/buildid"
	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/internal/proftest"
	"hallmark/profile"
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

// TestDiffNamesClaimants compares a profile with itself that has one identity twice: proven, and claimed by a user.
func TestDiffNamesClaimants(t *testing.T) {
	id, _ := buildid.Parse("0123456789abcdef0123456789abcdef01234567")
	content, err := buildid.ParseContent(strings.Repeat("ab", 20))
	if err != nil {
		t.Fatal(err)
	}
	segments := []profile.Segment{{Offset: 0x1000, Virt: 0x1000, Size: 0x2000}}
	b := profile.NewBuilder(1)
	for i, binary := range []*profile.Binary{
		{ID: id, Path: "/usr/bin/prog", Content: content, Segments: segments},
		{ID: id, Path: "/dev/shm/prog", Claimant: &profile.Claimant{UID: 1000}, Segments: segments},
	} {
		b.Add([]profile.Frame{{Binary: binary, Offset: 0x1100}}, &profile.Labels{PID: 100 + i}, 1, 1)
	}
	saved := proftest.Save(t, b.Profile())
	text := hallmark(t, "report", "--diff", saved, saved)
	var claimed, proven bool
	for line := range strings.Lines(text) {
		claimed = claimed || strings.HasSuffix(line, " /dev/shm/prog [claimed by user 1000]\n")
		proven = proven || strings.HasSuffix(line, " /usr/bin/prog\n")
	}
	if !claimed || !proven {
		t.Errorf("no mark at the claim, or one at the file: %s", text)
	}
	var out struct {
		Binaries []struct{ Binary, Claimant string }
	}
	if err := json.Unmarshal([]byte(hallmark(t, "report", "--json", "--diff", saved, saved)), &out); err != nil {
		t.Fatal(err)
	}
	for _, row := range out.Binaries {
		if (row.Claimant == "user 1000") != (row.Binary == "/dev/shm/prog") {
			t.Errorf("JSON: %+v", row)
		}
	}
	if len(out.Binaries) != 2 {
		t.Errorf("JSON: %d binaries, not 2", len(out.Binaries))
	}
}
