// Command serve measures 'hallmark serve' beside elfutils' debuginfod and the file server of Go's net/http, all on the
// loopback interface and over the same files: requests for a file, memory after them, and addresses symbolized.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"hallmark/addr"
	"hallmark/bench/browser"
	"hallmark/bench/internal/process"
	"hallmark/bench/internal/trial"
	"hallmark/buildid"
	"hallmark/server/api"
	"hallmark/server/client"
	"hallmark/server/columns"
	"hallmark/symbol"
)

var (
	requests  = flag.Int("requests", 20_000, "requests for a file in a round")
	atOnce    = flag.Int("at-once", 8, "requests at a time")
	addresses = flag.Int("addresses", 1_000_000, "addresses of a question")
	rounds    = trial.Rounds("rounds", 3, "rounds, of which the medians are shown")
	fileSize  = flag.Int("bytes", 80_000, "bytes of data in the file that is asked for")
	peers     = flag.String("debuginfod", "debuginfod", "programs of elfutils' server, separated by commas")
	real      = flag.String("asked", "", "ask for this file, which has a build ID, and not for one that is made")
	commands  = flag.String("hallmark", "", "hallmark commands, separated by commas (default: one that is built)")
	scanned   = flag.Bool("scan", false, "hallmark finds the file by --scan, and gets it by no push")
	filesOnly = flag.Bool("files-only", false, "measure no symbols")
	first     = flag.Int("first", 0, "also ask for the first bytes of a program of so many MiB that a server has just found by --scan (needs objcopy)")
	large     = flag.Int("large", 0, "also ask for a section of a program of so many MB, cold, as root (needs objcopy)")
	program   = flag.String("file", "", "a program with debug information, whose addresses are asked for (default: the hallmark command)")
)

func main() { trial.Main("serve", run) }

func run(dir string) error {
	list := strings.Split(*commands, ",")
	if *commands == "" {
		list = []string{filepath.Join(dir, "hallmark")}
		build := exec.Command("go", "build", "-o", list[0], "./cmd/hallmark")
		build.Dir, build.Stderr = "..", os.Stderr
		if err := build.Run(); err != nil {
			return err
		}
	}
	command := list[0]
	if *program == "" {
		*program = command
	}
	small, id, err := smallProgram(dir)
	if err != nil {
		return err
	}
	path := "/buildid/" + id.String() + "/executable"
	var servers []server
	var url string // of the first server
	for i, command := range list {
		home := filepath.Join(dir, fmt.Sprintf("home%d", i))
		var args []string
		pushed := []string{small, *program}
		if *scanned {
			args, pushed = []string{"--scan", filepath.Dir(small)}, pushed[1:]
		}
		if *filesOnly {
			pushed = pushed[:len(pushed)-1]
		}
		s, err := browser.StartServer(command, home, args...)
		if err != nil {
			return err
		}
		defer s.Stop()
		for _, file := range pushed {
			push := exec.Command(command, "push", "--server", s.URL, file)
			push.Stderr = os.Stderr
			if err := push.Run(); err != nil {
				return fmt.Errorf("push %s: %w", file, err)
			}
		}
		at := strings.TrimSuffix(s.URL, "/")
		if url == "" {
			url = at
		}
		if err := await(at + "/metadata?key=buildid&value=" + id.String()); err != nil {
			return err
		}
		name := "hallmark serve"
		if len(list) > 1 {
			name += " of " + command
		}
		servers = append(servers, server{name, at + path, s.PID()})
	}
	for i, name := range strings.Split(*peers, ",") {
		other, stop, err := debuginfod(name, filepath.Join(dir, fmt.Sprintf("elfutils%d.sqlite", i)), filepath.Join(dir, "files"), path)
		if err != nil {
			fmt.Fprintf(os.Stderr, "serve: without elfutils' %s: %v\n", name, err)
			continue
		}
		defer stop()
		servers = append(servers, other)
	}
	if *first > 0 {
		return measureFirst(command, dir, small)
	}
	files, err := fileServer(filepath.Dir(small))
	if err != nil {
		return err
	}
	servers = append(servers, server{"net/http.FileServer, in this process", files + "/" + filepath.Base(small), 0})
	if *busy != "" {
		return measureBusy(command, dir, small)
	}
	if err := measureFiles(servers, small); err != nil {
		return err
	}
	if *filesOnly {
		return nil
	}
	if err := measureSymbols(url, *program); err != nil {
		return err
	}
	if *large == 0 {
		return nil
	}
	return measureSection(command, dir, small)
}

