// Command procmap measures how long it takes to find the mappings of a batch of
// addresses of one process: with package procmap, by parsing the text of
// /proc/PID/maps with its parser, and with github.com/prometheus/procfs.
//
// A batch starts with nothing but the process ID. Each round runs every contender for
// a few milliseconds, one after the other, and what is reported are medians over
// the rounds: CPU times, and ratios of times of the same round.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sort"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"hallmark/addr"
	"hallmark/bench/internal/trial"
	"hallmark/procmap"
)

var (
	rounds  = trial.Rounds("rounds", 21, "rounds of each measurement")
	only    = flag.Bool("patch", false, "only the setting of the kernel patch")
	mapMany = flag.Int("map", 0, "become the process to look at, with so many VMAs")
)

func main() {
	flag.Parse()
	if *mapMany > 0 {
		becomeTarget(*mapMany)
		return
	}
	if err := run(bufio.NewWriter(os.Stdout)); err != nil {
		fmt.Fprintln(os.Stderr, "procmap:", err)
		os.Exit(1)
	}
}

func run(w *bufio.Writer) error {
	if err := patchSetting(w); err != nil {
		return err
	}
	if !*only {
		if err := curve(w); err != nil {
			return err
		}
	}
	return w.Flush()
}

// A contender finds the mapping of each address of a process, and returns how many
// it found.
type contender struct {
	name string
	find func(pid int, addrs []addr.Abs) (int, error)
}

// fresh starts each batch with the ID of the process.
var fresh = []contender{
	{"query", translate(procmap.Query)},
	{"text", translate(procmap.Text)},
	{"parse", parse},
	{"procfs", prometheus},
}

// kept returns the contenders that can keep the process open from batch to batch.
func kept(pid int) (contenders []contender, closeAll func(), err error) {
	var open []io.Closer
	closeAll = func() {
		for _, c := range open {
			c.Close()
		}
	}
	for _, m := range []procmap.Method{procmap.Query, procmap.Text} {
		p, err := procmap.OpenOptions(pid, procmap.Options{Method: m})
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		open = append(open, p)
		contenders = append(contenders, contender{m.String(), func(_ int, addrs []addr.Abs) (int, error) {
			return count(p, addrs)
		}})
	}
	f, err := os.Open(mapsOf(pid))
	if err != nil {
		closeAll()
		return nil, nil, err
	}
	open = append(open, f)
	contenders = append(contenders, contender{"parse", func(_ int, addrs []addr.Abs) (int, error) {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return 0, err
		}
		return parseFrom(f, addrs)
	}})
	return contenders, closeAll, nil
}

func mapsOf(pid int) string { return fmt.Sprintf("/proc/%d/maps", pid) }

// translate asks package procmap in one of its ways.
func translate(m procmap.Method) func(int, []addr.Abs) (int, error) {
	return func(pid int, addrs []addr.Abs) (int, error) {
		p, err := procmap.OpenOptions(pid, procmap.Options{Method: m})
		if err != nil {
			return 0, err
		}
		defer p.Close()
		return count(p, addrs)
	}
}

func count(p *procmap.Process, addrs []addr.Abs) (int, error) {
	t, err := p.Translate(addrs)
	found := 0
	for _, n := range t.Index {
		if n >= 0 {
			found++
		}
	}
	return found, err
}

// parse reads all of the text with procmap's parser and searches the list.
func parse(pid int, addrs []addr.Abs) (int, error) {
	f, err := os.Open(mapsOf(pid))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return parseFrom(f, addrs)
}

func parseFrom(r io.Reader, addrs []addr.Abs) (int, error) {
	list, err := procmap.ReadText(r)
	return search(len(list), addrs, func(i int) (start, end uint64) {
		return uint64(list[i].Start), uint64(list[i].End)
	}), err
}

// prometheus reads the text with procfs and searches the list.
func prometheus(pid int, addrs []addr.Abs) (int, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	list, err := p.ProcMaps()
	return search(len(list), addrs, func(i int) (start, end uint64) {
		return uint64(list[i].StartAddr), uint64(list[i].EndAddr)
	}), err
}

// search counts the addresses that are in one of n ranges.
func search(n int, addrs []addr.Abs, at func(i int) (start, end uint64)) int {
	found := 0
	for _, a := range addrs {
		i := sort.Search(n, func(i int) bool { _, end := at(i); return end > uint64(a) })
		if i == n {
			continue
		}
		if start, _ := at(i); start <= uint64(a) {
			found++
		}
	}
	return found
}

// measure returns the time that each contender took in each round, for one batch.
func measure(contenders []contender, pid int, addrs []addr.Abs) (map[string][]time.Duration, error) {
	times := map[string][]time.Duration{}
	repeats := map[string]int{}
	want := -1
	for _, c := range contenders {
		took, found, err := repeat(c, pid, addrs, 3)
		if err != nil {
			return nil, err
		}
		if want >= 0 && found != want {
			return nil, fmt.Errorf("%s found %d of %d addresses, the others %d", c.name, found, len(addrs), want)
		}
		want = found
		repeats[c.name] = int(turn/took) + 1
	}
	for range *rounds {
		for _, c := range contenders {
			took, _, err := repeat(c, pid, addrs, repeats[c.name])
			if err != nil {
				return nil, err
			}
			times[c.name] = append(times[c.name], took)
		}
	}
	return times, nil
}

