// Command id measures how long it takes to identify all ELF files below a
// directory: with package buildid, with other programs, and with nothing but the
// system calls that nobody can do without. All take turns in each round, and the
// table has the median of the rounds' ratios.
//
//	go run ./id [-dir DIR] [-rounds N]
package main

import (
	"cmp"
	"flag"
	"fmt"
	"log"
	"os"
	"slices"
	"strings"
	"time"

	"hallmark/bench/internal/trial"
	"hallmark/buildid"
)

func main() {
	log.SetFlags(0)
	dir := flag.String("dir", "/usr", "where the files are")
	rounds := trial.Rounds("rounds", 21, "how often everything is measured")
	flag.Parse()
	if err := run(*dir, *rounds); err != nil {
		log.Fatal(err)
	}
}

func run(dir string, rounds int) error {
	work, err := os.MkdirTemp("", "bench-id")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	files, err := elfFiles(dir)
	if err != nil {
		return err
	}
	contenders, err := prepare(work, dir, files)
	if err != nil {
		return err
	}
	costs, err := measure(contenders, rounds)
	if err != nil {
		return err
	}
	fmt.Printf("%d ELF files below %s, median of %d rounds\n\n", len(files), dir, rounds)
	printTable(contenders, costs, len(files))
	return nil
}

// elfFiles lists the ELF files, and brings them into the page cache. A list has
// one name a word, so that odd names are left out.
func elfFiles(dir string) ([]string, error) {
	var files []string
	for e := range buildid.Scan(dir) {
		if e.Err != nil {
			return nil, e.Err
		}
		if e.Info.ELF && !strings.ContainsAny(e.Path, " \t\n") {
			files = append(files, e.Path)
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no ELF files below %s", dir)
	}
	return files, nil
}

// measure runs every contender once a round, each time in another order.
func measure(contenders []contender, rounds int) ([][]cost, error) {
	costs := make([][]cost, len(contenders))
	for round := range rounds {
		for i := range contenders {
			who := (i + round) % len(contenders)
			c, err := contenders[who].run()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", contenders[who].name, err)
			}
			costs[who] = append(costs[who], c)
		}
	}
	return costs, nil
}

// printTable compares each contender with the first one.
func printTable(contenders []contender, costs [][]cost, files int) {
	fmt.Println("| | µs a file | × floor | CPU µs a file | × floor |")
	fmt.Println("|---|---:|---:|---:|---:|")
	for i, c := range contenders {
		fmt.Printf("| %s |%s |%s |\n", c.name,
			columns(costs[i], costs[0], files, func(c cost) time.Duration { return c.wall }),
			columns(costs[i], costs[0], files, func(c cost) time.Duration { return c.cpu }))
	}
}

// columns prints the median of one kind of cost and of its ratio to the floor's in
// the same round.
func columns(costs, floor []cost, files int, kind func(cost) time.Duration) string {
	var times []time.Duration
	var ratios []float64
	for round := range costs {
		times = append(times, kind(costs[round]))
		ratios = append(ratios, float64(kind(costs[round]))/float64(kind(floor[round])))
	}
	perFile := float64(median(times).Nanoseconds()) / 1e3 / float64(files)
	return fmt.Sprintf(" %.2f | %.2f", perFile, median(ratios))
}

func median[T cmp.Ordered](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
