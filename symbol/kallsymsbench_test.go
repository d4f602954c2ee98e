package symbol

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
)

// BenchmarkKallsyms reads a list of as many symbols as a kernel has, and makes an index of it: the first
// report of samples in the kernel does both.
func BenchmarkKallsyms(b *testing.B) {
	list := longKallsyms()
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := ReadKallsyms(bytes.NewReader(list)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("index", func(b *testing.B) {
		k, err := ReadKallsyms(bytes.NewReader(list))
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			x, err := k.Index(IndexOptions{})
			if err != nil {
				b.Fatal(err)
			}
			x.Close()
		}
	})
}

// TestKallsymsAllocations has the room for the symbols of a kernel be made in few steps: room that grows
// by a quarter at a time is copied five times, and touches memory five times as large.
func TestKallsymsAllocations(t *testing.T) {
	list := longKallsyms()
	bytesOf := func(f func()) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	var k *Kallsyms
	var err error
	if n := bytesOf(func() { k, err = ReadKallsyms(bytes.NewReader(list)) }); err != nil || n > 22<<20 {
		t.Errorf("reading allocates %d bytes (%v), want 15 million", n, err)
	}
	var x *Index
	if n := bytesOf(func() { x, err = k.Index(IndexOptions{}) }); err != nil || n > 26<<20 {
		t.Errorf("the index allocates %d bytes (%v), want 17 million", n, err)
	}
	x.Close()
}

// longKallsyms returns a list of 120,000 symbols, half of them code.
func longKallsyms() []byte {
	const text = uint64(0xffffffff81000000)
	var list bytes.Buffer
	fmt.Fprintf(&list, "%x T _text\n", text)
	for i := range 120_000 {
		fmt.Fprintf(&list, "%x %c some_subsystem_function_%d\n", text+64+uint64(i)*176, "tdTr"[i%4], i%100_000)
	}
	fmt.Fprintf(&list, "%x T _etext\n", text+120_000*176+4096)
	return list.Bytes()
}
