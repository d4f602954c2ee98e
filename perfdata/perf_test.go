package perfdata

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"hallmark/internal/perftest"
	"hallmark/internal/testenv"
)

// recordings are what perf is asked to write, and this package to read.
var recordings = []struct {
	name string
	args []string
	root bool
}{
	{name: "frame pointers", args: []string{"-g", "-F", "999"}},
	{name: "dwarf", args: []string{"--call-graph", "dwarf,4096", "-F", "199"}},
	{name: "compressed", args: []string{"-z", perftest.Asks, "-g", "-F", "4000"}},
	{name: "build IDs of mappings", args: []string{perftest.Asks, "-g"}},
	{name: "several events", args: []string{"-e", "cpu-clock,task-clock,page-faults", "-g", "-d", "-s"}},
	{name: "events of several layouts", args: []string{"-e", "cpu-clock/call-graph=fp/,page-faults/call-graph=no/"}},
	{name: "one event, all of its data", args: []string{"-e", "page-faults", "-c", "1", "-d", "--phys-data", "--data-page-size", "--code-page-size", "--intr-regs=ip,sp", "--user-regs=ip,sp,bp", "--weight", "--sample-cpu", "-T"}, root: true},
	{name: "group with counts", args: []string{"-e", "{cpu-clock,page-faults,context-switches}:S"}},
	{name: "system wide", args: []string{"-a", "-g", "--namespaces", "--all-cgroups", "--switch-events", "-F", "199"}, root: true},
}

// recorded are the recordings that were made, by what perf was asked for, in a
// directory that lasts as long as the tests.
var (
	recorded   = map[string]string{}
	recordedIn string
)

func TestMain(m *testing.M) {
	code := testenv.Isolated(m).Run()
	os.RemoveAll(recordedIn)
	os.Exit(code)
}

// perfRecord records a few programs that start each other, once for each wish. With
// stream, perf writes into a pipe. The file is not to be changed.
func perfRecord(t testing.TB, stream bool, args ...string) (file string) {
	t.Helper()
	key := fmt.Sprint(stream, args)
	if recorded[key] == "" {
		recorded[key] = perfRecordAnew(t, stream, args...)
	}
	return recorded[key]
}

func perfRecordAnew(t testing.TB, stream bool, args ...string) (file string) {
	t.Helper()
	dir, err := recordingsDir()
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(dir, fmt.Sprintf("%d.data", len(recorded)))
	work, _ := perftest.Work(t)
	args = slices.Concat(args, []string{"--"}, work)
	switch {
	case stream:
		if err := os.WriteFile(file, perftest.Stream(t, args...), 0o600); err != nil {
			t.Fatal(err)
		}
	case slices.Contains(args, "-B"), slices.Contains(args, perftest.Asks):
		perftest.Record(t, file, args...)
	default:
		perftest.RecordListed(t, file, args...)
	}
	return file
}

// TestReaderAgreesWithPerf compares every record, in the order in which it comes,
// with what perf says of it.
func TestReaderAgreesWithPerf(t *testing.T) {
	for _, rec := range recordings {
		for _, stream := range []bool{false, true} {
			name := rec.name
			if stream {
				name += ", through a pipe"
			}
			t.Run(name, func(t *testing.T) {
				if rec.root {
					testenv.Root(t)
				}
				file := perfRecord(t, stream, rec.args...)
				ours := describeFile(t, file)
				theirs := perfDump(t, file)
				if len(theirs) < 8 { // a group follows no children
					t.Fatalf("perf tells of %d lines only", len(theirs))
				}
				compareLines(t, ours, theirs)
			})
		}
	}
}

func recordingsDir() (dir string, err error) {
	if recordedIn == "" {
		recordedIn, err = os.MkdirTemp("", "perfdata")
	}
	return recordedIn, err
}

func compareLines(t *testing.T, ours, theirs []string) {
	t.Helper()
	for i := range max(len(ours), len(theirs)) {
		our, their := "nothing", "nothing"
		if i < len(ours) {
			our = ours[i]
		}
		if i < len(theirs) {
			their = theirs[i]
		}
		if our != their {
			t.Fatalf("line %d of %d and %d:\nours %s\nperf %s", i, len(ours), len(theirs), our, their)
		}
	}
}

var (
	perfHead  = regexp.MustCompile(`^(?:\d+ )??(\d+) 0x[0-9a-f]+ \[0x[0-9a-f]+\]: PERF_RECORD_([A-Z0-9_]+)(.*)$`)
	perfChain = regexp.MustCompile(`^\.\.\.\.\. +\d+: [0-9a-f]+$`)
	perfReg   = regexp.MustCompile(`^\.\.\.\. [A-Z0-9]+ +0x[0-9a-f]+$`)
	perfStack = regexp.MustCompile(`^\.\.\. ustack: size ([1-9]\d*),`)
)

// perfDump returns what perf script -D says of the kernel's records.
func perfDump(t *testing.T, file string) []string {
	t.Helper()
	out := perftest.Run(t, "script", "--no-inline", "-D", "-i", file)
	var lines []string
	inSample := false
	for line := range strings.SplitSeq(string(out), "\n") {
		line = strings.TrimRight(line, " ")
		m := perfHead.FindStringSubmatch(line)
		switch {
		case m != nil:
			inSample = m[2] == "SAMPLE"
			if kind := m[2] + " " + m[3]; told(m[2]) {
				lines = append(lines, m[1]+" "+oneSpaced(kind))
			}
		case inSample && perfChain.MatchString(line):
			lines = append(lines, "chain "+line[strings.LastIndexByte(line, ' ')+1:])
		case inSample && perfReg.MatchString(line):
			lines = append(lines, "register "+line[strings.LastIndexByte(line, ' ')+1:])
		case inSample && perfStack.MatchString(line): // size 0 is that of a task without memory
			lines = append(lines, "stack "+perfStack.FindStringSubmatch(line)[1])
		}
	}
	return lines
}

