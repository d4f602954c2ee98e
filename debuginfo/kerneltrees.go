package debuginfo

import (
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"hallmark/symbol"
)

// Where kernels are: Debian's and Fedora's debug packages, the kernel's own "make
// install", and kernels built on this machine. "*" is a release.
var (
	kernelsInDirs = []string{"boot/vmlinux-*", "lib/modules/*/vmlinux", "usr/lib/modules/*/vmlinux"}
	kernelsAtRoot = []string{"boot/vmlinux-*", "lib/modules/*/vmlinux", "lib/modules/*/build/vmlinux"}
)

func (s *search) inKernelTrees() []string {
	switch {
	case s.Kernel:
		return s.kernels()
	case s.Module != "":
		s.walk.Do(s.walkModules)
		return s.modules[moduleName(s.Module)]
	}
	return nil
}

// kernels returns the files of all kernels that are there, debug files first.
func (f *Finder) kernels() []string {
	var paths []string
	for _, dir := range slices.Concat(f.dirs(), f.Extra, []string{"/"}) {
		patterns := kernelsInDirs
		if dir == "/" {
			patterns = kernelsAtRoot
		}
		for _, pattern := range patterns {
			found, _ := filepath.Glob(filepath.Join(dir, pattern))
			paths = append(paths, found...)
		}
	}
	return paths
}

// walkModules lists the files of all modules that are there, debug files first.
func (f *Finder) walkModules() {
	f.modules = map[string][]string{}
	seen := 0
	for _, dir := range slices.Concat(f.dirs(), f.Extra, []string{"/"}) {
		trees, _ := filepath.Glob(filepath.Join(dir, "lib/modules"))
		for _, tree := range trees {
			_ = filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
				if seen++; seen > maxScanned {
					return fs.SkipAll
				}
				name, _ := symbol.UnpackedModule(filepath.Base(path))
				name = strings.TrimSuffix(name, ".debug")
				if base, ok := strings.CutSuffix(name, ".ko"); ok && err == nil && d.Type().IsRegular() {
					f.modules[moduleName(base)] = append(f.modules[moduleName(base)], path)
				}
				return nil
			})
		}
	}
}

// moduleName returns the name of a module as /proc/modules has it, where a dash in the
// name of its file is an underscore.
func moduleName(s string) string { return strings.ReplaceAll(s, "-", "_") }
