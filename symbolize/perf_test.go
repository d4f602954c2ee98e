package symbolize

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"hallmark/internal/testenv"
	"hallmark/reason"
)

// recordSpin records a program that spends its time in one loop.
func recordSpin(t *testing.T, p *program) (data string) {
	t.Helper()
	data = filepath.Join(t.TempDir(), "perf.data")
	cmd := exec.Command(testenv.Tool(t, "perf"), "record", "-q", "-N", "-e", "cpu-clock", "-F", "399", "-g", "--buildid-mmap", "-o", data, p.path)
	out, err := cmd.CombinedOutput()
	_, missing := os.Stat(data)
	testenv.Need(t, missing == nil, fmt.Sprintf("permission to use perf events: %v %s", err, out))
	return data
}

func perfScript(t *testing.T, data string, args ...string) string {
	t.Helper()
	args = append([]string{"script", "-i", data, "--no-inline"}, args...)
	out, err := exec.Command(testenv.Tool(t, "perf"), args...).Output()
	if err != nil {
		t.Fatalf("perf script: %v", err)
	}
	return string(out)
}

// TestPerfScript compares what becomes of the output of perf script with what
// llvm-symbolizer says of the same addresses.
func TestPerfScript(t *testing.T) {
	for name, flags := range map[string][]string{
		"position-independent": {"-O1"},
		"fixed addresses":      {"-O1", "-no-pie"},
		"offsets of their own": {"-O1", "-B" + linkerDir(t)},
	} {
		t.Run(name, func(t *testing.T) {
			p := compile(t, "spin.c", "gcc", append(flags, "-fno-omit-frame-pointer")...)
			raw := perfScript(t, recordSpin(t, p), "--show-mmap-events")
			text, s := rewrite(t, &Filter{Library: p.library, Lines: true}, raw)
			checkSpin(t, p, text)
			if s.Symbolized == 0 {
				t.Errorf("%+v of\n%s", s, raw)
			}
		})
	}
}

