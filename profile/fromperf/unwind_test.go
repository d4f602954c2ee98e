package fromperf

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"hallmark/buildid"
	"hallmark/internal/defect"
	"hallmark/internal/perftest"
	"hallmark/internal/testenv"
	"hallmark/perfdata"
	"hallmark/profile"
	"hallmark/reason"
	"hallmark/unwind"
)

// Tests and fuzz targets of this package see panics.
func init() { defect.Escape(true) }

// TestDefectiveTable has the reader of one file's table panic: stacks end where they
// come to that file, and keep the frames of others.
func TestDefectiveTable(t *testing.T) {
	defer defect.Escape(false)()
	file, program := recordCopies(t, "-e", "cpu-clock:u")
	tables := atPath(t)
	for _, building := range []bool{true, false} { // where it is built, or where it is used
		p, _ := readFile(t, file, Options{Tables: func(id buildid.ID, path string) *unwind.Table {
			if path == program && building {
				panic("in a table")
			}
			table := tables(id, path)
			if path == program {
				b := table.Bytes()
				for i := range b[64:] {
					b[64+i] = 0xff
				}
			}
			return table
		}})
		ended, reached := 0, 0
		for _, s := range p.Sample {
			if why, told := profile.StackEnd(s); told && why == reason.NoTable {
				ended++
				if s.Location[0].Mapping.File != program {
					reached++
				}
			}
		}
		if ended == 0 || reached == 0 {
			t.Errorf("%d stacks end at the program, %d of them have frames of other files (building: %v)", ended, reached, building)
		}
	}
}

// atPath builds the tables of the files that lie where they did when perf recorded them.
func atPath(t *testing.T) Tables {
	return func(id buildid.ID, path string) *unwind.Table {
		f, err := os.Open(path)
		if err != nil {
			return nil
		}
		defer f.Close()
		info, err := buildid.Read(f)
		if err != nil || info.ID != id {
			t.Errorf("%s is %v, recorded was %v: %v", path, info.ID, id, err)
			return nil
		}
		table, err := unwind.Build(f, unwind.BuildOptions{})
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
		return table
	}
}

const sortingProgram = `
#include <stdlib.h>
static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
__attribute__((noinline)) static int work(int *v, int n)
{
	for (int i = 0; i < n; i++)
		v[i] = (i * 7919) % n;
	qsort(v, n, sizeof *v, compare);
	return v[n / 2];
}
int main(void)
{
	int n = 30000, *v = malloc(n * sizeof *v), sum = 0;
	for (int i = 0; i < 300; i++)
		sum += work(v, n);
	return sum == 1;
}
`

// recordCopies records a program without frame pointers, which the C library calls back.
func recordCopies(t *testing.T, args ...string) (file, program string) {
	t.Helper()
	gcc := testenv.Tool(t, "gcc")
	dir := t.TempDir()
	file, program = filepath.Join(dir, "perf.data"), filepath.Join(dir, "sorts")
	build := exec.Command(gcc, "-O2", "-fomit-frame-pointer", "-Wl,--build-id", "-xc", "-", "-o", program)
	build.Stdin = strings.NewReader(sortingProgram)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	perftest.RecordListed(t, file, append([]string{"--call-graph", "dwarf,16384", "-F", "499"}, append(args, "--", program)...)...)
	return file, program
}

// TestCopiesAgreeWithPerf compares every frame of the stacks that are walked here with
// those that perf script finds.
func TestCopiesAgreeWithPerf(t *testing.T) {
	for _, mode := range [][]string{{"-e", "cpu-clock:u"}, {"-e", "cpu-clock:u", "--buildid-mmap"}} {
		t.Run(strings.Join(mode, " "), func(t *testing.T) {
			file, _ := recordCopies(t, mode...)
			p, stats := readFile(t, file, Options{Tables: atPath(t)})
			if stats.Unwalked != 0 {
				t.Errorf("%+v", stats)
			}
			if stats.Samples < 50 {
				testenv.Lack(t, "%d samples", stats.Samples)
			}
			var all, cut int64
			for _, s := range p.Sample {
				all += s.Value[0]
				if why, told := profile.StackEnd(s); !told {
					t.Error("a stack does not tell how it ends")
				} else if why != reason.None {
					cut += s.Value[0]
				}
			}
			// A program starts and ends in code that has no call frame information, for less
			// than a hundredth of this one's time.
			if testenv.TooMany(cut, all, 0.01) {
				t.Errorf("%d of %d stacks are not complete", cut, all)
			}
			compareStacks(t, ourStacks(t, p, noReturn), perfStacks(t, file, ""), false)
		})
	}
}

// TestFileNotAtHand has a recording whose program is gone: stacks end in it, and say so.
func TestFileNotAtHand(t *testing.T) {
	file, program := recordCopies(t, "-e", "cpu-clock:u")
	tables := atPath(t)
	p, stats := readFile(t, file, Options{Tables: func(id buildid.ID, path string) *unwind.Table {
		if path == program {
			return nil
		}
		return tables(id, path)
	}})
	if stats.Unwalked == 0 || len(stats.Notes()) == 0 {
		t.Errorf("%+v", stats)
	}
	for _, s := range p.Sample {
		for i, l := range s.Location {
			if l.Mapping.File == program && i != len(s.Location)-1 {
				t.Errorf("frames are found from the %d. on, in a program that is not there", i)
			}
		}
		last := s.Location[len(s.Location)-1]
		if why, told := profile.StackEnd(s); last.Mapping.File == program && (!told || why != reason.NoTable) {
			t.Errorf("the reason is %v", why)
		}
	}
}

