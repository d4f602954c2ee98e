package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// measureMemory prints the memory that reading a large recording takes, beside one that has
// an eighth of it: what is held should follow from what is in it, not from how long it is.
func measureMemory(first string, size int64, churn bool) error {
	work, err := os.MkdirTemp("", "bench-perfdata")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	hallmark, err := buildHallmark(work)
	if err != nil {
		return err
	}
	if first == "" {
		if first, err = recordHere(work); err != nil {
			return err
		}
	}
	small, large := filepath.Join(work, "small.perf.data"), filepath.Join(work, "large.perf.data")
	if err := repeatUntil(small, first, size/8, churn); err != nil {
		return err
	}
	if err := repeatUntil(large, first, size, churn); err != nil {
		return err
	}
	readers := []reporter{{name: "`hallmark report`", args: []string{hallmark, "report"}}}
	for _, output := range []string{"out.folded", "out.pb.gz", "out.firefox.json", "out.speedscope.json"} {
		args := []string{hallmark, "convert", "-o", filepath.Join(work, output)}
		readers = append(readers, reporter{name: "`hallmark convert -o " + output + "`", args: args})
	}
	return printMemory(readers, small, large, filepath.Join(work, "cache"))
}

func printMemory(readers []reporter, small, large, cache string) error {
	if err := printHead(small, large); err != nil {
		return err
	}
	for _, r := range readers {
		less, err := r.run(small, cache)
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		more, err := r.run(large, cache)
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		fmt.Printf("| %s | %.0f | %.0f | %.1f |\n", r.name, float64(less.memory)/(1<<20), float64(more.memory)/(1<<20), more.cpu.Seconds())
	}
	return nil
}

func printHead(small, large string) error {
	var sizes []any
	for _, file := range []string{small, large} {
		info, err := os.Stat(file)
		if err != nil {
			return err
		}
		sizes = append(sizes, info.Size()>>20)
	}
	fmt.Printf("| | MB of memory for %d MB | for %d MB | CPU s of that |\n|---|---:|---:|---:|\n", sizes...)
	return nil
}
