package bpf

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/cilium/ebpf"

	"hallmark/unwind"
)

// DefaultUnwindMemory is how many bytes of tables the programs have unless Options say it.
const DefaultUnwindMemory = 64 << 20

// VDSOSerial stands for the vdso of 64-bit processes among the tables. It is the number
// of no file.
const VDSOSerial = 0xffff0001

// ErrNoRoom is the error of tables that there is no room for.
var ErrNoRoom = errors.New("no room for the unwind table")

// flagUnavailable is UNWIND_UNAVAILABLE of events/stack.h.
const flagUnavailable = 256

// Tables are what the programs unwind by. Their methods may be called by several
// goroutines at once.
//
// Programs look tables up without a lock, and read on in what they found. So what is
// taken out, of the map or of the pool, is used for something else only after all programs
// that ran then have ended.
type Tables struct {
	mu      sync.Mutex
	entries *ebpf.Map // unwind_tables of unwind.h
	time    *ebpf.Variable
	most    int // entries
	pool    chunks
	free    spans
	held    map[uint32]*placed            // by serial number; nil without a table
	same    map[[sha256.Size]byte]*placed // by content
	removed []span                        // that programs may still be in
	dirty   bool                          // entries were taken out that programs may still be in

	bytes            int64
	evicted, refused uint64
}

// placed is a table in the pool. The same content may be mapped as several files, each with a
// serial number of its own: copies in images of containers, files that are packed anew.
type placed struct {
	span
	content [sha256.Size]byte // the hash of it
	users   int               // serial numbers
}

// newTables prepares the pool of a Sampler.
func newTables(o *coreObjects, spec *ebpf.CollectionSpec) (*Tables, error) {
	t := &Tables{
		entries: o.UnwindTables,
		time:    o.TableTime,
		most:    int(o.UnwindTables.MaxEntries()),
		pool:    chunks{outer: o.Chunks, spec: spec.Maps["chunks"].InnerMap, most: int(o.Chunks.MaxEntries())},
		held:    map[uint32]*placed{},
		same:    map[[sha256.Size]byte]*placed{},
	}
	_, err := t.grow()
	return t, err
}

// TablesStats say what the tables take.
type TablesStats struct {
	Bytes    int64  // taken by tables
	Capacity int64  // that they may take
	Memory   int64  // taken from the kernel so far
	Tables   int    // files that there is something about
	Evicted  uint64 // tables that were taken out to make room
	Refused  uint64 // tables that there was no room for
}

// Put gives the programs the table of a file. If there is no room, tables that were not
// used for longest are taken out, but none that was just used; a table that there is no
// room for even then is an error that wraps ErrNoRoom.
func (t *Tables) Put(serial uint32, table *unwind.Table) error {
	if table.Rows() == 0 {
		return t.PutNone(serial)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.remove(serial); err != nil {
		return err
	}
	b := table.Bytes()
	place, err := t.place(b)
	if err != nil {
		return err
	}
	order := binary.LittleEndian
	return t.insert(serial, place, samplerUnwindTable{
		Base:      order.Uint64(b[8:]),
		Granules:  order.Uint32(b[16:]),
		Directory: place.start + order.Uint32(b[28:]),
		Rows:      place.start + order.Uint32(b[32:]),
		Rules:     place.start + order.Uint32(b[36:]),
		Flags:     uint32(table.Flags()),
	})
}

// PutNone says that a file has no unwind information: its code is taken to keep frame
// pointers.
func (t *Tables) PutNone(serial uint32) error { return t.putFlags(serial, 0) }

// PutUnavailable says that the table of a file will not come: stacks end in it with
// unwind.NoTable, and none is sent as a Copy.
func (t *Tables) PutUnavailable(serial uint32) error { return t.putFlags(serial, flagUnavailable) }

func (t *Tables) putFlags(serial, flags uint32) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.remove(serial); err != nil {
		return err
	}
	return t.insert(serial, nil, samplerUnwindTable{Flags: flags})
}

// Has reports whether something is known of the file: if not, it was never put, or
// evicted.
func (t *Tables) Has(serial uint32) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.held[serial]
	return ok
}

// Remove takes out what there is about a file, if there is something.
func (t *Tables) Remove(serial uint32) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.remove(serial)
}

// Stats says what the tables take.
func (t *Tables) Stats() TablesStats {
	t.mu.Lock()
	defer t.mu.Unlock()
	return TablesStats{
		Bytes:    t.bytes,
		Capacity: int64(t.pool.most) * chunkSize,
		Memory:   int64(len(t.pool.pieces)) * chunkSize,
		Tables:   len(t.held),
		Evicted:  t.evicted,
		Refused:  t.refused,
	}
}

// place returns where a table is in the pool, and puts it there if need be.
func (t *Tables) place(b []byte) (*placed, error) {
	content := sha256.Sum256(b)
	if p := t.same[content]; p != nil {
		p.users++
		return p, nil
	}
	at, err := t.room(uint32(min(len(b), 1<<31)))
	if err != nil {
		return nil, err
	}
	t.pool.write(at.start, b)
	p := &placed{at, content, 1}
	t.same[content] = p
	t.bytes += int64(p.size)
	return p, nil
}

