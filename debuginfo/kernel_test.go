package debuginfo

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/internal/testenv"
	"hallmark/reason"
	"hallmark/symbol"
)

// kernelScript lays a small program out as x86's vmlinux.lds.S does a kernel: linked to
// run in the highest 2 GiB, _text first, data and then code for the start behind.
const kernelScript = `
PHDRS { text PT_LOAD FLAGS(5); data PT_LOAD FLAGS(6); init PT_LOAD FLAGS(7); note PT_NOTE FLAGS(0); }
SECTIONS {
  . = 0xffffffff81000000;
  .text : ALIGN(4096) { _text = .; _stext = .; *(.text .text.*) _etext = .; } :text
  .notes : { *(.note.gnu.build-id) } :text :note
  .data : ALIGN(4096) { *(.data) } :data
  .init.text : ALIGN(4096) { *(.init.text) } :init
  /DISCARD/ : { *(.note.gnu.property) *(.comment) *(.eh_frame) }
}`

const kernelSource = `
int counter = 1;
static __attribute__((noinline)) int do_sys_something(int a) { return a * 3 + counter; }
__attribute__((noinline)) int vfs_something(int a) { return do_sys_something(a) + 1; }
__attribute__((section(".init.text"))) int start_kernel(void) { return vfs_something(counter); }
`