// turn is for how long a contender runs in a round, at least once.
const turn = 2 * time.Millisecond

// repeat returns the time that a contender takes for a batch, on average over n.
func repeat(c contender, pid int, addrs []addr.Abs, n int) (took time.Duration, found int, err error) {
	start := cpuTime()
	for range n {
		if found, err = c.find(pid, addrs); err != nil {
			return 0, 0, err
		}
	}
	return (cpuTime() - start) / time.Duration(n), found, nil
}

// cpuTime returns the CPU time of this process, garbage collection included: on a
// machine that does other things too it varies less than the time of the clock.
func cpuTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts); err != nil {
		panic(err) // the clock exists everywhere
	}
	return time.Duration(ts.Nano())
}

func median(times []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(times))
	return sorted[len(sorted)/2]
}

// ratio returns the median of the ratios of two contenders in the same round.
func ratio(a, b []time.Duration) string {
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = float64(a[i]) / float64(b[i])
	}
	slices.Sort(ratios)
	r := ratios[len(ratios)/2]
	if r < 10 {
		return fmt.Sprintf("%.2f", r)
	}
	return fmt.Sprintf("%.0f", r)
}

func micros(d time.Duration) string {
	us := float64(d) / 1e3
	if us < 100 {
		return fmt.Sprintf("%.1f", us)
	}
	return fmt.Sprintf("%.0f", us)
}

// patchSetting repeats the measurement of the patch that brought PROCMAP_QUERY
// ("selftests/bpf: add simple benchmark tool for /proc/<pid>/maps APIs", June
// 2024): stacks of a production application with 655 VMAs, 3244 addresses of which
// 464 are different, in 5 VMAs. It reports 333 µs for text, 8 µs for queries.
func patchSetting(w *bufio.Writer) error {
	const vmas, inVMAs, unique, all = 655, 5, 464, 3244
	t, err := startTarget(vmas)
	if err != nil {
		return err
	}
	defer t.stop()
	rng := rand.New(rand.NewPCG(6, 11))
	different := t.stacks(rng, unique, inVMAs)
	repeated := make([]addr.Abs, all)
	for i := range repeated {
		repeated[i] = different[rng.IntN(unique)]
	}
	sorted := slices.Sorted(slices.Values(repeated))
	keeping, done, err := kept(t.pid)
	if err != nil {
		return err
	}
	defer done()
	fmt.Fprintf(w, "%d VMAs, addresses in %d of them:\n\n", len(t.vmas), inVMAs)
	fmt.Fprintln(w, "| process | addresses | query µs | text µs | parse µs | procfs µs | text/query | parse/query | procfs/query |")
	fmt.Fprintln(w, "|---|---|--:|--:|--:|--:|--:|--:|--:|")
	for _, process := range []struct {
		name       string
		contenders []contender
	}{{"opened for each batch", fresh}, {"kept open", keeping}} {
		for _, batch := range []struct {
			name  string
			addrs []addr.Abs
		}{
			{"464, all different", different},
			{"3244, 464 different", repeated},
			{"3244, 464 different, sorted", sorted},
		} {
			times, err := measure(process.contenders, t.pid, batch.addrs)
			if err != nil {
				return err
			}
			patchRow(w, process.name, batch.name, times)
		}
	}
	fmt.Fprintln(w)
	return w.Flush()
}

func patchRow(w io.Writer, process, batch string, times map[string][]time.Duration) {
	query := times["query"]
	procfsTime, procfsRatio := "", ""
	if fs := times["procfs"]; fs != nil {
		procfsTime, procfsRatio = micros(median(fs)), ratio(fs, query)
	}
	fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", process, batch,
		micros(median(query)), micros(median(times["text"])), micros(median(times["parse"])), procfsTime,
		ratio(times["text"], query), ratio(times["parse"], query), procfsRatio)
}

// curve measures batches of many sizes against processes of many sizes.
func curve(w *bufio.Writer) error {
	fmt.Fprintln(w, "| addresses | VMAs | batch | hit | query µs | text µs | parse µs | procfs µs | text/query | parse/query | procfs/query |")
	fmt.Fprintln(w, "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
	for _, vmas := range []int{50, 500, 2000, 8000, 30000} {
		if err := curveOf(w, vmas); err != nil {
			return err
		}
	}
	return nil
}

func curveOf(w *bufio.Writer, vmas int) error {
	t, err := startTarget(vmas)
	if err != nil {
		return err
	}
	defer t.stop()
	rng := rand.New(rand.NewPCG(uint64(vmas), 1))
	for _, kind := range []string{"stacks", "uniform"} {
		for _, n := range []int{1, 10, 100, 400, 1000, 10000} {
			addrs := t.uniform(rng, n)
			if kind == "stacks" {
				addrs = t.stacks(rng, n, stackVMAs)
			}
			times, err := measure(fresh, t.pid, addrs)
			if err != nil {
				return err
			}
			query, text, parsed, fs := times["query"], times["text"], times["parse"], times["procfs"]
			fmt.Fprintf(w, "| %s | %d | %d | %d | %s | %s | %s | %s | %s | %s | %s |\n",
				kind, len(t.vmas), n, t.hit(addrs), micros(median(query)), micros(median(text)),
				micros(median(parsed)), micros(median(fs)),
				ratio(text, query), ratio(parsed, query), ratio(fs, query))
			if err := w.Flush(); err != nil {
				return err
			}
		}
	}
	return nil
}
