package query

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"hallmark/internal/proftest"
	"hallmark/profile"
	"hallmark/profile/compact"
	"hallmark/profile/summary"
)

func set(t testing.TB, p, base *pprof.Profile) *Set {
	t.Helper()
	c, err := compact.FromPprof(p)
	if err != nil {
		t.Fatal(err)
	}
	var b *compact.Profile
	if base != nil {
		if b, err = compact.FromPprof(base); err != nil {
			t.Fatal(err)
		}
	}
	return New(c, b)
}

// finds is Selection.Find.
func finds(t testing.TB, s *Selection, text string) Found {
	t.Helper()
	found, err := s.Find(t.Context(), regexp.MustCompile(text))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func selected(t testing.TB, s *Set, f Filter) *Selection {
	t.Helper()
	sel, err := s.Select(f)
	if err != nil {
		t.Fatal(err)
	}
	return sel
}

// labelled is a random profile whose samples say how their stacks end.
func labelled(seed uint64, samples int) *pprof.Profile {
	p := proftest.Random(seed, samples)
	for i, s := range p.Sample {
		if i%3 > 0 {
			s.Label = map[string][]string{"stack": {[]string{"complete", "not-mapped", "no-user-stack"}[i%7%3]}, "process": s.Label["process"]}
			if len(s.Label["process"]) == 0 {
				delete(s.Label, "process")
			}
		}
	}
	return p
}

func profiles() map[string]*pprof.Profile {
	all := map[string]*pprof.Profile{"mixed": proftest.Mixed()}
	for seed := range uint64(12) {
		all[fmt.Sprint("random ", seed)] = labelled(seed, int(seed*30))
	}
	return all
}

// TestAgreesWithSummary compares the tables with those of 'hallmark report', which are compared
// with 'go tool pprof -top'.
func TestAgreesWithSummary(t *testing.T) {
	for name, p := range profiles() {
		t.Run(name, func(t *testing.T) {
			for _, kind := range []string{"samples", "cpu"} {
				want, err := summary.New(p, summary.Options{SampleType: kind})
				if err != nil {
					t.Fatal(err)
				}
				s := set(t, p, nil)
				sel := selected(t, s, Filter{SampleType: kind, Unknown: ByBinary})
				if sel.Total() != want.Total || sel.Unit() != want.Unit || sel.Samples() != want.Samples {
					t.Errorf("total %d %s of %d samples, want %d %s of %d", sel.Total(), sel.Unit(), sel.Samples(), want.Total, want.Unit, want.Samples)
				}
				var got, wanted []string
				for _, r := range sel.Functions() {
					f := s.Frames()[r.Frame]
					b := s.Binaries()[f.Binary]
					got = append(got, fmt.Sprint(f.Name, f.Unnamed, b.File, b.BuildID, r.Flat, r.Cum))
				}
				for _, f := range want.Functions {
					if f.Flat != 0 || f.Cum != 0 {
						wanted = append(wanted, fmt.Sprint(f.Name, f.Unnamed, f.File, f.BuildID, f.Flat, f.Cum))
					}
				}
				sameLines(t, "functions", got, wanted)
				got, wanted = nil, nil
				for _, r := range sel.BinaryTable() {
					b := s.Binaries()[r.Binary]
					got = append(got, fmt.Sprint(b.File, b.BuildID, b.Content, b.Claims, b.Contested, r.Flat, r.Cum))
				}
				for _, b := range want.Binaries {
					if b.Flat != 0 || b.Cum != 0 {
						wanted = append(wanted, fmt.Sprint(b.File, b.BuildID, b.Content, b.Claims, b.Contested, b.Flat, b.Cum))
					}
				}
				sameLines(t, "binaries", got, wanted)
				got, wanted = nil, nil
				for _, r := range sel.Processes() {
					got = append(got, fmt.Sprint(r.Name, r.Flat))
				}
				for _, r := range want.Processes {
					if r.Flat != 0 {
						wanted = append(wanted, fmt.Sprint(r.Name, r.Flat))
					}
				}
				sameLines(t, "processes", got, wanted)
				if kind == "samples" {
					if got := sel.Coverage(); !reflect.DeepEqual(got, profile.MeasureCoverage(p, nil)) {
						t.Errorf("coverage is\n%+v, want\n%+v", got, profile.MeasureCoverage(p, nil))
					}
				}
			}
		})
	}
}

func sameLines(t *testing.T, what string, got, want []string) {
	t.Helper()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s are\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// stacksOf returns the stacks of a profile, each as the names of its frames, the outermost first.
func stacksOf(p *pprof.Profile, kind int) (stacks [][]string, values []int64) {
	for _, s := range p.Sample {
		var stack []string
		for c := range profile.Calls(s) {
			b := ""
			if m := c.Location.Mapping; m != nil {
				b = m.File
			}
			stack = append(stack, c.Name()+"@"+b)
		}
		slices.Reverse(stack)
		stacks, values = append(stacks, stack), append(values, s.Value[kind])
	}
	return stacks, values
}

// paths adds up stacks by what they begin with.
func paths(stacks [][]string, values []int64) map[string][2]int64 {
	sum := map[string][2]int64{}
	for i, stack := range stacks {
		for n := range len(stack) + 1 {
			k := strings.Join(stack[:n], "\n")
			v := sum[k]
			v[0] += values[i]
			if n == len(stack) {
				v[1] += values[i]
			}
			sum[k] = v
		}
	}
	for k, v := range sum {
		if v[0] == 0 {
			delete(sum, k)
		}
	}
	return sum
}

// pathsOf returns the same of a tree.
func pathsOf(s *Set, tree *Tree) map[string][2]int64 {
	sum := map[string][2]int64{}
	keys := make([]string, len(tree.Nodes))
	for i, n := range tree.Nodes {
		if n.Parent >= 0 {
			f := s.Frames()[n.Frame]
			name := f.Name + "@" + s.Binaries()[f.Binary].File
			keys[i] = strings.TrimPrefix(keys[n.Parent]+"\n"+name, "\n")
		}
		sum[keys[i]] = [2]int64{n.Total, n.Self}
	}
	return sum
}

var whole = TreeOptions{MinShare: -1, MaxNodes: 1 << 20}

func TestTree(t *testing.T) {
	for name, p := range profiles() {
		s := set(t, p, nil)
		sel := selected(t, s, Filter{SampleType: "samples"})
		for _, o := range []TreeOptions{{}, {Inverted: true}, {Inverted: true, Fold: true}, {Fold: true}} {
			inverted := o.Inverted
			o.MinShare, o.MaxNodes = whole.MinShare, whole.MaxNodes
			tree, err := sel.Tree(o)
			if err != nil {
				t.Fatal(err)
			}
			stacks, values := stacksOf(p, 0)
			for i := range stacks {
				if inverted {
					slices.Reverse(stacks[i])
				}
				if o.Fold {
					stacks[i] = slices.Compact(stacks[i])
				}
			}
			want := paths(stacks, values)
			if sel.Total() == 0 {
				continue
			}
			if got := pathsOf(s, tree); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: tree, %+v, is\n%v\nwant\n%v", name, o, got, want)
			}
			checkTree(t, tree)
		}
	}
}

func checkTree(t *testing.T, tree *Tree) {
	t.Helper()
	below := make([]int64, len(tree.Nodes))
	last := map[int32]int64{}
	for i, n := range tree.Nodes {
		if int(n.Parent) >= i {
			t.Fatalf("node %d has the parent %d", i, n.Parent)
		}
		if n.Parent >= 0 {
			below[n.Parent] += n.Total
			if before, ok := last[n.Parent]; ok && n.Total > before {
				t.Fatalf("children of %d are not in order", n.Parent)
			}
			last[n.Parent] = n.Total
		}
	}
	for i, n := range tree.Nodes {
		if n.Total != n.Self+below[i]+n.Cut {
			t.Errorf("node %d counts %d, and %d itself, %d below, %d cut", i, n.Total, n.Self, below[i], n.Cut)
		}
	}
}

// TestCut looks at trees that do not have all nodes.
// TestCancelsOut has a difference whose parts add up to nothing: all of them are in the tree.
func TestCancelsOut(t *testing.T) {
	m := proftest.New()
	app := m.Mapping("/usr/bin/app", proftest.AppID, 0x400000)
	at := func(name string) *pprof.Location {
		return m.Location(app, 0x401000+uint64(len(m.Profile.Location)), name)
	}
	main, wrap := at("main"), at("wrap")
	m.Sample("", 0, 500, at("slower"), wrap, main)
	m.Sample("", 0, -500, at("faster"), wrap, main)
	m.Sample("", 0, 10, at("other"), main)
	sel := selected(t, set(t, m.Profile, nil), Filter{SampleType: "samples"})
	tree, err := sel.Tree(TreeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, n := range tree.Nodes[1:] {
		got = append(got, fmt.Sprint(sel.Set().Frames()[n.Frame].Name, " ", n.Total, " ", n.Size, " ", n.SelfSize))
	}
	slices.Sort(got)
	if want := []string{"faster -500 500 500", "main 10 1010 0", "other 10 10 10", "slower 500 500 500", "wrap 0 1000 0"}; !slices.Equal(got, want) {
		t.Errorf("the tree has %q, want %q", got, want)
	}
	if found := finds(t, sel, "wrap"); found.Total != 1000 {
		t.Errorf("wrap is on stacks of %d", found.Total)
	}
}

func TestCut(t *testing.T) {
	s := set(t, labelled(7, 3000), nil)
	sel := selected(t, s, Filter{SampleType: "samples"})
	all, _ := sel.Tree(whole)
	for _, o := range []TreeOptions{{MaxNodes: 10, MinShare: -1}, {MaxNodes: 1}, {MaxDepth: 2}, {MinShare: 0.02}, {MaxNodes: 30, Inverted: true}} {
		tree, err := sel.Tree(o)
		if err != nil {
			t.Fatal(err)
		}
		checkTree(t, tree)
		if o.MaxNodes > 0 && len(tree.Nodes) > o.MaxNodes || len(tree.Nodes) >= len(all.Nodes) {
			t.Errorf("%+v has %d nodes", o, len(tree.Nodes))
		}
		for _, n := range tree.Nodes {
			if o.MaxDepth > 0 && n.Depth > int32(o.MaxDepth) {
				t.Errorf("%+v is %d deep", o, n.Depth)
			}
		}
	}
	// A zoomed tree is a part of the whole.
	for _, n := range all.Nodes {
		if n.Depth != 3 || n.Total < 4 {
			continue
		}
		var path []int
		for at := n; at.Parent >= 0; at = all.Nodes[at.Parent] {
			path = append([]int{int(at.Frame)}, path...)
		}
		o := whole
		o.Root = path
		tree, err := sel.Tree(o)
		if err != nil {
			t.Fatal(err)
		}
		checkTree(t, tree)
		if root := tree.Nodes[0]; root.Frame != n.Frame || root.Total != n.Total || root.Self != n.Self || len(tree.Ancestors) != 3 || tree.Ancestors[0].Total != all.Nodes[0].Total {
			t.Errorf("zoomed root is %+v, want %+v; ancestors %+v", root, n, tree.Ancestors)
		}
	}
	if _, err := sel.Tree(TreeOptions{Root: []int{1 << 20}}); err == nil {
		t.Error("a frame that is not there is zoomed into")
	}
}

// TestSandwich compares callers and callees with the stacks.
// wide is a profile whose tree has as many nodes as several walkers need.
func wide(t testing.TB, stacks int) *compact.Profile {
	t.Helper()
	var b bytes.Buffer
	if err := (proftest.Wide{Stacks: stacks, Shared: 8, Depth: 12}).Write(&b); err != nil {
		t.Fatal(err)
	}
	p, err := compact.Read(&b, profile.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestWalkers has one and several walkers build the same trees.
func TestWalkers(t *testing.T) {
	sel := selected(t, New(wide(t, 2*nodesOfAWalker), wide(t, nodesOfAWalker)), Filter{})
	trees := func() (all []*Tree) {
		for _, o := range []TreeOptions{
			{}, {MaxNodes: 100}, {MaxNodes: 20_000, MinShare: -1}, {MaxDepth: 3}, {Normalized: true}, {Inverted: true},
		} {
			tree, err := sel.Tree(o)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, tree)
		}
		frame := int(all[0].Nodes[len(all[0].Nodes)/2].Frame)
		for _, of := range []func(int, TreeOptions) (*Tree, error){sel.Callers, sel.Callees} {
			tree, err := of(frame, TreeOptions{})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, tree)
		}
		return all
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	want := trees()
	runtime.GOMAXPROCS(4)
	if n := len(sel.builder(TreeOptions{}).walkers); n != 4 {
		t.Fatalf("%d walkers", n)
	}
	for i, got := range trees() {
		if !reflect.DeepEqual(got, want[i]) {
			t.Errorf("tree %d differs from that of one walker: %d and %d nodes", i, len(got.Nodes), len(want[i].Nodes))
		}
	}
}

func BenchmarkTree(b *testing.B) {
	sel := selected(b, New(wide(b, 200_000), nil), Filter{})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := sel.Tree(TreeOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

// TestSourcesOfOneName has functions of two files that have one name: a static function of C, for one.
func TestSourcesOfOneName(t *testing.T) {
	m := proftest.New()
	app := m.Mapping("/usr/bin/app", proftest.AppID, 0x400000)
	a, b := m.Location(app, 0x400100, "helper"), m.Location(app, 0x400200, "helper")
	m.Profile.Function[0].Filename = "/src/a.c"
	other := &pprof.Function{ID: 2, Name: "helper", SystemName: "helper", Filename: "/src/b.c"}
	m.Profile.Function = append(m.Profile.Function, other)
	b.Line = []pprof.Line{{Function: other, Line: 105}}
	m.Sample("app", 1, 1, a)
	m.Sample("app", 1, 9, b)
	s := set(t, m.Profile, nil)
	if len(s.Frames()) != 1 || s.Frames()[0].Source != "" {
		t.Errorf("frames: %+v, want one of no certain source", s.Frames())
	}
	if top, err := summary.New(m.Profile, summary.Options{}); err != nil || len(top.Functions) != 1 || top.Functions[0].Source != "" {
		t.Errorf("report: %+v, %v", top, err)
	}
	sel := selected(t, s, Filter{SampleType: "samples"})
	var got []string
	for _, r := range sel.Lines(0) {
		got = append(got, fmt.Sprintf("%s:%d %d", r.Source, r.Line, r.Flat))
	}
	for _, r := range sel.Addresses(0) {
		got = append(got, fmt.Sprintf("%v %s:%d %d", r.Virt, r.Source, r.Line, r.Flat))
	}
	want := []string{"/src/b.c:105 9", "/src/a.c:10 1", "0x400100 /src/a.c:10 1", "0x400200 /src/b.c:105 9"}
	if !slices.Equal(got, want) {
		t.Errorf("lines and addresses are %q, want %q", got, want)
	}
	for _, f := range []struct {
		name   string
		filter Filter
		want   int64
	}{
		{"focus", Filter{Focus: regexp.MustCompile(`b\.c`)}, 9},
		{"ignore", Filter{Ignore: regexp.MustCompile(`b\.c`)}, 1},
		{"hide", Filter{Hide: regexp.MustCompile(`a\.c`)}, 9},
		{"show", Filter{Show: regexp.MustCompile(`a\.c`)}, 1},
		{"by name", Filter{Focus: regexp.MustCompile(`helper`)}, 10},
	} {
		f.filter.SampleType = "samples"
		if n := selected(t, s, f.filter).Total(); n != f.want {
			t.Errorf("%s: %d samples, want %d", f.name, n, f.want)
		}
	}
	if found := finds(t, sel, `b\.c`); len(found.Frames) != 1 || found.Total != 9 {
		t.Errorf("search finds %+v", found)
	}
}

func TestSandwich(t *testing.T) {
	for name, p := range profiles() {
		s := set(t, p, nil)
		sel := selected(t, s, Filter{SampleType: "samples"})
		stacks, values := stacksOf(p, 0)
		for _, row := range sel.Functions() {
			f := s.Frames()[row.Frame]
			own := f.Name + "@" + s.Binaries()[f.Binary].File
			var callers, callees [][]string
			var counts []int64
			for i, stack := range stacks {
				at := slices.Index(stack, own)
				if at < 0 {
					continue
				}
				counts = append(counts, values[i])
				callees = append(callees, stack[at+1:])
				above := slices.Clone(stack[:at])
				slices.Reverse(above)
				callers = append(callers, above)
			}
			for _, c := range []struct {
				tree   func(int, TreeOptions) (*Tree, error)
				stacks [][]string
			}{{sel.Callers, callers}, {sel.Callees, callees}} {
				tree, err := c.tree(row.Frame, whole)
				if err != nil {
					t.Fatal(err)
				}
				if tree.Nodes[0].Total != row.Cum {
					t.Errorf("%s: sandwich of %s has %d, want %d", name, f.Name, tree.Nodes[0].Total, row.Cum)
				}
				if got, want := pathsOf(s, tree), paths(c.stacks, counts); !reflect.DeepEqual(got, want) {
					t.Fatalf("%s: sandwich of %s is\n%v\nwant\n%v", name, f.Name, got, want)
				}
			}
		}
	}
}

// TestFilters compares what filters choose with the same done to the profile.
func TestFilters(t *testing.T) {
	for name, p := range profiles() {
		s := set(t, p, nil)
		re := regexp.MustCompile("^f[a-f]$|walk")
		stacks, values := stacksOf(p, 0)
		match := func(f string) bool { name, _, _ := strings.Cut(f, "@"); return re.MatchString(name) }
		for _, c := range []struct {
			what  string
			f     Filter
			stack func(i int, stack []string) ([]string, bool)
		}{
			{"focus", Filter{Focus: re}, func(_ int, s []string) ([]string, bool) { return s, slices.ContainsFunc(s, match) }},
			{"ignore", Filter{Ignore: re}, func(_ int, s []string) ([]string, bool) { return s, !slices.ContainsFunc(s, match) }},
			{"hide", Filter{Hide: re}, func(_ int, s []string) ([]string, bool) {
				s = slices.DeleteFunc(slices.Clone(s), match)
				return s, len(s) > 0
			}},
			{"show", Filter{Show: re}, func(_ int, s []string) ([]string, bool) {
				s = slices.DeleteFunc(slices.Clone(s), func(f string) bool { return !match(f) })
				return s, len(s) > 0
			}},
			{"process", Filter{Labels: []LabelFilter{{Key: "process", Values: []string{"pa", "app"}}}}, func(i int, s []string) ([]string, bool) {
				n, _ := profile.Process(p.Sample[i])
				return s, n == "pa" || n == "app"
			}},
			{"no pid", Filter{Labels: []LabelFilter{{Key: "pid", Values: []string{"3", "10", ""}, Not: true}}}, func(i int, s []string) ([]string, bool) {
				pid := p.Sample[i].NumLabel["pid"]
				return s, len(pid) > 0 && pid[0] != 3 && pid[0] != 10
			}},
		} {
			c.f.SampleType = "samples"
			sel := selected(t, s, c.f)
			var left [][]string
			var counts []int64
			total := int64(0)
			for i, stack := range stacks {
				if stack, ok := c.stack(i, stack); ok {
					left, counts = append(left, stack), append(counts, values[i])
					total += values[i]
				}
			}
			if sel.Total() != total {
				t.Errorf("%s: %s counts %d, want %d", name, c.what, sel.Total(), total)
			}
			if total == 0 {
				continue
			}
			for _, inverted := range []bool{false, true} {
				o := whole
				o.Inverted = inverted
				if inverted {
					for i := range left {
						left[i] = slices.Clone(left[i])
						slices.Reverse(left[i])
					}
				}
				tree, _ := sel.Tree(o)
				if got, want := pathsOf(s, tree), paths(left, counts); !reflect.DeepEqual(got, want) {
					t.Fatalf("%s: %s gives\n%v\nwant\n%v", name, c.what, got, want)
				}
			}
		}
	}
}

func TestTimes(t *testing.T) {
	p := labelled(5, 400)
	s := set(t, p, nil)
	const from, to = 1e18 + 2e8, 1e18 + 7e8
	in, all, first := int64(0), int64(0), int64(math.MaxInt64)
	for _, sample := range p.Sample {
		for _, at := range profile.Times(sample) {
			first = min(first, at)
		}
	}
	for _, sample := range p.Sample {
		if times := profile.Times(sample); len(times) > 0 {
			v := sample.Value[0]
			for i, at := range times { // the second one has the rest
				if at >= from && at < to {
					in += v/2 + int64(i)*(v%2)
				}
			}
			all += v
		}
	}
	sel := selected(t, s, Filter{SampleType: "samples", From: from - first, To: to - first})
	if sel.Total() != in || in == 0 {
		t.Errorf("in the range are %d, want %d", sel.Total(), in)
	}
	line := selected(t, s, Filter{SampleType: "samples"}).Timeline(TimelineOptions{Buckets: 10, By: "process"})
	got := int64(0)
	for _, track := range line.Tracks {
		sum := int64(0)
		for _, v := range track.Values {
			sum += v
		}
		if sum != track.Total {
			t.Errorf("track %q counts %d, and %d in parts", track.Label, track.Total, sum)
		}
		got += sum
	}
	if got != all || len(line.Tracks) < 3 {
		t.Errorf("timeline counts %d, want %d; %d tracks", got, all, len(line.Tracks))
	}
	if one := selected(t, s, Filter{}).Timeline(TimelineOptions{Buckets: 3, MaxTracks: 1, By: "process"}); len(one.Tracks) != 1 || one.Left != len(line.Tracks)-1 {
		t.Errorf("%d tracks, %d left", len(one.Tracks), one.Left)
	}
}

// TestDifference compares two builds of one program.
func TestDifference(t *testing.T) {
	made := func(id string, loop, walk int64) *pprof.Profile {
		m := proftest.New()
		app := m.Mapping("/opt/"+id[:2]+"/app", id, 0x400000)
		lib := m.Mapping("/lib/libc.so.6", proftest.LibID, 0x7f0000000000)
		main := m.Location(app, 0x401000, "main")
		m.Sample("app", 1, loop, m.Location(app, 0x402000+uint64(loop), "loop"), main)
		m.Sample("app", 1, walk, m.Location(lib, 0x7f0000001000, "memcpy"), m.Location(app, 0x403000, "walk"), main)
		return m.Profile
	}
	s := set(t, made(proftest.AppID, 10, 30), made(proftest.KernelID, 10, 10))
	sel := selected(t, s, Filter{SampleType: "samples"})
	if sel.Total() != 40 || sel.BaseTotal() != 20 || sel.Scale() != 2 {
		t.Fatalf("%d, %d", sel.Total(), sel.BaseTotal())
	}
	if len(s.Binaries()) != 2 || s.Binaries()[0].BuildID != proftest.AppID || s.Binaries()[0].BaseBuildID != proftest.KernelID {
		t.Fatalf("binaries are %+v", s.Binaries())
	}
	if part := selected(t, s, Filter{SampleType: "samples", Focus: regexp.MustCompile("memcpy")}); part.Total() != 30 || part.Scale() != 2 {
		t.Errorf("of a part, %d samples, the base counts %v times; want as of the whole", part.Total(), part.Scale())
	}
	got := []string{}
	for _, r := range sel.Changes(sel.Scale()) {
		got = append(got, fmt.Sprint(s.Frames()[r.Frame].Name, " ", r.Flat, r.BaseFlat, r.Cum, r.BaseCum, r.Change(2)))
	}
	want := []string{"loop 10 10 10 10 -10", "memcpy 30 10 30 10 10", "walk 0 0 30 10 0", "main 0 0 40 20 0"}
	slices.SortStableFunc(got[:2], cmp.Compare)
	if !slices.Equal(got, want) {
		t.Errorf("changes are %q, want %q", got, want)
	}
	tree, _ := sel.Tree(whole)
	for _, n := range tree.Nodes[1:] {
		if s.Frames()[n.Frame].Name == "memcpy" && (n.Total != 30 || n.BaseTotal != 10 || n.BaseSelf != 10) {
			t.Errorf("memcpy is %+v", n)
		}
	}
	if len(tree.Nodes) != 5 {
		t.Errorf("%d nodes", len(tree.Nodes))
	}
}

// TestOtherBuilds has programs of one name in two profiles: what may be the same program, and what nobody knows to be.
func TestOtherBuilds(t *testing.T) {
	type program struct{ file, id string }
	made := func(programs []program) *pprof.Profile {
		m := proftest.New()
		for i, p := range programs {
			m.Sample("app", 1, 1, m.Location(m.Mapping(p.file, p.id, uint64(i+1)<<32), uint64(i+1)<<32+16, "main"))
		}
		return m.Profile
	}
	ids := func(n byte) string { return strings.Repeat(string([]byte{'0' + n, 'a'}), 20) }
	for _, test := range []struct {
		name         string
		base, own    []program
		functions    int
		baseBuildIDs []string
	}{
		{"path", []program{{"/srv/app", ids(1)}}, []program{{"/srv/app", ids(2)}}, 1, []string{ids(1)}},
		{"name", []program{{"/srv/1/app", ids(1)}}, []program{{"/srv/2/app", ids(2)}}, 1, []string{ids(1)}},
		{"two in the base", []program{{"/srv/x/app", ids(1)}, {"/srv/y/app", ids(2)}}, []program{{"/srv/z/app", ids(3)}}, 3, []string{""}},
		{"two in the profile", []program{{"/srv/z/app", ids(3)}}, []program{{"/srv/x/app", ids(1)}, {"/srv/y/app", ids(2)}}, 3, []string{"", ""}},
		{"the same, and another one", []program{{"/a/app", ids(1)}, {"/b/app", ids(2)}}, []program{{"/a/app", ids(1)}}, 2, []string{""}},
		{"two builds of a path", []program{{"/a/app", ids(1)}, {"/a/app", ids(2)}}, []program{{"/a/app", ids(3)}}, 3, []string{""}},
		{"no identity before", []program{{"/a/app", ""}}, []program{{"/a/app", ids(1)}}, 1, []string{""}},
		{"no identity after", []program{{"/a/app", ids(1)}}, []program{{"/a/app", ""}}, 1, []string{ids(1)}},
	} {
		s := set(t, made(test.own), made(test.base))
		if len(s.Frames()) != test.functions {
			t.Errorf("%s: %d functions, want %d", test.name, len(s.Frames()), test.functions)
		}
		for i, want := range test.baseBuildIDs {
			if got := s.Binaries()[i].BaseBuildID; got != want {
				t.Errorf("%s: binary %d was %q before, want %q", test.name, i, got, want)
			}
		}
	}
}

// TestFold has a function that calls itself 400 times, and calls others from several of these.
func TestFold(t *testing.T) {
	m := proftest.New()
	app := m.Mapping("/srv/app", proftest.AppID, 1<<32)
	at := func(n uint64, name string) *pprof.Location { return m.Location(app, 1<<32+16*n, name) }
	main, walk, leaf, other := at(1, "main"), at(2, "walk"), at(3, "leaf"), at(4, "other")
	m.Sample("app", 1, 5, append([]*pprof.Location{leaf}, append(slices.Repeat([]*pprof.Location{walk}, 400), main)...)...)
	m.Sample("app", 1, 3, other, walk, walk, main)
	m.Sample("app", 1, 2, walk, walk, walk, main)
	m.Sample("app", 1, 1, walk, other, walk, main) // another function is in between
	s := set(t, m.Profile, nil)
	sel := selected(t, s, Filter{SampleType: "samples"})
	o := whole
	o.Fold = true
	tree, err := sel.Tree(o)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][3]int64{"": {11, 0, 0}, "main": {11, 0, 0}, "main;walk": {11, 2, 399}, "main;walk;leaf": {5, 5, 0}, "main;walk;other": {4, 3, 0}, "main;walk;other;walk": {1, 1, 0}}
	got, keys := map[string][3]int64{}, make([]string, len(tree.Nodes))
	path := []int{}
	for i, n := range tree.Nodes {
		if n.Parent >= 0 {
			keys[i] = strings.TrimPrefix(keys[n.Parent]+";"+s.Frames()[n.Frame].Name, ";")
		}
		if keys[i] == "main" || keys[i] == "main;walk" || keys[i] == "main;walk;other" {
			path = append(path, int(n.Frame))
		}
		got[keys[i]] = [3]int64{n.Total, n.Self, int64(n.Folded)}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	o.Root = path
	if tree, err = sel.Tree(o); err != nil || tree.Nodes[0].Total != 4 || len(tree.Nodes) != 2 || tree.Ancestors[2].Folded != 399 {
		t.Errorf("below a path: %+v, %v", tree, err)
	}
}

// TestOtherPrograms compares programs of other names by their functions, where nothing else can be meant.
func TestOtherPrograms(t *testing.T) {
	made := func(programs map[string]string) *pprof.Profile {
		m := proftest.New()
		at := uint64(0)
		for _, file := range slices.Sorted(maps.Keys(programs)) {
			at += 1 << 32
			mapping := m.Mapping(file, strings.Repeat(fmt.Sprintf("%02x", file[len(file)-1]), 20), at)
			for i, name := range strings.Fields(programs[file]) {
				m.Sample("app", 1, 1, m.Location(mapping, at+16*uint64(i+1), name))
			}
		}
		return m.Profile
	}
	for _, test := range []struct {
		name      string
		base, own map[string]string
		functions int
		baseFile  string
	}{
		{"one program", map[string]string{"/bin/a": "main deflate send"}, map[string]string{"/usr/bin/b": "main deflate crc"}, 4, "/bin/a"},
		{"few functions in common", map[string]string{"/bin/a": "main usage one two three"}, map[string]string{"/bin/b": "main usage four five six"}, 10, ""},
		{"what all have", map[string]string{"/bin/a": "_start main"}, map[string]string{"/bin/b": "_start main"}, 4, ""},
		{"the runtime of Go", map[string]string{"/bin/a": "main.main runtime.mallocgc runtime.gcDrain"}, map[string]string{"/bin/b": "main.main runtime.mallocgc runtime.gcDrain"}, 6, ""},
		{"two candidates", map[string]string{"/bin/a": "main work", "/bin/c": "main work"}, map[string]string{"/bin/b": "main work"}, 6, ""},
		{"two candidates now", map[string]string{"/bin/a": "main work"}, map[string]string{"/bin/b": "main work", "/bin/c": "main work"}, 6, ""},
		{"a library of both", map[string]string{"/bin/a": "main work", "/lib/z": "copy"}, map[string]string{"/bin/b": "main work", "/lib/z": "copy"}, 3, "/bin/a"},
	} {
		s := set(t, made(test.own), made(test.base))
		if len(s.Frames()) != test.functions || s.Binaries()[0].BaseFile != test.baseFile {
			t.Errorf("%s: %d functions, want %d; compared with %q, want %q", test.name, len(s.Frames()), test.functions, s.Binaries()[0].BaseFile, test.baseFile)
		}
	}
}

// TestKeys looks for what links rely on: a key is of one frame, and the same next time.
func TestKeys(t *testing.T) {
	p := labelled(3, 300)
	a, b := set(t, p, nil), set(t, p, labelled(4, 100))
	for i, f := range a.Frames() {
		n, ok := a.FrameByKey(f.Key)
		if !ok || n != i || len(f.Key) != 16 {
			t.Errorf("frame %d has the key %q of %d", i, f.Key, n)
		}
		if m, ok := b.FrameByKey(f.Key); !ok || b.Frames()[m].Name != f.Name {
			t.Errorf("%s has no key beside a base", f.Name)
		}
	}
}

// TestAddresses looks at lines, instructions and where they are.
func TestAddresses(t *testing.T) {
	p := proftest.Mixed()
	s := set(t, p, nil)
	sel := selected(t, s, Filter{SampleType: "samples"})
	frame := func(name string) int {
		return slices.IndexFunc(s.Frames(), func(f Frame) bool { return f.Name == name })
	}
	rows := sel.Addresses(frame("loop"))
	if len(rows) != 1 || rows[0].Offset != 0x3000 || rows[0].Flat != 5 || s.Frames()[rows[0].Frame].Name != "step" {
		t.Errorf("loop is at %+v", rows)
	}
	if lines := sel.Lines(frame("walk")); len(lines) != 1 || lines[0].Line != 10 || lines[0].Flat != 3 || lines[0].Cum != 3 {
		t.Errorf("walk has lines %+v", lines)
	}
	if who := sel.Of(frame("walk")).Processes(); len(who) != 1 || who[0].Name != "app" || who[0].Flat != 3 || !slices.Equal(who[0].PIDs, []int64{11}) {
		t.Errorf("walk is of %+v", who)
	}
	if rows := sel.ByLabel("pid"); len(rows) != 4 || rows[0].Value != "10" || rows[0].Flat != 6 {
		t.Errorf("pids are %+v", rows)
	}
	m := proftest.New()
	at := func(start, offset uint64) *pprof.Location {
		mapping := m.Mapping("/usr/bin/app", proftest.AppID, start)
		mapping.Offset = offset
		return m.Location(mapping, start+0x100, "f")
	}
	m.Sample("app", 1, 1, at(0x400000, 0))
	m.Sample("app", 1, 2, at(0x400000, 0x100000)) // another process
	m.Sample("app", 1, 4, at(0x700000, 0))
	var places []string
	for _, r := range selected(t, set(t, m.Profile, nil), Filter{SampleType: "samples"}).Addresses(0) {
		places = append(places, fmt.Sprintf("%#x %d", uint64(r.Offset), r.Flat))
	}
	if want := []string{"0x100 5", "0x100100 2"}; !slices.Equal(places, want) {
		t.Errorf("places are %q, want %q", places, want)
	}
	found := finds(t, sel, "^(walk|main)$")
	if len(found.Frames) != 3 || found.Total != 17 {
		t.Errorf("found %+v", found)
	}
}

// TestTimesOfTwo selects a range in two profiles of different days: it counts from the first sample of each.
func TestTimesOfTwo(t *testing.T) {
	made := func(begin int64) *pprof.Profile {
		m := proftest.New()
		app := m.Mapping("/usr/bin/app", proftest.AppID, 0x400000)
		for i, name := range []string{"early", "late"} {
			m.Sample("app", 1, 1, m.Location(app, 0x401000+uint64(i), name))
			s := m.Profile.Sample[i]
			s.NumLabel["timestamp"] = []int64{begin + int64(i)*1e9}
			s.NumUnit = map[string][]string{"timestamp": {"nanoseconds"}}
		}
		return m.Profile
	}
	s := set(t, made(86_400e9), made(1e9))
	sel := selected(t, s, Filter{SampleType: "samples", From: 5e8, To: 2e9})
	if sel.Total() != 1 || sel.BaseTotal() != 1 {
		t.Fatalf("%d and %d samples are late", sel.Total(), sel.BaseTotal())
	}
	for _, r := range sel.Functions() {
		if name := s.Frames()[r.Frame].Name; name != "late" {
			t.Errorf("%s is in the range", name)
		}
	}
}

// TestCoverageOfType has samples of two events, of which one is known.
func TestCoverageOfType(t *testing.T) {
	m := proftest.New()
	app := m.Mapping("/usr/bin/app", proftest.AppID, 0x400000)
	m.Profile.SampleType = append(m.Profile.SampleType, &pprof.ValueType{Type: "page-faults", Unit: "count"})
	m.Sample("app", 1, 3, m.Location(app, 0x401000, "main"))
	m.Sample("app", 1, 2, m.Location(nil, 0x401000), m.Location(app, 0x401010, "fault"))
	m.Profile.Sample[0].Value = []int64{3, 3 * proftest.Period, 0}
	m.Profile.Sample[1].Value = []int64{2, 0, 2}
	for kind, want := range map[string][3]int64{"cpu": {3, 3, 3}, "page-faults": {2, 4, 2}, "samples": {5, 7, 5}} {
		sel := selected(t, set(t, m.Profile, nil), Filter{SampleType: kind})
		c := sel.Coverage()
		if got := [3]int64{sel.Samples(), c.Frames, c.Symbolized}; got != want {
			t.Errorf("%s: samples, frames and named frames are %d, want %d", kind, got, want)
		}
		sum, err := summary.New(m.Profile, summary.Options{SampleType: kind})
		if err != nil {
			t.Fatal(err)
		}
		if got := [3]int64{sum.Samples, sum.Coverage.Frames, sum.Coverage.Symbolized}; got != want {
			t.Errorf("report of %s: samples, frames and named frames are %d, want %d", kind, got, want)
		}
	}
}

func TestSelectEnds(t *testing.T) {
	s := set(t, proftest.Mixed(), nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.SelectContext(ctx, Filter{Hide: regexp.MustCompile("x")}); !errors.Is(err, context.Canceled) {
		t.Errorf("selected: %v", err)
	}
	if _, err := selected(t, s, Filter{}).Find(ctx, regexp.MustCompile("x")); !errors.Is(err, context.Canceled) {
		t.Errorf("found: %v", err)
	}
}

// TestUnits compares a profile with one in another unit, which is the same, and with one that counts something else.
func TestUnits(t *testing.T) {
	made := func(unit string, value int64) *pprof.Profile {
		m := proftest.New()
		m.Sample("app", 1, 1, m.Location(m.Mapping("/usr/bin/app", proftest.AppID, 0x400000), 0x401000, "main"))
		m.Profile.SampleType[1].Unit = unit
		m.Profile.Sample[0].Value[1] = value
		return m.Profile
	}
	for unit, value := range map[string]int64{"nanoseconds": 10e9, "milliseconds": 10_000, "seconds": 10} {
		sel := selected(t, set(t, made("microseconds", 10e6), made(unit, value)), Filter{SampleType: "cpu"})
		if sel.Total() != 10e6 || sel.BaseTotal() != 10e6 {
			t.Errorf("%s: %d, and before %d %s", unit, sel.Total(), sel.BaseTotal(), sel.Unit())
		}
	}
	if _, err := set(t, made("nanoseconds", 1), made("count", 1)).Select(Filter{SampleType: "cpu"}); err == nil {
		t.Error("time is compared with a count")
	}
}

// TestSums has values that add up to more than 64 bits hold.
func TestSums(t *testing.T) {
	made := func(count, value int64) *pprof.Profile {
		m := proftest.New()
		at := m.Location(m.Mapping("/usr/bin/app", proftest.AppID, 0x400000), 0x401000, "main")
		for range 2 {
			m.Sample("app", 1, count, at, at, at, at)
		}
		m.Profile.Sample[0].Value[1], m.Profile.Sample[1].Value[1] = value, value
		return m.Profile
	}
	for name, p := range map[string]*pprof.Profile{
		"values": made(1, 1<<62), "negative": made(1, math.MinInt64), "frames": made(1<<60, 1),
	} {
		if _, err := set(t, p, nil).Select(Filter{SampleType: "cpu"}); !errors.Is(err, profile.ErrSum) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := summary.New(p, summary.Options{SampleType: "cpu"}); !errors.Is(err, profile.ErrSum) {
			t.Errorf("report of %s: %v", name, err)
		}
	}
	if got := selected(t, set(t, made(1, 1<<60), nil), Filter{SampleType: "cpu"}).Total(); got != 1<<61 {
		t.Errorf("total is %d", got)
	}
}
