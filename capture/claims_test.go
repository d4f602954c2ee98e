package capture

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"
	"golang.org/x/sys/unix"

	"hallmark/internal/fstimes"
	"hallmark/internal/proctest"
	"hallmark/internal/testenv"
	"hallmark/profile"
)

// inMemory returns a directory of a new tmpfs, into which everybody may put files.
func inMemory(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	testenv.Need(t, unix.Mount("none", dir, "tmpfs", 0, "mode=1777") == nil, "mounting a tmpfs")
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	for up := filepath.Dir(dir); up != "/" && up != os.TempDir(); up = filepath.Dir(up) {
		if err := os.Chmod(up, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// proofsOf returns the proofs for the frames of the processes with this name in files below a directory, and
// whose claims they are.
func proofsOf(p *pprof.Profile, process string) (proofs []profile.Proof, claimants []string) {
	all, binaries := profile.Proofs(p), profile.Binaries(p)
	for _, s := range p.Sample {
		name, _ := profile.Process(s)
		for c := range profile.Calls(s) {
			m := c.Location.Mapping
			if proof, ok := all[m]; ok && name == process && filepath.Base(m.File) == process {
				proofs = append(proofs, proof)
				if claimant := binaries[m].Claimant; claimant != nil {
					claimants = append(claimants, claimant.String())
				}
			}
		}
	}
	slices.Sort(claimants)
	return slices.Compact(slices.Sorted(slices.Values(proofs))), slices.Compact(claimants)
}

// TestRecordVDSO has a program run the kernel's own code in its memory. Nobody else writes that: it is proven, and named.
func TestRecordVDSO(t *testing.T) { eachBackend(t, recordVDSO) }

func recordVDSO(t *testing.T, backend Backend) {
	testenv.Need(t, runtime.GOARCH == "amd64", "a vdso that names its functions")
	dir := t.TempDir()
	source, program := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock")
	const text = `#include <time.h>
		int main(void) {
			struct timespec t;
			for (clock_t end = clock() + CLOCKS_PER_SEC / 2; clock() < end; )
				for (int i = 0; i < 10000; i++) clock_gettime(CLOCK_MONOTONIC, &t);
			return 0;
		}`
	if err := os.WriteFile(source, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	proctest.Compile(t, "gcc", program, "-O1", source)
	p, _, _ := recordCommand(t, Options{Backend: backend}, program)
	proofs, named, frames := profile.Proofs(p), 0, 0
	for _, l := range p.Location {
		if m := l.Mapping; m != nil && m.File == "[vdso]" {
			if frames++; len(l.Line) > 0 {
				named++
			}
			if proofs[m] != profile.Proven || profile.IsClaimed(m) {
				t.Errorf("the vdso is %v, claimed: %v", proofs[m], profile.IsClaimed(m))
			}
		}
	}
	if frames == 0 {
		testenv.Lack(t, "no frame is in the vdso")
	}
	if named == 0 {
		t.Errorf("none of %d places in the vdso has a name", frames)
	}
}

// TestRecordCopiesInMemory has copies of one build run from a disk and from memory at once: of root's, from tmpfs and
// from a memfd, and of another user. Root's are proven. Those of the other user are a claim of that user, and
// take nothing from anybody.
func TestRecordCopiesInMemory(t *testing.T) {
	testenv.Root(t)
	testenv.Tool(t, "setpriv")
	dir := inMemory(t)
	build := proctest.BuildC(t, "-static", "-Wl,--build-id=0x"+proctest.UniqueID())
	ours, theirs := filepath.Join(dir, "ours"), filepath.Join(dir, "theirs")
	proctest.CopyTo(t, build, ours)
	proctest.CopyTo(t, build, theirs)
	if err := os.Chown(theirs, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * fstimes.Delay())
	const script = `"$1" 400 & "$2" 400 & setpriv --reuid 65534 --regid 65534 --clear-groups "$3" 400 & wait`
	p, _, _ := recordCommand(t, Options{Backend: BPF, Frequency: 999}, "sh", "-c", script, "sh", build, ours, theirs)
	id := proctest.FileID(t, build)
	for _, m := range p.Mapping {
		if base := filepath.Base(m.File); (base == "ours" || base == "theirs") && m.BuildID != "" && m.BuildID != id.String() {
			t.Errorf("%s has the identity %s, want %v", m.File, m.BuildID, id)
		}
	}
	if notes := profile.Disagreements(p); len(notes) > 0 {
		t.Errorf("notes %q on equal files", notes)
	}
	proofs, claimants := proofsOf(p, "theirs")
	if len(proofs) == 0 {
		testenv.Lack(t, "no samples of the other user's program are identified")
	}
	if !slices.Equal(proofs, []profile.Proof{profile.Claimed}) || len(claimants) != 1 {
		t.Errorf("the other user's copy is %v, by %q", proofs, claimants)
	}
	known := 0
	for m, b := range profile.Binaries(p) {
		if b.ID == id && b.Claimant == nil {
			known++
			if b.Content != proctest.FileContent(t, build) || m.File != build && m.File != ours {
				t.Errorf("%s: content %v", m.File, b.Content)
			}
		}
	}
	if known == 0 {
		t.Error("no file of the build is proven")
	}
}

// TestRecordSealedMemory has another user run two programs from a memfd each, one of which is sealed: nobody can have
// written to that one since, so it is proven. The other is a claim.
func TestRecordSealedMemory(t *testing.T) {
	testenv.Root(t)
	testenv.Tool(t, "setpriv")
	open := func(name string, seals int) (path, id string) {
		build := proctest.BuildC(t, "-static", "-Wl,--build-id=0x"+proctest.UniqueID())
		content, err := os.ReadFile(build)
		if err != nil {
			t.Fatal(err)
		}
		fd, err := unix.MemfdCreate(name, unix.MFD_ALLOW_SEALING)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), name)
		t.Cleanup(func() { _ = f.Close() })
		if _, err := f.Write(content); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Chown(65534, 65534), f.Chmod(0o755)); err != nil {
			t.Fatal(err)
		}
		if seals != 0 {
			if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
				t.Fatal(err)
			}
		}
		return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd), proctest.FileID(t, build).String()
	}
	sealed, sealedID := open("sealed", unix.F_SEAL_WRITE)
	future, futureID := open("future", unix.F_SEAL_FUTURE_WRITE) // a mapping of before could still be written to
	time.Sleep(2 * fstimes.Delay())
	const script = `run() { setpriv --reuid 65534 --regid 65534 --clear-groups /proc/self/fd/3 600; }; run 3<"$1" & run 3<"$2" & wait`
	p, _, _ := recordCommand(t, Options{Backend: BPF, Frequency: 999}, "sh", "-c", script, "sh", sealed, future)
	binaries, proofs := profile.Binaries(p), map[string]profile.Proof{}
	for m, proof := range profile.Proofs(p) {
		proofs[binaries[m].ID.String()] = proof
	}
	if proof, isSeen := proofs[sealedID]; !isSeen {
		testenv.Lack(t, "no sample of the sealed program is identified")
	} else if proof != profile.Proven {
		t.Errorf("the sealed program is %v", proof)
	}
	if proof, isSeen := proofs[futureID]; !isSeen {
		testenv.Lack(t, "no sample of the other program is identified")
	} else if proof != profile.Claimed {
		t.Errorf("the program that is not sealed is %v", proof)
	}
}
