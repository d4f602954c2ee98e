package capture

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"

	"hallmark/internal/proctest"
	"hallmark/internal/testenv"
	"hallmark/profile"
)

// TestRewrittenPages wants a page that a process has rewritten in its memory to lose the identity
// of the file, in that process alone, and no other page to lose it. The same is wanted of pages that
// processes have copied to anonymous memory.
func TestRewrittenPages(t *testing.T) {
	for name, c := range map[string]struct {
		long    bool // one of the long form
		library bool
		args    []string
		other   string // what another process does
	}{
		"before":         {false, false, []string{"before"}, "never"},
		"during":         {true, false, []string{"during", "1500"}, "never"},
		"library before": {true, true, []string{"before"}, "never"},
		"library during": {false, true, []string{"during", "1500"}, "never"},
		"copied":         {false, false, []string{"copied", "3000"}, "copies"},
		"library copied": {true, true, []string{"copied", "3000"}, "copies"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.long && !testenv.Thorough() {
				t.Skip("left to HALLMARK_THOROUGH=1")
			}
			eachBackend(t, func(t *testing.T, b Backend) { recordRewritten(t, b, c.library, c.args, c.other) })
		})
	}
}

// often is how many samples a second are taken: the programs rest for three quarters of the time, and each of
// several places of theirs is to have some.
const often = 499

func recordRewritten(t *testing.T, backend Backend, library bool, args []string, otherDoes string) {
	program, file := proctest.BuildRewrite(t, library)
	patcher := proctest.Start(t, append([]string{program}, args...)...)
	other := proctest.Start(t, program, otherDoes)
	time.Sleep(50 * time.Millisecond)
	long := 3 * time.Second
	switch args[0] {
	case "during":
		long = 4 * time.Second
	case "copied": // a page that is first met when it was rewritten is no copy
		long = 6 * time.Second
	}
	p, _, _ := recordSession(t, context.Background(),
		Options{Backend: backend, PIDs: []int{patcher, other}, Frequency: often, Duration: long})
	counts := leaves(p)
	want := proctest.FileID(t, file).String()
	t.Log(counts)
	for in, n := range counts {
		if strings.HasPrefix(in, fmt.Sprintf("%d patched", patcher)) || strings.HasPrefix(in, fmt.Sprintf("%d [rewritten]", other)) {
			t.Errorf("%d samples of %q", n, in)
		}
	}
	for _, in := range []string{
		fmt.Sprintf("%d [rewritten] %s", patcher, file),
		fmt.Sprintf("%d kept %s", patcher, want),
		fmt.Sprintf("%d kept %s", other, want),
		fmt.Sprintf("%d patched %s", other, want),
	} {
		if counts[in] < 20 {
			testenv.Lack(t, "%d samples of %q", counts[in], in)
		}
	}
	notes := profile.Rewritten(p)
	if want := fmt.Sprintf("1 page of %s by process rewrite (%d)", file, patcher); len(notes) != 1 || !strings.HasSuffix(notes[0], want) {
		t.Errorf("notes %q, want one that ends in %q", notes, want)
	}
}

// TestRewrittenAmongMany wants a program to hide its rewritten page in no number of others: it takes
// longer to compare them with the file than a look may take.
func TestRewrittenAmongMany(t *testing.T) {
	program, _ := proctest.BuildRewrite(t, false)
	const others = 25000
	patcher := proctest.Start(t, program, "many", strconv.Itoa(others))
	for until := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		list, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", patcher))
		if bytes.Count(list, []byte(program)) > others {
			break
		}
		if err != nil || time.Now().After(until) {
			t.Fatal("the program has not mapped its pages:", err)
		}
	}
	eachBackend(t, func(t *testing.T, b Backend) {
		p, _, _ := recordSession(t, context.Background(), Options{Backend: b, PIDs: []int{patcher}, Frequency: often, Duration: 2 * time.Second})
		counts := leaves(p)
		t.Log(counts, profile.Rewritten(p))
		if in := fmt.Sprintf("%d [rewritten] %s", patcher, program); counts[in] < 20 {
			testenv.Lack(t, "%d samples of %q", counts[in], in)
		}
		for in, n := range counts {
			if strings.Contains(in, " patched ") {
				t.Errorf("%d samples of %q", n, in)
			}
		}
		if len(profile.Rewritten(p)) == 0 {
			t.Error("no note")
		}
	})
}

// TestRewrittenBesideOthers wants a program to hide its rewritten page neither by ending its first
// thread, without which /proc shows no mappings, nor by changing the mapping all the time: then the
// profile says at least that nobody knows it.
func TestRewrittenBesideOthers(t *testing.T) {
	program, _ := proctest.BuildRewrite(t, false)
	for _, way := range []string{"thread", "moving"} {
		t.Run(way, func(t *testing.T) {
			eachBackend(t, func(t *testing.T, b Backend) {
				p, _, _ := recordSession(t, context.Background(),
					Options{Backend: b, PIDs: []int{proctest.Start(t, program, way)}, Duration: 1500 * time.Millisecond})
				notes := profile.Rewritten(p)
				var patched, rewritten int64
				for in, n := range leaves(p) {
					if strings.Contains(in, " patched ") {
						patched += n
					}
					if strings.Contains(in, "[rewritten]") {
						rewritten += n
					}
				}
				t.Logf("%d samples in the page of the file, %d in the rewritten one; %q", patched, rewritten, notes)
				switch {
				case len(notes) == 0, patched > 0 && way == "thread":
					t.Errorf("%d samples are said to be of the file, with the notes %q", patched, notes)
				case patched > 0 && !strings.Contains(notes[len(notes)-1], "not known of"):
					t.Errorf("%d samples are said to be of the file, and nobody doubts it: %q", patched, notes)
				case patched+rewritten < 5: // moving mappings takes most of the time
					testenv.Lack(t, "%d samples", patched+rewritten)
				}
			})
		})
	}
}

// TestRewrittenVDSO wants the code that the kernel maps into each process to be looked at as files are.
func TestRewrittenVDSO(t *testing.T) {
	program, _ := proctest.BuildRewrite(t, false)
	pid := proctest.Start(t, program, "vdso")
	other := proctest.Start(t, program, "never")
	time.Sleep(50 * time.Millisecond)
	eachBackend(t, func(t *testing.T, b Backend) {
		p, _, _ := recordSession(t, context.Background(), Options{Backend: b, PIDs: []int{pid, other}, Frequency: often, Duration: time.Second})
		counts := leaves(p)
		if len(counts) < 4 {
			testenv.Lack(t, "samples are %v", counts)
		}
		want := []string{fmt.Sprintf("rewritten in memory: 1 page of [vdso] by process rewrite (%d)", pid)}
		if got := profile.Rewritten(p); !slices.Equal(got, want) {
			t.Errorf("notes %q, want %q", got, want)
		}
	})
}

// leaves counts samples by their process and their innermost frame: its function and the identity
// of its file, or the reason why it has none.
func leaves(p *pprof.Profile) map[string]int64 {
	counts := map[string]int64{}
	for _, s := range p.Sample {
		_, pid := profile.Process(s)
		l := s.Location[0]
		switch {
		case l.Mapping == nil || l.Mapping.BuildID == "" && l.Mapping.File == "":
		case l.Mapping.BuildID == "":
			counts[fmt.Sprintf("%d %s", pid, l.Mapping.File)] += s.Value[0]
		case len(l.Line) > 0:
			counts[fmt.Sprintf("%d %s %s", pid, l.Line[0].Function.Name, l.Mapping.BuildID)] += s.Value[0]
		}
	}
	return counts
}
