package symbolize

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"hallmark/internal/testenv"
)

// offsetOf returns the offset in the file of a virtual address, by its program headers.
func (p *program) offsetOf(t *testing.T, virt uint64) uint64 {
	t.Helper()
	out, err := exec.Command(testenv.Tool(t, "readelf"), "-lW", p.path).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`LOAD +0x([0-9a-f]+) 0x([0-9a-f]+) 0x[0-9a-f]+ 0x([0-9a-f]+)`).FindAllStringSubmatch(string(out), -1) {
		var offset, start, size uint64
		fmt.Sscanf(m[1]+" "+m[2]+" "+m[3], "%x %x %x", &offset, &start, &size)
		if start <= virt && virt-start < size {
			return virt - start + offset
		}
	}
	t.Fatalf("%#x is in no segment:\n%s", virt, out)
	return 0
}

// lineOf returns what addr2line says of an address.
func (p *program) lineOf(t *testing.T, virt uint64) string {
	t.Helper()
	out, err := exec.Command(testenv.Tool(t, "addr2line"), "-e", p.path, fmt.Sprintf("%#x", virt)).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(filepath.Base(string(out)))[0]
}

var column = regexp.MustCompile(`(at|\() ?(?:/[^();\n]*/)?(\w+\.c:\d+):\d+`)

// shortened leaves the directory and the column of source lines away, which addr2line does not print.
func shortened(text string) string { return column.ReplaceAllString(text, "$1 $2") }

// TestStacksOfBPF gives lines as bpftrace and Inspektor Gadget print them.
func TestStacksOfBPF(t *testing.T) {
	for _, flag := range []string{"--build-id=sha1", "--build-id=md5"} {
		p := compile(t, "asan.c", "gcc", "-O1", "-Wl,"+flag)
		p.library.Finder.Dirs = []string{p.buildIDDirectory(t)}
		padded := (p.id.String() + strings.Repeat("0", 40))[:40]
		main, call := p.at(t, "main", 0), p.at(t, "main", 0)+0x1b
		frame := func(virt uint64) string { return fmt.Sprintf("%s 0x%02x", padded, p.offsetOf(t, virt)) }
		in := func(virt uint64) string { return " in main at " + p.lineOf(t, virt) }
		for _, test := range []struct{ name, text, want string }{
			{"a map of bpftrace",
				"@[\n" + frame(main) + "\n7f8b2b4e2a7c\n" + frame(call) + "\n]: 5\n",
				"@[\n" + frame(main) + in(main) + "\n7f8b2b4e2a7c\n" + frame(call) + in(call-1) + "\n]: 5\n"},
			{"a stack that bpftrace prints",
				"\n" + frame(call) + "\n" + frame(call) + "\n",
				"\n" + frame(call) + in(call) + "\n" + frame(call) + in(call-1) + "\n"},
			{"Inspektor Gadget",
				fmt.Sprintf("x  [0]%s +%x; [1]7f8b2b4e2a7c; [2]%s +%x; ", padded, p.offsetOf(t, main), padded, p.offsetOf(t, call)),
				fmt.Sprintf("x  [0]%s +%x%s; [1]7f8b2b4e2a7c; [2]%s +%x%s; ", padded, p.offsetOf(t, main), in(main), padded, p.offsetOf(t, call), in(call-1))},
			{"another build", strings.Repeat("[0]00112233445566778899aabbccddeeff00112233 +11; ", 2), ""},
			{"damage", "[0]" + padded + " +; [x] [1" + padded + " +11111111111111111; [99999999999999999999]", ""},
		} {
			got, _ := rewrite(t, &Filter{Library: p.library}, test.text)
			if test.want == "" {
				test.want = test.text
			}
			if got = shortened(got); got != test.want {
				t.Errorf("%s, %s: got\n%s\nwant\n%s", flag, test.name, got, test.want)
			}
		}
	}
}