// server is one that has the file.
type server struct {
	name, url string
	pid       int // 0 for this process
}

// smallProgram makes a program of some 100 KB.
func smallProgram(dir string) (string, buildid.ID, error) {
	files := filepath.Join(dir, "files")
	if err := os.Mkdir(files, 0o755); err != nil {
		return "", buildid.ID{}, err
	}
	name := filepath.Join(files, "small")
	if *real != "" {
		b, err := os.ReadFile(*real)
		if err != nil {
			return "", buildid.ID{}, err
		}
		if err := os.WriteFile(name, b, 0o755); err != nil {
			return "", buildid.ID{}, err
		}
		info, err := buildid.ReadFile(name)
		return name, info.ID, err
	}
	source := filepath.Join(dir, "small.c")
	text := fmt.Sprintf("const char filler[%d] = {1};\nint main(void) { return filler[1]; }\n", *fileSize)
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		return "", buildid.ID{}, err
	}
	if out, err := exec.Command("gcc", "-g", "-Wl,--build-id", "-o", name, source).CombinedOutput(); err != nil {
		return "", buildid.ID{}, fmt.Errorf("gcc: %w\n%s", err, out)
	}
	info, err := buildid.ReadFile(name)
	return name, info.ID, err
}

// debuginfod starts a server of elfutils over the files, and waits until it has them.
func debuginfod(name, db, files, path string) (server, func(), error) {
	port, err := freePort()
	if err != nil {
		return server{}, nil, err
	}
	cmd := exec.Command(name, "-F", "-d", db, "-p", strconv.Itoa(port), files)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Env = append(os.Environ(), "DEBUGINFOD_URLS=")
	if err := cmd.Start(); err != nil {
		return server{}, nil, err
	}
	stop := func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		cmd.Wait()
	}
	url := fmt.Sprintf("http://127.0.0.1:%d%s", port, path)
	for range 300 {
		if resp, err := http.Get(url); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return server{"elfutils' debuginfod " + versionOf(name), url, cmd.Process.Pid}, stop, nil
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	stop()
	return server{}, nil, errors.New("it has not found the file after 30 s")
}

// versionOf returns the version of a server of elfutils, as it says it.
func versionOf(name string) string {
	out, _ := exec.Command(name, "--version").Output() // the table goes without it
	line, _, _ := strings.Cut(string(out), "\n")
	return line[strings.LastIndexByte(line, ' ')+1:]
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func fileServer(dir string) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	go http.Serve(l, http.FileServer(http.Dir(dir)))
	return "http://" + l.Addr().String(), nil
}

