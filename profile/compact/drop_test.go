package compact

import (
	"reflect"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"
)

// droppable returns a profile whose stacks have the frames of the texts, outermost first; functions of one frame that
// are inlined are separated by "<", the outermost first.
func droppable(drop, keep string, stacks ...string) *pprof.Profile {
	p := &pprof.Profile{SampleType: []*pprof.ValueType{{Type: "space", Unit: "bytes"}}, DropFrames: drop, KeepFrames: keep}
	functions, locations := map[string]*pprof.Function{}, map[string]*pprof.Location{}
	for i, stack := range stacks {
		s := &pprof.Sample{Value: []int64{int64(i + 1)}}
		for _, frame := range strings.Fields(stack) {
			l := locations[frame]
			if l == nil {
				l = &pprof.Location{ID: uint64(len(locations) + 1)}
				locations[frame], p.Location = l, append(p.Location, l)
				for _, name := range strings.Split(frame, "<") {
					f := functions[name]
					if f == nil && name != "?" {
						f = &pprof.Function{ID: uint64(len(functions) + 1), Name: strings.ReplaceAll(name, "_", " ")}
						functions[name], p.Function = f, append(p.Function, f)
					}
					if f != nil {
						l.Line = append([]pprof.Line{{Function: f}}, l.Line...)
					}
				}
			}
			s.Location = append([]*pprof.Location{l}, s.Location...)
		}
		p.Sample = append(p.Sample, s)
	}
	return p
}

func stacksOf(p *pprof.Profile) (stacks []string) {
	for _, s := range p.Sample {
		var names []string
		for _, l := range s.Location {
			names = append(names, "|")
			for _, line := range l.Line {
				names = append(names, line.Function.Name)
			}
		}
		stacks = append(stacks, strings.Join(names, " "))
	}
	return stacks
}

// TestInteresting compares with what pprof removes.
func TestInteresting(t *testing.T) {
	stacks := []string{
		"main a malloc inner", "main b operator_new(unsigned_long) x::allocate", "main plain", "malloc", "malloc main", "? malloc main",
		"main a<malloc<deep leaf", "main malloc<a leaf", "a a malloc a malloc", "main keep_malloc leaf", "", "main ? malloc",
		"main (anonymous_namespace)::f(int) x", "main .malloc y", "main a",
	}
	for _, c := range [][2]string{
		{"malloc|operator new.*|.*::allocate", "keep_.*"}, {".*", ""}, {".*", "main"}, {".*malloc", "keep malloc"}, {"nothing", ".*"}, {"", "x"},
		{"main", ""}, {`\(anonymous namespace\)::f`, ""},
	} {
		p := droppable(c[0], c[1], stacks...)
		small, err := FromPprof(p.Copy())
		if err != nil {
			t.Fatal(err)
		}
		before := stacksOf(small.Pprof())
		got, err := small.Interesting()
		if err != nil {
			t.Fatal(err)
		}
		if err := p.RemoveUninteresting(); err != nil {
			t.Fatal(err)
		}
		if have, want := stacksOf(got.Pprof()), stacksOf(p); !reflect.DeepEqual(have, want) {
			t.Errorf("%q: %q, want %q", c, have, want)
		}
		if after := stacksOf(small.Pprof()); !reflect.DeepEqual(after, before) {
			t.Errorf("%q: the profile was changed: %q", c, after)
		}
		if c[0] == "malloc|operator new.*|.*::allocate" && reflect.DeepEqual(stacksOf(got.Pprof()), before) {
			t.Error("nothing was removed")
		}
	}
}

// TestUninterestingAtBounds has expressions that are none, or too much work: all frames stay, and a comment says so.
func TestUninterestingAtBounds(t *testing.T) {
	long := "main " + strings.Repeat("x", 1<<20)
	for _, c := range []struct{ drop, keep, stack, want string }{
		{"(", "", "main malloc", "missing closing )"},
		{"malloc", "[", "main malloc", "missing closing ]"},
		{strings.Repeat(".{1000}", 10), "", long, "too much work"},
	} {
		p, err := FromPprof(droppable(c.drop, c.keep, c.stack))
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.Interesting()
		if err != nil {
			t.Fatal(err)
		}
		if all := strings.Join(got.Comments(), "\n"); !strings.Contains(all, c.want) || !strings.Contains(all, "drop_frames") {
			t.Errorf("%.20q: comments %q", c.drop, all)
		}
		if !reflect.DeepEqual(stacksOf(got.Pprof()), stacksOf(p.Pprof())) {
			t.Errorf("%.20q: frames were removed", c.drop)
		}
	}
}