func oneSpaced(line string) string { return strings.Join(strings.Fields(line), " ") }

// told reports whether the test compares records of a kind: perf says little of its own.
func told(kind string) bool {
	switch kind {
	case "SAMPLE", "MMAP", "MMAP2", "COMM", "FORK", "EXIT", "SWITCH", "SWITCH_CPU_WIDE", "CGROUP", "KSYMBOL", "NAMESPACES", "LOST":
		return true
	}
	return false
}

func describeFile(t *testing.T, file string) []string {
	t.Helper()
	r, err := Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var lines []string
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if bad, ok := rec.(*Malformed); ok {
			t.Fatalf("offset %#x: %v", r.Offset(), bad.Err)
		}
		for _, line := range describe(rec) {
			lines = append(lines, oneSpaced(line))
		}
	}
	if len(r.Problems()) > 0 {
		t.Error(r.Problems())
	}
	return lines
}

// describe says of a record what perf script -D says.
func describe(r Record) []string {
	switch r := r.(type) {
	case *Sample:
		return describeSample(r)
	case *Mmap2:
		return []string{fmt.Sprintf("%d %v  %s", r.Time, r.Type, describeMmap(r))}
	case *Comm:
		exec := ""
		if r.Exec {
			exec = " exec"
		}
		return []string{fmt.Sprintf("%d COMM %s: %s:%d/%d", r.Time, exec, r.Name, r.OwnerPID, r.OwnerTID)}
	case *Task:
		kind := TypeFork
		if r.Exited {
			kind = TypeExit
		}
		return []string{fmt.Sprintf("%d %v (%d:%d):(%d:%d)", r.Time, kind, r.ChildPID, r.ChildTID, r.ParentPID, r.ParentTID)}
	case *Cgroup:
		return []string{fmt.Sprintf("%d CGROUP  cgroup: %d %s", r.Time, r.Cgroup, r.Path)}
	case *Lost:
		if r.Type == TypeLost {
			return []string{fmt.Sprintf("%d LOST : id:%d: lost:%d", r.Time, r.Of, r.Count)}
		}
	case *Ksymbol:
		return []string{fmt.Sprintf("%d KSYMBOL  addr %x len %d type %d flags 0x%x name %s", r.Time, uint64(r.Addr), r.Size, r.Kind, r.Flags, r.Name)}
	case *Switch:
		return []string{describeSwitch(r)}
	case *Namespaces:
		return []string{fmt.Sprintf("%d NAMESPACES  %d/%d - nr_namespaces: %d", r.Time, r.OwnerPID, r.OwnerTID, len(r.Links))}
	}
	return nil
}

func describeSample(s *Sample) []string {
	lines := []string{fmt.Sprintf("%d SAMPLE (IP, %#x): %d/%d: %#x period: %d addr: %s", s.Time, s.Misc, int32(s.PID), int32(s.TID), uint64(s.IP), s.Period, hexC(uint64(s.Addr)))}
	for _, a := range s.Callchain {
		lines = append(lines, fmt.Sprintf("chain %016x", a))
	}
	for _, regs := range []Regs{s.UserRegs, s.IntrRegs} {
		for _, v := range regs.Values {
			lines = append(lines, fmt.Sprintf("register 0x%016x", v))
		}
	}
	if len(s.UserStack) > 0 {
		lines = append(lines, fmt.Sprintf("stack %d", len(s.UserStack)))
	}
	return lines
}

// hexC is %#x of C, which has no 0x before 0.
func hexC(n uint64) string {
	if n == 0 {
		return "0"
	}
	return fmt.Sprintf("%#x", n)
}

func describeMmap(m *Mmap2) string {
	where := fmt.Sprintf("%d/%d: [%s(%s) @ %s", int32(m.Owner), int32(m.Thread), hexC(uint64(m.Start)), hexC(m.Size), hexC(uint64(m.Offset)))
	if m.Type == TypeMmap {
		mode := "r"
		if m.Prot&protExec != 0 {
			mode = "x"
		}
		return fmt.Sprintf("%s]: %s %s", where, mode, m.Name)
	}
	prot := []byte("---p")
	for i, c := range []byte("rwx") {
		if m.Prot>>i&1 != 0 {
			prot[i] = c
		}
	}
	if m.Flags&1 != 0 { // MAP_SHARED
		prot[3] = 's'
	}
	if m.BuildID != nil {
		return fmt.Sprintf("%s <%x>]: %s %s", where, m.BuildID, prot, m.Name)
	}
	return fmt.Sprintf("%s %02x:%02x %d %d]: %s %s", where, m.Major, m.Minor, m.Inode, m.Generation, prot, m.Name)
}

func describeSwitch(s *Switch) string {
	out := "IN"
	if s.Out {
		out = "OUT"
		if s.Misc&(1<<14) != 0 {
			out += " preempt"
		}
	}
	if s.Type == TypeSwitch {
		return fmt.Sprintf("%d SWITCH %s", s.Time, out)
	}
	other := "prev"
	if s.Out {
		other = "next"
	}
	return fmt.Sprintf("%d SWITCH_CPU_WIDE %s %s pid/tid: %d/%d", s.Time, out, other, int32(s.OtherPID), int32(s.OtherTID))
}
