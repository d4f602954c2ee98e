package bpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"hallmark/unwind"
)

// TestSpans takes and gives pieces at random, and wants no two that overlap, and one
// piece again in the end.
func TestSpans(t *testing.T) {
	const size = 1 << 16
	free := spans{{0, size}}
	var taken []span
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		if rnd.IntN(2) == 0 {
			n := 8 * (1 + uint32(rnd.IntN(200)))
			start, ok := free.take(n)
			if !ok {
				continue
			}
			p := span{start, n}
			for _, other := range taken {
				if p.start < other.end() && other.start < p.end() || p.end() > size {
					t.Fatalf("%v was given, and %v is taken", p, other)
				}
			}
			taken = append(taken, p)
		} else if len(taken) > 0 {
			i := rnd.IntN(len(taken))
			free.give(taken[i])
			taken = slices.Delete(taken, i, i+1)
		}
	}
	for _, p := range taken {
		free.give(p)
	}
	if len(free) != 1 || free[0] != (span{0, size}) {
		t.Errorf("%v is free in the end", free)
	}
}

// made returns one of many tables of a size of about so many bytes, whose rules say nothing.
func made(t testing.TB, size int, which uint32) *unwind.Table {
	t.Helper()
	const header = 48
	granules := (size - header - 64) / (4 + 3*256)
	rows := 256 * granules
	b := make([]byte, header, size)
	part := func(field int, content []byte) {
		binary.LittleEndian.PutUint32(b[field:], uint32(len(b)))
		b = append(b, content...)
		b = append(b, make([]byte, -len(b)&7)...)
	}
	var directory []byte
	for first := 0; first <= rows; first += 256 {
		directory = binary.LittleEndian.AppendUint32(directory, uint32(first))
	}
	part(28, append(directory, 0, 0))
	part(32, make([]byte, 3*rows))
	part(36, make([]byte, 16))
	copy(b, "HUW3\x01")
	binary.LittleEndian.PutUint64(b[8:], uint64(which)*256)
	binary.LittleEndian.PutUint32(b[16:], uint32(granules))
	binary.LittleEndian.PutUint32(b[20:], uint32(rows))
	binary.LittleEndian.PutUint32(b[24:], 1)
	binary.LittleEndian.PutUint32(b[40:], uint32(len(b)))
	table, err := unwind.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// poolBytes reads the pool as programs do: from one piece, and the tail behind it.
func (t *Tables) poolBytes(at, n uint32) []byte {
	return t.pool.pieces[at/chunkSize].mapped[at%chunkSize:][:n]
}

// TestTables puts more tables than there is room for, and wants those that were not used
// for longest to go; and every byte of what is left where programs look for it.
func TestTables(t *testing.T) {
	s := newTestSampler(t, Options{Unwind: true, UnwindMemory: 4 << 20, Entries: 64})
	tables := s.Tables()
	const size = 300 << 10
	for serial := uint32(1); serial <= 20; serial++ {
		if err := tables.Put(serial, made(t, size, serial)); err != nil {
			t.Fatal(serial, err)
		}
		if err := s.Counts(func(StackID, Task, uint64) {}); err != nil { // the time moves on
			t.Fatal(err)
		}
	}
	stats := tables.Stats()
	if stats.Capacity != 4<<20 || stats.Memory > stats.Capacity || stats.Bytes > stats.Memory || stats.Evicted == 0 || stats.Tables != int(20-stats.Evicted) {
		t.Errorf("%+v", stats)
	}
	for serial := uint32(1); serial <= 20; serial++ {
		if left := tables.Has(serial); left != (uint64(serial) > stats.Evicted) {
			t.Errorf("table %d of %d: %v", serial, stats.Evicted, left)
		}
	}
	checkPool(t, tables)
	if err := tables.Put(99, made(t, 5<<20, 0)); !errors.Is(err, ErrNoRoom) || tables.Has(99) || tables.Stats().Refused != 1 {
		t.Errorf("a table that is larger than all: %v", err)
	}
	if tables.Stats().Tables != stats.Tables {
		t.Error("tables were taken out for one that has no room in any case")
	}
}

// checkPool compares the bytes of each table with what is in the pool.
func checkPool(t *testing.T, tables *Tables) {
	t.Helper()
	for serial, place := range tables.held {
		want := made(t, 300<<10, serial).Bytes()
		for at := uint32(0); at < place.size; at += 256 {
			n := min(256, place.size-at)
			if !bytes.Equal(tables.poolBytes(place.start+at, n), want[at:at+n]) {
				t.Fatalf("table %d at %d is not what was put", serial, at)
			}
		}
	}
}

// TestVDSOStays fills the pool, and the room for entries, long after the table of the vdso
// was used last: it stays, because nothing asks for it again.
func TestVDSOStays(t *testing.T) {
	s := newTestSampler(t, Options{Unwind: true, UnwindMemory: 1 << 20, Entries: 8})
	tables := s.Tables()
	if err := tables.Put(VDSOSerial, made(t, 4<<10, 1)); err != nil {
		t.Fatal(err)
	}
	for serial := uint32(1); serial <= 30; serial++ {
		if err := s.Counts(func(StackID, Task, uint64) {}); err != nil { // the time moves on
			t.Fatal(err)
		}
		put := func() error { return tables.Put(serial, made(t, 300<<10, serial+1)) }
		if serial > 15 {
			put = func() error { return tables.PutNone(serial) }
		}
		if err := put(); err != nil {
			t.Fatal(serial, err)
		}
	}
	if !tables.Has(VDSOSerial) || tables.Stats().Evicted == 0 {
		t.Errorf("the table of the vdso is there: %v; %+v", tables.Has(VDSOSerial), tables.Stats())
	}
}

// TestSameContent puts one table under several serial numbers: it takes room once, as long as
// one of them is left.
func TestSameContent(t *testing.T) {
	tables := newTestSampler(t, Options{Unwind: true, UnwindMemory: 1 << 20}).Tables()
	const size = 700 << 10 // there is no room for two
	taken := int64(len(made(t, size, 1).Bytes()))
	for serial := uint32(1); serial <= 3; serial++ {
		if err := tables.Put(serial, made(t, size, 1)); err != nil {
			t.Fatal(serial, err)
		}
		if n := tables.Stats(); n.Bytes != taken || n.Tables != int(serial) {
			t.Errorf("%+v with %d serial numbers", n, serial)
		}
	}
	for serial := uint32(1); serial <= 3; serial++ {
		if err := tables.Put(9, made(t, size, 9)); !errors.Is(err, ErrNoRoom) {
			t.Errorf("there is room for another one before %d is removed: %v", serial, err)
		}
		if err := tables.Remove(serial); err != nil {
			t.Fatal(err)
		}
	}
	if n := tables.Stats(); n.Bytes != 0 || n.Tables != 0 {
		t.Errorf("%+v in the end", n)
	}
	if err := tables.Put(9, made(t, size, 9)); err != nil {
		t.Errorf("after all were removed: %v", err)
	}
}

// TestJustUsedStays wants no table taken out that was just used.
func TestJustUsedStays(t *testing.T) {
	s := newTestSampler(t, Options{Unwind: true, UnwindMemory: 1 << 20})
	tables := s.Tables()
	if err := tables.Put(1, made(t, 700<<10, 1)); err != nil {
		t.Fatal(err)
	}
	if err := tables.Put(2, made(t, 700<<10, 2)); !errors.Is(err, ErrNoRoom) || !tables.Has(1) {
		t.Errorf("a second table: %v, the first is there: %v", err, tables.Has(1))
	}
	if err := tables.Remove(1); err != nil {
		t.Fatal(err)
	}
	if err := tables.Put(2, made(t, 700<<10, 2)); err != nil {
		t.Errorf("after the first was removed: %v", err)
	}
}

// TestManyEntries fills the map with files that have no table.
func TestManyEntries(t *testing.T) {
	s := newTestSampler(t, Options{Unwind: true, Entries: 63})
	tables := s.Tables()
	for serial := uint32(1); serial <= 200; serial++ {
		if err := tables.PutNone(serial); err != nil {
			t.Fatal(serial, err)
		}
		if err := s.Counts(func(StackID, Task, uint64) {}); err != nil {
			t.Fatal(err)
		}
	}
	if stats := tables.Stats(); stats.Tables > 64 || stats.Evicted != uint64(200-stats.Tables) || !tables.Has(200) || tables.Has(1) {
		t.Errorf("%+v", stats)
	}
}

// TestStraddling puts tables at places where what is read of them lies across two pieces of
// the pool, each part in turn, and wants the same stacks.
func TestStraddling(t *testing.T) {
	program := buildStacks(t)
	s := newTestSampler(t, Options{Unwind: true, UnwindMemory: 8 << 20})
	process := startStill(t, program, "qsort")
	files := sampleThread(t, s, process.tid, 20*time.Millisecond).files
	tables := putTables(t, s, files)
	boundary := uint32(0)
	for serial, f := range files {
		offset, ok := offsetIn(process, f)
		if !ok {
			continue
		}
		boundary += 2 * chunkSize
		for _, at := range used(tables[serial], offset) {
			if err := s.Tables().Remove(serial); err != nil {
				t.Fatal(err)
			}
			putAt(t, s.Tables(), serial, tables[serial], (boundary-at)&^7)
			if err := s.Resend(); err != nil {
				t.Fatal(err)
			}
			got := sampleThread(t, s, process.tid, 30*time.Millisecond)
			if len(got.copies) > 0 {
				t.Errorf("%s: %d samples are to be finished", f.Path, len(got.copies))
			}
			checkStill(t, process, got, files)
		}
	}
}

// offsetIn returns the offset of a caller's frame in a file, if one is in it.
func offsetIn(process *still, f File) (offset uint64, ok bool) {
	for _, a := range process.stack[1:] {
		if a >= f.Start && a < f.End {
			return uint64(a-f.Start) + uint64(f.Offset), true
		}
	}
	return 0, false
}

// used returns positions in a table that the lookup of an offset reads, and around which
// it reads more.
func used(table *unwind.Table, offset uint64) []uint32 {
	b, order := table.Bytes(), binary.LittleEndian
	granule := uint32((offset - order.Uint64(b[8:])) / 256)
	directory := order.Uint32(b[28:]) + 4*granule
	row := order.Uint32(b[directory:])
	rows := order.Uint32(b[directory+4:]) - row
	return []uint32{
		directory + 4,
		order.Uint32(b[32:]) + row + rows/2,
		order.Uint32(b[36:]) + 2*(row+rows/2),
		order.Uint32(b[40:]) + 8,
	}
}

// putAt puts a table at a position of the pool.
func putAt(t *testing.T, tables *Tables, serial uint32, table *unwind.Table, at uint32) {
	t.Helper()
	for tables.pool.size() < 8*chunkSize {
		if _, err := tables.grow(); err != nil {
			t.Fatal(err)
		}
	}
	before := tables.free
	tables.free = spans{{at, uint32(len(table.Bytes()))}}
	err := tables.Put(serial, table)
	tables.free = before
	if err != nil {
		t.Fatal(err)
	}
	delete(tables.same, tables.held[serial].content)
	tables.bytes -= int64(tables.held[serial].size)
	tables.held[serial] = nil // its place was never free
}