// linkerDir returns a directory in which ld is lld, which places code so that offsets
// and addresses differ.
func linkerDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	lld := testenv.Tool(t, "ld.lld-19")
	if err := os.Symlink(lld, filepath.Join(dir, "ld")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// spinFrame matches a frame of the program, of one function or with one inlined, and
// their lines.
var spinFrame = regexp.MustCompile(`(?m)^\t +([0-9a-f]+) (?:(\w+) \(inlined\)\n  (.+)\n\t +[0-9a-f]+ )?(\w+)(?:\+0x[0-9a-f]+)? \((\S+)\)\n  (.+)$`)

// checkSpin compares the frames of the program, whose numbers are offsets.
func checkSpin(t *testing.T, p *program, text string) {
	t.Helper()
	inlined, samples := 0, 0
	seen := map[string]bool{}
	for _, m := range spinFrame.FindAllStringSubmatch(text, -1) {
		if m[5] != p.path {
			continue
		}
		if samples++; seen[m[0]] {
			continue
		}
		seen[m[0]] = true
		want := p.llvm(t, m[1], m[4] != "spin")
		got := strings.TrimSpace(strings.Join([]string{m[2], m[3], m[4], m[6]}, " "))
		if got != want {
			t.Errorf("%s is %s, llvm-symbolizer says %s", m[1], got, want)
		}
		if m[2] != "" {
			inlined++
		}
	}
	if samples < 20 {
		testenv.Lack(t, "%d samples in the program", samples)
	}
	if inlined == 0 {
		t.Errorf("no inlined function in\n%s", text)
	}
}

// llvm returns what llvm-symbolizer says of an offset in the file.
func (p *program) llvm(t *testing.T, offset string, caller bool) string {
	t.Helper()
	virt := p.virt(t, offset)
	if caller {
		virt--
	}
	out, err := exec.Command(testenv.Tool(t, "llvm-symbolizer-19"), "--obj="+p.path, fmt.Sprintf("%#x", virt)).Output()
	if err != nil {
		t.Fatal(err)
	}
	out = regexp.MustCompile(`(?m):\d+$`).ReplaceAll(out, nil) // columns
	return strings.Join(strings.Fields(string(out)), " ")
}

// virt returns the virtual address of an offset, as readelf has it.
func (p *program) virt(t *testing.T, offset string) uint64 {
	t.Helper()
	out, err := exec.Command(testenv.Tool(t, "readelf"), "-lW", p.path).Output()
	if err != nil {
		t.Fatal(err)
	}
	var o uint64
	fmt.Sscanf(offset, "%x", &o)
	for _, m := range regexp.MustCompile(`LOAD +0x(\w+) 0x(\w+) 0x\w+ 0x(\w+)`).FindAllStringSubmatch(string(out), -1) {
		var start, virt, size uint64
		fmt.Sscanf(strings.Join(m[1:], " "), "%x %x %x", &start, &virt, &size)
		if start <= o && o < start+size {
			return o - start + virt
		}
	}
	t.Fatalf("%s is in no segment of\n%s", offset, out)
	return 0
}

// TestPerfForms gives what perf prints in other versions and with other options.
func TestPerfForms(t *testing.T) {
	p := compile(t, "spin.c", "gcc", "-O1")
	spin, main := p.at(t, "spin", 0), p.at(t, "main", 0) // their offsets as well
	const base = 0x5621615d8000
	mmap := func(pid int, path, id string) string {
		return fmt.Sprintf("x 0 1.5: PERF_RECORD_MMAP2 %d/%d: [%#x(0x1000) @ 0x1000 %s]: r-xp %s\n", pid, pid, base, id, path)
	}
	known := mmap(7, "/x/prog", "<"+p.id.String()+">")
	const header = "a b c    7 [000]  12.345678:   10101010 cpu-clock: \n"
	frame := func(ip uint64, name string) string { return fmt.Sprintf("\t%16x %s (/x/prog)\n", ip, name) }
	inMemory := spin - 0x1000 + base
	listed := p.id.String() + " /x/prog\n"
	for _, test := range []struct{ name, before, text, want string }{
		{"offset, mapped", known, header + frame(spin, "[unknown]"), header + frame(spin, "spin")},
		{"address, mapped", known, header + frame(inMemory, "[unknown]"), header + frame(inMemory, "spin")},
		{"address, of another process", known, "x 8 1.5: \n" + frame(inMemory, "[unknown]"), ""},
		{"address, of a thread", known, "x 7/9 1.5: \n" + frame(inMemory, "[unknown]"), "x 7/9 1.5: \n" + frame(inMemory, "spin")},
		{"address, of an unknown thread", known, "x 9 1.5: \n" + frame(inMemory, "[unknown]"), ""},
		{"address, of a known thread", known + "x 7 1.5: PERF_RECORD_FORK(7:9):(7:7)\n", "x 9 1.5: \n" + frame(inMemory, "[unknown]"), "x 9 1.5: \n" + frame(inMemory, "spin")},
		{"address, of a child", known + "x 7 1.5: PERF_RECORD_FORK(9:9):(7:7)\n", "x 9 1.5: \n" + frame(inMemory, "[unknown]"), "x 9 1.5: \n" + frame(inMemory, "spin")},
		{"address, of another program later", known + "x 7 1.5: PERF_RECORD_COMM exec: y z:7/7\n", header + frame(inMemory, "[unknown]"), ""},
		{"address, after the end", known + "x 7 1.5: PERF_RECORD_EXIT(7:7):(1:1)\n", header + frame(inMemory, "[unknown]"), ""},
		{"address, under another file", known + mmap(7, "/x/other", "<0011>"), header + frame(inMemory, "[unknown]"), ""},
		{"address, in no mapping", known, header + frame(inMemory+0x10000, "[unknown]"), ""},
		{"offset, in no mapping", known, header + frame(spin+0x10000, "[unknown]"), ""},
		{"offset, listed", listed, header + frame(spin, "[unknown]"), header + frame(spin, "spin")},
		{"offset, listed twice", listed + "00112233445566778899aabbccddeeff00112233 /x/prog\n", header + frame(spin, "[unknown]"), ""},
		{"offset, mapped without identity, listed", listed + mmap(7, "/x/prog", "08:01 123 0"), header + frame(spin, "[unknown]"), header + frame(spin, "spin")},
		{"offset behind the file", listed, header + fmt.Sprintf("\t%x [unknown] (/x/prog+%#x)\n", uint64(inMemory), spin), header + fmt.Sprintf("\t%x spin (/x/prog+%#x)\n", uint64(inMemory), spin)},
		{"deleted", strings.TrimSuffix(known, "\n") + " (deleted)\n", header + fmt.Sprintf("\t%x [unknown] (/x/prog (deleted))\n", spin), header + fmt.Sprintf("\t%x spin (/x/prog (deleted))\n", spin)},
		{"a caller", known, header + frame(spin+4, "leaf") + frame(main, "[unknown]"), header + frame(spin+4, "leaf") + frame(main, "spin")},
		{"the kernel's caller", known, header + "\tffffffff81001000 do_syscall ([kernel.kallsyms])\n" + frame(main, "[unknown]"), header + "\tffffffff81001000 do_syscall ([kernel.kallsyms])\n" + frame(main, "main")},
		{"source lines of perf", known, header + frame(spin, "spin") + "  spin.c:6\n" + frame(main, "[unknown]"), header + frame(spin, "spin") + "  spin.c:6\n" + frame(main, "spin")},
		{"interrupted by a signal", known, header + frame(spin, "x") + frame(spin, "__restore_rt+0x0") + frame(main, "[unknown]"), header + frame(spin, "x") + frame(spin, "__restore_rt+0x0") + frame(main, "main")},
		{"a name that agrees", known, header + frame(spin, "spin+0x0"), ""},
		{"another name", known, header + frame(spin, "spin2+0x0"), ""},
		{"inlined by perf itself", known, header + frame(spin, "x (inlined)\n"), ""},
		{"a sample without a chain", known, fmt.Sprintf("  a b  7 1.5:  1 cycles:u: %x [unknown] (/x/prog)\n", uint64(inMemory)), fmt.Sprintf("  a b  7 1.5:  1 cycles:u: %x spin (/x/prog)\n", uint64(inMemory))},
		{"a sample without a chain, low", known, fmt.Sprintf("  a b  7 1.5:  1 cycles:u: %x [unknown] (/x/prog)\n", spin), ""},
		{"the kernel", known, header + "\tffffffff81001000 [unknown] ([kernel.kallsyms])\n", ""},
		{"nothing", known, header + "\t0 [unknown] ([unknown])\n\t\n\tx\n\t1\n\t1 \n\t1 )\n\t1 (/x)\n", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, _ := rewrite(t, &Filter{Library: p.library}, test.before+test.text)
			if test.want == "" {
				test.want = test.text
			}
			if got != test.before+test.want {
				t.Errorf("got\n%swant\n%s", got, test.before+test.want)
			}
		})
	}
}