// TestSegfault gives lines as the kernel logs them.
func TestSegfault(t *testing.T) {
	p := compile(t, "asan.c", "gcc", "-O1", "-pie")
	main := p.at(t, "main", 0)
	offset := p.offsetOf(t, main)
	page := offset &^ 0xfff
	const start = 0x5581e2c0b000
	head := fmt.Sprintf("[  867.972499] prog[3017]: segfault at 18 ip %016x sp 00007fff7f99ef40 error 4 in ", start+offset-page)
	trap := fmt.Sprintf("traps: prog[3017] general protection fault ip:%x sp:7ffd5d5e0f20 error:0 in ", start+offset-page)
	in := " in main at " + p.lineOf(t, main)
	placed, old := fmt.Sprintf("prog[%x,%x+1000]", offset, start), fmt.Sprintf("prog[%x+1000]", start)
	for _, test := range []struct{ name, text, want string }{
		{"with the offset", head + placed + " likely on CPU 7 (core 3, socket 0)", head + placed + in + " likely on CPU 7 (core 3, socket 0)"},
		{"a trap", trap + placed, trap + placed + in},
		{"of an old kernel", head + old, head + old + in},
		{"a mapping of another size", head + fmt.Sprintf("prog[%x+2000]", start), ""},
		{"another program", head + strings.Replace(placed, "prog", "other", 1), ""},
		{"outside of the mapping", head + fmt.Sprintf("prog[%x,%x+1000]", offset, start+0x10000), ""},
		{"an offset of another mapping", head + fmt.Sprintf("prog[%x,%x+1000]", offset+1, start), ""},
		{"no file", "prog[1]: segfault at 0 ip 0000000000000000 sp 00007ffd error 14 likely on CPU 7", ""},
	} {
		got, _ := rewrite(t, &Filter{Library: p.library, Binaries: []string{p.path}}, test.text)
		if test.want == "" {
			test.want = test.text
		}
		if got = shortened(got); got != test.want {
			t.Errorf("%s: got\n%s\nwant\n%s", test.name, got, test.want)
		}
	}
}

// TestGDB filters what gdb says of a program without symbols, and compares it with what gdb says with them.
func TestGDB(t *testing.T) {
	for _, flag := range []string{"-pie", "-no-pie"} {
		t.Run(flag, func(t *testing.T) {
			p := compile(t, "asan.c", "gcc", "-O1", flag)
			stripped := filepath.Join(t.TempDir(), "prog")
			if out, err := exec.Command(testenv.Tool(t, "strip"), "-o", stripped, p.path).CombinedOutput(); err != nil {
				t.Fatalf("strip: %v\n%s", err, out)
			}
			run := func(prog string, at string, more ...string) string {
				args := []string{"-nx", "-batch", "-iex", "set debuginfod enabled off", "-iex", "set auto-solib-add off", "-ex", "set disable-randomization on", "-ex", "starti", "-ex", "break *" + at, "-ex", "continue"}
				for _, command := range append(more, "backtrace") {
					args = append(args, "-ex", command)
				}
				out, err := exec.Command(testenv.Tool(t, "gdb"), append(args, prog)...).Output()
				testenv.Need(t, err == nil && strings.Contains(string(out), "#0 "), "permission to trace a process")
				return string(out)
			}
			at := fmt.Sprintf("%#x", p.at(t, "outer", 0))
			if flag == "-pie" {
				at = fmt.Sprintf("%#x", 0x555555554000+p.at(t, "outer", 0)) // where gdb has programs without randomization
			}
			lines := func(text string) []string {
				return regexp.MustCompile(`(outer|main) \([^)]*\) at [^\n]*asan\.c:\d+`).FindAllString(text, -1)
			}
			plain := func(list []string) string {
				return regexp.MustCompile(`\([^)]*\) at [^\n]*/`).ReplaceAllString(strings.Join(list, "\n"), "")
			}
			_, stack, _ := strings.Cut(run(p.path, at), "#0")
			want := plain(lines("#0" + stack))
			got, _ := rewrite(t, &Filter{Library: p.library, Binaries: []string{p.path}}, run(stripped, at, "info proc mappings"))
			if strings.Count(want, "\n") != 1 || plain(lines(got)) != want {
				t.Errorf("got\n%s\ngdb says\n%s\nin\n%s", plain(lines(got)), want, got)
			}
			// Without mappings only a program that chooses its addresses is known.
			got, s := rewrite(t, &Filter{Library: p.library, Binaries: []string{p.path}}, run(stripped, at))
			if named := plain(lines(got)); flag == "-pie" && (named != "" || s.Symbolized > 0) || flag == "-no-pie" && named != want {
				t.Errorf("without mappings:\n%s", got)
			}
		})
	}
}
