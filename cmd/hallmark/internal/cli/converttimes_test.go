package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hallmark/internal/testenv"
)

// perfThreads records with perf, and returns how many samples perf has of each thread.
func perfThreads(t *testing.T) (file string, threads map[string]int) {
	t.Helper()
	perf := testenv.Tool(t, "perf")
	file = filepath.Join(t.TempDir(), "perf.data")
	home := append(os.Environ(), "HOME="+t.TempDir()) // what perf keeps of build IDs belongs to the test
	record := exec.Command(perf, "record", "-q", "--buildid-mmap", "-g", "-e", "cpu-clock", "-F", "999", "-o", file, "--",
		"sh", "-c", fmt.Sprintf("head -c 4000000 %s | gzip -1 | wc -c >&2", os.Args[0]))
	record.Env = home
	if out, err := record.CombinedOutput(); err != nil {
		t.Fatalf("perf record: %v\n%s", err, out)
	}
	script := exec.Command(perf, "script", "-F", "tid,time", "-i", file)
	script.Env = home
	out, err := script.Output()
	if err != nil {
		t.Fatalf("perf script: %v", err)
	}
	threads = map[string]int{}
	for line := range strings.Lines(string(out)) {
		if tid := strings.Fields(line)[0]; tid != "-1" { // a task that has ended
			threads[tid]++
		}
	}
	return file, threads
}

// TestTimesOfPerf converts a recording by perf to the formats that show time: every thread
// has as many samples as perf says, and each its time.
func TestTimesOfPerf(t *testing.T) {
	file, want := perfThreads(t)
	for format, count := range map[string]func(*testing.T, string) map[string]int{
		"speedscope": speedscopeThreads, "firefox": firefoxThreads,
	} {
		t.Run(format, func(t *testing.T) {
			got := count(t, hallmark(t, "convert", "--no-symbols", "--format", format, "-o", "-", file))
			if !maps.Equal(got, want) {
				t.Errorf("samples by thread are %v, perf has %v", got, want)
			}
		})
	}
}

func speedscopeThreads(t *testing.T, text string) map[string]int {
	t.Helper()
	var f struct {
		Profiles []struct {
			Name    string
			Samples [][]int
		}
	}
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		t.Fatal(err)
	}
	all := map[string]int{}
	for _, p := range f.Profiles {
		_, thread, ok := strings.Cut(p.Name, ", thread ")
		if !ok {
			continue // the sum of all, or what has no thread
		}
		tid := thread[strings.LastIndex(thread, "(")+1 : len(thread)-1]
		for _, s := range p.Samples {
			if len(s) > 0 { // else nothing ran
				all[tid]++
			}
		}
	}
	return all
}

func firefoxThreads(t *testing.T, text string) map[string]int {
	t.Helper()
	var f struct {
		Threads []struct {
			TID     int64
			Samples struct {
				Length int
				Time   []float64
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		t.Fatal(err)
	}
	all := map[string]int{}
	for _, thread := range f.Threads {
		if tid := fmt.Sprint(thread.TID); tid != "0" {
			all[tid] += thread.Samples.Length
		}
		if times := thread.Samples.Time; !slices.IsSorted(times) || len(slices.Compact(slices.Clone(times))) < len(times)*9/10 {
			t.Errorf("thread %v: times are not those of samples: %v", thread.TID, times)
		}
	}
	return all
}
