package symbol

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"reflect"
	"testing"

	"hallmark/addr"
	"hallmark/reason"
)

// changing changes bytes, calls look, and changes them back.
func changing(b []byte, look func(b []byte)) func(change func(b []byte)) {
	sound := bytes.Clone(b)
	return func(change func(b []byte)) {
		change(b)
		look(b)
		copy(b, sound)
	}
}

// damageOfBlocks calls damage with changes of every kind: single bits anywhere, in the header and the checksums more
// often, and blocks of a disk that are zero, or have what another block should have.
func damageOfBlocks(size int, n int, damage func(change func(b []byte))) {
	r := rand.New(rand.NewPCG(5, 6))
	const sector = 512
	for i := range n {
		at := r.IntN(size)
		if i%4 == 0 {
			at = r.IntN(min(size, 1024))
		}
		damage(func(b []byte) { b[at] ^= 1 << r.IntN(8) })
		from, length := r.IntN(size)/sector*sector, sector<<r.IntN(5)
		damage(func(b []byte) { clear(b[from:min(from+length, size)]) })
		other := r.IntN(size) / sector * sector
		damage(func(b []byte) { copy(b[from:min(from+length, size)], bytes.Clone(b[other:])) })
	}
}

// sampled are addresses all over the code of an index, and what a sound one answers.
func sampled(t *testing.T, x *Index, n int) (addresses []addr.Virt, want []Result) {
	t.Helper()
	var all []addr.Virt
	for p := range x.Pieces() {
		all = append(all, p.Virt)
	}
	for i := range n {
		addresses = append(addresses, all[i*len(all)/n])
	}
	return addresses, x.LookupVirts(addresses)
}

// TestDamagedIndex damages an index: no answer of it is a wrong one.
func TestDamagedIndex(t *testing.T) {
	x, err := open(t, goTool(t)).Index(IndexOptions{Identity: "x"})
	if err != nil {
		t.Fatal(err)
	}
	addresses, want := sampled(t, x, 50)
	refused, missed, right := 0, 0, 0
	damage := changing(bytes.Clone(x.Bytes()), func(b []byte) {
		y, err := NewIndex(b, "damaged")
		if err != nil {
			refused++
			return
		}
		c := y.Cursor()
		for i, got := range y.LookupVirts(addresses) {
			frames, source := c.Frames(addresses[i])
			switch {
			case len(got.Frames) > 0 && !reflect.DeepEqual(got, want[i]):
				t.Fatalf("%v is %+v, and not %+v", addresses[i], got, want[i])
			case len(frames) > 0 && (source != want[i].Source || frames[0].Linkage != want[i].Frames[0].Linkage || frames[0].Line != want[i].Frames[0].Line):
				t.Fatalf("%v is %+v by a cursor, and not %+v", addresses[i], frames, want[i])
			case len(got.Frames) > 0:
				right++
			case got.Reason != reason.BadSymbols || y.Damage() == nil:
				t.Fatalf("%v is a miss because of %v, and the damage is %v", addresses[i], got.Reason, y.Damage())
			default:
				missed++
			}
		}
	})
	damageOfBlocks(len(x.Bytes()), 200, damage)
	t.Logf("%d refused, %d answers missed, %d right", refused, missed, right)
	if refused == 0 || missed == 0 || right == 0 {
		t.Error("the damage is not of all kinds")
	}
}

// TestDamageIsFoundWhereItIs changes each byte of a small index: it is seen when it is opened, or by Check. Bytes that
// fill up, and those of the checksum of a block that has nothing but checksums, count too.
func TestDamageIsFoundWhereItIs(t *testing.T) {
	data := mustIndex(t, program().Build())
	for at := range data {
		data[at] ^= 0x10
		if x, err := NewIndex(data, "damaged"); err == nil && x.Check() == nil {
			t.Errorf("byte %d of %d is changed, and nobody sees it", at, len(data))
		}
		data[at] ^= 0x10
	}
	if x, err := NewIndex(data, "sound"); err != nil || x.Check() != nil {
		t.Fatal("the index was not sound", err)
	}
}

// TestChecksEachBlockOnce counts which blocks a lookup checks: few, and none the second time.
func TestChecksEachBlockOnce(t *testing.T) {
	y, err := open(t, goTool(t)).Index(IndexOptions{Identity: "x"})
	if err != nil {
		t.Fatal(err)
	}
	addresses, _ := sampled(t, y, 10)
	x, err := NewIndex(y.Bytes(), "fresh")
	if err != nil {
		t.Fatal(err)
	}
	_, all := blockSums(uint64(len(x.data)))
	checked := func() (n int) {
		for i := range all {
			if x.isChecked(i) {
				n++
			}
		}
		return n
	}
	before := checked()
	x.LookupVirt(addresses[5])
	first := checked() - before
	if first == 0 || first > 100 || uint64(first)*5 > all {
		t.Errorf("the first lookup checks %d blocks of %d", first, all)
	}
	// What was checked is not read again: nobody would see this.
	sound := bytes.Clone(x.data)
	clear(x.data[indexHeaderSize:][:all*blockSumSize])
	x.LookupVirt(addresses[5])
	if x.Damage() != nil {
		t.Errorf("it is checked again: %v", x.Damage())
	}
	copy(x.data, sound)
	if err := x.Check(); err != nil || checked() != int(all) {
		t.Errorf("%d of %d blocks are checked: %v", checked(), all, err)
	}
}

// replacement answers as an index, and counts how often it is closed.
type replacement struct {
	*Index
	closed int
}

func (r *replacement) Close() error { r.closed++; return nil }

// TestReplaceDamagedIndex has another index answer in place of a damaged one.
func TestReplaceDamagedIndex(t *testing.T) {
	x, err := open(t, goTool(t)).Index(IndexOptions{Identity: "x"})
	if err != nil {
		t.Fatal(err)
	}
	addresses, want := sampled(t, x, 50)
	text := x.indexHeader.parts[partText]
	data := bytes.Clone(x.Bytes())
	clear(data[text.off : text.off+text.size])
	other := &replacement{Index: x}
	y, err := NewIndex(data, "damaged")
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	y.Replace = func(damage error) Substitute {
		if calls++; damage == nil {
			t.Error("no damage")
		}
		return other
	}
	c := y.Cursor()
	for i, v := range addresses {
		if got := y.LookupVirt(v); !reflect.DeepEqual(got, want[i]) {
			t.Fatalf("%v is %+v, and not %+v", v, got, want[i])
		}
		frames, source := c.Frames(v)
		if again, _ := x.AppendFrames(nil, v); source != want[i].Source || !reflect.DeepEqual(frames, again) {
			t.Fatalf("%v is %+v by a cursor, and not %+v", v, frames, again)
		}
	}
	if err := y.Close(); err != nil || calls != 1 || other.closed != 1 {
		t.Errorf("%d calls, closed %d times, %v", calls, other.closed, err)
	}
}

// TestIndexCutShort is for a file that is shorter than its header says.
func TestIndexCutShort(t *testing.T) {
	data := mustIndex(t, program().Build())
	for _, n := range []int{len(data) - 1, len(data) / 2, indexHeaderSize} {
		if _, err := NewIndex(data[:n], "cut"); err == nil {
			t.Errorf("%d bytes of %d are an index", n, len(data))
		}
	}
	huge := bytes.Clone(data)
	binary.LittleEndian.PutUint32(huge[atSize:], 1<<31)
	if _, err := NewIndex(huge, "huge"); err == nil {
		t.Error("an index is as large as it likes")
	}
}