// leave takes a user away from a table, and the table out with the last one.
func (t *Tables) leave(p *placed) {
	if p == nil {
		return
	}
	if p.users--; p.users > 0 {
		return
	}
	delete(t.same, p.content)
	t.removed = append(t.removed, p.span)
	t.bytes -= int64(p.size)
	t.dirty = true
}

// insert puts an entry where there is none.
func (t *Tables) insert(serial uint32, place *placed, entry samplerUnwindTable) error {
	err := t.makeEntryRoom()
	if err == nil {
		err = t.settle()
	}
	if err == nil {
		err = t.time.Get(&entry.Used)
	}
	if err == nil {
		err = t.entries.Update(serial, &entry, ebpf.UpdateNoExist)
	}
	if err != nil {
		t.leave(place)
		return fmt.Errorf("unwind table of file %d: %w", serial, err)
	}
	t.held[serial] = place
	return nil
}

// remove takes an entry out, if there is one.
func (t *Tables) remove(serial uint32) error {
	place, ok := t.held[serial]
	if !ok {
		return nil
	}
	if err := t.entries.Delete(serial); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("removing the unwind table of file %d: %w", serial, err)
	}
	delete(t.held, serial)
	t.dirty = true
	t.leave(place)
	return nil
}

// settle waits until what was taken out can be used for something else.
func (t *Tables) settle() error {
	if !t.dirty {
		return nil
	}
	if err := t.pool.wait(); err != nil {
		return err
	}
	for _, place := range t.removed {
		t.free.give(place)
	}
	t.dirty, t.removed = false, nil
	return nil
}

// grow makes the pool larger, if it may be.
func (t *Tables) grow() (bool, error) {
	start := t.pool.size()
	grown, err := t.pool.grow()
	if grown {
		t.free.give(span{start, chunkSize})
	}
	return grown, err
}

// room returns a free piece of the pool.
func (t *Tables) room(size uint32) (span, error) {
	noRoom := fmt.Errorf("%w of %d bytes", ErrNoRoom, size)
	if uint64(size) > uint64(t.pool.most)*chunkSize {
		t.refused++
		return span{}, noRoom
	}
	for {
		if start, ok := t.free.take(size); ok {
			return span{start, size}, nil
		}
		if grown, err := t.grow(); err != nil {
			return span{}, err
		} else if grown {
			continue
		}
		if len(t.removed) == 0 {
			switch n, err := t.evict(int64(size), 0); {
			case err != nil:
				return span{}, err
			case n == 0:
				t.refused++
				return span{}, noRoom
			}
		}
		if err := t.settle(); err != nil {
			return span{}, err
		}
	}
}

// makeEntryRoom takes entries out if there is room for no other.
func (t *Tables) makeEntryRoom() error {
	if len(t.held) < t.most {
		return nil
	}
	n, err := t.evict(0, t.most/8+1)
	if err == nil && n == 0 {
		t.refused++
		return ErrNoRoom
	}
	return err
}

// recently is how long ago, in the time of the table of files, a table was last used that
// is not taken out: it would be wanted again at once.
const recently = 2

// evict takes out what was not used for longest, until this many bytes and entries are
// gone. It returns how many entries that were. The table of the vdso stays: it is small, and
// no sample in it asks for it again, as it is the table of no file.
func (t *Tables) evict(bytes int64, entries int) (int, error) {
	var now uint32
	if err := t.time.Get(&now); err != nil {
		return 0, fmt.Errorf("time of unwind tables: %w", err)
	}
	uses, err := t.uses()
	if err != nil {
		return 0, err
	}
	n := 0
	for _, u := range uses {
		if int32(now-u.time) < recently || (bytes <= 0 && n >= entries) { // it may have moved on since
			break
		}
		if t.held[u.serial] == nil && entries == 0 {
			continue // would make no room
		}
		before := t.bytes
		if err := t.remove(u.serial); err != nil {
			return n, err
		}
		bytes -= before - t.bytes
		t.evicted++
		n++
	}
	return n, nil
}

// tableUse is when a table was last used, in the time of the table of files.
type tableUse struct{ serial, time uint32 }

// uses lists the entries that may be taken out, what was used last at the end.
func (t *Tables) uses() ([]tableUse, error) {
	var uses []tableUse
	for serial := range t.held {
		if serial == VDSOSerial {
			continue
		}
		var entry samplerUnwindTable
		if err := t.entries.Lookup(serial, &entry); err != nil {
			return nil, fmt.Errorf("listing unwind tables: %w", err)
		}
		uses = append(uses, tableUse{serial, entry.Used})
	}
	slices.SortFunc(uses, func(a, b tableUse) int {
		return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(a.serial, b.serial))
	})
	return uses, nil
}

func (t *Tables) close() error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pool.close()
}

// Tables returns the tables of the programs, or nil without Options.Unwind.
func (s *Sampler) Tables() *Tables { return s.tables }
