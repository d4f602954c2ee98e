package capture

import "hallmark/internal/perfring"

// doubles finds the samples that are taken twice where events are opened for
// threads: one that was started meanwhile may have inherited an event from the
// thread that started it, and then have been given its own.
//
// Inherited events of a thread do not count once it was seen to have its own. The
// programs of BPF do the same.
type doubles struct {
	threads map[uint64]uint32 // that events were opened for, by the number of the event
	own     map[uint32]bool   // threads whose own event has sampled
}

func newDoubles() *doubles {
	return &doubles{map[uint64]uint32{}, map[uint32]bool{}}
}

// opened notes that an event was opened for a thread.
func (d *doubles) opened(fd int, tid uint32) error {
	if d == nil {
		return nil
	}
	id, err := perfring.EventID(fd)
	if err == nil {
		d.threads[id] = tid
	}
	return err
}

// has reports whether a sample of a thread is there twice, and is not to count.
func (d *doubles) has(tid uint32, event uint64) bool {
	if d == nil {
		return false
	}
	if d.threads[event] == tid {
		d.own[tid] = true
		return false
	}
	return d.own[tid]
}

// forget is called when a thread ends or another one gets its number by execve.
func (d *doubles) forget(tid uint32) {
	if d != nil {
		delete(d.own, tid)
	}
}
