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
	for name, flags := range spinForms(t) {
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

// spinForms are the flags of a compiler for programs whose offsets and addresses differ, or do not.
func spinForms(t *testing.T) map[string][]string {
	return map[string][]string{
		"position-independent": {"-O1"},
		"fixed addresses":      {"-O1", "-no-pie"},
		"offsets of their own": {"-O1", "-B" + linkerDir(t)},
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
	for _, at := range spinFrame.FindAllStringSubmatchIndex(text, -1) {
		m := spinFrame.FindStringSubmatch(text[at[0]:at[1]])
		if m[5] != p.path {
			continue
		}
		caller := isCaller(text[:at[0]])
		key := fmt.Sprint(caller, m[0])
		if samples++; seen[key] {
			continue
		}
		seen[key] = true
		var offset uint64
		fmt.Sscanf(m[1], "%x", &offset)
		virt := p.virt(t, offset)
		if caller {
			virt--
		}
		want := p.llvm(t, virt)[0]
		if got := namedBySpin(m); got != want {
			t.Errorf("%s, caller %t, is %s, llvm-symbolizer says %s", m[1], caller, got, want)
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

// namedBySpin returns the functions and lines of what spinFrame matches, as llvm has them.
func namedBySpin(m []string) string {
	return strings.TrimSpace(strings.Join([]string{m[2], m[3], m[4], m[6]}, " "))
}

// isCaller reports whether a frame that comes after a text is of a call, and its address where
// that returns to. The first frame of a sample is where the CPU was, and so is that which the
// kernel was entered from.
func isCaller(before string) bool {
	before = strings.TrimSuffix(before, "\n")
	last := before[strings.LastIndexByte(before, '\n')+1:]
	return strings.HasPrefix(last, "\t") && !strings.HasSuffix(last, "([kernel.kallsyms])") || strings.HasPrefix(last, "  ")
}

// llvm returns what llvm-symbolizer says of virtual addresses.
func (p *program) llvm(t *testing.T, virts ...uint64) (said []string) {
	t.Helper()
	cmd := exec.Command(testenv.Tool(t, "llvm-symbolizer-19"), "--obj="+p.path)
	var in strings.Builder
	for _, v := range virts {
		fmt.Fprintf(&in, "%#x\n", v)
	}
	cmd.Stdin = strings.NewReader(in.String())
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	out = regexp.MustCompile(`(?m):\d+$`).ReplaceAll(out, nil) // columns
	for block := range strings.SplitSeq(strings.TrimSuffix(string(out), "\n\n"), "\n\n") {
		said = append(said, strings.Join(strings.Fields(block), " "))
	}
	if len(said) != len(virts) {
		t.Fatalf("llvm-symbolizer has %d answers for %d addresses", len(said), len(virts))
	}
	return said
}

// TestPerfScriptEveryAddress has each address of the program's functions in the output of perf
// script, as where the CPU was and as where a call returns to, and compares what becomes of it
// with what llvm-symbolizer says.
func TestPerfScriptEveryAddress(t *testing.T) {
	for name, flags := range spinForms(t) {
		t.Run(name, func(t *testing.T) {
			p := compile(t, "spin.c", "gcc", append(flags, "-fno-omit-frame-pointer")...)
			const base = 0x10000000
			text := fmt.Sprintf("x 0 1.5: PERF_RECORD_MMAP2 7/7: [%#x(0x1000000) @ 0 <%s>]: r-xp %s\n", base, p.id, p.path)
			type place struct {
				offset uint64
				caller bool
			}
			var places []place
			var virts []uint64
			for _, function := range []string{"spin", "main"} {
				start, size := p.symbol(t, function)
				offset := p.offset(t, start)
				for virt := start; virt < start+size; virt++ {
					here := offset + virt - start
					text += fmt.Sprintf("prog 7 [000] 1.5: 1 cpu-clock: \n\t%16x [unknown] (%s)\n\n", base+here, p.path)
					text += fmt.Sprintf("prog 7 [000] 1.5: 1 cpu-clock: \n\t%16x leaf (/x)\n\t%16x [unknown] (%s)\n\n", 1, base+here+1, p.path)
					places = append(places, place{here, false}, place{here + 1, true})
					virts = append(virts, virt, virt)
				}
			}
			text, _ = rewrite(t, &Filter{Library: p.library, Lines: true}, text)
			said := p.llvm(t, virts...)
			frames := spinFrame.FindAllStringSubmatch(text, -1)
			if len(frames) != len(places) {
				t.Fatalf("%d frames of %d have names in\n%s", len(frames), len(places), text)
			}
			for i, m := range frames {
				if got := namedBySpin(m); got != said[i] {
					t.Errorf("%+v is %s, llvm-symbolizer says %s", places[i], got, said[i])
				}
			}
		})
	}
}

// symbol returns the address and the size of a function, as nm has them.
func (p *program) symbol(t *testing.T, function string) (start, size uint64) {
	t.Helper()
	out, err := exec.Command(testenv.Tool(t, "nm"), "-S", p.path).Output()
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^([0-9a-f]+) ([0-9a-f]+) \S ` + function + `$`).FindStringSubmatch(string(out))
	if m == nil {
		t.Fatalf("nm finds no %s", function)
	}
	fmt.Sscanf(m[1]+" "+m[2], "%x %x", &start, &size)
	return start, size
}

// A segment is where a part of the file is in memory.
type segment struct{ offset, virt, size uint64 }

// segments returns what is loaded of the program, as readelf has it.
func (p *program) segments(t *testing.T) (list []segment) {
	t.Helper()
	out, err := exec.Command(testenv.Tool(t, "readelf"), "-lW", p.path).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`LOAD +0x(\w+) 0x(\w+) 0x\w+ 0x(\w+)`).FindAllStringSubmatch(string(out), -1) {
		var s segment
		fmt.Sscanf(strings.Join(m[1:], " "), "%x %x %x", &s.offset, &s.virt, &s.size)
		list = append(list, s)
	}
	return list
}

// virt returns the virtual address of an offset in the file.
func (p *program) virt(t *testing.T, offset uint64) uint64 {
	t.Helper()
	for _, s := range p.segments(t) {
		if s.offset <= offset && offset < s.offset+s.size {
			return offset - s.offset + s.virt
		}
	}
	t.Fatalf("the offset %#x is in no segment", offset)
	return 0
}

// offset returns the offset in the file of a virtual address.
func (p *program) offset(t *testing.T, virt uint64) uint64 {
	t.Helper()
	for _, s := range p.segments(t) {
		if s.virt <= virt && virt < s.virt+s.size {
			return virt - s.virt + s.offset
		}
	}
	t.Fatalf("the address %#x is in no segment", virt)
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
