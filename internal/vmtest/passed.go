package vmtest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"go/scanner"
	"go/token"
	"hash"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"hallmark/internal/atomicfile"
)

// passedFile lists what has passed on which kernel, with a hash of what it depends on: a
// line each of kernel, suite and hash. It is in the repository, so that machines boot only
// after a change of the BPF programs, of the goldens, of the packages that are tested in
// machines, or of what makes the machines.
const passedFile = "internal/vmtest/testdata/passed"

// A passed list knows which suites have passed as they are now.
type passed struct {
	root  string // of the module
	mu    sync.Mutex
	lines map[string]string // hash by "kernel suite"
	parts map[string]string // hash by package or file, made once
	began map[string]string // hash by "kernel suite", when it was asked for
}

// readPassed reads the list of a module. One that is missing is empty; a line that cannot be
// read is none.
func readPassed(root string) (*passed, error) {
	p := &passed{root: root, lines: map[string]string{}, parts: map[string]string{}, began: map[string]string{}}
	text, err := os.ReadFile(filepath.Join(root, passedFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 {
			p.lines[f[0]+" "+f[1]] = f[2]
		}
	}
	return p, nil
}

// Stale returns what is to be run again on other kernels, as "KERNEL SUITE", in the module
// below root; all is, once all is asked for.
func Stale(root string, all bool) ([]string, error) {
	p, err := readPassed(root)
	if err != nil {
		return nil, err
	}
	var stale []string
	for _, k := range kernels {
		for _, s := range append(slices.Clone(k.suites), doctor) {
			fresh, err := p.has(k, s)
			if err != nil {
				return nil, err
			}
			if all || !fresh {
				stale = append(stale, k.series+" "+s.name)
			}
		}
	}
	return stale, nil
}

// Kernels returns how many kernels there are to test on.
func Kernels() int { return len(kernels) }

// has reports whether a suite has passed on a kernel as it is now.
func (p *passed) has(k kernel, s suite) (bool, error) {
	now, err := p.hash(k, s)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.began[k.series+" "+s.name] = now
	return err == nil && p.lines[k.series+" "+s.name] == now, err
}

// add writes down that a suite has passed on a kernel, and forgets what there is no more. What
// was changed while it ran has not passed.
func (p *passed) add(k kernel, s suite) error {
	p.mu.Lock()
	clear(p.parts)
	p.mu.Unlock()
	now, err := p.hash(k, s)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if before := p.began[k.series+" "+s.name]; before != "" && before != now {
		return fmt.Errorf("%s on %s: its inputs were changed while it ran", s.name, k.series)
	}
	p.lines[k.series+" "+s.name] = now
	known := map[string]bool{}
	for _, k := range kernels {
		for _, s := range append(slices.Clone(k.suites), doctor) {
			known[k.series+" "+s.name] = true
		}
	}
	var b strings.Builder
	for _, line := range slices.Sorted(maps.Keys(p.lines)) {
		if known[line] {
			fmt.Fprintln(&b, line, p.lines[line])
		}
	}
	return atomicfile.Write(filepath.Join(p.root, passedFile), 0o644, func(w io.Writer) error {
		_, err := io.WriteString(w, b.String())
		return err
	})
}

// machineFiles are what makes machines, and judges what is said in them.
var machineFiles = []string{
	"go.mod", // for the BPF library
	"internal/vmtest/arch.go", "internal/vmtest/disk.go", "internal/vmtest/initramfs.go", "internal/vmtest/vmtest.go", "internal/vmtest/getkernels.sh",
	"internal/vmtest/pack_test.go", "internal/vmtest/report_test.go", "internal/vmtest/kernels_test.go", "internal/vmtest/doctor_test.go", "internal/vmtest/onkernel",
}

// hash returns that of all that decides whether a suite passes on a kernel.
func (p *passed) hash(k kernel, s suite) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := sha256.New()
	inputs := s.inputs
	s.inputs = nil
	fmt.Fprintf(h, "%s %q %q\n", k.series, k.lacks, fmt.Sprint(s))
	if s.name == doctor.name {
		inputs = append(slices.Clone(inputs), "internal/vmtest/testdata/doctor-"+k.series+".txt")
	}
	for _, name := range slices.Concat(machineFiles, []string{s.pkg}, s.sources, inputs) {
		key := name
		if name == s.pkg && s.run != "" {
			key += " with its tests"
		}
		if p.parts[key] == "" {
			part, err := hashPart(filepath.Join(p.root, filepath.FromSlash(name)), key != name)
			if err != nil {
				return "", err
			}
			p.parts[key] = part
		}
		fmt.Fprintln(h, key, p.parts[key])
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:16]), nil
}

// hashPart returns the hash of a file, or of the code in the directory of a package, with its
// tests and their testdata or without: of what Go builds from, so not of C, whose objects are
// there.
func hashPart(name string, tests bool) (string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	if !info.IsDir() {
		err := hashFile(h, name, filepath.Base(name))
		return fmt.Sprintf("%x", h.Sum(nil)), err
	}
	err = filepath.WalkDir(name, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(name, path)
		if err != nil {
			return err
		}
		inTestdata := strings.HasPrefix(below, "testdata"+string(filepath.Separator))
		info, err := os.Stat(path) // Go builds what links lead to
		if err != nil {
			return err
		}
		switch ext := filepath.Ext(below); {
		case d.IsDir() && below != "." && (below != "testdata" || !tests) && !inTestdata:
			return fs.SkipDir // another package
		case !tests && strings.HasSuffix(below, "_test.go"):
			return nil
		case !info.Mode().IsRegular() || !inTestdata && ext != ".go" && ext != ".s" && ext != ".o":
			return nil
		}
		return hashFile(h, path, below)
	})
	return fmt.Sprintf("%x", h.Sum(nil)), err
}

// hashFile adds a file: of Go its tokens, because a comment changes nothing.
func hashFile(h hash.Hash, path, name string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	fmt.Fprintf(h, "%q\n", name)
	if filepath.Ext(name) != ".go" {
		fmt.Fprintf(h, "%x\n", sha256.Sum256(content))
		return nil
	}
	var s scanner.Scanner
	file := token.NewFileSet().AddFile(name, -1, len(content))
	s.Init(file, content, nil, scanner.ScanComments)
	for {
		_, tok, text := s.Scan()
		switch {
		case tok == token.EOF:
			return nil
		case tok == token.COMMENT && !strings.HasPrefix(text, "//go:"): // which is for the compiler
		default:
			fmt.Fprintf(h, "%d %q\n", tok, text)
		}
	}
}
