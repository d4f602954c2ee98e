package doctor

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strings"
	"testing"

	"hallmark/internal/testenv"
)

// countingScript counts with the means of a shell: what is executable in the text of
// /proc/*/maps, but for the shell's own, and the tasks in /proc.
const countingScript = `
list=$(for d in /proc/[0-9]*; do [ $d = /proc/$$ ] || echo $d/maps; done)
cat $list 2>/dev/null | awk '$2 ~ /x/ && $5 != 0 { mappings++; files[$4 " " $5] = 1 } END { n = 0; for (f in files) n++; print mappings, n }'
ls -d /proc/[0-9]*/task/[0-9]* 2>/dev/null | wc -l
ls -d /proc/[0-9]* | wc -l`

// TestCensusAgreesWithProc compares with a script that reads /proc. The machine was at rest
// where the script says the same before and after the census, and the kernel started no
// task but the script's own: the census must say that too, at the latest the third time.
// On a machine that is never at rest nothing can be compared.
func TestCensusAgreesWithProc(t *testing.T) {
	testenv.Root(t)
	testenv.Tool(t, "awk")
	var differs string
	fewest := uint64(math.MaxUint64) // tasks that two scripts start
	for range 5 {
		started := tasksStarted(t)
		countByScript(t)
		countByScript(t)
		fewest = min(fewest, tasksStarted(t)-started)
	}
	atRest := 0
	for range 40 {
		started := tasksStarted(t)
		before := countByScript(t)
		c := TakeCensus()
		after := countByScript(t)
		started = tasksStarted(t) - started
		if c.Code.Mappings == nil || c.Code.Inodes == nil || c.Tasks == nil || c.Processes == nil {
			t.Fatalf("%+v", c)
		}
		differs = ""
		have := counted4{*c.Code.Mappings, *c.Code.Inodes, *c.Tasks, *c.Processes}
		for i, n := range have {
			// Threads of the script count, and half of a process is there for a moment.
			low, high := min(before[i], after[i]), max(before[i], after[i])
			if slack := 4 + low/50; n < low-slack || n > high+slack {
				differs += fmt.Sprintf("%s: %d, the script says %d and %d\n", [...]string{"mappings", "inodes", "tasks", "processes"}[i], n, before[i], after[i])
			}
		}
		if differs == "" {
			return
		}
		if before == after && started <= fewest {
			atRest++
		}
		if atRest == 3 {
			t.Fatal(differs)
		}
	}
	testenv.Lack(t, "programs come and go all the time: %s", differs)
}

// tasksStarted counts the tasks that the kernel started since boot (proc_stat(5)).
func tasksStarted(t *testing.T) (n uint64) {
	t.Helper()
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := bytes.Cut(stat, []byte("\nprocesses "))
	if _, err := fmt.Fscan(bytes.NewReader(line), &n); err != nil {
		t.Fatalf("/proc/stat: %v", err)
	}
	return n
}

type counted4 [4]int

func countByScript(t *testing.T) (n counted4) {
	t.Helper()
	out, err := exec.Command("sh", "-c", countingScript).Output()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fscan(bytes.NewReader(out), &n[0], &n[1], &n[2], &n[3]); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	return n
}

// TestCensusAdds wants numbers that fit together.
func TestCensusAdds(t *testing.T) {
	testenv.Root(t)
	var c *Census
	for n := 1; ; n++ { // what comes and goes may be in one number only, but not each time
		c = TakeCensus()
		f := c.Files
		if f.Reached == nil || f.Open == nil || f.Mapped == nil || c.Code.Inodes == nil || c.Code.Identities == nil {
			t.Fatalf("what runs was not counted: %+v", c.Missing)
		}
		if *f.Reached <= *f.Open+*f.Mapped && *f.Reached >= max(*f.Open, *f.Mapped) && *c.Code.Identities > 0 && *c.Code.Identities <= 2**c.Code.Inodes {
			break
		}
		if n == 5 {
			t.Errorf("%+v %+v", f, c.Code)
			break
		}
	}
	if _, err := os.Stat("/proc/slabinfo"); err == nil {
		caches := map[string]bool{}
		for _, d := range c.Designs {
			caches[d.Structure] = true
			if d.Absorbed != (d.Cost == 0) && d.Objects > d.PerSlab || d.Bytes > d.Slot || d.Slot*d.PerSlab > d.SlabBytes {
				t.Errorf("%+v", d)
			}
		}
		if !caches["struct file"] || !caches["struct inode"] {
			t.Errorf("designs of %v", caches)
		}
	}
}

// TestSlabs works out slots as the kernel does: with its own pointer inside of a free
// object or behind it, and with objects that begin at cache lines.
func TestSlabs(t *testing.T) {
	for _, c := range []struct {
		name     string
		s        slab
		absorbed bool
	}{
		{"room in the slot", slab{bytes: 184, slot: 192, align: 64, perSlab: 21, total: 4096}, true},
		{"no room in the slot", slab{bytes: 192, slot: 192, align: 64, perSlab: 21, total: 4096}, false},
		{"the allocator's pointer behind, room in the slab", slab{bytes: 1120, slot: 1128, align: 8, perSlab: 14, total: 16384}, true},
		{"the allocator's pointer behind, no room", slab{bytes: 616, slot: 624, align: 8, perSlab: 13, total: 8192}, false},
		{"both", slab{bytes: 768, slot: 832, align: 64, perSlab: 19, total: 16384}, true},
	} {
		c.s.objects = 1000
		if d := c.s.design(""); d.Absorbed != c.absorbed || (d.Cost == 0) != c.absorbed {
			t.Errorf("%s: %+v", c.name, d)
		}
	}
	slabs, err := parseSlabs([]byte("slabinfo - version: 2.1\n# name\nfilp  2433 2709 192 21 1 : tunables 0 0 0 : slabdata 129 129 0\n"), 4096)
	if err != nil || len(slabs) != 1 || slabs[0].objects != 2433 || slabs[0].slot != 192 || slabs[0].perSlab != 21 || slabs[0].total != 4096 {
		t.Errorf("%+v, %v", slabs, err)
	}
	for _, bad := range []string{"filp 1", "filp a b c d e f", "filp 1 1 0 0 0"} {
		if _, err := parseSlabs([]byte("\n\n"+bad+"\n"), 4096); err == nil || !strings.Contains(err.Error(), "line 3") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
