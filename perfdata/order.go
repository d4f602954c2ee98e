package perfdata

// queue puts records into the order of their times.
//
// perf record empties the ring of one CPU after the other: what one ring had is in
// order, and a FINISHED_ROUND record follows each turn through all of them. What
// was written before the turn before began is all there then.
type queue struct {
	runs []*run // a heap by the time of their first, while records are taken out
	last *run   // to which the next record may be appended
	idle []*run
	made uint64 // runs, to number them

	limit   uint64 // up to which time records may be taken out
	taking  bool
	newest  uint64 // time that was added
	round   uint64 // newest when the last round ended
	entries int
}

// waiting is a record that waits for its turn.
type waiting struct {
	time uint64
	in   *block
	at   uint32
	size uint32
}

// run is a stretch of records in order. Of two runs, the one with the lower number
// has been in the file before.
type run struct {
	number  uint64
	records []waiting
	next    int
}

func (r *run) first() *waiting { return &r.records[r.next] }

// compact gives up the room of what was taken out: one run may last for the whole file.
func (r *run) compact() {
	if r.next > len(r.records)/2 {
		r.records = r.records[:copy(r.records, r.records[r.next:])]
		r.next = 0
	}
}

func (q *queue) add(w waiting) {
	q.newest = max(q.newest, w.time)
	q.entries++
	if q.last == nil || q.last.records[len(q.last.records)-1].time > w.time {
		q.last = q.newRun()
		q.runs = append(q.runs, q.last)
	}
	q.last.records = append(q.last.records, w)
}

func (q *queue) newRun() *run {
	q.made++
	if n := len(q.idle); n > 0 {
		r := q.idle[n-1]
		q.idle = q.idle[:n-1]
		r.number, r.records, r.next = q.made, r.records[:0], 0
		return r
	}
	return &run{number: q.made}
}

// size is how much memory (bytes) the queue has itself: that of small records is more than
// theirs. Lists that grow have up to as much room again.
func (q *queue) size() int {
	const entry, perRun = 2 * 24, 128 // bytes: of waiting; of run with the least list, and the pointer to it
	return entry*q.entries + perRun*len(q.runs)
}

// finishRound lets out what was there when the last round ended.
func (q *queue) finishRound() {
	q.letOut(q.round)
	q.round = q.newest
}

// letOut lets take return the records up to a time.
func (q *queue) letOut(limit uint64) {
	q.limit, q.taking = limit, true
	for _, r := range q.runs {
		r.compact()
	}
	for i := len(q.runs)/2 - 1; i >= 0; i-- {
		q.down(i)
	}
}

// half is a time by which about half of what waits is out: between the oldest and the newest.
func (q *queue) half() uint64 {
	oldest := q.newest
	for _, r := range q.runs {
		oldest = min(oldest, r.first().time)
	}
	return oldest + (q.newest-oldest)/2
}

// take returns the oldest record that may be taken out.
func (q *queue) take() (waiting, bool) {
	if !q.taking || len(q.runs) == 0 || q.runs[0].first().time > q.limit {
		q.taking = false
		return waiting{}, false
	}
	r := q.runs[0]
	w := *r.first()
	q.entries--
	if r.next++; r.next == len(r.records) {
		q.drop(r)
	}
	q.down(0)
	return w, true
}

// drop takes the first run, which is empty, out of the heap.
func (q *queue) drop(r *run) {
	if r == q.last {
		q.last = nil
	}
	n := len(q.runs) - 1
	q.runs[0], q.runs[n] = q.runs[n], nil
	q.runs = q.runs[:n]
	// A block that holds many records once would hold their memory for ever.
	if cap(r.records) <= 1<<16 {
		q.idle = append(q.idle, r)
	}
}

func (q *queue) before(a, b *run) bool {
	x, y := a.first().time, b.first().time
	return x < y || x == y && a.number < b.number
}

func (q *queue) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(q.runs) {
			return
		}
		if child+1 < len(q.runs) && q.before(q.runs[child+1], q.runs[child]) {
			child++
		}
		if !q.before(q.runs[child], q.runs[i]) {
			return
		}
		q.runs[i], q.runs[child] = q.runs[child], q.runs[i]
		i = child
	}
}
