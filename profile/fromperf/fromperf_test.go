package fromperf

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"hallmark/internal/perftest"
	"hallmark/internal/testenv"
	"hallmark/perfdata"
	"hallmark/profile"
)

// perfRecord records a few programs that start each other.
func perfRecord(t *testing.T, args ...string) (file string) {
	t.Helper()
	file, _ = perfRecordNamed(t, args...)
	return file
}

// perfRecordNamed also returns how the names of these programs, and of no others, begin.
func perfRecordNamed(t *testing.T, args ...string) (file, names string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "perf.data")
	work, names := perftest.Work(t)
	perftest.RecordListed(t, file, slices.Concat(args, []string{"--"}, work)...)
	return file, names
}

func readFile(t *testing.T, file string, o Options) (*pprof.Profile, Stats) {
	t.Helper()
	r, err := perfdata.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p, stats, err := Read(r, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.CheckValid(); err != nil {
		t.Error(err)
	}
	return p, stats
}

// TestAgreesWithPerf compares every stack, frame by frame with file and offset, with
// what perf script makes of the same file.
func TestAgreesWithPerf(t *testing.T) {
	for _, test := range []struct {
		args  []string
		event string
		root  bool
	}{
		{args: []string{"-g", "-F", "999"}},
		{args: []string{"-g", "-F", "999", "--buildid-mmap"}},
		{args: []string{"-g", "-e", "cpu-clock,page-faults", "-F", "4999"}, event: "page-faults"},
		{args: []string{"-g", "-a", "-F", "499"}, root: true},
		{args: []string{"-z", perftest.Asks, "-g", "-F", "999", "-d"}},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			if test.root {
				testenv.Root(t)
			}
			file, names := perfRecordNamed(t, test.args...)
			p, stats := readFile(t, file, Options{Event: test.event})
			ours, theirs := ourStacks(t, p, everyReturn), perfStacks(t, file, test.event)
			if stats.Malformed != 0 || stats.Damage != nil {
				t.Errorf("%+v", stats)
			}
			if got, want := total(ours), total(theirs); got != want {
				t.Errorf("%d samples, perf has %d", got, want)
			}
			others := slices.Contains(test.args, "-a")
			if others {
				only(ours, names)
				only(theirs, names)
			}
			if n := total(ours); n < 5 {
				testenv.Lack(t, "%d samples", n)
			}
			oneName(t, file, ours, theirs)
			compareStacks(t, ours, theirs, others)
		})
	}
}

func total(stacks map[string]int64) (sum int64) {
	for _, n := range stacks {
		sum += n
	}
	return sum
}

// only leaves the stacks of programs whose names begin so: what others on the machine map and
// execute has classes of its own. A thread that has ended has no name for perf.
func only(stacks map[string]int64, names string) {
	maps.DeleteFunc(stacks, func(stack string, _ int64) bool {
		return !strings.HasPrefix(stack, names) && !strings.HasPrefix(stack, ended+"\n")
	})
}

// ended is the name that perf has for a thread that has ended.
const ended = ":-1"

// compareStacks wants the same stacks as often, but for what differs. Where others were
// recorded too, threads that have ended may be theirs.
func compareStacks(t *testing.T, ours, theirs map[string]int64, others bool) {
	t.Helper()
	for _, stack := range slices.Sorted(maps.Keys(ours)) {
		n := min(ours[stack], theirs[stack])
		ours[stack] -= n
		theirs[stack] -= n
		for other := range theirs {
			for ours[stack] > 0 && theirs[other] > 0 && differs(stack, other) {
				ours[stack]--
				theirs[other]--
			}
		}
	}
	for stack, n := range ours {
		if n != 0 {
			t.Errorf("%d times more than perf:\n%s", n, stack)
		}
	}
	for stack, n := range theirs {
		if n != 0 && !(others && strings.HasPrefix(stack, ended+"\n")) {
			t.Errorf("perf has %d times more:\n%s", n, stack)
		}
	}
}

