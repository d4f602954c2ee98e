package kernelcode

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/internal/cachedir"
	"hallmark/symbol"
)

// kernelCache is a copy of /proc/kallsyms in a directory. The kernel takes long to
// write that file, every time, for the same text, of which a recording needs a few
// lines: see writePieces. The copy begins with a key: the identity of the running
// kernel, and which modules lie where. All else in the file, BPF programs for
// instance, comes and goes: the copy does not answer for it.
type kernelCache struct {
	dir *cachedir.Dir // nil for no copy
	// proc is /proc, or what stands for it in a test.
	proc    string
	modules []module
	// isKnown reports whether what an address is of is known without the symbols; nil for never.
	isKnown func(addr.Abs) bool
	key     []byte
}

// newKernelCache returns the cache in a directory, for a kernel with this identity.
func newKernelCache(dir, proc string, id buildid.ID, modules []module) *kernelCache {
	c := &kernelCache{proc: proc, modules: modules}
	boot, err := os.ReadFile(filepath.Join(proc, "sys/kernel/random/boot_id"))
	if !id.IsZero() && err == nil && cachedir.Check(dir) == nil {
		c.dir = &cachedir.Dir{Path: dir}
	}
	lines := []string{"hallmark kallsyms 2", id.String(), strings.TrimSpace(string(boot))}
	for _, m := range modules {
		lines = append(lines, m.String())
	}
	c.key = []byte(strings.Join(lines, " ") + "\n")
	return c
}

func (c *kernelCache) name() string { return filepath.Join(c.dir.Path, "kallsyms") }

// read returns the symbols for these addresses.
func (c *kernelCache) read(addresses []addr.Abs) (*symbol.Kallsyms, error) {
	live, err := os.Open(filepath.Join(c.proc, "kallsyms"))
	if err != nil {
		return nil, err
	}
	defer live.Close()
	if c.dir == nil {
		return symbol.ReadKallsymsAt(live, addresses)
	}
	first := make([]byte, 4096)
	n, err := live.Read(first)
	if err != nil {
		return nil, err
	}
	all := io.MultiReader(bytes.NewReader(first[:n]), live)
	k, err := c.readCopy(first[:n], addresses)
	switch {
	case err == nil:
		return k, nil
	case errors.Is(err, errElsewhere):
		return symbol.ReadKallsymsAt(all, addresses)
	}
	return c.copy(first[:n], all, addresses)
}

// Why the copy does not answer.
var (
	errNoCopy    = errors.New("no copy of this kernel's symbols")
	errElsewhere = errors.New("addresses that a copy of the kernel's symbols does not answer for")
)

// readCopy reads the copy, if it is of the kernel that runs: it has the same key,
// and begins as the file does, whose addresses are other ones after each boot, and
// none where the kernel hides them.
func (c *kernelCache) readCopy(first []byte, addresses []addr.Abs) (*symbol.Kallsyms, error) {
	f, err := c.dir.Open(c.name())
	if err != nil {
		return nil, err
	}
	defer f.Close()
	expected := append(bytes.Clone(c.key), first...)
	begin := make([]byte, len(expected))
	if _, err := io.ReadFull(f, begin); err != nil || !bytes.Equal(begin, expected) {
		return nil, errNoCopy
	}
	k, err := readPieces(f, int64(len(expected)), addresses)
	if errors.Is(err, errDamaged) {
		c.dir.Discard(c.name(), err)
	}
	if err != nil || k.Hidden() {
		return nil, errNoCopy
	}
	for _, a := range addresses {
		isInCopy := a >= k.Text() && a < k.Etext() || findModule(c.modules, a) != nil
		if !isInCopy && (c.isKnown == nil || !c.isKnown(a)) {
			return nil, errElsewhere
		}
	}
	return k, nil
}

// copy reads the symbols and makes a new copy of them. That it cannot be written
// costs nothing but time, the next time.
func (c *kernelCache) copy(first []byte, live io.Reader, addresses []addr.Abs) (*symbol.Kallsyms, error) {
	text, err := io.ReadAll(io.LimitReader(live, maxLines))
	if err != nil {
		return nil, err
	}
	k, err := symbol.ReadKallsymsAt(io.MultiReader(bytes.NewReader(text), live), addresses)
	if err != nil || k.Hidden() || len(text) == maxLines {
		return k, err
	}
	_ = c.dir.Write(c.name(), func(w io.Writer) error {
		if _, err := w.Write(append(bytes.Clone(c.key), first...)); err != nil {
			return err
		}
		return writePieces(w, text)
	})
	return k, nil
}

// readModules reads where the modules lie: /proc/modules, kernel/module/procfs.c.
func readModules(proc string) []module {
	f, err := os.Open(filepath.Join(proc, "modules"))
	if err != nil {
		return nil // a kernel without modules
	}
	defer f.Close()
	var modules []module
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if m, ok := parseModule(lines.Text()); ok {
			modules = append(modules, m)
		}
	}
	return modules
}

// findModule returns the module that an address is in.
func findModule(modules []module, a addr.Abs) *module {
	for i := range modules {
		if m := &modules[i]; a >= m.start && a < m.end {
			return m
		}
	}
	return nil
}
