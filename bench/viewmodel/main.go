// Command viewmodel measures what it costs to open a profile of many stacks: in time and memory,
// for package profile/compact and for github.com/google/pprof/profile, each in a process of its own.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	pprof "github.com/google/pprof/profile"
	"github.com/klauspost/compress/gzip"

	"hallmark/bench/internal/trial"
	"hallmark/internal/proftest"
	"hallmark/profile"
	"hallmark/profile/compact"
)

func main() {
	log.SetFlags(0)
	open := flag.String("open", "", "open the profile with compact or pprof, and print what it cost")
	stacks := flag.Int("stacks", 1_000_000, "distinct stacks of 20 frames")
	shared := flag.Int("shared", 10, "frames of which only two can follow each")
	processes := flag.Int("processes", 0, "processes that have the samples, 0 for no labels")
	rounds := trial.Rounds("rounds", 5, "rounds")
	only := flag.String("write", "", "write the profile to this file, and measure nothing")
	flag.Parse()
	wide := proftest.Wide{Stacks: *stacks, Shared: *shared, Processes: *processes}
	switch {
	case *open != "":
		measure(*open, flag.Arg(0))
	case *only != "":
		check(write(*only, wide))
	default:
		compare(wide, *rounds)
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func write(name string, wide proftest.Wide) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if !strings.HasSuffix(name, ".gz") {
		return wide.Write(f)
	}
	z := gzip.NewWriter(f)
	if err := wide.Write(z); err != nil {
		return err
	}
	return z.Close()
}

func measure(how, name string) {
	start := time.Now()
	switch how {
	case "compact":
		p, err := compact.ReadFile(name, profile.ReadOptions{})
		check(err)
		defer runtime.KeepAlive(p)
	case "pprof":
		f, err := os.Open(name)
		check(err)
		p, err := pprof.Parse(f)
		check(err)
		defer runtime.KeepAlive(p)
	}
	took := time.Since(start)
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	status, err := os.ReadFile("/proc/self/status")
	check(err)
	peak := 0
	for line := range bytes.Lines(status) {
		fmt.Sscanf(string(line), "VmHWM: %d kB", &peak)
	}
	fmt.Println(took.Seconds(), float64(m.HeapAlloc)/(1<<20), float64(peak)/1024)
}

type cost struct{ seconds, heap, peak float64 }

func compare(wide proftest.Wide, rounds int) {
	dir, err := os.MkdirTemp("", "viewmodel")
	check(err)
	defer os.RemoveAll(dir)
	plain, packed := filepath.Join(dir, "wide.pb"), filepath.Join(dir, "wide.pb.gz")
	check(write(plain, wide))
	check(write(packed, wide))
	info, err := os.Stat(plain)
	check(err)
	size := float64(info.Size()) / (1 << 20)
	zipped, err := os.Stat(packed)
	check(err)
	fmt.Printf("%d stacks, %.0f MiB uncompressed, %.0f MiB by gzip\n\n", wide.Stacks, size, float64(zipped.Size())/(1<<20))
	fmt.Println("| | seconds | heap MiB | × uncompressed | peak of the process MiB | × uncompressed |")
	fmt.Println("|---|--:|--:|--:|--:|--:|")
	costs := map[string][]cost{}
	for range rounds {
		for _, how := range []string{"compact", "pprof"} {
			for _, name := range []string{plain, packed} {
				out, err := exec.Command(os.Args[0], "-open", how, name).Output()
				check(err)
				var c cost
				fmt.Sscan(string(out), &c.seconds, &c.heap, &c.peak)
				costs[how+filepath.Ext(name)] = append(costs[how+filepath.Ext(name)], c)
			}
		}
	}
	for _, name := range []string{"compact.pb", "pprof.pb", "compact.gz", "pprof.gz"} {
		median := func(of func(cost) float64) float64 {
			all := []float64{}
			for _, c := range costs[name] {
				all = append(all, of(c))
			}
			slices.Sort(all)
			return all[len(all)/2]
		}
		heap, peak := median(func(c cost) float64 { return c.heap }), median(func(c cost) float64 { return c.peak })
		fmt.Printf("| `%s` | %.2f | %.0f | %.1f | %.0f | %.1f |\n", name, median(func(c cost) float64 { return c.seconds }), heap, heap/size, peak, peak/size)
	}
}
