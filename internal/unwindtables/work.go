package unwindtables

import (
	"errors"
	"slices"
	"time"

	"hallmark/internal/objects"
	"hallmark/unwind"
)

// run builds tables until it is over.
func (t *Supply) run() {
	for {
		f := t.next()
		if f == nil {
			return
		}
		if t.leaves(f) {
			continue
		}
		s, _ := f.object.Source()
		m, err := tableOf(t.ctx, s, t.cache, t.bounds)
		if t.ctx.Err() != nil {
			return // nobody waits for it any more
		}
		switch {
		case errors.Is(err, errNoTime):
			t.postpone(f)
			continue
		case err != nil:
			t.lacks(f, s)
			continue
		}
		t.put(f, m.table)
		t.found(f, m)
		if m.built {
			t.keep(m.key, m.table)
		}
	}
}

// leaves leaves the table of a file alone that no sample was in, when there is not much room
// any more: it comes when one is.
func (t *Supply) leaves(f *fileTable) bool {
	n := t.kernel.Stats()
	t.mu.Lock()
	defer t.mu.Unlock()
	if f.sampled || n.Bytes < n.Capacity/4*3 {
		return false
	}
	t.settle(f, f.outcome)
	return true
}

// next returns the file that most samples wait for, and of those the one that was asked for
// first.
func (t *Supply) next() *fileTable {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		if t.stopped {
			return nil
		}
		if i := t.mostWanted(); i >= 0 {
			f := t.queue[i]
			t.queue = slices.Delete(t.queue, i, i+1)
			f.phase, f.again = tableWorking, false
			return f
		}
		t.work.Wait()
	}
}

// mostWanted returns its index in the queue, -1 for none.
func (t *Supply) mostWanted() int {
	best := -1
	for i, f := range t.queue {
		if t.last && f.wanted == 0 {
			continue
		}
		if best < 0 || f.wanted > t.queue[best].wanted {
			best = i
		}
	}
	return best
}

// put gives the programs the table under all serial numbers of the file.
func (t *Supply) put(f *fileTable, table *unwind.Table) {
	t.mu.Lock()
	serials, instead := slices.Clone(f.serials), f.outcome == tableNone
	t.mu.Unlock()
	for _, serial := range serials {
		if instead || !t.kernel.Has(serial) {
			t.putOne(f, serial, table)
		}
	}
}

func (t *Supply) putOne(f *fileTable, serial uint32, table *unwind.Table) {
	if table.Rows() == 0 {
		_ = t.kernel.PutNone(serial) // or else the samples are finished here
		return
	}
	if t.kernel.Put(serial, table) == nil {
		return
	}
	_ = t.kernel.PutUnavailable(serial)
	t.mu.Lock()
	defer t.mu.Unlock()
	if !f.refused {
		f.refused = true
		t.counts.NoRoom++
	}
	if len(t.refused) == 0 {
		t.refusedAt = time.Now()
	}
	t.refused = append(t.refused, serial)
}

// found notes that there is a table.
func (t *Supply) found(f *fileTable, m made) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case f.outcome == tableThere:
	case m.built:
		t.counts.Built++
	default:
		t.counts.Cached++
	}
	outcome := tableThere
	switch {
	case f.wanted == 0 || f.table != nil:
	case t.bounds.keep(m.owner, m.table):
		f.table, f.owner, t.holds = m.table, m.owner, true
	default:
		outcome = tableNone // for the samples that wait
	}
	if !f.sampled {
		t.objects.LetGo(f.object) // the files that are kept open are those of samples
	}
	t.settle(f, outcome)
}

// postpone gives a file up whose owner has no time left. Some time later the programs ask for its table again.
func (t *Supply) postpone(f *fileTable) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.giveUp(f); len(t.refused) == 0 {
		t.refusedAt = time.Now()
	}
	t.refused = append(t.refused, f.serials...)
}

// lacks notes that no table could be made of what there was of a file. It may not have been
// reached yet.
func (t *Supply) lacks(f *fileTable, s objects.Source) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case !s.IsReachable() && f.isReachable():
		f.phase = tableIdle
		t.ask(f)
	case !s.IsOpen() && t.reach(f):
		f.phase = tableReaching
	default:
		t.giveUp(f)
	}
}

// reach reports whether a file is being looked for, and has it looked for if that was left
// for when need be.
func (t *Supply) reach(f *fileTable) bool {
	if later := f.later; f.reaches == 0 && later != nil {
		f.later = nil
		if t.objects.Reach(objects.Job{Request: *later, Object: f.object}) {
			f.reaches++
		}
	}
	return f.reaches > 0
}

// giveUp notes that the table of a file will not come, in the programs too.
func (t *Supply) giveUp(f *fileTable) {
	if f.outcome != tableNone {
		t.counts.Unavailable++
	}
	for _, serial := range f.serials {
		if !t.kernel.Has(serial) {
			_ = t.kernel.PutUnavailable(serial) // or else samples come that are counted here
		}
	}
	t.settle(f, tableNone)
}

// settle passes the outcome of a file to all that wait for it.
func (t *Supply) settle(f *fileTable, o tableOutcome) {
	f.phase, f.outcome, f.wanted = tableIdle, o, 0
	t.finished = append(t.finished, f.serials...)
	t.news.Broadcast()
	if f.again {
		t.ask(f)
	}
}

// keep puts a table into the cache.
func (t *Supply) keep(key tableKey, table *unwind.Table) {
	stored := t.cache.keep(key, table)
	t.mu.Lock()
	t.stored += stored
	t.mu.Unlock()
}
