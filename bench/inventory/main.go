// Command inventory measures what it costs to know what every running process has
// mapped, with the identity of each file: by the BPF iterator, by queries, and by the
// text in /proc; beside what perf does before it records, and beside a walk over the text
// of /proc as other tools take it. It does so with the processes that there are, and with
// some hundred more that have many libraries.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"hallmark/bench/internal/trial"
	"hallmark/inventory"
)

var (
	rounds   = trial.Rounds("rounds", 11, "rounds, in each of which every way is taken once")
	sleepers = flag.Int("sleepers", 500, "processes with many libraries that are there in the second table")
)

func main() { trial.Main("inventory", run) }

func run(dir string) error {
	hallmark := filepath.Join(dir, "hallmark")
	build := exec.Command("go", "build", "-C", "..", "-o", hallmark, "./cmd/hallmark")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("building hallmark: %w", err)
	}
	s := &scene{hallmark: hallmark, data: filepath.Join(dir, "perf.data")}
	if err := s.table("The processes that there are"); err != nil {
		return err
	}
	if *sleepers == 0 {
		return nil
	}
	stop, err := startSleepers(*sleepers)
	if err != nil {
		return err
	}
	defer stop()
	return s.table(fmt.Sprintf("With %d more, each with the libraries of a large Python program", *sleepers))
}

// cost is what one inventory takes: CPU time of whoever takes it, which is the kernel's
// for the most part, and time.
type cost struct{ cpu, wall time.Duration }

// minus returns what one costs more than another. Recorders wait for most of their time,
// so a difference of times means nothing.
func (c cost) minus(d cost) cost { return cost{cpu: c.cpu - d.cpu} }

// taken are the costs of a round, by the names of the ways.
type taken map[string]cost

// table measures all ways, and prints what they take.
func (s *scene) table(title string) error {
	all := make([]taken, *rounds)
	for i := range all {
		all[i] = taken{}
		for _, take := range []func(taken) error{s.iterate, s.ask, s.walk, s.commands} {
			if err := take(all[i]); err != nil {
				return err
			}
		}
	}
	inv, err := inventory.Take(inventory.Options{})
	if err != nil {
		return err
	}
	mappings := 0
	for _, p := range inv.Processes {
		mappings += len(p.Code)
	}
	fmt.Printf("%s: %d, with %d executable mappings of files; medians of %d rounds.\n\n", title, len(inv.Processes), mappings, *rounds)
	fmt.Println("| way | CPU ms | ms | CPU µs a process | CPU µs a mapping | CPU, of all by queries |")
	fmt.Println("|---|---:|---:|---:|---:|---:|")
	for _, way := range ways {
		cpu := medianOf(all, func(t taken) float64 { return t[way].cpu.Seconds() })
		wall := medianOf(all, func(t taken) float64 { return t[way].wall.Seconds() })
		ratio := medianOf(all, func(t taken) float64 { return t[way].cpu.Seconds() / t[queries].cpu.Seconds() })
		fmt.Printf("| %s | %.1f | %s | %.1f | %.2f | %.1f |\n", way, cpu*1e3, milliseconds(wall), cpu*1e6/float64(len(inv.Processes)), cpu*1e6/float64(mappings), ratio)
	}
	fmt.Println()
	return nil
}

// milliseconds returns a time as text. It is 0 where it means nothing: of differences.
func milliseconds(wall float64) string {
	if wall == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f", wall*1e3)
}

func medianOf(all []taken, value func(taken) float64) float64 {
	var list []float64
	for _, t := range all {
		list = append(list, value(t))
	}
	slices.Sort(list)
	return list[len(list)/2]
}
