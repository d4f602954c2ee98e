package capture

import (
	"cmp"
	"slices"

	"hallmark/addr"
	"hallmark/internal/objects"
)

// separate gives the frames in rewritten pages a reason in place of the identity of their file.
func (f *finisher) separate(r *rewrites) {
	s := f.stacks
	affected := map[uint32]*lookedAt{} // by the owner
	for i, l := range s.labels {
		if seen := r.sights[l.PID]; seen != nil && (seen.many || len(seen.found) > 0) {
			affected[uint32(i)] = seen
		}
	}
	if len(affected) == 0 {
		return
	}
	w := &rewriter{f, map[*lookedAt]map[*objects.Object]bool{}, map[*lookedAt][]fileSpan{}, map[seenFile][]fileSpan{}}
	for _, key := range s.order {
		if seen := affected[key.owner]; seen != nil {
			w.note(seen, key.stack)
		}
	}
	for seen, files := range w.files {
		w.ofAny[seen] = seen.ofAny(files)
	}
	counts, order, times := s.counts, s.order, f.times
	s.counts, s.order, f.times = map[counted]total{}, nil, map[counted][]int64{}
	for _, key := range order {
		moved := key
		if seen := affected[key.owner]; seen != nil {
			moved.stack = w.rewritten(seen, key.stack)
		}
		s.sum(moved, counts[key])
		f.times[moved] = append(f.times[moved], times[key]...)
	}
}

// rewriter remembers the files in the stacks of each process, and which spans of them it has
// rewritten.
type rewriter struct {
	*finisher
	files map[*lookedAt]map[*objects.Object]bool
	ofAny map[*lookedAt][]fileSpan
	known map[seenFile][]fileSpan
}

type seenFile struct {
	seen   *lookedAt
	object *objects.Object
}

// note notes the files in a stack of a process.
func (w *rewriter) note(seen *lookedAt, stack uint32) {
	if w.files[seen] == nil {
		w.files[seen] = map[*objects.Object]bool{}
	}
	for p := range w.stacks.places(stack, w.objects.All()) {
		if p.object.IsFile() {
			w.files[seen][p.object] = true
		}
	}
}

// holds reports whether a frame of a process is in a page that it has rewritten.
func (w *rewriter) holds(seen *lookedAt, p place) bool {
	if !p.object.IsFile() {
		return false
	}
	key := seenFile{seen, p.object}
	spans, ok := w.known[key]
	if !ok {
		spans = seen.in(p.object, w.ofAny[seen])
		w.known[key] = spans
	}
	at := addr.Offset(p.at)
	i, found := slices.BinarySearchFunc(spans, at, func(s fileSpan, at addr.Offset) int { return cmp.Compare(s.start, at) })
	return found || i > 0 && at < spans[i-1].end
}

// rewritten returns the stack of a process whose frames in rewritten pages have the reason.
func (w *rewriter) rewritten(seen *lookedAt, stack uint32) uint32 {
	f := w.finisher
	var places []place
	changed := false
	for p := range f.stacks.places(stack, f.objects.All()) {
		if w.holds(seen, p) {
			p.object, changed = f.objects.Rewritten(p.object), true
		}
		places = append(places, p)
	}
	if !changed {
		return stack
	}
	return f.stacks.intern(places, f.stacks.walk(stack))
}
