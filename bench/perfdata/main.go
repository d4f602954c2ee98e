// Command perfdata measures how long it takes to read a perf.data file: with package
// perfdata, with perf, and with nothing but reading its bytes. It records this machine
// with perf for some seconds and repeats what was recorded, later and later, until
// the file is as large as wanted; or it reads the file that it is given. All take
// turns in each round, and the table has the medians.
//
//	go run ./perfdata [-file FILE | -size MB] [-rounds N]
//
// With -report it measures how long it takes to see the functions of a recording:
// 'hallmark report' beside perf report and perf script.
//
//	go run ./perfdata -report -file FILE [-rounds N]
//
// With -memory it measures the memory that a recording takes that is as large as wanted, and
// one that has an eighth of it: 'hallmark report' and 'hallmark convert' of FILE, or of a
// recording of this machine, repeated.
//
//	go run ./perfdata -memory [-file FILE] -size MB [-churn]
//
// With -churn each repetition has processes of its own, as a long recording has. With -stream
// what is repeated is written to standard output, for what reads a recording there.
//
//	go run ./perfdata -stream -file FILE -size MB [-churn] | hallmark report -
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"hallmark/bench/internal/trial"
	"hallmark/perfdata"
)

func main() {
	log.SetFlags(0)
	file := flag.String("file", "", "what is read")
	size := flag.Int64("size", 400, "megabytes of the file that is made")
	rounds := trial.Rounds("rounds", 5, "how often everything is measured")
	read := flag.String("read", "", "how to read the file once: bytes, order, fileorder")
	report := flag.Bool("report", false, "measure reports with symbols, of -file")
	memory := flag.Bool("memory", false, "measure the memory of reports and conversions")
	churn := flag.Bool("churn", false, "repeat a recording with other processes each time")
	stream := flag.Bool("stream", false, "write -file, repeated, to standard output")
	flag.Parse()
	var err error
	switch {
	case *read != "":
		err = readOnce(*file, *read)
	case *report:
		err = measureReports(*file, *rounds)
	case *memory:
		err = measureMemory(*file, *size<<20, *churn)
	case *stream:
		err = streamUntil(*file, *size<<20, *churn)
	default:
		err = run(*file, *size<<20, *rounds)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// readOnce is what a child process does, so that its time and memory can be measured.
func readOnce(file, how string) error {
	if how == "bytes" {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, f, make([]byte, 256<<10))
		return err
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := perfdata.NewReader(f, perfdata.ReaderOptions{FileOrder: how == "fileorder"})
	if err != nil {
		return err
	}
	defer r.Close()
	records, samples, addresses := 0, 0, 0
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			fmt.Println(records, samples, addresses)
			return nil
		}
		if err != nil {
			return err
		}
		records++
		if s, ok := rec.(*perfdata.Sample); ok {
			samples++
			addresses += len(s.Callchain)
		}
	}
}

func run(file string, size int64, rounds int) error {
	work, err := os.MkdirTemp("", "bench-perfdata")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if file == "" {
		file = filepath.Join(work, "perf.data")
		if err := makeFile(work, file, size); err != nil {
			return err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	contenders := []contender{
		{"its bytes, into nothing", []string{self, "-file", file, "-read", "bytes"}},
		{"`perfdata.Reader`", []string{self, "-file", file, "-read", "order"}},
		{"`perfdata.Reader`, `FileOrder`", []string{self, "-file", file, "-read", "fileorder"}},
		{"`perf report --stdio --sort pid`, no children", []string{"perf", "report", "--stdio", "--no-children", "-g", "none", "--sort", "pid", "-i", file}},
		{"`perf script -F pid,time`", []string{"perf", "script", "-F", "pid,time", "-i", file}},
		{"`perf script -F pid,time,ip`", []string{"perf", "script", "--no-inline", "-F", "pid,time,ip", "-i", file}},
	}
	costs := make([][]cost, len(contenders))
	for round := range rounds {
		for i := range contenders {
			who := (i + round) % len(contenders)
			c, err := contenders[who].run()
			if err != nil {
				return fmt.Errorf("%s: %w", contenders[who].name, err)
			}
			costs[who] = append(costs[who], c)
		}
	}
	return printTable(file, contenders, costs)
}

// makeFile repeats a recording of this machine until the file is as large as wanted.
func makeFile(work, file string, size int64) error {
	first, err := recordHere(work)
	if err != nil {
		return err
	}
	return repeatUntil(file, first, size, false)
}

func recordHere(work string) (file string, err error) {
	file = filepath.Join(work, "first.data")
	args := []string{"record", "-q", "-a", "-g", "-F", "999", "-o", file, "--", "sleep", "5"}
	if os.Getuid() != 0 {
		args = []string{"record", "-q", "-g", "-F", "4999", "-o", file, "--", "sh", "-c", "ls -lR /usr | gzip"}
	}
	if out, err := exec.Command("perf", args...).CombinedOutput(); err != nil && len(out) > 1<<16 {
		return "", fmt.Errorf("perf record: %w", err)
	}
	return file, nil
}

type contender struct {
	name string
	args []string
}

// A cost is what a process took, its start included.
type cost struct {
	cpu    time.Duration
	wall   time.Duration // of reports only
	memory int64         // bytes resident at most
}

func (c contender) run() (cost, error) {
	cmd := exec.Command(c.args[0], c.args[1:]...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return cost{}, fmt.Errorf("%w\n%s", err, stderr.String())
	}
	usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	return cost{cpu: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), memory: usage.Maxrss << 10}, nil
}

func printTable(file string, contenders []contender, costs [][]cost) error {
	out, err := exec.Command(contenders[1].args[0], contenders[1].args[1:]...).Output()
	if err != nil {
		return err
	}
	var records, samples, addresses int
	if _, err := fmt.Sscan(string(out), &records, &samples, &addresses); err != nil {
		return err
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	fmt.Printf("%d MB, %d records, %d samples with %.1f addresses each; medians of %d rounds\n\n",
		info.Size()>>20, records, samples, float64(addresses)/float64(max(samples, 1)), len(costs[0]))
	fmt.Println("| | CPU s | ns a record | records/s | × Reader | MB of memory |")
	fmt.Println("|---|---:|---:|---:|---:|---:|")
	for i, c := range contenders {
		var times, ratios, memory []float64
		for round := range costs[i] {
			times = append(times, costs[i][round].cpu.Seconds())
			ratios = append(ratios, costs[i][round].cpu.Seconds()/costs[1][round].cpu.Seconds())
			memory = append(memory, float64(costs[i][round].memory)/(1<<20))
		}
		t := median(times)
		fmt.Printf("| %s | %.2f | %.0f | %.1fM | %.2f | %.0f |\n", c.name, t, t*1e9/float64(records), float64(records)/t/1e6, median(ratios), median(memory))
	}
	return nil
}

func median[T cmp.Ordered](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
