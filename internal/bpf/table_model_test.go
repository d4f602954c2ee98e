package bpf

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// This is a model of how CPUs share the entry of one file in the table of files (serial_look_up
// of serial.h, filetable_enter_quietly of filetable.h, readid_conclude of readid.h, remove of
// table.go). What is one step
// here is atomic in the kernel, and all orders of all steps are tried.

// modelLooks is LOOKS of filetable.h.
const modelLooks = 5

// A modelEntry is the entry of the file; without a serial number there is none.
type modelEntry struct {
	serial      int8
	quiet, read bool
	torn        bool // what a look saw is of two entries
}

type modelStep int8

const (
	beginLook modelStep = iota
	endLook
	insertEntry
	countEntry
	beginCopy
	endCopy
	updateEntry // with BPF_EXIST
	removeEntry
	countRemoved
	finished
)

// A modelActor is a process that executes the file, on a CPU of its own; or user space, which
// takes the entry out.
type modelActor struct {
	next               modelStep
	hooked             bool // it is still in the hook, and enters the file quietly
	valid              int8 // what the file's validity is to it: a young file has one for each process
	looks              int8
	before             modelEntry
	changes            int8       // of the entry since it was as before, when a look began
	entry              modelEntry // its own, or its copy
	replaces, wasThere bool       // it inserts with BPF_EXIST; its last insert failed with EEXIST
	full, deserted     bool       // it has no entry: because there was no room, or for no good reason
}

// A model is the table and all who use it.
type model struct {
	old                     bool // the rules that were there before: a CPU that is overtaken mostly gives up
	entry                   modelEntry
	valid                   [16]int8 // of each serial number
	told                    [16]bool // to user space
	last                    int8     // serial number
	size, inserted, removed int8
	actors                  [4]modelActor
}

// set changes the entry under all who look at it.
func (m *model) set(e modelEntry) {
	m.entry = e
	for i := range m.actors {
		m.actors[i].changes = min(m.actors[i].changes+1, 2)
	}
}

// sees returns what a look, which takes no lock, may see at its end. While the entry is being
// replaced it may meet the old one, the new one, a mix, or nothing.
func (m *model) sees(a *modelActor) []modelEntry {
	switch {
	case a.changes == 0:
		return []modelEntry{m.entry}
	case a.changes == 1 && a.before.serial == 0:
		return []modelEntry{m.entry, {}}
	}
	return []modelEntry{m.entry, a.before, {serial: 1, torn: true}, {}}
}

// step returns what may become of the model by the next step of an actor.
func (m model) step(i int) []model {
	a := &m.actors[i]
	switch a.next {
	case beginLook, beginCopy:
		a.before, a.changes = m.entry, 0
		a.next++
	case endLook, endCopy:
		then := map[modelStep]func(*model, *modelActor, modelEntry){endLook: (*model).looked, endCopy: (*model).copied}[a.next]
		var all []model
		for _, e := range m.sees(a) {
			n := m
			then(&n, &n.actors[i], e)
			all = append(all, n)
		}
		return all
	case insertEntry:
		m.insert(a)
	case countEntry:
		m.inserted++
		m.have(a)
	case updateEntry:
		if m.entry.serial != 0 {
			m.set(a.entry)
		}
		m.leave(a)
	case removeEntry:
		if a.next = finished; m.entry.serial != 0 {
			m.set(modelEntry{})
			a.next = countRemoved
		}
	case countRemoved:
		m.removed++
		a.next = finished
	}
	return []model{m}
}

// looked is what sample_loop and enter_quietly do with what a look saw.
func (m *model) looked(a *modelActor, e modelEntry) {
	there := a.wasThere
	a.looks, a.wasThere = a.looks+1, false
	missed, stale := e.serial == 0, !e.torn && m.valid[e.serial] != a.valid
	switch {
	case !missed && !e.torn && !stale:
		a.entry = e
		m.have(a)
		return
	case m.old && a.looks == 2 && (missed || !stale), !m.old && a.looks == 1 && (missed || e.torn):
		m.again(a)
		return
	}
	a.replaces = !missed || !m.old && there
	a.full = !a.replaces && m.inserted-m.removed >= m.size
	if a.next = insertEntry; a.full {
		m.leave(a)
	}
}

// insert is admit and admit_quietly: an update of the kernel's map, under its lock.
func (m *model) insert(a *modelActor) {
	there := m.entry.serial != 0
	if there != a.replaces {
		a.wasThere = there
		m.again(a)
		return
	}
	m.last++
	m.valid[m.last], m.told[m.last] = a.valid, !a.hooked
	a.entry = modelEntry{serial: m.last, quiet: a.hooked}
	m.set(a.entry)
	if a.next = countEntry; there {
		m.have(a)
	}
}