// TestPerfFixedAddresses: low numbers in a program that chooses its addresses could be
// offsets or addresses, and only its mappings show them.
func TestPerfFixedAddresses(t *testing.T) {
	p := compile(t, "spin.c", "gcc", "-O1", "-no-pie")
	virt := p.at(t, "spin", 0)
	text := fmt.Sprintf("%s /x/prog\nx 7 1.5: \n\t%x [unknown] (/x/prog)\n", p.id, virt)
	got, s := rewrite(t, &Filter{Library: p.library}, text)
	if got != text || len(s.Gaps) != 1 || s.Gaps[0].Reason != reason.NoOffset {
		t.Errorf("became %q, %+v", got, s)
	}
	text = fmt.Sprintf("x 7 1.5: PERF_RECORD_MMAP2 7/7: [0x401000(0x1000) @ 0x1000 <%s>]: r-xp /x/prog\nx 7 1.5: \n\t%x [unknown] (/x/prog)\n", p.id, virt)
	if got, _ := rewrite(t, &Filter{Library: p.library}, text); !strings.Contains(got, " spin (/x/prog)") {
		t.Errorf("became %q", got)
	}
}

// TestMappingsOverlap puts mappings over others.
func TestMappingsOverlap(t *testing.T) {
	e := newPerfEvents()
	add := func(start, end uint64, path string) {
		e.add(1, perfMapping{start: start, end: end, offset: start, path: path})
	}
	add(10, 90, "a")
	add(20, 30, "b")
	add(30, 40, "c")
	add(25, 35, "d")
	add(5, 12, "e")
	add(95, 99, "f")
	add(80, 96, "g")
	var got []string
	for _, m := range e.processes[1] {
		got = append(got, fmt.Sprintf("%s%d-%d@%d", m.path, m.start, m.end, m.offset))
	}
	want := "e5-12@5 a12-20@12 b20-25@20 d25-35@25 c35-40@35 a40-80@40 g80-96@80 f96-99@96"
	if strings.Join(got, " ") != want || e.mappings != len(got) {
		t.Errorf("got %q, %d, want %q", got, e.mappings, want)
	}
}
