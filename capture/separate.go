package capture

import (
	"hallmark/addr"
	"hallmark/internal/intern"
	"hallmark/internal/objects"
	"hallmark/internal/rewrites"
)

// separate gives the frames in rewritten pages a reason in place of the identity of their file. It
// returns the times of the stacks that this makes.
func separate(s *stacks, o *objects.Set, times map[counted][]int64, r *rewrites.Watcher) map[counted][]int64 {
	affected := map[uint32]*rewrites.Sight{} // by the owner
	for i, l := range s.owners.All() {
		if seen := r.Rewritten(l.PID); seen != nil {
			affected[uint32(i)] = seen
		}
	}
	if len(affected) == 0 {
		return times
	}
	w := &rewriter{s, o, map[*rewrites.Sight]map[*objects.Object]bool{}, map[*rewrites.Sight][]rewrites.Span{}, map[seenFile][]rewrites.Span{}}
	for _, key := range s.counts.All() {
		if seen := affected[key.owner]; seen != nil {
			w.note(seen, key.stack)
		}
	}
	for seen, files := range w.files {
		w.ofAny[seen] = seen.OfAny(files)
	}
	counts, totals, movedTimes := s.counts.All(), s.totals, map[counted][]int64{}
	s.counts, s.totals = intern.Values[counted]{}, nil
	for i, key := range counts {
		moved := key
		if seen := affected[key.owner]; seen != nil {
			moved.stack = w.rewritten(seen, key.stack)
		}
		s.sum(moved, totals[i])
		movedTimes[moved] = append(movedTimes[moved], times[key]...)
	}
	return movedTimes
}

// rewriter remembers the files in the stacks of each process, and which spans of them it has
// rewritten.
type rewriter struct {
	stacks  *stacks
	objects *objects.Set
	files   map[*rewrites.Sight]map[*objects.Object]bool
	ofAny   map[*rewrites.Sight][]rewrites.Span
	known   map[seenFile][]rewrites.Span
}

type seenFile struct {
	seen   *rewrites.Sight
	object *objects.Object
}

// note notes the files in a stack of a process.
func (w *rewriter) note(seen *rewrites.Sight, stack uint32) {
	if w.files[seen] == nil {
		w.files[seen] = map[*objects.Object]bool{}
	}
	for p := range w.stacks.placesOf(stack) {
		if p.object.IsFile() {
			w.files[seen][p.object] = true
		}
	}
}

// holds reports whether a frame of a process is in a page that it has rewritten.
func (w *rewriter) holds(seen *rewrites.Sight, p place) bool {
	if !p.object.IsFile() {
		return false
	}
	key := seenFile{seen, p.object}
	spans, ok := w.known[key]
	if !ok {
		spans = seen.In(p.object, w.ofAny[seen])
		w.known[key] = spans
	}
	return rewrites.Holds(spans, addr.Offset(p.at))
}

// rewritten returns the stack of a process whose frames in rewritten pages have the reason.
func (w *rewriter) rewritten(seen *rewrites.Sight, stack uint32) uint32 {
	var places []place
	changed := false
	for p := range w.stacks.placesOf(stack) {
		if w.holds(seen, p) {
			p.object, changed = w.objects.Rewritten(p.object), true
		}
		places = append(places, p)
	}
	if !changed {
		return stack
	}
	return w.stacks.stack(places, w.stacks.walk(stack))
}
