// Package unwindtest compares stacks that package unwind walks with those that others
// find in the same copies of stack memory: perf with libunwind, and elfutils. It
// has the programs that are recorded for it, each of which keeps busy in code that is
// hard to unwind.
package unwindtest

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed testdata
var sources embed.FS

// A Program is a member of the corpus.
type Program struct {
	Name  string
	Build string   // shell commands, run in a directory with the sources; "" for programs of the machine
	Run   string   // shell words; the time to work in ms is added to them
	Env   []string // of the run
	Tools []string // what Build and Run need in PATH
	// Kernel says that samples are wanted that were taken while the kernel worked for the
	// program, too.
	Kernel bool
}

const noFP = "-Wall -g -fomit-frame-pointer -fno-optimize-sibling-calls "

// c returns a program of C, built by a compiler with these options.
func c(name, compiler, options string) Program {
	return Program{Name: name, Build: compiler + " " + options + " -o " + name, Run: "./" + name, Tools: []string{compiler}}
}

// Corpus returns all programs.
func Corpus() []Program {
	return append(compiled(), interpreted()...)
}

func compiled() []Program {
	plt := c("plt", "gcc", "-O2 -fno-builtin -fcf-protection=none -Wl,-z,lazy -fplt plt.c -lm")
	plt.Env = []string{"LD_BIND_NOT=1"}
	ibt := c("plt-ibt", "gcc", "-O2 -fno-builtin -fcf-protection=full -Wl,-z,lazy -Wl,-z,ibtplt -fplt plt.c -lm")
	ibt.Env = plt.Env
	now := c("plt-now", "gcc", "-O2 -fno-builtin -Wl,-z,now plt.c -lm")
	syscalls := c("syscalls", "gcc", noFP+"-O2 syscalls.c")
	syscalls.Kernel = true
	plugins := c("dlopen", "gcc", noFP+"-O2 dlopen.c -ldl")
	plugins.Build += " && gcc -shared -fPIC -O2 -o dlopen-plugin0.so plugin.c && gcc -shared -fPIC -O1 -o dlopen-plugin1.so plugin.c"
	return []Program{
		c("calls-O0", "gcc", noFP+"-O0 calls.c"),
		c("calls-O1", "gcc", noFP+"-O1 calls.c"),
		c("calls-O2", "gcc", noFP+"-O2 calls.c"),
		c("calls-O3", "gcc", noFP+"-O3 -march=x86-64-v3 calls.c"),
		c("calls-Os", "gcc", "-Os -fomit-frame-pointer calls.c"),
		c("calls-fp", "gcc", "-O2 -fno-omit-frame-pointer calls.c"),
		c("calls-clang-O0", "clang-19", "-O0 -fomit-frame-pointer calls.c"),
		c("calls-clang-O2", "clang-19", "-O2 -fomit-frame-pointer calls.c"),
		c("calls-nopie", "gcc", noFP+"-O2 -no-pie -fno-pie calls.c"),
		c("calls-static", "gcc", noFP+"-O2 -static calls.c"),
		c("calls-static-pie", "gcc", noFP+"-O2 -static-pie -fpie calls.c"),
		c("realign", "gcc", "-O2 -mavx2 -fomit-frame-pointer realign.c"),
		c("realign-O0", "gcc", "-O0 -mavx2 -fomit-frame-pointer realign.c"),
		c("realign-clang", "clang-19", "-O2 -mavx2 -fomit-frame-pointer realign.c"),
		c("exceptions", "g++", "-O2 -fomit-frame-pointer exceptions.cc"),
		c("exceptions-clang", "clang++-19", "-O2 -fomit-frame-pointer exceptions.cc"),
		c("libc", "gcc", noFP+"-O2 libc.c -lm"),
		c("libc-static", "gcc", noFP+"-O2 -static libc.c -lm"),
		c("digest", "gcc", "-O2 digest.c -lcrypto"),
		plt, ibt, now,
		c("signals", "gcc", "-O2 -fomit-frame-pointer signals.c"),
		c("threads", "gcc", "-O2 -fomit-frame-pointer threads.c -lpthread"),
		c("forks", "gcc", "-O2 -fomit-frame-pointer forks.c"),
		c("jumps", "gcc", "-O2 -fomit-frame-pointer jumps.c"),
		c("tail", "gcc", "-O2 -fomit-frame-pointer tail.c"),
		c("frames", "gcc", "-O2 frames.c frames.S"),
		plugins, syscalls,
		c("rust", "rustc", "-O rust.rs"),
		{Name: "go", Build: "go build -o go-program pure.go", Run: "./go-program", Tools: []string{"go"}},
		{Name: "go-stripped", Build: "go build -ldflags='-s -w' -o go-stripped pure.go", Run: "./go-stripped", Tools: []string{"go"}},
		{Name: "cgo", Build: "go build -o cgo-program cgo.go", Run: "./cgo-program", Env: []string{"CGO_ENABLED=1"}, Tools: []string{"go", "gcc"}},
	}
}