// TestDoubtfulFile has a file that turns out to be none that can be named, after stacks were
// walked by its table: what followed from it goes.
func TestDoubtfulFile(t *testing.T) {
	id, err := buildid.New(buildid.GNU, bytes.Repeat([]byte{1}, 20))
	if err != nil {
		t.Fatal(err)
	}
	sure := &file{looked: true, by: id, binary: &profile.Binary{ID: id}}
	doubted := &file{looked: true, by: id, why: reason.FileChanged}
	walk := profile.Walk{End: unwind.Complete, Methods: profile.Methods(0).With(unwind.ByRegs).With(unwind.ByCFI)}
	p := &replay{known: &places{all: []place{{file: sure}, {file: doubted}}}}
	stack := []uint32{0, 1, 0}
	if got, w := p.trusted(stack, walk); len(got) != 2 || w.End != unwind.NotIdentified {
		t.Errorf("%d frames, end %d", len(got), w.End)
	}
	if got, w := p.trusted(stack[:1], walk); len(got) != 1 || w != walk {
		t.Errorf("%d frames, end %d of what is sure", len(got), w.End)
	}
	byFP := profile.Walk{End: unwind.FramePointers, Methods: profile.Methods(0).With(unwind.ByFP)}
	if got, w := p.trusted(stack, byFP); len(got) != 3 || w != byFP {
		t.Errorf("%d frames, end %d without tables", len(got), w.End)
	}
}

// kernelProgram is most of the time in the kernel, at the same places of its own.
const kernelProgram = `
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
__attribute__((noinline)) static long fill(int fd, char *to)
{
	long sum = 0;
	for (int i = 0; i < 100; i++)
		sum += read(fd, to, 1 << 20);
	return sum;
}
int main(void)
{
	long sum = 0;
	char *to = malloc(1 << 20);
	int fd = open("/dev/zero", O_RDONLY);
	for (int i = 0; i < 60; i++)
		sum += fill(fd, to);
	return sum == 1;
}
`

// TestCopiesBehindTheKernel has samples in the kernel with copies of the user's stack, of a
// file that names its machine and of one that was cut before it does so: perf needs the whole
// one to find the same callers.
func TestCopiesBehindTheKernel(t *testing.T) {
	gcc := testenv.Tool(t, "gcc")
	dir := t.TempDir()
	file, program := filepath.Join(dir, "perf.data"), filepath.Join(dir, "reads")
	build := exec.Command(gcc, "-O2", "-fomit-frame-pointer", "-Wl,--build-id", "-xc", "-", "-o", program)
	build.Stdin = strings.NewReader(kernelProgram)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	perftest.Record(t, file, perftest.Asks, "-e", "task-clock", "--call-graph", "dwarf,4096", "-F", "499", "--", program)
	for _, arch := range []string{"x86_64", ""} {
		t.Run("named "+arch, func(t *testing.T) {
			copied := rewriteAs(t, file, perfdata.WriterOptions{}, func(i *perfdata.Info) { i.Arch = arch })
			p, stats := readFile(t, copied, Options{Tables: atPath(t)})
			if stats.Samples < 20 {
				testenv.Lack(t, "%d samples", stats.Samples)
			}
			var behind int
			for _, s := range p.Sample {
				files := map[string]bool{}
				for _, l := range s.Location {
					files[l.Mapping.File] = true
				}
				if files[program] && (files["[kernel]"] || files["[kernel-hidden]"]) {
					behind++
				}
			}
			if behind == 0 {
				t.Error("no sample in the kernel has the program behind it")
			}
			compareStacks(t, ourStacks(t, p, kernelReturns), perfStacks(t, file, ""), false)
		})
	}
}

// TestRegistersWithoutCopy has samples in the kernel whose user code is known by its registers
// alone: the kernel found no stack to copy, or no tables are made for the machine.
func TestRegistersWithoutCopy(t *testing.T) {
	const kernel = "18446744073709551488" // PERF_CONTEXT_KERNEL
	for _, test := range []struct{ name, arch, regs, stack, want string }{
		{"no stack", "x86_64", "Mask=384 Values=[0 0x400020]", "", "[1 5] [kernel-hidden]+0x0 /bin/a+0x20"},
		{"arm, 32 bits", "armv7l", "Mask=0x8000 Values=[0x400020]", " UserStack=x00", "[1 5] [kernel-hidden]+0x0 /bin/a+0x20"},
		{"riscv", "riscv64", "Mask=5 Values=[0x400020 1]", " UserStack=x00", "[1 5] [kernel-hidden]+0x0 /bin/a+0x20"},
		{"unknown", "toaster", "Mask=384 Values=[0 0x400020]", " UserStack=x00", "[1 5] [kernel-hidden]+0x0"},
		{"not mapped", "armv7l", "Mask=0x8000 Values=[0x500020]", " UserStack=x00", "[1 5] [kernel-hidden]+0x0"},
	} {
		mask := strings.TrimPrefix(strings.Fields(test.regs)[0], "Mask=")
		p, _, err := fromText(t, Options{},
			`event {Name="cpu-clock" Attr={Type=1 Period=1000 Fields=IP|TID|TIME|CALLCHAIN|PERIOD|REGS_USER|STACK_USER Flags=0x400040000 UserRegs=`+mask+` UserStack=64}}`,
			`info {Arch="`+test.arch+`"}`,
			`0 Mmap2 {Type=10 Owner=7 Start=0x400000 Size=0x4000 Prot=5 BuildID=x0102030405060708 Name="/bin/a"}`,
			`0 Sample {Misc=1 PID=7 TID=7 Time=11 IP=0xffffffff81000010 Period=5 Callchain=[`+kernel+` 0xffffffff81000010] UserRegs={ABI=2 `+test.regs+`}`+test.stack+`}`,
		)
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		if got := stacksOf(p); len(got) != 1 || got[0] != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}
