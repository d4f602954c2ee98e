package fromtext

import (
	"fmt"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"
)

// TestFoldedForms has folded stacks as others write them. The rules are those that flamegraph.pl documents:
// a stack, a blank and a number; with two numbers in each line it is a comparison.
func TestFoldedForms(t *testing.T) {
	for name, c := range map[string]struct {
		text   string
		format Format
		total  int64
		err    string // part of the error, "" for none
	}{
		"two counts":        {"main;foo;bar 10 20\nmain;foo 5 5\n", Folded, 0, "line 1, offset 0: two counts"},
		"a name with digit": {"main;line 10 3\nmain;foo 5\n", Folded, 8, ""},
		"byte order mark":   {"\uFEFFmain;foo 3\n", Folded, 3, ""},
		"one frame each":    {"foo 3\nbar 2\n", Folded, 5, ""},
		"fractions":         {"main;foo 1.5\nmain;bar 2.25\n", Folded, 0, "line 1, offset 0: the count \"1.5\" is no whole number"},
		"whole fractions":   {"main;foo 1.0\n", Folded, 1, ""},
		"a line without":    {"main;foo 3\nmain;broken\nmain;bar 2\n", Folded, 0, "line 2, offset 11: there is no count"},
		"text":              {"once upon a time\nthere were 3\n", None, 0, ""},
		"a program":         {"int main(void) { return 0; }\n", None, 0, ""},
		"script after a warning": {"Warning:\nProcessed 5 events and lost 1 chunks!\n\nprog 12/12 1.000000: 1000 cycles:\n\t          401000 f (/bin/prog)\n\n",
			Script, 1, ""},
		"script after a record": {"prog 0 [000] 0.0: PERF_RECORD_KSYMBOL addr 1 len 2\nperf-exec 5/5 1.0: PERF_RECORD_COMM: perf-exec:5/5\n" +
			"prog 5/5 1.000001: 1000 cycles:\n\t          401000 f (/bin/prog)\n\n", Script, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Detect([]byte(c.text)); got != c.format {
				t.Fatalf("taken for %v", got)
			}
			if c.format == None {
				return
			}
			p, _, err := Read(strings.NewReader(c.text), c.format, Options{})
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			total := int64(0)
			for _, s := range p.Sample {
				total += s.Value[0]
			}
			if total != c.total {
				t.Errorf("%d samples, want %d", total, c.total)
			}
		})
	}
}

// TestFoldedComparison reads what inferno-diff-folded writes of two files. The counts are what was in these.
func TestFoldedComparison(t *testing.T) {
	const text = "main;foo;bar 10 20\nmain;foo 5 5\nmain;gone 7 0\nmain;line 3 0 4\nmain;f_[k] 1 2\n"
	var base *pprof.Profile
	p, _, err := Read(strings.NewReader(text), Folded, Options{Base: &base})
	if err != nil || base == nil {
		t.Fatal(base, err)
	}
	for name, c := range map[string]struct {
		p    *pprof.Profile
		want string
	}{
		"before": {base, "bar;foo;main 10, foo;main 5, gone;main 7, f;main 1"},
		"after":  {p, "bar;foo;main 20, foo;main 5, line 3;main 4, f;main 2"},
	} {
		var got []string
		for _, s := range c.p.Sample {
			var names []string
			for _, l := range s.Location {
				names = append(names, l.Line[0].Function.Name)
			}
			got = append(got, fmt.Sprint(strings.Join(names, ";"), " ", s.Value[0]))
		}
		if all := strings.Join(got, ", "); all != c.want || len(c.p.SampleType) != 1 || c.p.CheckValid() != nil {
			t.Errorf("%s: %s, want %s", name, all, c.want)
		}
	}
	base = nil
	p, _, err = Read(strings.NewReader(text+"main;foo 3\n"), Folded, Options{Base: &base})
	if err != nil || base != nil || len(p.Sample) != 6 || p.Sample[0].Location[0].Line[0].Function.Name != "bar 10" {
		t.Errorf("%v, compared with %v: %v", p, base, err)
	}
}
