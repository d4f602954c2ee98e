package capture

import (
	"errors"
	"os"

	"hallmark/unwind"
)

// source is what a table can be made of.
type source struct {
	object  *object
	key     tableKey
	content content // nil when the file could not be reached, or not yet
}

// emptyTable is that of a file without call frame information.
var emptyTable = new(unwind.Table)

// errWritten is the error of a file that was overwritten after its identity was read.
var errWritten = errors.New("file was written while it was read")

// table reads the table of a file from the cache, or builds it.
func (s source) table(cache tableCache) (table *unwind.Table, built bool, err error) {
	table, err = cache.load(s.key)
	if err == nil || s.content == nil {
		return table, false, err
	}
	table, err = s.build()
	return table, true, err
}

// build makes the table of the file that the identity was read of.
func (s source) build() (*unwind.Table, error) {
	table, err := unwind.Build(s.content, unwind.BuildOptions{})
	if f, ok := s.content.(*os.File); ok && s.object.changed(f) {
		return nil, errWritten
	}
	if errors.Is(err, unwind.ErrNotELF) {
		return emptyTable, nil
	}
	return table, err
}
