package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"hallmark/internal/testenv"
	"hallmark/internal/vmtest"
)

// A pkg is a package with tests.
type pkg struct {
	ImportPath                string
	Dir                       string
	TestGoFiles, XTestGoFiles []string
	Imports                   []string
	Module                    struct{ Path string }
	race                      bool   // tested under the race detector
	only, skip                string // patterns of its tests; "" for all, and for none
}

// name is the path of the package below its module's.
func (p pkg) name() string { return strings.TrimPrefix(p.ImportPath, p.Module.Path+"/") }

// A plan is what a run consists of.
type plan struct {
	packages []pkg
	again    []pkg    // to be run without the race detector, too
	checks   []check  // besides tests
	stale    []string // what is to be run on other kernels
	omitted  []string // what is not run, and why
	heading  []string
}

func (p *plan) String() string { return strings.Join(p.heading, "\n") }

// onMachine are packages whose tests look at what the machine does: of these one is tested
// at a time.
var onMachine = []string{"capture", "execwatch", "inventory", "cmd/hallmark/internal/doctor", "internal/bpf", "internal/perftest", "cmd/hallmark"}

// split are packages whose tests take longest: a part of them runs under the race detector. With
// HALLMARK_THOROUGH=1 all of them do.
var split = map[string]parts{
	// All tests run without it, and those of what goroutines share once more under it.
	"symbol":                          {raced: "Concurrent|SwitchOver|Deterministic|MiniDebug$|Contain|Cursor"},
	"unwind":                          {raced: "Threads|Sections|Ends$|TooMuch|TooManyRules|WithoutCFI"},
	"buildid":                         {raced: "Content|Scan(Order|Stops|Ends)"},
	"cmd/hallmark/internal/addr2line": {raced: "Conversation"},
	"cmd/hallmark/internal/cli":       {raced: "Interrupted|Asked"},
	"internal/bpf":                    {raced: "Exec(Own|Wake|Fills|Many|Lost)$|Stock(While|ComesBefore)|TableMakesRoom|FullTable|UsedEntriesStay|CountsAreComplete|ForgottenIs|ForgetAll|InNMI|Tables$|Eviction"},
	"profile/view":                    {raced: "Pages(Show|Are)|URL|Diff|Listen|Serve|Door|Guest|Peer|Stranger"},

	// Scenes are long for what the kernel and other processes do; the tests beside them let the same
	// goroutines run.
	"capture": {scenes: "^Test(NeverWrong|Rewritten|Record(FirstSample|Forge|HiddenContent$|Programs$|BriefProcesses$|TwoBuilds|OneID|NamesDiffer$|PassingKernel|Generated" +
		"|Descendants$|Swapped$|ReplacedFile$|Running$|Containers$|Inherited$|WithoutFirst|LaterChildren$|Copies$)|PprofSymbolizes$|ThrottledIsCounted$" +
		"|WatchForged|WatchTimes$|TimesThatTellNothing$|Snapshots$|Stackmap" +
		"|ProgramsNamedLikeMemory$|FilesAreForgotten$|UnwindersAgree$|WholeStacks$|StacksOf|NoHelper$|AgreesWithPerf$|RecordSystem$)"},
	"execwatch":                    {scenes: "^Test(WatchElsewhere|WatchOneID|ExecJustWritten)$"},
	"cmd/hallmark/internal/doctor": {scenes: "^TestCompare$"},
}

// parts are patterns of tests, of which there is one: those of raced run under the race detector, and
// all without it; those of scenes run without it, and all others under it.
type parts struct{ raced, scenes string }

// ofChildren are packages whose tests look at commands that are built without the race detector:
// in the test itself it would only make the inputs slowly.
var ofChildren = []string{"cmd/hallmark/internal/hostile"}

// seldomRaced are packages that are tested under the race detector with HALLMARK_THOROUGH=1 only: the
// scripts of one start the command a thousand times, each of which takes three times as long (what its
// goroutines share is tested in the packages), and the other hashes all that suites depend on, which
// takes fifteen times as long.
var seldomRaced = []string{"cmd/hallmark", vmPackage}

