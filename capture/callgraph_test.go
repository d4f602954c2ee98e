package capture

import "testing"

func TestParseCallGraph(t *testing.T) {
	for text, want := range map[string]CallGraph{
		"auto":        {},
		"fp":          {By: ByFP},
		"dwarf":       {By: ByDWARF},
		"dwarf,8192":  {By: ByDWARF, StackSize: 8192},
		"dwarf,65528": {By: ByDWARF, StackSize: 65528},
	} {
		got, err := ParseCallGraph(text)
		if err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
		if got.String() != text {
			t.Errorf("%q is shown as %q", text, got)
		}
	}
	for _, text := range []string{"", "lbr", "fp,8", "auto,8", "dwarf,", "dwarf,0", "dwarf,7", "dwarf,65536", "dwarf,-8", "dwarf,8,8"} {
		if got, err := ParseCallGraph(text); err == nil {
			t.Errorf("%q is taken as %v", text, got)
		}
	}
}