// measureFiles asks each server for the file many times, in turns. Ratios are those within a round.
func measureFiles(servers []server, name string) error {
	want, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	peer := max(0, slices.IndexFunc(servers, func(s server) bool { return strings.HasPrefix(s.name, "elfutils") }))
	const figures = 4 // requests a second, ms of p50 and p99, CPU µs
	all, ratios := make([][figures][]float64, len(servers)), make([][figures][]float64, len(servers))
	for round := range *rounds {
		got := make([][figures]float64, len(servers))
		for i := range servers {
			i = (i + round) % len(servers)
			s := servers[i]
			before := process.CPU(s.pid)
			rate, times, err := get(s.url, want)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			slices.Sort(times)
			at := func(share float64) float64 { return times[int(share*float64(len(times)-1))].Seconds() * 1e3 }
			got[i] = [figures]float64{rate, at(0.5), at(0.99), (process.CPU(s.pid) - before) / float64(*requests) * 1e6}
		}
		for i := range servers {
			for j, v := range got[i] {
				all[i][j] = append(all[i][j], v)
				ratios[i][j] = append(ratios[i][j], v/got[peer][j])
			}
		}
	}
	fmt.Printf("| a file of %d bytes, %d requests, %d at a time | requests a second | × | p50 ms | × | p99 ms | × | CPU µs a request | × | MiB afterwards |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n", len(want), *requests, *atOnce)
	for i, s := range servers {
		fmt.Printf("| %s |", s.name)
		for j := range figures {
			if j == figures-1 && s.pid == 0 {
				fmt.Print(" | | |")
				continue
			}
			fmt.Printf(" %.4g | %.2f |", median(all[i][j]), median(ratios[i][j]))
		}
		if s.pid != 0 {
			fmt.Printf(" %.0f |", process.Resident(s.pid))
		}
		fmt.Println()
	}
	return nil
}

// get asks for a file, and returns how many answers came in a second, and the time of each.
func get(url string, want []byte) (float64, []time.Duration, error) {
	c := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: *atOnce, DisableCompression: true}}
	defer c.CloseIdleConnections()
	var left atomic.Int64
	left.Store(int64(*requests))
	times := make([]time.Duration, *requests)
	failures := make(chan error, *atOnce)
	begun := time.Now()
	var all sync.WaitGroup
	for range *atOnce {
		all.Go(func() {
			for n := left.Add(-1); n >= 0; n = left.Add(-1) {
				asked := time.Now()
				if err := getOnce(c, url, want, n%1000 == 0); err != nil {
					failures <- err
					return
				}
				times[n] = time.Since(asked)
			}
		})
	}
	all.Wait()
	select {
	case err := <-failures:
		return 0, nil, err
	default:
		return float64(*requests) / time.Since(begun).Seconds(), times, nil
	}
}

func getOnce(c *http.Client, url string, want []byte, compare bool) error {
	resp, err := c.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if compare {
		b, err := io.ReadAll(resp.Body)
		if err == nil && !bytes.Equal(b, want) {
			err = errors.New("the file is another one")
		}
		return err
	}
	n, err := io.Copy(io.Discard, resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || n != int64(len(want))) {
		err = fmt.Errorf("%s, %d bytes", resp.Status, n)
	}
	return err
}

// measureSymbols asks for addresses of a program, in columns and as JSON.
func measureSymbols(url, name string) error {
	info, err := buildid.ReadFile(name)
	if err != nil {
		return err
	}
	virts, err := codeOf(name)
	if err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(1, 2))
	asked := make([]uint64, *addresses)
	for i := range asked {
		asked[i] = uint64(virts[r.IntN(len(virts))])
	}
	slices.Sort(asked)
	c, err := client.New(url, "")
	if err != nil {
		return err
	}
	q := &columns.Question{Files: []columns.File{{ID: info.ID.String(), Virtual: true, Addresses: asked}}}
	var inColumns, inJSON, unparsed []float64
	named := 0
	for i := range *rounds + 1 { // the first one makes the index
		begun := time.Now()
		a, err := c.Symbolize(context.Background(), q)
		if err != nil {
			return err
		}
		if a.Files[0].Why != "" {
			return fmt.Errorf("no symbols: %s", a.Files[0].Why)
		}
		reader := a.Reader()
		named = 0
		for j := range asked {
			if len(reader.At(0, j).Frames) > 0 {
				named++
			}
		}
		if i > 0 {
			inColumns = append(inColumns, float64(len(asked))/time.Since(begun).Seconds())
		}
	}
	part := asked[:min(len(asked), 100_000)]
	for range *rounds {
		begun := time.Now()
		body, err := askJSON(url, info.ID, part)
		if err != nil {
			return err
		}
		unparsed = append(unparsed, float64(len(part))/time.Since(begun).Seconds())
		var a api.SymbolizeAnswer
		if err := json.Unmarshal(body, &a); err != nil || len(a.Files) != 1 || len(a.Files[0].Results) != len(part) {
			return fmt.Errorf("an answer of another size: %w", err)
		}
		inJSON = append(inJSON, float64(len(part))/time.Since(begun).Seconds())
	}
	fmt.Printf("\n| %s, %d addresses, %d with a name; client and server on these CPUs | million addresses a second |\n|---|--:|\n", filepath.Base(name), len(asked), named)
	fmt.Printf("| in columns, read back as frames | %.2f |\n| as JSON, %d at a time | %.2f |\n| as JSON, parsed by encoding/json | %.2f |\n", median(inColumns)/1e6, len(part), median(unparsed)/1e6, median(inJSON)/1e6)
	return nil
}

