package bpf

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
)

// DefaultEntries is how many files the table has room for unless Options say it.
const DefaultEntries = 16384

// table is user space's side of the table of files of filetable.h: it moves the time
// of the table on, and makes room before the table is full.
//
// All that takes a lock of the map in the kernel is done under mu. A sample taken in
// an NMI takes one too, of another element, and kernels before 6.15 cannot say that
// two CPUs wait for each other in this way: one task at a time cannot make a circle.
type table struct {
	mu                      sync.Mutex
	files                   *ebpf.Map
	inserted, removed, time *ebpf.Variable
	size                    uint64
	now                     uint32
	taken, evicted          uint64 // entries taken out; those of them to make room
}

// tableHigh is the number of entries at which user space makes room, down to half.
func tableHigh(size uint64) uint64 { return size - size/4 }

// entries returns how many the table has.
func (t *table) entries() (uint64, error) {
	var inserted uint64
	if err := t.inserted.Get(&inserted); err != nil {
		return 0, fmt.Errorf("counting entries of the table of files: %w", err)
	}
	// An entry may be taken out before it is counted.
	return max(inserted, t.taken) - t.taken, nil
}

// stats returns how many entries there are, and how many made room.
func (t *table) stats() (entries, evicted uint64, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	entries, err = t.entries()
	return entries, t.evicted, err
}

// tick moves the time on: every file that a sample is in from now on is looked up
// anew, and its entry says when.
func (t *table) tick() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.advance()
}

func (t *table) advance() error {
	t.now++
	if err := t.time.Set(t.now); err != nil {
		return fmt.Errorf("time of the table of files: %w", err)
	}
	return nil
}

// forget takes one entry out.
func (t *table) forget(key uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, err := t.remove(key); err != nil {
		return err
	}
	return t.advance()
}

// forgetAll empties the table.
func (t *table) forgetAll() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	uses, err := t.uses()
	if err != nil {
		return err
	}
	for _, u := range uses {
		if _, err := t.remove(u.key); err != nil {
			return err
		}
	}
	return t.advance()
}

// remove reports whether there was an entry to take out.
func (t *table) remove(key uint64) (bool, error) {
	err := t.files.Delete(key)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("removing an entry of the table of files: %w", err)
	}
	t.taken++
	return true, t.removed.Set(t.taken)
}

// makeRoom takes out what was not used for longest, if the table is nearly full.
func (t *table) makeRoom() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, err := t.entries()
	if err != nil || n < tableHigh(t.size) {
		return err
	}
	old, err := t.oldest()
	if err != nil {
		return err
	}
	for _, u := range old {
		removed, err := t.remove(u.key)
		if err != nil {
			return err
		}
		if removed {
			t.evicted++
		}
	}
	return t.advance()
}

// use is when an entry was last used, in the time of the table.
type use struct {
	key  uint64
	time uint32
}

// oldest returns the entries without which the table is half full, and all whose
// inode is gone.
func (t *table) oldest() ([]use, error) {
	uses, err := t.uses()
	if err != nil {
		return nil, err
	}
	slices.SortFunc(uses, func(a, b use) int { return cmp.Compare(a.time, b.time) })
	n := max(0, len(uses)-int(t.size/2))
	for n < len(uses) && uses[n].time == 0 {
		n++
	}
	return uses[:n], nil
}

// uses lists the table. Elements that come or go meanwhile may be in it or not.
func (t *table) uses() ([]use, error) {
	const batch = 1024
	keys, values := make([]uint64, batch), make([]samplerFileEntry, batch)
	var uses []use
	for cursor := new(ebpf.MapBatchCursor); ; {
		n, err := t.files.BatchLookup(cursor, keys, values, nil)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil, fmt.Errorf("listing the table of files: %w", err)
		}
		for i := range n {
			uses = append(uses, use{keys[i], values[i].Used})
		}
		if err != nil {
			return uses, nil
		}
	}
}
