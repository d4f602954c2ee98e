package live

import (
	"bytes"
	"os"
	"slices"
	"testing"

	"hallmark/internal/proctest"
	"hallmark/internal/testenv"
	"hallmark/procmap"
)

// TestWithoutFirstThread asks a process whose first thread has ended: its other thread has the memory.
func TestWithoutFirstThread(t *testing.T) {
	file := proctest.BuildThreads(t)
	want := proctest.FileID(t, file)
	pid := proctest.Start(t, file)
	testenv.Await(t, "the end of the first thread", func() bool { return proctest.FirstEnded(pid) })
	p, err := procmap.Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	vmas, err := p.Executable()
	i := slices.IndexFunc(vmas, func(v procmap.VMA) bool { return v.Path() == file })
	if err != nil || i < 0 {
		t.Fatalf("%v, %v", vmas, err)
	}
	if id, err := p.Identity(vmas[i]); err != nil || id.ID != want || p.PID() != pid {
		t.Errorf("process %d, %v, %v, want %v", p.PID(), id.ID, err, want)
	}
	if info, err := procmap.Program(pid); err != nil || info.ID != want {
		t.Errorf("its program is %v, %v", info.ID, err)
	}
	m, err := p.ReadMemory()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	code := make([]byte, 16)
	if _, err := m.ReadAt(code, int64(vmas[i].Start)); err != nil || !bytes.Equal(code, content[vmas[i].Offset:][:16]) {
		t.Errorf("its memory is %x, %v", code, err)
	}
}
