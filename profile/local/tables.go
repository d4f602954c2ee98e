package local

import (
	"os"
	"slices"

	"hallmark/buildid"
	"hallmark/debuginfo"
	"hallmark/symbol"
	"hallmark/unwind"
)

// Table returns the unwind table of the file on this machine that has an identity: the one
// at path, or what the finder finds. It is nil when there is none, and none can be made.
func Table(finder *debuginfo.Finder, id buildid.ID, path string) *unwind.Table {
	if path == "[vdso]" {
		return vdsoTable(id)
	}
	file, _ := finder.Open(id, path)
	if file == nil {
		return nil
	}
	defer file.Close()
	return tableOf(file)
}

// vdsoTable makes the table of the code that the kernel maps into every process, if this
// machine's has the identity.
func vdsoTable(id buildid.ID) *unwind.Table {
	running, err := buildid.ReadVDSO()
	if err != nil || running.ID != id {
		return nil
	}
	memory, err := os.Open("/proc/self/mem")
	if err != nil {
		return nil
	}
	defer memory.Close()
	file, err := vdsoFile(memory)
	if err != nil {
		return nil
	}
	return tableOf(file)
}

// tableOf makes the table of a file that holds the code of which its headers speak: a debug
// file does not, nor the call frame information of programs.
func tableOf(file *symbol.File) *unwind.Table {
	if !slices.ContainsFunc(file.Segments(), func(s symbol.Segment) bool { return s.Executable() && s.FileSize > 0 }) {
		return nil
	}
	table, err := unwind.Build(file.Reader(), unwind.BuildOptions{})
	if err != nil {
		return nil
	}
	return table
}