func interpreted() []Program {
	return []Program{
		{Name: "python", Run: "python3 busy.py", Tools: []string{"python3"}},
		{Name: "python-system", Run: "/usr/bin/python3 busy.py", Tools: []string{"/usr/bin/python3"}},
		{Name: "node", Run: "node busy.js", Tools: []string{"node"}},
		{Name: "java", Build: "javac Busy.java", Run: "java -cp . Busy", Tools: []string{"javac", "java"}},
		{Name: "java-int", Build: "javac Busy.java", Run: "java -Xint -cp . Busy", Tools: []string{"javac", "java"}},
		{Name: "shell", Run: "sh shell.sh", Tools: []string{"xz", "awk"}},
	}
}

// Missing returns the first of the program's tools that the machine lacks, or "". A rustc of
// rustup is there without a compiler, where nobody has installed one for this user.
func (p *Program) Missing() string {
	for _, tool := range p.Tools {
		_, err := exec.LookPath(tool)
		if err == nil && tool == "rustc" {
			err = exec.Command(tool, "--version").Run()
		}
		if err != nil {
			return tool
		}
	}
	return ""
}

// Unpack writes the sources of the corpus to a directory.
func Unpack(dir string) error {
	return fs.WalkDir(sources, "testdata", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := sources.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, d.Name()), b, 0o644)
	})
}

// Make builds the program in a directory that Unpack filled.
func (p *Program) Make(ctx context.Context, dir string) error {
	if p.Build == "" {
		return nil
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", p.Build)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", p.Name, err, out)
	}
	return nil
}

// command returns the words of Run. Only one program may be executed: perf 6.1 remembers for
// each file the address where it lay first, and takes that for the one in all processes.
func (p *Program) command() []string {
	words := strings.Fields(p.Run)
	if words[0] == "python3" { // the one that a script of pyenv executes
		if out, err := exec.Command("python3", "-c", "import os, sys; print(os.path.realpath(sys.executable))").Output(); err == nil {
			words[0] = strings.TrimSpace(string(out))
		}
	}
	return words
}

// A Recording says how a program is recorded.
type Recording struct {
	Milliseconds int
	Hz           int
	StackSize    int // bytes of stack memory in each sample; 0 for call chains by frame pointers
}

// Record runs the program under perf and returns the path of the file that it wrote.
// Samples are of the clock of the CPU, which every machine has. The recording asks for build
// IDs, as one that does not is wrong, and perf aborts, while any other on the machine does
// (see internal/perftest).
func (p *Program) Record(ctx context.Context, dir string, r Recording) (string, error) {
	file := filepath.Join(dir, p.Name+".data")
	graph := "fp"
	if r.StackSize > 0 {
		graph = fmt.Sprintf("dwarf,%d", r.StackSize)
	}
	event := "cpu-clock:u"
	if p.Kernel {
		event = "cpu-clock"
	}
	args := append([]string{"record", "-q", "-B", "--buildid-mmap", "-m", "2M", "-o", file, "-e", event, "-F", fmt.Sprint(r.Hz), "--call-graph", graph, "--"}, p.command()...)
	args = append(args, fmt.Sprint(r.Milliseconds))
	cmd := exec.CommandContext(ctx, "perf", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), p.Env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("perf record %s: %w\n%s", p.Name, err, out)
	}
	return file, nil
}