// differs reports whether two stacks are the same but for this: a frame in data of a
// file, which perf takes for code; what was mapped before execve, which perf goes on
// to see; a thread that has lost its number, which we call as its process; samples that perf
// script prints no stack for at all; and one frame more in no file, which perf takes from the stack
// where code that nobody called ends: the dynamic linker's first instructions.
func differs(ours, theirs string) bool {
	a, b := strings.Split(ours, "\n"), strings.Split(theirs, "\n")
	if len(b) == 1 {
		return a[0] == b[0]
	}
	if len(b) == len(a)+1 && b[len(b)-1] == "?" {
		b = b[:len(a)]
	}
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		afterExec := i > 0 && a[i] == "?" && (a[i-1] == "?" || strings.HasSuffix(a[i-1], "[kernel]"))
		lost := i == 0 && b[i] == ended
		if a[i] != b[i] && a[i] != "data" && !afterExec && !lost {
			return false
		}
	}
	return true
}

// returns says of which callers perf shows return addresses.
type returns int

const (
	noReturn returns = iota
	kernelReturns
	everyReturn
)

// ourStacks returns how often each stack is in the profile, in the words of perfStacks. perf
// shows return addresses in call chains, and the calls before them in stacks that it unwinds.
func ourStacks(t *testing.T, p *pprof.Profile, shows returns) map[string]int64 {
	t.Helper()
	all := map[string]int64{}
	for _, s := range p.Sample {
		lines := []string{ended}
		if name := s.Label["thread"]; name != nil {
			lines[0] = strings.Join(strings.Fields(name[0]), " ")
		}
		kernel := false
		for i, l := range s.Location {
			was := kernel
			name := l.Mapping.File
			if _, file, ok := strings.Cut(name, "] "); ok { // it is known which file, but not its identity
				name = file
			}
			_, known := profile.Identity(l.Mapping)
			at := uint64(profile.FileOffset(l))
			kernel = name == "[kernel]" || at>>63 == 1 // a BPF program
			innermost := i == 0 || was && !kernel
			if !innermost && (shows == everyReturn || shows == kernelReturns && kernel) {
				at++
			}
			switch {
			case name == "[not-executable]":
				lines = append(lines, "data")
			case !known && name == l.Mapping.File:
				lines = append(lines, "?")
			default:
				lines = append(lines, fmt.Sprintf("%x %s", at, name))
			}
		}
		all[strings.Join(lines, "\n")] += s.Value[0]
	}
	return all
}

// perfStacks returns what perf script says: of files it shows the offset.
func perfStacks(t *testing.T, file, event string) map[string]int64 {
	t.Helper()
	text := kernelText(t, file)
	out := perftest.Run(t, "script", "--no-inline", "-F", "comm,event,ip,dso", "-i", file)
	all := map[string]int64{}
	var stack []string
	end := func() {
		if len(stack) > 0 {
			all[strings.Join(stack, "\n")]++
		}
		stack = nil
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0:
			end()
		case strings.HasSuffix(fields[len(fields)-1], ":"): // process and event
			end()
			if event == "" || strings.Contains(line, event) {
				stack = []string{strings.Join(fields[:len(fields)-1], " ")}
			}
		case stack != nil:
			stack = append(stack, perfFrame(t, fields[0], fields[1], text))
		}
	}
	end()
	return all
}

func perfFrame(t *testing.T, ip, dso string, text uint64) string {
	t.Helper()
	n, err := strconv.ParseUint(ip, 16, 64)
	if err != nil {
		t.Fatalf("perf's address %q: %v", ip, err)
	}
	switch dso = strings.Trim(dso, "()"); {
	case dso == "[kernel.kallsyms]":
		return fmt.Sprintf("%x [kernel]", n-text)
	case strings.HasPrefix(dso, "//anon"), strings.HasPrefix(dso, "/tmp/perf-"): // memory, by the name of its symbols
	case dso[0] == '/', dso == "[vdso]":
		return fmt.Sprintf("%x %s", n, dso)
	}
	return "?"
}

// kernelText is where the kernel's image was, from the file; 0 in an ordinary user's.
func kernelText(t *testing.T, file string) uint64 {
	t.Helper()
	for _, m := range mappings(t, file) {
		if m.Owner == perfdata.NoTask && strings.HasPrefix(m.Name, kernelImage) {
			return uint64(m.Start)
		}
	}
	return 0
}

// mappings returns all mappings in a recording.
func mappings(t *testing.T, file string) []perfdata.Mmap2 {
	t.Helper()
	r, err := perfdata.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var all []perfdata.Mmap2
	for {
		rec, err := r.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if m, ok := rec.(*perfdata.Mmap2); ok {
			one := *m
			one.BuildID = slices.Clone(m.BuildID)
			all = append(all, one)
		}
	}
}

