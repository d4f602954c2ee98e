// Command id measures how long it takes to identify all ELF files below a
// directory: with package buildid, with other programs, and with nothing but the
// system calls that nobody can do without. All take turns in each round, and the
// table has the median of the rounds' ratios. Files without a note are apart: their
// code is hashed, which no other program does.
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
	noted, others, err := elfFiles(dir)
	if err != nil {
		return err
	}
	contenders, err := prepare(work, dir, noted, others)
	if err != nil {
		return err
	}
	costs, err := measure(contenders, rounds)
	if err != nil {
		return err
	}
	fmt.Printf("%d ELF files below %s, %d of them without a note, median of %d rounds\n\n", len(noted)+len(others), dir, len(others), rounds)
	printTable(contenders, costs)
	return nil
}

// elfFiles lists the ELF files with a note and those without, and brings them into
// the page cache. A list has one name a word, so that odd names are left out.
func elfFiles(dir string) (noted, others []string, err error) {
	for e := range buildid.Scan(dir) {
		if e.Err != nil {
			return nil, nil, e.Err
		}
		if !e.Info.ELF || strings.ContainsAny(e.Path, " \t\n") {
			continue
		}
		switch e.Info.ID.Kind() {
		case buildid.GNU, buildid.Go:
			noted = append(noted, e.Path)
		default:
			others = append(others, e.Path)
		}
	}
	if len(noted) == 0 {
		return nil, nil, fmt.Errorf("no ELF files below %s", dir)
	}
	return noted, others, nil
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

// printTable compares each contender with the first one, file by file.
func printTable(contenders []contender, costs [][]cost) {
	fmt.Println("| | µs a file | × floor | CPU µs a file | × floor |")
	fmt.Println("|---|---:|---:|---:|---:|")
	for i, c := range contenders {
		column := func(kind func(cost) time.Duration) string {
			var times, ratios []float64
			for round := range costs[i] {
				floor := perFile(kind(costs[0][round]), contenders[0].files)
				times = append(times, perFile(kind(costs[i][round]), c.files))
				ratios = append(ratios, times[round]/floor)
			}
			return fmt.Sprintf("%.2f | %.2f", median(times), median(ratios))
		}
		fmt.Printf("| %s | %s | %s |\n", c.name, column(func(c cost) time.Duration { return c.wall }), column(func(c cost) time.Duration { return c.cpu }))
	}
}

// perFile returns the microseconds of one file.
func perFile(d time.Duration, files int) float64 {
	return float64(d.Nanoseconds()) / 1e3 / float64(files)
}

func median[T cmp.Ordered](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
