package symbol

import (
	"os"
	"testing"
)

// benchedFile is a debug file of this machine, or the one in HALLMARK_BENCH_FILE.
func benchedFile(b *testing.B) string {
	if name := os.Getenv("HALLMARK_BENCH_FILE"); name != "" {
		return name
	}
	return debugFiles(b)[0]
}

// BenchmarkFirstAddress opens a file and asks for one address, another one each time.
func BenchmarkFirstAddress(b *testing.B) {
	name := benchedFile(b)
	addresses := textAddresses(b, readelf(b, name), 1000)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		f, err := OpenFile(name)
		if err != nil {
			b.Fatal(err)
		}
		f.LookupVirt(addresses[i%len(addresses)])
		f.Close()
	}
}

// BenchmarkManyAddresses opens a file and asks for 100,000 addresses at once.
func BenchmarkManyAddresses(b *testing.B) {
	name := benchedFile(b)
	addresses := textAddresses(b, readelf(b, name), 100_000)
	b.ReportAllocs()
	for b.Loop() {
		f, err := OpenFile(name)
		if err != nil {
			b.Fatal(err)
		}
		f.LookupVirts(addresses)
		f.Close()
	}
}

// BenchmarkKnownUnit asks for addresses of units that were read before.
func BenchmarkKnownUnit(b *testing.B) {
	f := open(b, benchedFile(b))
	f.NoIndex = true
	addresses := textAddresses(b, readelf(b, f.Name()), 100)
	f.Load()
	for _, v := range addresses {
		f.LookupVirt(v)
	}
	b.ReportAllocs()
	var frames []Frame
	for i := 0; b.Loop(); i++ {
		frames, _ = f.AppendFrames(frames[:0], addresses[i%len(addresses)])
	}
}
