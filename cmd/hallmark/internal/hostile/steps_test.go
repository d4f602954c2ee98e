package hostile

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"debug/elf"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

const (
	// A run may take so many steps, and so many for each byte of its files, uncompressed. A step is
	// a statement of Hallmark, or of what reads pprof: how many a run takes depends on no machine.
	stepsBase    = 200_000_000
	stepsPerByte = 60

	// Of other input, such as requests to a server, nobody looks how far it is compressed.
	stepsPerUnseen = 8000
)

// countsVariable has the directory where a program that was built to count writes what it counted.
const countsVariable = "GOCOVERDIR"

// counted are the packages whose statements are counted.
const counted = "hallmark/...,github.com/google/pprof/..."

// countsDir is a directory for what the command counts: it has one below for each run.
var countsDir = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "hostile-counts") })

// newCounts returns a directory for what a run counts.
func (p *place) newCounts() string {
	p.t.Helper()
	parent, err := countsDir()
	if err != nil {
		p.t.Fatal(err)
	}
	dir, err := os.MkdirTemp(parent, "")
	if err != nil {
		p.t.Fatal(err)
	}
	// A helper may run as another user, and the counts that it cannot write are not missed.
	p.t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// stepsLimit returns how many steps a run may take. It uncompresses the input of those alone that take
// many.
func (p *place) stepsLimit(r *result) int64 {
	if r.steps <= stepsBase {
		return stepsBase
	}
	inFiles := p.size("in")
	return stepsBase + stepsPerByte*max(inFiles, p.uncompressed("in")) + stepsPerUnseen*(r.input-inFiles)
}

// uncompressed returns how many bytes the files of a directory have, also those that are compressed: by
// gzip, or as sections of a program.
func (p *place) uncompressed(name string) (sum int64) {
	filepath.WalkDir(filepath.Join(p.dir, name), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		f, err := os.Open(path)
		if err != nil {
			return nil
		}
		defer f.Close()
		if z, err := gzip.NewReader(f); err == nil {
			n, _ := io.Copy(io.Discard, z)
			sum += n
			return nil
		}
		sum += inBlocks(d)
		if program, err := elf.NewFile(f); err == nil {
			sum += inSections(program)
		}
		return nil
	})
	return sum
}

// inSections returns how many bytes the compressed sections of a program have, uncompressed.
func inSections(program *elf.File) (sum int64) {
	for _, s := range program.Sections {
		if s.Flags&elf.SHF_COMPRESSED != 0 {
			n, _ := io.Copy(io.Discard, s.Open()) // up to where it is damaged
			sum += n
		}
	}
	return sum
}

// countSteps adds up what a run has counted in a directory.
func (r *result) countSteps(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "covcounters.*"))
	if err != nil || len(files) == 0 {
		return err // it was killed, or is a build that counts nothing
	}
	var stderr bytes.Buffer
	cmd := exec.Command("go", "tool", "covdata", "textfmt", "-i", dir, "-o", "/dev/stdout")
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%w: %s", err, stderr.Bytes())
	}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		f := strings.Fields(lines.Text()) // file:from,to statements times
		if len(f) != 3 {
			continue // the first line has the mode
		}
		statements, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			return err
		}
		times, err := strconv.ParseInt(f[2], 10, 64)
		if err != nil {
			return err
		}
		r.steps += statements * times
		if most := statements * times; most > r.hottest {
			r.hottest, r.hot = most, f[0]
		}
	}
	return nil
}