// codeOf returns addresses of all code that has a name.
func codeOf(name string) ([]addr.Virt, error) {
	f, err := symbol.OpenFile(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	x, err := f.Index(symbol.IndexOptions{})
	if err != nil {
		return nil, err
	}
	defer x.Close()
	var all []addr.Virt
	for p := range x.Pieces() {
		all = append(all, p.Virt)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no code with names", name)
	}
	return all, nil
}

func askJSON(url string, id buildid.ID, asked []uint64) ([]byte, error) {
	b, err := json.Marshal(map[string]any{"files": []any{map[string]any{"id": id, "virtual": true, "addresses": asked}}})
	if err != nil {
		return nil, err
	}
	resp, err := http.Post(strings.TrimSuffix(url, "/")+"/v1/symbolize", "application/json", bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(resp.Status)
	}
	return io.ReadAll(resp.Body)
}

// measureSection asks a server that has just started, and whose disk is cold, for a small section of a large program.
func measureSection(command, dir, small string) error {
	filler, name := filepath.Join(dir, "filler"), filepath.Join(dir, "large")
	if err := writeNoise(filler, int64(*large)*1e6); err != nil {
		return err
	}
	if out, err := exec.Command("objcopy", "--add-section", ".filler="+filler, small, name).CombinedOutput(); err != nil {
		return fmt.Errorf("objcopy: %w\n%s", err, out)
	}
	if err := os.Remove(filler); err != nil {
		return err
	}
	info, err := buildid.ReadFile(name)
	if err != nil {
		return err
	}
	home := filepath.Join(dir, "cold")
	s, err := browser.StartServer(command, home)
	if err != nil {
		return err
	}
	push := exec.Command(command, "push", "--server", s.URL, name)
	push.Stderr = os.Stderr
	err = push.Run()
	s.Stop()
	if err != nil {
		return err
	}
	syscall.Sync()
	if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0); err != nil {
		return err
	}
	if s, err = browser.StartServer(command, home); err != nil {
		return err
	}
	defer s.Stop()
	before := process.Peak(s.PID())
	begun := time.Now()
	resp, err := http.Get(strings.TrimSuffix(s.URL, "/") + "/buildid/" + info.ID.String() + "/section/.comment")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("a section: %s %w", resp.Status, err)
	}
	fmt.Printf("\nA section of %d bytes of a program of %d MB, cold: %.1f ms, %.1f MiB more memory.\n", n, *large, time.Since(begun).Seconds()*1e3, process.Peak(s.PID())-before)
	return nil
}

// writeNoise writes bytes that nothing compresses.
func writeNoise(name string, size int64) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if _, err := io.CopyN(f, rand.NewChaCha8([32]byte{1}), size); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

func median(list []float64) float64 {
	s := slices.Sorted(slices.Values(list))
	return s[len(s)/2]
}