// notQuick are packages whose tests need root, perf or several minutes.
var notQuick = append([]string{"internal/unwindtest", "internal/vmtest", "profile/fromperf", "profile/toperf", "buildid"}, onMachine...)

// vmPackage has the tests that run on other kernels.
const vmPackage = "internal/vmtest"

// plan finds out what there is to do.
func (r *runner) plan(ctx context.Context) (*plan, error) {
	patterns := r.options.packages
	if len(patterns) == 0 {
		patterns = []string{"./..."}
	}
	if r.toolchains == nil {
		return nil, errors.New("go env does not say where the Go command keeps what it builds")
	}
	args := append([]string{"list", "-json=ImportPath,Dir,Module,Imports,TestGoFiles,XTestGoFiles", "--"}, patterns...)
	cmd := r.procs.command(ctx, "go", args...)
	var out, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := r.procs.run(cmd); err != nil {
		return nil, usageError{errors.New(strings.TrimSpace(stderr.String()))}
	}
	run, err := firstNames(r.options.run)
	if err != nil {
		return nil, usageError{fmt.Errorf("--run: %w", err)}
	}
	p := new(plan)
	var bare []string // without tests
	for d := json.NewDecoder(strings.NewReader(out.String())); ; {
		var found pkg
		if err := d.Decode(&found); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		switch tests := append(found.TestGoFiles, found.XTestGoFiles...); {
		case len(tests) == 0:
			bare = append(bare, found.name())
		case r.quick && slices.Contains(notQuick, found.name()):
			p.omitted = append(p.omitted, found.name())
		case run == nil || declares(found.Dir, tests, run):
			p.packages = append(p.packages, found)
		}
	}
	switch {
	case len(p.packages) > 0:
	case r.options.run != "":
		return nil, fmt.Errorf("no test of these packages matches %s", r.options.run)
	default:
		return nil, fmt.Errorf("nothing to run: without tests %v, left out by --quick %v", bare, p.omitted)
	}
	if len(bare) > 0 && len(r.options.packages) > 0 {
		r.note("Without tests: %s.", strings.Join(bare, ", "))
	}
	if len(r.options.packages) == 0 && r.options.run == "" {
		p.checks = r.checks()
	}
	return p, r.planKernels(p)
}

// planRaces decides which packages are tested under the race detector, which needs a compiler
// of C: those whose own files start goroutines. HALLMARK_THOROUGH=1 has those that import one of
// them, too.
func (r *runner) planRaces(p *plan) (err error) {
	if r.quick || !hasCompiler() {
		return nil
	}
	for i := range p.packages {
		found := &p.packages[i]
		if slices.Contains(ofChildren, found.name()) || slices.Contains(seldomRaced, found.name()) && !testenv.Thorough() {
			continue
		}
		if found.race, err = r.isConcurrent(*found); err != nil {
			return err
		}
		of, isSplit := split[found.name()]
		if !found.race || !isSplit || of.raced == "" && (testenv.Thorough() || r.options.run != "") {
			continue
		}
		plain := *found
		plain.race = false
		if plain.only, found.skip = of.scenes, of.scenes; !testenv.Thorough() {
			found.only = of.raced
		}
		p.again = append(p.again, plain)
	}
	return nil
}

// planKernels finds out what is to be run on other kernels.
func (r *runner) planKernels(p *plan) error {
	has := slices.ContainsFunc(p.packages, func(f pkg) bool { return f.name() == vmPackage })
	if !has {
		return nil
	}
	stale, err := vmtest.Stale(r.root, testenv.Thorough())
	if err != nil {
		return err
	}
	all, err := vmtest.Stale(r.root, true)
	if err != nil {
		return err
	}
	switch {
	case r.noKernels:
		for _, suite := range stale {
			r.results.skip("on Linux "+suite, "--no-kernels")
		}
	case len(stale) == 0:
		r.note("Other kernels: none of the %d suites for %d kernels was run, because nothing that they depend on has changed since they passed.", len(all), vmtest.Kernels())
	default:
		p.stale = stale
		if n := len(all) - len(stale); n > 0 {
			r.note("Other kernels: %d of %d suites were not run, because nothing that they depend on has changed since they passed.", n, len(all))
		}
	}
	return nil
}

