package reason

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the page of all reasons")

// TestPage wants docs/reasons.md to have every reason.
func TestPage(t *testing.T) {
	var page strings.Builder
	page.WriteString(`# Reasons

Hallmark never guesses. Where it does not know an identity, a symbol or a caller, it gives a reason: in brackets in
tables, as the value of a field in JSON. The codes do not change from release to release.

| Code | Meaning | Advice |
|---|---|---|
`)
	for r := None + 1; r < count; r++ {
		fmt.Fprintf(&page, "| `%s` | %s | %s |\n", r.Code(), cell(r.String()), cell(r.Advice()))
	}
	const name = "../docs/reasons.md"
	if *update {
		if err := os.WriteFile(name, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(name); err != nil || string(got) != page.String() {
		t.Errorf("%s is not that of the reasons (go test ./reason -update rewrites it): %v", name, err)
	}
}

// cell returns text for a table of Markdown.
func cell(text string) string { return strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(text) }

func TestEveryReasonHasWords(t *testing.T) {
	seen := map[string]Reason{}
	for r := None; r < count; r++ {
		if r.Code() == "" || r.String() == "" {
			t.Errorf("reason %d has no code or no text", r)
		}
		if other, dup := seen[r.Code()]; dup {
			t.Errorf("reasons %d and %d share the code %q", other, r, r.Code())
		}
		seen[r.Code()] = r
		if got, ok := Parse(r.Code()); !ok || got != r {
			t.Errorf("Parse(%q) = %v, %v", r.Code(), got, ok)
		}
	}
	if _, ok := Parse("no such code"); ok {
		t.Error("Parse accepts an unknown code")
	}
}
