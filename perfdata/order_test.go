package perfdata

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"
)

// TestQueue compares the queue with sorting, for rings that are emptied in turn.
func TestQueue(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var q queue
		var got, want []waiting
		now, at := uint64(1), uint32(0)
		begun := uint64(0) // when the last round began
		take := func() {
			for w, ok := q.take(); ok; w, ok = q.take() {
				got = append(got, w)
			}
		}
		for range 1 + random.IntN(8) {
			start := now
			for range 1 + random.IntN(4) { // a ring: in order, nothing from before the last round
				from := max(1, begun)
				for range random.IntN(40) {
					from += random.Uint64N(3)
					w := waiting{time: from, at: at}
					at++
					q.add(w)
					want = append(want, w)
					now = max(now, from)
				}
			}
			begun = start
			q.finishRound()
			take()
		}
		q.letOut(^uint64(0))
		take()
		slices.SortStableFunc(want, func(a, b waiting) int { return int(a.time) - int(b.time) })
		if !slices.Equal(got, want) || q.entries != 0 {
			t.Fatalf("got  %v\nwant %v", got, want)
		}
	}
}

// TestQueueOfOneRun goes on for ever with one ring: it keeps no more than two rounds.
func TestQueueOfOneRun(t *testing.T) {
	var q queue
	now := uint64(1)
	for range 1000 {
		for range 100 {
			q.add(waiting{time: now})
			now++
		}
		q.finishRound()
		for _, ok := q.take(); ok; _, ok = q.take() {
		}
		if q.entries > 200 || cap(q.last.records) > 1000 {
			t.Fatalf("%d wait, in room for %d", q.entries, cap(q.last.records))
		}
	}
}

// TestBounded reads a file without rounds, whose records could all wait for each
// other: what waits is limited, and that is reported.
func TestBounded(t *testing.T) {
	data := buildFile(t, WriterOptions{}, 60000)
	const limit = 4 * blockSize
	r, err := NewReader(bytes.NewReader(data), ReaderOptions{MaxPending: limit})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	records, most, noted, last := 0, 0, 0, uint64(0)
	for {
		rec, err := r.Next()
		if err != nil {
			break
		}
		records++
		most = max(most, r.pool.live)
		noted = max(noted, r.pool.live*blockSize+r.queue.entries*int(unsafe.Sizeof(waiting{})))
		if s, ok := rec.(*Sample); ok {
			if s.Time < last {
				t.Fatalf("time %d after %d", s.Time, last)
			}
			last = s.Time
		}
	}
	if records != 120002 {
		t.Errorf("%d records", records)
	}
	if most*blockSize > limit+2*blockSize {
		t.Errorf("%d bytes were held, the limit is %d", most*blockSize, limit)
	}
	if noted > limit+blockSize {
		t.Errorf("%d bytes were held with what is noted down of records, the limit is %d", noted, limit)
	}
	if r.Forced() == 0 {
		t.Error("nothing was forced out")
	}
	if len(data) < 3*limit {
		t.Errorf("a file of %d bytes tests nothing", len(data))
	}
}

// TestRounds reads the same with rounds: everything in order, nothing forced.
func TestRounds(t *testing.T) {
	data := buildFile(t, WriterOptions{InOrder: true}, 20000)
	lines, r, err := readAll(t, data, ReaderOptions{MaxPending: 20 * blockSize})
	if err != nil || len(lines) != 40002 || r.Forced() != 0 {
		t.Errorf("%d records, forced %d times, %v", len(lines), r.Forced(), err)
	}
}
