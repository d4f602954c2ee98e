package capture

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"hallmark/inventory"
	"hallmark/procmap"
)

// parked is a process that has a library mapped and waits.
type parked struct {
	scene  *fsScene
	images []*image // contents that the library had since
	cmd    *exec.Cmd
	in     io.WriteCloser
	mark   int64 // where the mapping has its mark
}

// park starts a process that maps a file, and waits for a word.
func (x *fsTorture) park(s *fsScene, path string) (*parked, error) {
	args, _ := words("map a", path, 0, imageSize, "tell mark a", markAt, "wait")
	p := &parked{scene: s, cmd: exec.Command(x.host, args...)}
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	p.in = in
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != "ready"; {
		if words := strings.Fields(lines.Text()); len(words) == 4 {
			p.mark, err = strconv.ParseInt(words[3], 16, 64)
		}
	}
	x.see(p)
	return p, err
}

// see adds what a process sees at this moment to the contents that its library had.
func (x *fsTorture) see(p *parked) {
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", p.cmd.Process.Pid))
	if err != nil {
		x.t.Errorf("%s: %v", p.scene, err)
		return
	}
	defer memory.Close()
	var mark [8]byte
	_, err = memory.ReadAt(mark[:], p.mark)
	i := x.marked(fmt.Sprintf("%x", binary.NativeEndian.Uint64(mark[:])))
	if err != nil || i == nil {
		x.t.Errorf("%s: process %d sees %x: %v", p.scene, p.cmd.Process.Pid, mark, err)
		return
	}
	p.images = append(p.images, i)
}

// end has the process end.
func (p *parked) end(t testing.TB) {
	_, _ = p.in.Write([]byte("."))
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("%s: %v", p.scene, err)
	}
}

// lookAtAll parks processes of all scenes with the first content of their files, and after each
// change processes with the next one, and looks at all of them each time.
func (x *fsTorture) lookAtAll(t testing.TB, use int) {
	var mu sync.Mutex
	all := map[*fsScene][]*parked{}
	defer func() {
		for _, of := range all {
			for _, p := range of {
				p.end(t)
			}
		}
	}()
	kept := new(procmap.Files) // of all moments
	defer kept.Close()
	for content := range contents {
		x.each(func(s *fsScene) {
			mu.Lock()
			before := all[s]
			mu.Unlock()
			now := x.parkNext(s, use, content, before)
			mu.Lock()
			all[s] = now
			mu.Unlock()
		})
		x.lookByInventory(t, all)
		x.lookByMaps(all, kept)
	}
}

// parkNext changes the file of a scene to a content, and parks a process with it.
func (x *fsTorture) parkNext(s *fsScene, use, content int, before []*parked) []*parked {
	kind := "lm"[s.nth%2]
	library, i := fileName(kind, use, s.nth), x.images[kind][content]
	if content == 0 {
		s.create(x.t, library, x.images)
	}
	if s.way == "mount" { // nothing may use it
		for _, p := range before {
			p.end(x.t)
		}
		before = nil
	}
	if content > 0 || s.way == "mount" {
		script := &fsScript{}
		script.add(s.change(s.way, library, content, x.images)...)
		x.runScript(s, script)
	}
	for _, p := range before {
		x.see(p)
		if s.way != "snapshot" && !s.hides { // where each has its own file, or nobody sees this one
			p.images = append(p.images, i)
		}
	}
	p, err := x.park(s, s.path(library, content))
	if err != nil {
		x.t.Errorf("%s: %v", s, err)
		return before
	}
	return append(before, p)
}

// lookByInventory takes inventories, as ps does, by every source.
func (x *fsTorture) lookByInventory(t testing.TB, all map[*fsScene][]*parked) {
	t.Helper()
	byPID := map[int]*parked{}
	var pids []int
	for _, of := range all {
		for _, p := range of {
			byPID[p.cmd.Process.Pid] = p
			pids = append(pids, p.cmd.Process.Pid)
		}
	}
	for _, source := range []inventory.Source{inventory.Iterator, inventory.Query, inventory.Text} {
		inv, err := inventory.Take(inventory.Options{PIDs: pids, Source: source})
		if err != nil {
			t.Logf("NOT CHECKED: %v: %v", source, err)
			continue
		}
		for _, r := range inv.Processes {
			p := byPID[r.PID]
			for _, c := range r.Code {
				if p != nil && !x.isOther(sampled{id: idText(c.ID), file: c.Path}) {
					p.scene.samples.judge(c.ID, c.Reason.Code(), p.images, source.String()+": "+c.Path)
				}
			}
		}
	}
}

// lookByMaps asks for the mappings of each process, as maps does, in every way.
func (x *fsTorture) lookByMaps(all map[*fsScene][]*parked, kept *procmap.Files) {
	for _, method := range []procmap.Method{procmap.Query, procmap.Text} {
		for _, remembered := range []bool{false, true} {
			now := new(procmap.Files) // of this moment
			for s, of := range all {
				for _, p := range of {
					files := now
					if remembered && s.way != "mount" { // which may not be kept from being taken away
						files = kept
					}
					x.lookByMap(p, procmap.Options{Method: method, Files: files})
				}
			}
			if err := now.Close(); err != nil {
				x.t.Error(err)
			}
		}
	}
}

func (x *fsTorture) lookByMap(parked *parked, o procmap.Options) {
	p, err := procmap.OpenOptions(parked.cmd.Process.Pid, o)
	if err != nil {
		if o.Method != procmap.Query { // which is new
			x.t.Error(err)
		}
		return
	}
	defer p.Close()
	vmas, err := p.Executable()
	if err != nil {
		x.t.Error(err)
	}
	for _, v := range vmas {
		if !v.FileBacked() {
			continue
		}
		id, err := p.Identity(v)
		if err != nil {
			x.t.Error(err)
		}
		if !x.isOther(sampled{id: idText(id.ID), file: v.Path()}) {
			parked.scene.loads.judge(id.ID, id.Reason.Code(), parked.images, o.Method.String()+": "+v.Path())
		}
	}
}
