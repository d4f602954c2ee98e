package capture

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"hallmark/internal/testenv"
	"hallmark/profile"
)

var peer = flag.String("hallmark", "", "the hallmark whose --backend stackmap is tried by BenchmarkNeverWrong")

// peers are the ways of others.
var peers = []recorder{
	{"perf --buildid-mmap", func(t testing.TB) { testenv.Tool(t, "perf") }, recordPerf},
	{"stackmap", func(t testing.TB) { testenv.Need(t, *peer != "", "-hallmark") }, recordStackmap},
}

// withCommand records with a command that ends at an interrupt.
func withCommand(t testing.TB, during func(), args ...string) {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second) // until it records: it does not say when
	during()
	_ = cmd.Process.Signal(os.Interrupt)
	if err := cmd.Wait(); err != nil {
		t.Logf("%s: %v\n%s", args[0], err, said.Bytes())
	}
}

func recordStackmap(t testing.TB, _ []int, during func()) []sampled {
	file := filepath.Join(t.TempDir(), "stackmap.pb.gz")
	withCommand(t, during, *peer, "record", "-a", "--backend", "stackmap", "--no-symbols", "-F", strconv.Itoa(tortureFrequency), "-o", file)
	p, err := profile.ReadFile(file, profile.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return ofProfile(p)
}

func recordPerf(t testing.TB, _ []int, during func()) []sampled {
	file := filepath.Join(t.TempDir(), "perf.data")
	withCommand(t, during, "perf", "record", "-q", "-a", "-B", "--buildid-mmap", "-e", "cpu-clock:u", "-F", strconv.Itoa(tortureFrequency), "-o", file)
	script := exec.Command("perf", "script", "-i", file, "--show-mmap-events", "--show-task-events", "-F", "comm,pid,tid,time,event,ip")
	out, err := script.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := script.Start(); err != nil {
		t.Fatal(err)
	}
	p := &perfText{maps: map[int][]perfMapping{}, counts: map[sampled]int64{}}
	p.read(out)
	if err := script.Wait(); err != nil {
		t.Logf("perf script: %v", err)
	}
	return p.samples()
}

// perfText applies what perf script prints, in its order.
type perfText struct {
	maps   map[int][]perfMapping // by process, the newest last
	counts map[sampled]int64
}

type perfMapping struct {
	start, size, offset uint64
	id, path            string
}

var (
	perfLine = regexp.MustCompile(`^ *(.+?) +(-?\d+)/(-?\d+) +[\d.]+: +(.*)$`)
	perfMap  = regexp.MustCompile(`^PERF_RECORD_MMAP2? (\d+)/\d+: \[(0x[0-9a-f]+)\((0x[0-9a-f]+)\) @ (\S+) (?:<([0-9a-f]*)>|[^]]*)\]: (\S+) (.*)$`)
	perfFork = regexp.MustCompile(`^PERF_RECORD_FORK\((\d+):(\d+)\):\((\d+):(\d+)\)`)
	perfIP   = regexp.MustCompile(`^cpu-clock\S* +([0-9a-f]+)$`)
)

func (p *perfText) read(r io.Reader) {
	for lines := bufio.NewScanner(r); lines.Scan(); {
		line := perfLine.FindStringSubmatch(strings.TrimRight(lines.Text(), " "))
		if line == nil {
			continue
		}
		pid, _ := strconv.Atoi(line[2])
		p.event(who{pid, line[1]}, line[4])
	}
}

func (p *perfText) event(w who, text string) {
	if m := perfMap.FindStringSubmatch(text); m != nil {
		pid, _ := strconv.Atoi(m[1]) // perf's own records of what was there before are of nobody
		p.maps[pid] = append(p.maps[pid], perfMapping{hex(m[2]), hex(m[3]), hex(m[4]), m[5], m[7]})
	} else if f := perfFork.FindStringSubmatch(text); f != nil && f[1] != f[3] {
		child, _ := strconv.Atoi(f[1])
		parent, _ := strconv.Atoi(f[3])
		p.maps[child] = slices.Clone(p.maps[parent])
	} else if strings.HasPrefix(text, "PERF_RECORD_COMM exec") {
		delete(p.maps, w.pid)
	} else if ip := perfIP.FindStringSubmatch(text); ip != nil {
		p.counts[p.sample(w, hex(ip[1]))]++
	}
}

func hex(s string) uint64 {
	n, _ := strconv.ParseUint(strings.TrimPrefix(s, "0x"), 16, 64)
	return n
}

func (p *perfText) sample(w who, ip uint64) sampled {
	for _, m := range slices.Backward(p.maps[w.pid]) {
		if ip-m.start >= m.size {
			continue
		}
		s := sampled{who: w, file: m.path, id: m.id, offset: ip - m.start + m.offset}
		if m.id == "" {
			s.why = "no build ID"
		}
		return s
	}
	return sampled{who: w, file: "[not-mapped]", why: "not-mapped"}
}

func (p *perfText) samples() []sampled {
	var all []sampled
	for s, n := range p.counts {
		s.n = n
		all = append(all, s)
	}
	return all
}

// BenchmarkNeverWrong plays the scenes for our backends and for others, and prints
// what each knew: the table of bench/README.md.
func BenchmarkNeverWrong(b *testing.B) {
	all := append(slices.Clone(recorders), peers...)
	var verdicts []map[string]*verdict
	for _, r := range all {
		r.need(b)
		x := newTorture(b)
		verdicts = append(verdicts, x.judge(x.play(chosen(), func(during func()) []sampled { return r.record(b, x.running, during) })))
	}
	fmt.Print("\n| scene |")
	for _, r := range all {
		fmt.Printf(" %s |", r.name)
	}
	fmt.Printf("\n|---|%s\n", strings.Repeat("--:|", len(all)))
	for _, s := range chosen() {
		fmt.Printf("| %s |", s.name)
		for _, v := range verdicts {
			fmt.Printf(" %s |", v[s.name])
		}
		fmt.Println()
	}
}

// String returns the share that is right; the share that is wrong, if any; and the
// reason of most of the rest.
func (v *verdict) String() string {
	if v == nil || v.all() == 0 {
		return "no samples"
	}
	share := func(n int64) float64 { return 100 * float64(n) / float64(v.all()) }
	s := fmt.Sprintf("%.0f", share(v.right))
	if v.wrong > 0 {
		s += fmt.Sprintf(" **%.0f wrong**", share(v.wrong))
	}
	reasons := slices.SortedFunc(maps.Keys(v.unknown), func(a, b string) int { return int(v.unknown[b] - v.unknown[a]) })
	if len(reasons) > 0 && share(v.unknown[reasons[0]]) >= 1 {
		s += " " + reasons[0]
	}
	return s
}
