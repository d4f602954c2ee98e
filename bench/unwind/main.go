// Command unwind measures what the tables of package unwind cost: how long they take to
// make, with one thread and with two, beside programs that read the same call frame
// information, and how large they are, for single files and for all of a tree.
//
// Every contender runs once in each round. The figures are medians over the rounds,
// of wall clock and CPU times.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/bench/internal/trial"
	"hallmark/unwind"
)

var (
	rounds = trial.Rounds("rounds", 15, "rounds of each measurement")
	tree   = flag.String("tree", "/usr/lib", "directory whose ELF files are all looked at")
	peers  = flag.Bool("peers", true, "run readelf and llvm-dwarfdump too")
)

func main() {
	flag.Parse()
	files := flag.Args()
	if len(files) == 0 {
		files = existing("/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/x86_64-linux-gnu/libcrypto.so.3", "/usr/lib/x86_64-linux-gnu/libLLVM.so.19.1")
	}
	for _, name := range files {
		if err := one(name); err != nil {
			fmt.Fprintln(os.Stderr, "unwind:", err)
			os.Exit(1)
		}
	}
	if err := all(*tree); err != nil {
		fmt.Fprintln(os.Stderr, "unwind:", err)
		os.Exit(1)
	}
}

func existing(names ...string) (found []string) {
	for _, name := range names {
		if _, err := os.Stat(name); err == nil {
			found = append(found, name)
		}
	}
	return found
}

// cost is what one run took.
type cost struct{ wall, cpu time.Duration }

func measure(who int, f func() error) (cost, error) {
	start, before := time.Now(), used(who)
	err := f()
	return cost{time.Since(start), used(who) - before}, err
}

// used returns the CPU time of this process, or of the children that it waited for.
func used(who int) time.Duration {
	var r unix.Rusage
	if err := unix.Getrusage(who, &r); err != nil {
		panic(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func median(costs []cost) cost {
	pick := func(of func(cost) time.Duration) time.Duration {
		all := make([]time.Duration, len(costs))
		for i, c := range costs {
			all[i] = of(c)
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	return cost{pick(func(c cost) time.Duration { return c.wall }), pick(func(c cost) time.Duration { return c.cpu })}
}

type contender struct {
	name string
	who  int
	run  func() error
}

// table makes a file's table, opening the file each time.
func table(name string, threads int) (*unwind.Table, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return unwind.Build(f, unwind.BuildOptions{Threads: threads})
}

func contenders(name string) []contender {
	build := func(threads int) func() error {
		return func() error {
			_, err := table(name, threads)
			return err
		}
	}
	command := func(words ...string) func() error {
		return func() error {
			cmd := exec.Command(words[0], words[1:]...)
			err := cmd.Run()
			var status *exec.ExitError
			if errors.As(err, &status) {
				return nil // readelf fails for debug links that lead nowhere, too
			}
			return err
		}
	}
	list := []contender{
		{"`unwind.Build`, 1 thread", unix.RUSAGE_SELF, build(1)},
		{"`unwind.Build`, 2 threads", unix.RUSAGE_SELF, build(2)},
	}
	if *peers {
		list = append(list,
			contender{"`readelf --debug-dump=frames-interp`", unix.RUSAGE_CHILDREN, command("readelf", "--debug-dump=frames-interp", name)},
			contender{"`llvm-dwarfdump-19 --eh-frame`", unix.RUSAGE_CHILDREN, command("llvm-dwarfdump-19", "--eh-frame", name)})
	}
	return list
}

// one measures one file.
func one(name string) error {
	t, err := table(name, 0)
	if err != nil {
		return err
	}
	list := contenders(name)
	costs := make([][]cost, len(list))
	for range *rounds {
		for i, c := range list {
			runtime.GC()
			spent, err := measure(c.who, c.run)
			if err != nil {
				return err
			}
			costs[i] = append(costs[i], spent)
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := table(name, 1); err != nil {
		return err
	}
	runtime.ReadMemStats(&after)
	fmt.Printf("%s: %d rows, %d rules, %d bytes, %.2f a row; %d allocations of %d bytes\n\n", filepath.Base(name), t.Rows(), t.Rules(),
		len(t.Bytes()), float64(len(t.Bytes()))/float64(t.Rows()), after.Mallocs-before.Mallocs, after.TotalAlloc-before.TotalAlloc)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 1, ' ', 0)
	fmt.Fprintln(w, "| |\twall ms\t| CPU ms\t| CPU ns a row\t|")
	fmt.Fprintln(w, "|---|\t--:\t|--:\t|--:\t|")
	for i, c := range list {
		m := median(costs[i])
		fmt.Fprintf(w, "| %s |\t%.2f\t| %.2f\t| %.0f\t|\n", c.name, m.wall.Seconds()*1e3, m.cpu.Seconds()*1e3, float64(m.cpu)/float64(t.Rows()))
	}
	fmt.Fprintln(w)
	return w.Flush()
}

// all makes the tables of all ELF files of a tree, once.
func all(dir string) error {
	var files, rows, rules, size, silent int
	var known, quiet uint64
	spent, err := measure(unix.RUSAGE_SELF, func() error {
		return filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil
			}
			t, err := table(name, 0)
			if err != nil {
				return nil // most files are no ELF files
			}
			s := t.Stats()
			files, rows, rules, size, known = files+1, rows+s.Rows, rules+s.Rules, size+s.Size, known+s.Known
			for _, why := range []unwind.Silence{unwind.Expression, unwind.Unusual, unwind.Damaged} {
				silent, quiet = silent+s.Silent[why], quiet+s.SilentBytes[why]
			}
			return nil
		})
	})
	if err != nil || rows == 0 {
		return err
	}
	fmt.Printf("%s: %d files, %d rows, %d rules, %d bytes, %.2f a row, in %.1f s (CPU %.1f s)\n", dir, files, rows, rules, size,
		float64(size)/float64(rows), spent.wall.Seconds(), spent.cpu.Seconds())
	fmt.Printf("code with a rule: %d bytes; that tables cannot say: %d bytes in %d rows\n", known, quiet, silent)
	return nil
}
