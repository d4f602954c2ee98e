package local

import (
	"os"

	"hallmark/buildid"
	"hallmark/debuginfo"
	"hallmark/symbol"
	"hallmark/unwind"
)

// Tables has unwind tables of the files on this machine.
type Tables struct {
	// Finder finds the files; nil means one of what is on this machine.
	Finder *debuginfo.Finder

	// Build makes the table of an open file with this identity, or has kept it from
	// another time; nil means unwind.Build.
	Build func(f *os.File, id buildid.ID) (*unwind.Table, error)
}

// Table returns the unwind table of the file that has an identity: the one at path, or what
// the finder finds. It is nil when there is none, and none can be made.
func (t *Tables) Table(id buildid.ID, path string) *unwind.Table {
	if path == "[vdso]" {
		return vdsoTable(id)
	}
	if t.Finder == nil {
		t.Finder = new(debuginfo.Finder)
	}
	file, _ := t.Finder.Open(id, path)
	if file == nil {
		return nil
	}
	defer file.Close()
	if !holdsCode(file) {
		return nil
	}
	if f, ok := file.Reader().(*os.File); ok && t.Build != nil {
		table, _ := t.Build(f, id)
		return table
	}
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

// holdsCode reports whether a file holds the code of which its headers speak: a debug file
// does not, nor the call frame information of programs.
func holdsCode(file *symbol.File) bool { return file.HasCode() }

// tableOf makes the table of a file that holds code.
func tableOf(file *symbol.File) *unwind.Table {
	table, err := unwind.Build(file.Reader(), unwind.BuildOptions{})
	if err != nil {
		return nil
	}
	return table
}
