package reason

import "testing"

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
