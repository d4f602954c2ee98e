package dwarf

import "testing"

// TestNoFile wants no file where the debug information names none: of code without rows,
// and of calls without DW_AT_call_file. From DWARF 5 on, 0 is the number of a file.
func TestNoFile(t *testing.T) {
	r, err := read(t, data(new(bytesOf).put(function("f", 0x1000, 0x10), end, end)))
	if err != nil {
		t.Fatal(err)
	}
	files := Files{compDir: []byte("/dir"), dirs: [][]byte{[]byte("/dir")}, files: []file{{[]byte("first.c"), 0}}}
	if got := files.AppendPath(nil, r.At(0x1000).File); got != nil {
		t.Errorf("code without rows is of %s", got)
	}
	if got := files.AppendPath(nil, r.Scopes[0].CallFile); got != nil {
		t.Errorf("a call that says no file is in %s", got)
	}
}

// TestOwnDirectory has directories that are relative to that of the compilation, where
// only the line table of DWARF 5 says which that is, and where the unit does.
func TestOwnDirectory(t *testing.T) {
	for _, test := range []struct{ compDir, want string }{{"", "/zero/sub/a.c"}, {"/unit", "/unit/sub/a.c"}} {
		files := Files{compDir: []byte(test.compDir), dirs: [][]byte{[]byte("/zero"), []byte("sub")}, files: []file{{[]byte("a.c"), 1}}}
		if got := string(files.AppendPath(nil, 0)); got != test.want {
			t.Errorf("with %q as the unit's directory: %s, want %s", test.compDir, got, test.want)
		}
	}
}