// buildKernel returns the path of a small kernel, and its symbols as nm prints them.
func buildKernel(t *testing.T) (vmlinux string, symbols map[string]addr.Virt) {
	t.Helper()
	testenv.Need(t, runtime.GOARCH == "amd64", "x86-64")
	dir := t.TempDir()
	vmlinux = filepath.Join(dir, "vmlinux")
	source, script := filepath.Join(dir, "kernel.c"), filepath.Join(dir, "kernel.lds")
	for name, content := range map[string]string{source: kernelSource, script: kernelScript} {
		if err := os.WriteFile(name, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	command(t, "gcc", "-g", "-O1", "-ffreestanding", "-fno-pic", "-no-pie", "-static", "-mcmodel=kernel", "-nostdlib",
		"-Wl,--build-id,-e,start_kernel,-T,"+script, "-o", vmlinux, source)
	return vmlinux, symbolsOf(t, vmlinux)
}

// symbolsOf returns the symbols that nm shows.
func symbolsOf(t *testing.T, name string) map[string]addr.Virt {
	t.Helper()
	symbols := map[string]addr.Virt{}
	for _, line := range strings.Split(command(t, "nm", name), "\n") {
		if f := strings.Fields(line); len(f) == 3 {
			symbols[f[2]] = addr.Virt(number(t, f[0]))
		}
	}
	return symbols
}

// TestOpenKernel installs vmlinux where distributions do, whole and as a debug file, for
// offsets that count from _text.
func TestOpenKernel(t *testing.T) {
	vmlinux, symbols := buildKernel(t)
	id := identify(t, vmlinux)
	debug := filepath.Join(t.TempDir(), "vmlinux.debug")
	command(t, "objcopy", "--only-keep-debug", vmlinux, debug)
	for _, test := range []struct{ from, to string }{
		{vmlinux, "boot/vmlinux-9.9.9-amd64"},
		{vmlinux, "lib/modules/9.9.9-amd64/vmlinux"},
		{vmlinux, "usr/lib/modules/9.9.9-amd64/vmlinux"},
		{debug, "boot/vmlinux-9.9.9-amd64"},
		{debug, strings.TrimPrefix(inTree("", id), "/") + ".debug"},
	} {
		for _, when := range []func(int64, int) bool{always, never} {
			l, dir := library(t, when)
			copyFile(t, os.Args[0], filepath.Join(dir, "boot/vmlinux-1.1.1-other"))
			copyFile(t, test.from, filepath.Join(dir, test.to))
			s, why := l.OpenKernel(t.Context(), id, 100)
			if s == nil {
				t.Fatalf("%s: %v", test.to, why)
			}
			for _, name := range []string{"do_sys_something", "vfs_something", "start_kernel"} {
				o := addr.Offset(symbols[name] - symbols["_text"])
				if r := s.LookupOffset(o); len(r.Frames) != 1 || r.Frames[0].Func != name {
					t.Errorf("%s: %s is %+v", test.to, name, r)
				}
				if v, ok := s.Virt(o); !ok || v != symbols[name] {
					t.Errorf("%s: %s is at %v, want %v", test.to, name, v, symbols[name])
				}
			}
			s.Close()
		}
	}
}

// TestKernelOfKallsyms keeps an index of what a running kernel reports, as nm prints it of
// this one: names, until a debug file of the kernel is installed.
func TestKernelOfKallsyms(t *testing.T) {
	vmlinux, symbols := buildKernel(t)
	id := identify(t, vmlinux)
	k, err := symbol.ReadKallsyms(strings.NewReader(command(t, "nm", vmlinux)))
	if err != nil {
		t.Fatal(err)
	}
	x, err := k.Index(symbol.IndexOptions{Identity: id.String(), Origin: FromKernel})
	if err != nil {
		t.Fatal(err)
	}
	l, dir := library(t, never)
	if _, err := l.Indexes.Store(x); err != nil {
		t.Fatal(err)
	}
	check := func(want symbol.Source) {
		t.Helper()
		s, why := l.OpenKernel(t.Context(), id, 1)
		if s == nil {
			t.Fatal(why)
		}
		defer s.Close()
		r := s.LookupOffset(addr.Offset(symbols["vfs_something"] - symbols["_text"]))
		if len(r.Frames) != 1 || r.Frames[0].Func != "vfs_something" || r.Source != want {
			t.Errorf("%+v, want vfs_something by %v", r, want)
		}
	}
	check(symbol.SourceKallsyms)
	command(t, "objcopy", "--only-keep-debug", vmlinux, filepath.Join(dir, "debug"))
	if err := os.Mkdir(filepath.Join(dir, "boot"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "debug"), filepath.Join(dir, "boot/vmlinux-9")); err != nil {
		t.Fatal(err)
	}
	check(symbol.SourceDWARF)
	check(symbol.SourceDWARF)
}

// TestNoKernel: the kernels of others are no reason to say that the file was replaced.
func TestNoKernel(t *testing.T) {
	l, dir := library(t, never)
	copyFile(t, os.Args[0], filepath.Join(dir, "boot/vmlinux-1.1.1-other"))
	id, err := buildid.Parse("00112233445566778899aabbccddeeff00112233")
	if err != nil {
		t.Fatal(err)
	}
	if s, why := l.OpenKernel(t.Context(), id, 1); s != nil || why != reason.NoFile {
		t.Errorf("%v, %v", s, why)
	}
	if s, why := l.OpenModule(t.Context(), id, "ext4"); s != nil || why != reason.NoFile {
		t.Errorf("%v, %v", s, why)
	}
}

const moduleSource = `
int a_function(int a) { return a * 5; }
__attribute__((section(".init.text"))) int init_module(void) { return a_function(1); }
__attribute__((section(".text.unlikely"), aligned(64))) int a_cold_function(int a) { return a * 7; }
__attribute__((section(".exit.text"))) void cleanup_module(void) { }
`

// TestOpenModule finds a module by its name, with a dash for an underscore, and looks its
// functions up as the kernel lays them out: one section of code after another, without
// that of .init.
func TestOpenModule(t *testing.T) {
	testenv.Need(t, runtime.GOARCH == "amd64", "x86-64")
	build := t.TempDir()
	source, object, module := filepath.Join(build, "m.c"), filepath.Join(build, "m.o"), filepath.Join(build, "m.ko")
	if err := os.WriteFile(source, []byte(moduleSource), 0o666); err != nil {
		t.Fatal(err)
	}
	command(t, "gcc", "-g", "-O1", "-ffreestanding", "-fno-pic", "-c", "-o", object, source)
	command(t, "ld", "-r", "--build-id", "-o", module, object)
	id := identify(t, module)
	debug := filepath.Join(build, "debug")
	command(t, "objcopy", "--only-keep-debug", module, debug)
	want := moduleLayout(t, module)
	for _, from := range []string{module, debug} {
		l, dir := library(t, always)
		copyFile(t, from, filepath.Join(dir, "lib/modules/9.9.9/kernel/fs/my-module.ko"))
		s, why := l.OpenModule(t.Context(), id, "my_module")
		if s == nil {
			t.Fatal(why)
		}
		for o, name := range want {
			r := s.LookupOffset(o)
			if name == "" && r.Reason == reason.NoSymbol {
				continue
			}
			if len(r.Frames) != 1 || r.Frames[0].Func != name {
				t.Errorf("%v is %+v, want %q", o, r, name)
			}
		}
		s.Close()
	}
}

// moduleLayout returns the functions of the module and where the kernel puts them, by
// what readelf says of its sections.
func moduleLayout(t *testing.T, module string) map[addr.Offset]string {
	t.Helper()
	function := map[string]string{".text": "a_function", ".text.unlikely": "a_cold_function", ".exit.text": "cleanup_module"}
	layout := map[addr.Offset]string{}
	next := uint64(0)
	for _, line := range strings.Split(command(t, "readelf", "-SW", module), "\n") {
		_, line, _ = strings.Cut(line, "]")
		f := strings.Fields(line) // name, type, address, offset, size, entry size, flags, link, info, alignment
		if len(f) != 10 || f[6] != "AX" || f[0] == ".init.text" {
			continue
		}
		align, size := number(t, "0"+f[9]), number(t, f[4])
		if f[9] == "64" {
			align = 64
		}
		next = (next + align - 1) / align * align
		if size > 0 {
			layout[addr.Offset(next)] = function[f[0]]
		}
		next += size
	}
	if len(layout) != len(function) {
		t.Fatalf("readelf tells of %v", layout)
	}
	layout[addr.Offset(next)] = ""
	return layout
}