// TestIdentities compares the identities with perf's, of its list and of the records.
func TestIdentities(t *testing.T) {
	var list string
	var want map[string]string
	for tries := 1; len(want) < 3; tries++ { // no sample may be in the kernel
		if tries > 10 {
			testenv.Lack(t, "perf knows of %v", want)
		}
		list, want = perfRecord(t, "-g", "-F", "999"), map[string]string{}
		for line := range strings.Lines(string(perftest.Run(t, "buildid-list", "-i", list))) {
			id, name, _ := strings.Cut(strings.TrimSpace(line), " ")
			want[strings.Replace(name, kernelImage, "[kernel]", 1)] = id
		}
	}
	for _, args := range [][]string{nil, {"--buildid-mmap"}} {
		file := list
		if args != nil {
			file = perfRecord(t, append(args, "-g", "-F", "999")...)
		}
		p, _ := readFile(t, file, Options{})
		compared := 0
		for _, m := range p.Mapping {
			if want[m.File] == "" || m.BuildID == "" && args != nil && m.File == "[vdso]" {
				continue
			}
			compared++
			if m.BuildID != want[m.File] && m.BuildID != "gnu:"+want[m.File] {
				t.Errorf("%v: %s has %s, perf says %s", args, m.File, m.BuildID, want[m.File])
			}
		}
		if compared < 2 {
			t.Errorf("%v: %d files compared", args, compared)
		}
	}
}

