package capture

import (
	"debug/elf"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"
	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/internal/fstimes"
	"hallmark/internal/perfring"
	"hallmark/internal/proctest"
	"hallmark/internal/testenv"
	"hallmark/profile"
)

// leafTally counts samples in user code by what is known of the file of their innermost frame.
type leafTally struct {
	all, identified, proven int64
	wrong                   []string
}

// leavesOf counts samples of the processes with a name, which run files of these identities and contents.
func leavesOf(p *pprof.Profile, process string, ids map[string]bool, contents map[buildid.Content]bool) leafTally {
	var tally leafTally
	known := profile.Contents(p)
	for _, s := range p.Sample {
		if name, _ := profile.Process(s); name != process || len(s.Location) == 0 {
			continue
		}
		m := s.Location[0].Mapping
		if m == nil || strings.HasPrefix(m.File, "[kernel") || m.File == "[vdso]" {
			continue
		}
		tally.all += s.Value[0]
		if m.BuildID == "" {
			continue
		}
		tally.identified += s.Value[0]
		if content := known[m]; !content.IsZero() {
			tally.proven += s.Value[0]
			if !contents[content] {
				tally.wrong = append(tally.wrong, fmt.Sprintf("%s has the content %v", m.File, content))
			}
		}
		if !ids[m.BuildID] {
			tally.wrong = append(tally.wrong, fmt.Sprintf("%s is %s", m.File, m.BuildID))
		}
	}
	return tally
}

// interpreterOf returns the ELF interpreter that a program names.
func interpreterOf(t *testing.T, program string) string {
	t.Helper()
	file, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, segment := range file.Progs {
		if segment.Type == elf.PT_INTERP {
			name, err := io.ReadAll(segment.Open())
			if err != nil {
				t.Fatal(err)
			}
			return strings.TrimRight(string(name), "\x00")
		}
	}
	t.Fatalf("%s names no interpreter", program)
	return ""
}

// TestShortLivesBesideLong records one build in several places: a process that lives long, and many that are over
// before anybody can look at them. They share the C library with all others.
func TestShortLivesBesideLong(t *testing.T) {
	testenv.Root(t)
	for _, dir := range []string{t.TempDir(), filepath.Dir(proctest.LibC(t))} {
		var fs unix.Statfs_t
		if err := unix.Statfs(dir, &fs); err != nil {
			t.Fatal(err)
		}
		testenv.Need(t, fs.Type == unix.EXT4_SUPER_MAGIC || fs.Type == unix.XFS_SUPER_MAGIC, "programs on ext4 or xfs")
	}
	eachBackend(t, func(t *testing.T, b Backend) {
		if b == Perf {
			err := perfring.Try(false, func(attr *unix.PerfEventAttr) { attr.Bits |= perfring.BitBuildID })
			testenv.Need(t, err == nil, "build IDs in records of mappings (Linux 5.12)")
		}
		build := proctest.BuildC(t, proctest.UniqueID())
		memory, err := os.MkdirTemp("/dev/shm", "short-lives")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(memory) })
		name := nameOf(fmt.Sprintf("short-%d", os.Getpid()))
		var places []string
		for _, dir := range []string{t.TempDir(), t.TempDir(), memory} {
			places = append(places, filepath.Join(dir, name))
			proctest.CopyTo(t, build, places[len(places)-1])
		}
		time.Sleep(2 * fstimes.Delay())
		script := `"$1" 60000 & for i in $(seq 60); do for program; do "$program" 2; done; done; kill $!`
		command := append([]string{"sh", "-c", script, "sh"}, places...)
		p, _, stats := recordCommand(t, Options{Backend: b, Frequency: 1999}, command...)
		ids, contents := map[string]bool{}, map[buildid.Content]bool{}
		for _, file := range []string{build, proctest.LibC(t), interpreterOf(t, build)} {
			ids[proctest.FileID(t, file).String()], contents[proctest.FileContent(t, file)] = true, true
		}
		leaves := leavesOf(p, name, ids, contents)
		t.Logf("%+v, %+v", leaves, stats)
		for _, wrong := range leaves.wrong {
			t.Error(wrong)
		}
		if b == BPF {
			return // the first sample in each mapping on tmpfs has no identity
		}
		testenv.AtMost(t, "leaf frames without an identity", leaves.all-leaves.identified, leaves.all, 0.01)
		testenv.AtMost(t, "leaf frames in files whose content is not proven", leaves.all-leaves.proven, leaves.all, 0.2)
	})
}
