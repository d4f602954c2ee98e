package symbol

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"hallmark/addr"
)

// smallPrograms are relocatable files with debug information of several versions,
// from compilers where there are any.
func smallPrograms(f *testing.F) (files [][]byte) {
	dir := f.TempDir()
	for _, version := range []string{"-gdwarf-2", "-gdwarf-4", "-gdwarf-5", "-gz=zlib"} {
		name := filepath.Join(dir, "narrow.o")
		if err := exec.Command("gcc", "-O2", "-g", version, "-c", "testdata/narrow.c", "-o", name).Run(); err != nil {
			f.Logf("no seed for %s: %v", version, err)
			continue
		}
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		files = append(files, data)
	}
	return files
}

// FuzzIndexOfFile makes indexes of damaged files.
func FuzzIndexOfFile(f *testing.F) {
	for _, data := range smallPrograms(f) {
		f.Add(data)
	}
	for _, g := range goPrograms() {
		f.Add(g.build())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		bounded(t, len(data), func() {
			file, err := NewFile(bytes.NewReader(data), "fuzz")
			if err != nil {
				return
			}
			x, err := file.Index(IndexOptions{Threads: 1})
			if err != nil {
				return
			}
			if err := x.Check(); err != nil {
				t.Error(err)
			}
			checkIndex(t, x)
		})
	})
}

// FuzzIndex looks up addresses in damaged indexes, whose header is sound.
func FuzzIndex(f *testing.F) {
	for _, data := range smallPrograms(f) {
		file, err := NewFile(bytes.NewReader(data), "seed")
		if err != nil {
			f.Fatal(err)
		}
		x, err := file.Index(IndexOptions{Threads: 1})
		if err != nil {
			f.Fatal(err)
		}
		p := &x.parts
		f.Add(p[partBuckets], p[partBlocks], p[partStream], p[partFunctions], p[partFiles], p[partStrings], p[partText], x.shift, true)
	}
	f.Fuzz(func(t *testing.T, buckets, blocks, stream, functions, files, strings, text []byte, shift uint8, columns bool) {
		contents := [parts][]byte{
			partBuckets: buckets, partBlocks: blocks, partStream: stream, partFunctions: functions,
			partFiles: files, partStrings: strings, partText: text,
		}
		header := indexHeader{shift: shift, sources: 1 << SourceDWARF}
		if columns {
			header.flags |= indexHasColumns
		}
		data := assembleIndex(header, contents)
		bounded(t, len(data), func() {
			x, err := NewIndex(data, "fuzz")
			if err == nil {
				checkIndex(t, x)
			}
		})
	})
}

// checkIndex asks x all over.
func checkIndex(t *testing.T, x *Index) {
	t.Helper()
	for v := range addr.Virt(512) {
		checkResult(t, x.LookupVirt(addr.Virt(x.base)+v))
		checkResult(t, x.LookupVirt(addr.Virt(x.base)+v<<16))
		checkResult(t, x.LookupOffset(addr.Offset(v)))
	}
}