// fromText makes the profile of a recording that is given as text.
func fromText(t *testing.T, o Options, lines ...string) (*pprof.Profile, Stats, error) {
	t.Helper()
	var stream bytes.Buffer
	w, err := perfdata.NewWriter(&stream, perfdata.WriterOptions{Pipe: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := perfdata.ReadText(strings.NewReader(strings.Join(lines, "\n")), w); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := perfdata.NewReader(&stream, perfdata.ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	return Read(r, o)
}

const clockEvent = `event {Name="cpu-clock" Attr={Type=1 Period=1000000 Fields=IP|TID|TIME|CALLCHAIN|PERIOD Flags=0x40000}}`

func stacksOf(p *pprof.Profile) []string {
	var all []string
	for _, s := range p.Sample {
		text := fmt.Sprint(s.Value)
		for _, l := range s.Location {
			text += fmt.Sprintf(" %s+%#x", l.Mapping.File, l.Address)
		}
		all = append(all, text)
	}
	return all
}

func checkStacks(t *testing.T, p *pprof.Profile, want ...string) {
	t.Helper()
	if got := stacksOf(p); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

const user = "18446744073709551104" // PERF_CONTEXT_USER

// TestMappingsFollowTime has a path whose file is replaced, an exec, forks that share
// and that perf made up, and a mapping that covers a part of another.
func TestMappingsFollowTime(t *testing.T) {
	p, _, err := fromText(t, Options{},
		clockEvent,
		`info {Arch="x86_64" BuildIDs=[{Misc=2 PID=-1 BuildID=x0102030405060708 Name="/bin/a"} {Misc=2 PID=-1 BuildID=x1112131415161718 Name="/lib/b"}]}`,
		`0 Comm {OwnerPID=7 OwnerTID=7 Name="a"}`,
		`0 Mmap2 {Type=10 Owner=7 Start=0x400000 Size=0x4000 Prot=5 Inode=1 Name="/bin/a"}`,
		`0 Mmap2 {Type=10 Owner=7 Start=0x500000 Size=0x1000 Prot=5 Inode=2 Name="/lib/b"}`,
		`0 Sample {PID=7 TID=7 Time=10 IP=0x400010 Period=5 Callchain=[`+user+` 0x400010 0x403011]}`,
		`0 Mmap2 {Type=10 PID=7 TID=7 Time=20 Owner=7 Start=0x401000 Size=0x1000 Offset=0x9000 Prot=5 Inode=2 Generation=5 Name="/lib/b"}`, // another file at the path
		`0 Mmap2 {Type=10 Time=20 Owner=99 Start=0x400000 Size=0x1000 Prot=5 Inode=2 Generation=6 Name="/lib/b"}`,
		`0 Task {Time=21 ChildPID=8 ChildTID=8 ParentPID=7 ParentTID=7}`,
		`0 Mmap2 {Type=10 Time=22 Owner=8 Start=0x400000 Size=0x1000 Prot=1 Name="//anon"}`,
		`0 Sample {PID=7 TID=7 Time=30 Period=5 Callchain=[`+user+` 0x401010 0x402011]}`,
		`0 Sample {PID=8 TID=8 Time=31 Period=5 Callchain=[`+user+` 0x400010 0x401011]}`,
		`0 Comm {Misc=8192 Exec=true Time=40 OwnerPID=7 OwnerTID=7 Name="b"}`,
		`0 Sample {PID=7 TID=7 Time=41 Period=5 Callchain=[`+user+` 0x400010]}`,
		`0 Task {Misc=8192 Time=50 ChildPID=9 ChildTID=9 ParentPID=8 ParentTID=8}`,
		`0 Sample {PID=9 TID=9 Time=51 Period=5 Callchain=[`+user+` 0x402010]}`,
	)
	if err != nil {
		t.Fatal(err)
	}
	checkStacks(t, p,
		"[1 5] /bin/a+0x10 /bin/a+0x3010",
		"[1 5] [file-changed] /lib/b+0x9010 /bin/a+0x2010",
		"[1 5] [not-executable]+0x0 [file-changed] /lib/b+0x9010",
		"[1 5] [not-mapped]+0x0",
		"[1 5] [not-mapped]+0x0",
	)
	if got := p.Sample[3].Label["process"]; len(got) != 1 || got[0] != "b" {
		t.Errorf("after exec the process is %v", got)
	}
}

// TestCopiesOfStacks takes the innermost frame of user code from the registers.
func TestCopiesOfStacks(t *testing.T) {
	p, stats, err := fromText(t, Options{},
		`event {Name="cpu-clock" Attr={Type=1 Period=1000 Fields=IP|TID|TIME|CALLCHAIN|PERIOD|REGS_USER|STACK_USER Flags=0x400040000 UserRegs=384 UserStack=64}}`,
		`info {Arch="x86_64"}`,
		`0 Mmap2 {Type=10 Owner=7 Start=0x400000 Size=0x4000 Prot=5 BuildID=x0102030405060708 Name="/bin/a"}`,
		`0 Sample {Misc=2 PID=7 TID=7 Time=10 IP=0x400010 Period=5 UserRegs={ABI=2 Mask=384 Values=[1 0x400010]} UserStack=x00}`,
		`0 Sample {Misc=1 PID=7 TID=7 Time=11 IP=0xffffffff81000010 Period=5 Callchain=[18446744073709551488 0xffffffff81000010] UserRegs={ABI=2 Mask=384 Values=[1 0x400020]} UserStack=x00}`,
	)
	if err != nil {
		t.Fatal(err)
	}
	checkStacks(t, p, "[1 5] /bin/a+0x10", "[1 5] [kernel-hidden]+0x0 /bin/a+0x20")
	if stats.Unwalked != 2 || len(p.Comments) != 1 {
		t.Errorf("%+v %q", stats, p.Comments)
	}
}

// TestEvents chooses among events, and names the values of one that measures no time.
func TestEvents(t *testing.T) {
	lines := []string{
		`event {Name="dummy:u" IDs=[1] Attr={Type=1 Config=9 Fields=IP|TID|TIME|IDENTIFIER Flags=0x40000}}`,
		`event {Name="cpu-clock:ppp" IDs=[2] Attr={Type=1 Period=1000 Fields=IP|TID|TIME|IDENTIFIER Flags=0x40000}}`,
		`event {Name="page-faults" IDs=[3] Attr={Type=1 Config=2 Period=3 Fields=IP|TID|TIME|IDENTIFIER Flags=0x40000}}`,
		`1 Sample {Misc=2 PID=7 TID=7 Time=10 Event=2 IP=0x400010}`,
		`2 Sample {Misc=2 PID=7 TID=7 Time=11 Event=3 IP=0x400010}`,
		`2 Sample {Misc=2 PID=7 TID=7 Time=12 Event=3 IP=0x400010}`,
	}
	for name, want := range map[string]string{"": "[1 1000] cpu", "cpu-clock": "[1 1000] cpu", "cpu-clock:ppp": "[1 1000] cpu", "page-faults": "[2 6] page-faults"} {
		p, _, err := fromText(t, Options{Event: name}, lines...)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(p.Sample[0].Value, " ", p.SampleType[1].Type); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
	_, _, err := fromText(t, Options{Event: "cycles"}, lines...)
	if err == nil || err.Error() != `no samples of an event "cycles": the file has cpu-clock:ppp (1 sample), page-faults (2 samples)` {
		t.Errorf("got %v", err)
	}
	if _, _, err := fromText(t, Options{}, clockEvent); err == nil || err.Error() != "the file has no samples" {
		t.Errorf("no samples: %v", err)
	}
}

// TestForgets has processes without end, one of which is seen again and again.
func TestForgets(t *testing.T) {
	p := newReplay(nil, Options{})
	const second = 1e9
	for i := range uint32(1000) {
		pid, now := 100+i, uint64(i+1)*second
		p.handle(&perfdata.Task{ID: perfdata.ID{Time: now}, ChildPID: pid, ChildTID: pid, ParentPID: 1, ParentTID: 1})
		p.handle(&perfdata.Comm{ID: perfdata.ID{Time: now}, OwnerPID: pid, OwnerTID: pid, Name: "x"})
		p.process(100).seen = now // another thread of it goes on
		p.handle(&perfdata.Task{ID: perfdata.ID{Time: now}, Exited: true, ChildPID: pid, ChildTID: pid, ParentPID: 1, ParentTID: 1})
		if i == 500 && p.processes[100].name != "x" {
			t.Error("the process that is still seen is forgotten")
		}
		if len(p.processes) > 70 || len(p.threads) > 70 || len(p.ended) > 70 {
			t.Fatalf("%d processes, %d threads, %d ended ones are remembered", len(p.processes), len(p.threads), len(p.ended))
		}
	}
}

// TestGroupCounts wants what an event of a group counted at each sample of the leader, as
// perf has it. Counters of groups do not go on in children.
func TestGroupCounts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "perf.data")
	perftest.Record(t, file, "-e", "{cpu-clock,page-faults}:S", "-c", "300000", "--",
		testenv.Tool(t, "python3"), "-c", "for i in range(300): bytes(100 * 4096 * (i % 9 + 1))")
	var want []int64
	for line := range strings.Lines(string(perftest.Run(t, "script", "-F", "event,period", "-i", file))) {
		fields := strings.Fields(line)
		if len(fields) != 2 || !strings.HasPrefix(fields[1], "page-faults:") {
			continue
		}
		n, err := strconv.ParseInt(fields[0], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, n)
	}
	p, stats := readFile(t, file, Options{Event: "page-faults"})
	var sum int64
	for _, s := range p.Sample {
		sum += s.Value[1]
	}
	for _, n := range want {
		sum -= n
	}
	if sum != 0 || stats.Samples != int64(len(want)) || len(want) < 2 || p.SampleType[1].Type != "page-faults" {
		t.Errorf("%d %s too many in %d samples, perf has %v", sum, p.SampleType[1].Type, stats.Samples, want)
	}
}

// TestGroupCountsOfThreads has the counters of a group that threads inherit: each thread reports
// what it counted itself, by the same number (perf record of Linux 6.13 has such).
func TestGroupCountsOfThreads(t *testing.T) {
	read := func(tid, time, value int) string {
		return fmt.Sprintf(`0 Sample {PID=7 TID=%d Time=%d Event=1 IP=0x400010 Period=5 Callchain=[`+user+` 0x400010] Read={Values=[{Value=5 Event=1} {Value=%d Event=2}]}}`, tid, time, value)
	}
	for flags, want := range map[string]int64{"0x40002": 7 + 110, "0x40000": 100 + 105} {
		event := func(name string, id int) string {
			return fmt.Sprintf(`event {Name=%q Attr={Type=1 Config=%d Fields=IDENTIFIER|IP|TID|TIME|READ|CALLCHAIN|PERIOD Read=0xc Flags=%s} IDs=[%d]}`, name, id, flags, id)
		}
		p, _, err := fromText(t, Options{Event: "page-faults"}, event("cpu-clock", 1), event("page-faults", 2),
			read(7, 1, 100), read(8, 2, 5), read(7, 3, 110), read(8, 4, 7))
		if err != nil {
			t.Fatal(err)
		}
		var sum int64
		for _, s := range p.Sample {
			sum += s.Value[1]
		}
		if sum != want {
			t.Errorf("flags %s: %d, want %d", flags, sum, want)
		}
	}
}