// describe says what will be run.
func (r *runner) describe(p *plan) {
	say := func(format string, args ...any) { p.heading = append(p.heading, fmt.Sprintf(format, args...)) }
	user := "as root"
	if os.Geteuid() != 0 {
		user = "as an ordinary user, so without the tests that need root"
	}
	raced := 0
	for _, f := range p.packages {
		if f.race {
			raced++
		}
	}
	say("Testing %d packages, %d of them under the race detector, %d at a time, %s.", len(p.packages), raced, r.jobs, user)
	if !r.quick && !hasCompiler() {
		r.note("There is no gcc, so nothing was run under the race detector.")
	}
	if len(p.checks) > 0 {
		var names []string
		for _, c := range p.checks {
			names = append(names, c.name)
		}
		say("Checks: %s.", strings.Join(names, ", "))
	}
	if len(p.stale) > 0 {
		var kernels []string
		for _, s := range p.stale {
			if series, _, _ := strings.Cut(s, " "); !slices.Contains(kernels, series) {
				kernels = append(kernels, series)
			}
		}
		say("Other kernels, in QEMU: %d suites on %s.", len(p.stale), strings.Join(kernels, ", "))
	} else {
		say("Other kernels: none.")
	}
	if len(p.omitted) > 0 {
		say("Left out by --quick: %s.", strings.Join(p.omitted, ", "))
		r.note("Left out by --quick: %s, and what needs long.", strings.Join(p.omitted, ", "))
	}
}

// A usageError is a mistake in the arguments.
type usageError struct{ error }

// firstNames returns an expression for the names of tests that a pattern of -run may select, nil
// for no pattern. A pattern with subtests and alternatives may select any: go test splits it.
func firstNames(pattern string) (*regexp.Regexp, error) {
	if pattern == "" {
		return nil, nil
	}
	if _, err := regexp.Compile(pattern); err != nil {
		return nil, err
	}
	if !strings.Contains(pattern, "/") {
		return regexp.Compile(pattern)
	}
	if strings.ContainsAny(pattern, "|([") {
		return regexp.MustCompile(""), nil
	}
	first, _, _ := strings.Cut(pattern, "/")
	return regexp.Compile(first)
}

// declares reports whether files have a test or fuzz target whose name matches.
func declares(dir string, files []string, name *regexp.Regexp) bool {
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`)
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(dir, f))
		if err != nil {
			continue
		}
		for _, m := range function.FindAllSubmatch(text, -1) {
			if name.Match(m[1]) {
				return true
			}
		}
	}
	return false
}

// isConcurrent reports whether a package, its tests, or a package of this module that it imports
// itself may do anything at the same time. Races of others are for the tests of those.
func (r *runner) isConcurrent(p pkg) (bool, error) {
	dirs := []string{p.Dir}
	for _, path := range p.Imports {
		if !testenv.Thorough() {
			break
		}
		if below, found := strings.CutPrefix(path, p.Module.Path+"/"); found {
			dirs = append(dirs, filepath.Join(r.root, filepath.FromSlash(below)))
		}
	}
	for i, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			return false, err
		}
		for _, name := range files {
			if i > 0 && strings.HasSuffix(name, "_test.go") {
				continue // others' tests
			}
			if startsGoroutines(name, i == 0 && testenv.Thorough()) {
				return true, nil
			}
		}
	}
	return false, nil
}

// startsGoroutines reports whether a file has what starts goroutines, or, where all is asked
// for, anything that is there for them.
func startsGoroutines(name string, all bool) (found bool) {
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
	if err != nil {
		return true // the build will say so
	}
	for _, i := range file.Imports {
		switch i.Path.Value {
		case `"sync"`, `"sync/atomic"`, `"github.com/rogpeppe/go-internal/testscript"`:
			found = found || all
		case `"net/http"`:
			found = true
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found = true
		case *ast.SelectorExpr:
			switch n.Sel.Name {
			case "Go", "Parallel", "RunParallel", "AfterFunc", "Pull", "Pull2":
				found = true
			}
		}
		return !found
	})
	return found
}
