package addr2line

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// markupLog returns a log with markup about a program: all elements, right ones and
// wrong ones.
func markupLog(t *testing.T, name string) string {
	t.Helper()
	const base = 0x400000
	work := hexNumber(t, symbolAddress(t, name, "_Z4workid"))
	grid := hexNumber(t, symbolAddress(t, name, "grid"))
	lines := []string{
		"plain text, {{{symbol:_Z4workid}}} and {{{symbol:main}}} {{{symbol}}} {{{symbol:a:b}}} {{{symbol:}}}",
		"{{{pc:0x1}}}",
		fmt.Sprintf(`before {{{module:0:a "program":elf:%s}}} behind`, identityOf(t, name)),
		"{{{mmap:0x400000:0x2000:load:0:rX:0x0}}}",
		"gone {{{mmap:0x402000:0x10:load:0:r:0x2000}}} gone",
		"{{{mmap:0x404000:0x1000:load:0:rw:0x4000}}} gone",
		"{{{mmap:0x403000:0x2000:load:0:r:0x2000}}}", "{{{mmap:0x400100:8:load:0:r:0x2000}}}",
		"{{{module:0:again:elf:ab}}}", "{{{module:1:other:elf:abc}}}", "{{{module:2:o:macho:abc}}}", "{{{module:x:o:elf:abc}}}",
		"{{{module:3:o:elf:zz}}}", "{{{module:3:o:elf}}}", "{{{module:3:o:elf:ab:cd}}}", "{{{module:4:o:elf:}}}",
		"{{{mmap:0x500000:0x1000:load:1:r:0x0}}}", "[{{{pc:0x500000}}} {{{bt:0:0x500001}}} {{{data:0x500000}}}]",
		"\x1b[1mbold \x1b[31mred {{{pc:%WORK}}} more \x1b[0m none {{{data:%GRID}}}",
		"\x1b[34mblue {{{pc:%WORK}}} more \x1b[38m \x1b[35m{{{symbol:_Z4workid}}}", "\x1b[1m{{{symbol:_Z4workid}}} bold",
		"{{{bt:x:0x1}}}", "{{{bt:1}}}", "{{{bt:1:0x1}}}", "{{{data:0x400001}}}", "{{{data:z}}}", "{{{data:0}}}", "{{{pc:}}}", "{{{pc:00}}}",
		"{{{unknown:1:2}}} {{{Bad:1}}} {{{:x}}} {{{}}} {{{x} }}} {{{ {{{symbol:_Z1fv}}} }}}", "{{{symbol:_Z1f", "v}}}",
		"windows {{{pc:%WORK}}}\r", "{{{mmap:0x600000:0x10:load:0:r:0}}}\r", "\r", "{{{reset}}} gone\r", "again {{{reset}}} gone", "{{{reset:1}}}", "no newline",
	}
	for _, wrong := range []string{
		"0:0x10:load:0:r:0x0", "00", "0x600000:zz:load:0:r:0x0", "0x600000:10:foo:0:r:0", "0x600000:10:load:7:r:0", "0x600000:10:load:0:xr:0",
		"0x600000:10:load:0::0", "600000:10:load:0:r:0", "0x700000:10:load:0:r:0:9",
	} {
		lines = append(lines, "x {{{mmap:"+wrong+"}}} y")
	}
	var code []string
	for v := work; v < work+0x80; v += 5 {
		code = append(code, fmt.Sprintf("  {{{bt:0:%#x}}} x", base+v), fmt.Sprintf("{{{bt:12:%#x:pc}}}", base+v), fmt.Sprintf("{{{bt:1234567:%#x:ra:more}}}", base+v),
			fmt.Sprintf("{{{pc:%#x:ra}}}{{{pc:%#x:pc}}}{{{pc:%#x:zz}}}", base+v, base+v, base+v))
	}
	lines = append(lines[:18:18], append(code, lines[18:]...)...)
	return strings.NewReplacer("%WORK", fmt.Sprintf("%#x", base+work), "%GRID", fmt.Sprintf("%#x", base+grid)).Replace(strings.Join(lines, "\n"))
}

// TestMarkup compares what --filter-markup prints, byte for byte.
func TestMarkup(t *testing.T) {
	name := buildDetail(t, "g++", "-g", "-O2", "-Wl,--build-id")
	id := identityOf(t, name)
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, ".build-id", id[:2]), 0o777); err != nil {
		t.Fatal(err)
	}
	toolOutput(t, "objcopy", name, filepath.Join(dir, ".build-id", id[:2], id[2:]+".debug"))
	log := markupLog(t, name)
	for _, options := range []string{"", "--color", "--color=always --no-demangle", "--color=never --functions=none", "--functions=short -s", "--relativenames --no-inlines"} {
		args := append(strings.Fields(options), "--filter-markup", "--debug-file-directory="+dir)
		got, gotErr, gotStatus := ours(t, LLVMSymbolizer, strings.NewReader(log), args...)
		want, wantErr, wantStatus := theirs(t, LLVMSymbolizer, strings.NewReader(log), args...)
		if got != want {
			t.Errorf("%v: %s", options, firstDifference(got, want))
		}
		if gotErr != wantErr {
			t.Errorf("%v complains: %s", options, firstDifference(gotErr, wantErr))
		}
		if gotStatus != wantStatus {
			t.Errorf("%v: status %d, want %d", options, gotStatus, wantStatus)
		}
	}
}

// TestLongMarkupLine passes on a line that is too long to be searched.
func TestLongMarkupLine(t *testing.T) {
	log := strings.Repeat("x", 3*longestMarkupLine) + "\n{{{symbol:_Z1fv}}}\n"
	got, _, _ := ours(t, LLVMSymbolizer, strings.NewReader(log), "--filter-markup")
	if want := strings.Repeat("x", 3*longestMarkupLine) + "\nf()\n"; got != want {
		t.Errorf("%d bytes, want %d", len(got), len(want))
	}
}

// FuzzMarkup filters anything. Text without elements stays what it is.
func FuzzMarkup(f *testing.F) {
	f.Chdir(f.TempDir())
	for _, s := range []string{
		"{{{symbol:_Z1fv}}} x\n{{{reset}}}\n", "{{{module:0:a:elf:ab}}}\n{{{mmap:0x1000:0x1000:load:0:r:0}}}\n{{{pc:0x1001}}} {{{bt:0:0x1001:ra}}} {{{data:0x1002}}}\n",
		"\x1b[1m\x1b[31m{{{pc:1}}}\n", "{{{mmap:0:0:load:0::}}}\r\n", "{{{{{{:}}}}}}\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, input string) {
		out, status := converse(LLVMSymbolizer, []string{"--filter-markup", "--color=never"}, input)
		if status != 0 {
			t.Errorf("%q: status %d", input, status)
		}
		if want := strings.TrimSuffix(input, "\n") + "\n"; !strings.ContainsAny(input, "{\x1b") && input != "" && out != want {
			t.Errorf("%q becomes %q", input, out)
		}
		converse(LLVMSymbolizer, []string{"--filter-markup", "--color"}, input)
	})
}
