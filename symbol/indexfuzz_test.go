package symbol

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"hallmark/addr"
)

// smallPrograms are relocatable files with debug information of several versions,
// from compilers where there are any.
func smallPrograms(f *testing.F) (files [][]byte) {
	dir := f.TempDir()
	for _, args := range [][]string{
		{"gcc", "-gdwarf-2"}, {"gcc", "-gdwarf-4"}, {"gcc", "-gdwarf-5"}, {"gcc", "-gz=zlib"},
		{"clang-19", "--target=riscv64-linux-gnu"}, {"clang-19", "--target=mips64el-linux-gnuabi64"}, {"clang-19", "--target=powerpc64-linux-gnu"},
	} {
		name := filepath.Join(dir, "narrow.o")
		if err := exec.Command(args[0], "-O2", "-g", args[1], "-c", "testdata/narrow.c", "-o", name).Run(); err != nil {
			f.Logf("no seed of %v: %v", args, err)
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
			if err != nil || reach(file) > 256<<20 {
				return // a few GiB of nothing are a second, which is long for fuzzing
			}
			x, err := file.Index(IndexOptions{Threads: 1})
			if err != nil {
				return
			}
			if err := x.Check(); err != nil {
				t.Error(err)
			}
			checkIndex(t, x)
			checkCursor(t, x, true)
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
		f.Add(p[partDirectory], p[partGranules], p[partStream], p[partFunctions], p[partFiles], p[partLong], p[partText], true)
	}
	f.Fuzz(func(t *testing.T, directory, granules, stream, functions, files, long, text []byte, columns bool) {
		contents := [parts][]byte{
			partDirectory: directory, partGranules: granules, partStream: stream, partFunctions: functions,
			partFiles: files, partLong: long, partText: text,
		}
		header := indexHeader{sources: 1 << SourceDWARF, width: minGranuleWidth}
		if columns {
			header.flags |= indexHasColumns
		}
		data := assembleIndex(header, contents)
		bounded(t, len(data), func() {
			x, err := NewIndex(data, "fuzz")
			if err == nil {
				checkIndex(t, x)
				checkCursor(t, x, false)
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

// checkCursor asks for addresses up and down. What a Cursor says of a sound index is
// what the Index says.
func checkCursor(t *testing.T, x *Index, sound bool) {
	t.Helper()
	c := x.Cursor()
	for i := range 2048 {
		v := addr.Virt(x.base) + addr.Virt(min(i, 2048-i))
		frames, source := c.Frames(v)
		want, wantSource := x.AppendFrames(nil, v)
		if sound && (source != wantSource || !slices.Equal(frames, want)) {
			t.Fatalf("%s: the cursor says %+v, the index %+v", v, frames, want)
		}
	}
}