// again has an actor look once more, if it may.
func (m *model) again(a *modelActor) {
	a.next = beginLook
	if a.looks == modelLooks || m.old && (a.looks == 2 || a.hooked) {
		a.deserted = true
		m.leave(a)
	}
}

// have goes on with an entry: the hook reads the identity, and an execution introduces a quiet
// entry to user space.
func (m *model) have(a *modelActor) {
	if a.next = beginCopy; a.hooked && a.entry.read || !a.hooked && !a.entry.quiet {
		m.leave(a)
	}
}

// copied is what conclude and unveil do with their copy.
func (m *model) copied(a *modelActor, e modelEntry) {
	whole := !e.torn && e.serial == a.entry.serial
	switch a.next = updateEntry; {
	case a.hooked && (!whole || e.read):
		m.leave(a)
	case a.hooked:
		a.entry, a.entry.read = e, true
	case whole:
		a.entry, a.entry.quiet, m.told[e.serial] = e, false, true
	case m.old:
		a.deserted = true
		m.leave(a)
	default:
		m.again(a)
	}
}

// leave goes on from the hook to the execution, and from that to the end.
func (m *model) leave(a *modelActor) {
	if a.next = finished; a.hooked {
		*a = modelActor{valid: a.valid, deserted: a.deserted}
	}
}

// problem returns what must not be, after the step of an actor.
func (m *model) problem(a *modelActor) string {
	working := func(a modelActor) bool { return a.next != finished }
	switch {
	case a.deserted:
		return "there was room, and no entry"
	case !slices.ContainsFunc(m.actors[:], working) && (m.inserted-m.removed == 1) != (m.entry.serial != 0):
		return "the entries are counted wrong"
	case working(*a) || a.valid == 0 || a.full:
		return ""
	case m.valid[a.entry.serial] != a.valid:
		return "the serial number stands for another content"
	case !m.told[a.entry.serial]:
		return "user space does not know the serial number"
	}
	return ""
}

// explore tries all orders of the steps that are left, and returns the first problem.
func (m model) explore(seen map[model]bool) string {
	for i := range m.actors {
		if m.actors[i].next == finished {
			continue
		}
		for _, n := range m.step(i) {
			if seen[n] {
				continue
			}
			seen[n] = true
			if problem := cmp.Or(n.problem(&n.actors[i]), n.explore(seen)); problem != "" {
				return problem
			}
		}
	}
	return ""
}

// TestTableModel wants everybody to have an entry of the right validity in the end, in whatever
// order the steps are; and to find where the rules before went wrong.
func TestTableModel(t *testing.T) {
	executes := func(valid int8) modelActor { return modelActor{valid: valid} }
	maps := func(valid int8) modelActor { return modelActor{valid: valid, hooked: true} }
	removes, nobody := modelActor{next: removeEntry}, modelActor{next: finished}
	source, err := os.ReadFile("c/filetable.h")
	if err != nil || !strings.Contains(string(source), fmt.Sprintf("\n#define LOOKS %d\n", modelLooks)) {
		t.Errorf("filetable.h has another number of looks: %v", err)
	}
	const before = "there was room, and no entry"
	for name, s := range map[string]struct {
		size   int8
		before string
		actors [4]modelActor
	}{
		"one file":               {4, "", [4]modelActor{executes(1), executes(1), executes(1), nobody}},
		"young file":             {4, before, [4]modelActor{executes(1), executes(2), executes(3), nobody}},
		"one file, removed":      {4, before, [4]modelActor{executes(1), executes(1), removes, removes}},
		"young file, removed":    {4, before, [4]modelActor{executes(1), executes(2), removes, removes}},
		"mapped, removed":        {4, before, [4]modelActor{maps(1), maps(1), removes, nobody}},
		"young, mapped":          {4, before, [4]modelActor{maps(1), maps(2), nobody, nobody}},
		"young, mapped, removed": {4, before, [4]modelActor{maps(1), maps(2), removes, nobody}},
		"room for one":           {1, before, [4]modelActor{maps(1), executes(2), removes, nobody}},
		"no room":                {0, "", [4]modelActor{maps(1), executes(2), removes, nobody}},
	} {
		m, seen := model{actors: s.actors, size: s.size}, map[model]bool{}
		if problem := m.explore(seen); problem != "" {
			t.Errorf("%s: %s", name, problem)
		}
		t.Logf("%s: %d states", name, len(seen))
		m.old = true
		if problem := m.explore(map[model]bool{}); problem != s.before {
			t.Errorf("%s, by the rules before: %q", name, problem)
		}
	}
}
