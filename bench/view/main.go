// Command view measures what it costs to look at a profile of many stacks in a browser, with
// 'hallmark view', with 'go tool pprof -http' and with speedscope: the time from the start of the command to the first
// picture of the flame graph, what of it the server computed, the bytes that the browser gets, the memory of the server and of the
// page, and how long a picture takes while it is zoomed.
//
//	npm pack speedscope && tar xzf speedscope-*.tgz
//	cd bench && go run ./view -stacks 10000,100000,1000000 -speedscope ../package/dist/release
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/chromedp/chromedp"

	"hallmark/bench/browser"
	"hallmark/bench/internal/process"
	"hallmark/bench/internal/trial"
	"hallmark/internal/proftest"
)

func main() {
	log.SetFlags(0)
	stacks := flag.String("stacks", "10000,100000,1000000", "numbers of distinct stacks of 20 frames, joined by commas")
	rounds := trial.Rounds("rounds", 3, "rounds, of which the median is shown")
	most := flag.Int("pprof", 100_000, "the most stacks that pprof is tried with")
	scope := flag.String("speedscope", "", "the directory dist/release of the npm package speedscope; without it speedscope is left out")
	flag.Parse()
	dir, err := os.MkdirTemp("", "hallmark-bench.")
	check(err)
	defer os.RemoveAll(dir)
	command := filepath.Join(dir, "hallmark")
	build := exec.Command("go", "build", "-o", command, "./cmd/hallmark")
	build.Dir, build.Stderr = "..", os.Stderr
	check(build.Run())
	fmt.Println("stacks     file MiB   viewer     CPU s   picture s      received KiB   server MiB   page MiB   zoom ms/picture")
	for _, word := range strings.Split(*stacks, ",") {
		n, err := strconv.Atoi(word)
		check(err)
		file := filepath.Join(dir, word+".pb")
		size := write(file, n)
		viewers := []viewer{hallmark{command}}
		if n <= *most {
			viewers = append(viewers, pprof{})
		}
		if *scope != "" {
			viewers = append(viewers, speedscope{*scope})
		}
		for _, v := range viewers {
			var all []result
			for range *rounds {
				r, err := measure(v, file)
				if err != nil {
					fmt.Printf("%-9d  %8.1f   %-9s  %v\n", n, size, v.name(), err)
					break
				}
				all = append(all, r)
			}
			if len(all) == *rounds {
				m := median(all)
				fmt.Printf("%-9d  %8.1f   %-9s  %5.2f   %9.2f      %12.0f   %10.0f   %8.1f   %14.1f\n", n, size, v.name(), m.cpu, m.picture, m.received, m.server, m.page, m.zoom)
			}
		}
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// write writes a profile and returns its size in MiB.
func write(name string, stacks int) float64 {
	f, err := os.Create(name)
	check(err)
	check(proftest.Wide{Stacks: stacks, Processes: 100}.Write(f))
	st, err := f.Stat()
	check(err)
	check(f.Close())
	return float64(st.Size()) / (1 << 20)
}

// result is what one look cost.
type result struct{ cpu, picture, received, server, page, zoom float64 }

// median returns the median of each figure.
func median(all []result) result {
	of := func(get func(*result) float64) float64 {
		list := make([]float64, len(all))
		for i := range all {
			list[i] = get(&all[i])
		}
		for i := range list {
			for j := i; j > 0 && list[j] < list[j-1]; j-- {
				list[j], list[j-1] = list[j-1], list[j]
			}
		}
		return list[len(list)/2]
	}
	return result{
		of(func(r *result) float64 { return r.cpu }), of(func(r *result) float64 { return r.picture }), of(func(r *result) float64 { return r.received }),
		of(func(r *result) float64 { return r.server }), of(func(r *result) float64 { return r.page }), of(func(r *result) float64 { return r.zoom }),
	}
}

// viewer is a command that shows a profile in a browser.
type viewer interface {
	name() string
	start(file string) (url string, pid int, stop func(), err error)
	drawn() string // an expression that is true once the flame graph is there
	zoom() string  // an expression that returns how many milliseconds a picture takes, while it is zoomed; empty for none
}

type hallmark struct{ command string }

func (hallmark) name() string { return "hallmark" }

func (h hallmark) start(file string) (string, int, func(), error) {
	v, err := browser.StartView(h.command, file)
	if err != nil {
		return "", 0, nil, err
	}
	return v.URL, v.PID(), v.Stop, nil
}

func (hallmark) drawn() string { return "document.documentElement.dataset.drawn" }

func (hallmark) zoom() string {
	return zoomIn(`document.querySelector("canvas[role=application]").closest(".flame")`)
}

// zoomIn turns the wheel over an element, once for each picture.
func zoomIn(element string) string {
	return `(async () => {
		const over = ` + element + `;
		const box = over.getBoundingClientRect();
		const begun = performance.now();
		const pictures = 60;
		for (let i = 0; i < pictures; i++) {
			over.dispatchEvent(new WheelEvent("wheel", {deltaY: i < pictures / 2 ? -20 : 20, ctrlKey: true, clientX: box.x + box.width * 0.3, clientY: box.y + box.height * 0.5, bubbles: true, cancelable: true}));
			await new Promise(requestAnimationFrame);
		}
		return (performance.now() - begun) / pictures;
	})()`
}

type pprof struct{}

func (pprof) name() string { return "pprof" }

func (pprof) start(file string) (string, int, func(), error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", 0, nil, err
	}
	address := l.Addr().String()
	l.Close()
	cmd := exec.Command("go", "tool", "pprof", "-http="+address, "-no_browser", "-symbolize=none", file)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return "", 0, nil, err
	}
	stop := func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		cmd.Wait()
	}
	for range 6000 {
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			return "http://" + address + "/ui/flamegraph", serverOf(cmd.Process.Pid), stop, nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	stop()
	return "", 0, nil, fmt.Errorf("pprof does not serve")
}

// serverOf returns the child of the Go command, which is pprof, or the process itself.
func serverOf(pid int) int {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if words := strings.Fields(string(b)); len(words) > 0 {
		if child, err := strconv.Atoi(words[0]); err == nil {
			return child
		}
	}
	return pid
}

func (pprof) drawn() string { return "document.querySelectorAll('.boxtext').length > 1" }

func (pprof) zoom() string { return "" }

// speedscope is a page that reads the file itself. Its server only hands out files.
type speedscope struct{ dir string }

func (speedscope) name() string { return "speedscope" }

func (s speedscope) start(file string) (string, int, func(), error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", 0, nil, err
	}
	files := http.NewServeMux()
	files.Handle("/", http.FileServer(http.Dir(s.dir)))
	files.HandleFunc("/profile.pb", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, file) })
	server := &http.Server{Handler: files}
	go server.Serve(l)
	address := "http://" + l.Addr().String()
	return address + "/index.html#profileURL=" + url.QueryEscape(address+"/profile.pb"), 0, func() { server.Close() }, nil
}

func (speedscope) drawn() string { return `document.body.innerText.includes("Left Heavy")` }

func (speedscope) zoom() string { return zoomIn(`document.elementFromPoint(640, 500)`) }

// measure looks once.
func measure(v viewer, file string) (r result, err error) {
	b, err := browser.Start(context.Background())
	if err != nil {
		return r, err
	}
	defer b.Stop()
	page, err := b.Open(browser.Look{Width: 1280, Height: 800})
	if err != nil {
		return r, err
	}
	defer page.Close()
	begun := time.Now()
	address, pid, stop, err := v.start(file)
	if err != nil {
		return r, err
	}
	defer stop()
	if err := page.Do(chromedp.Navigate(address)); err != nil {
		return r, err
	}
	if err := page.Await(v.drawn()); err != nil {
		return r, err
	}
	r.picture = time.Since(begun).Seconds()
	r.server, r.cpu = process.Peak(pid), process.CPU(pid)
	if err := page.Settle(); err != nil {
		return r, err
	}
	if err := page.Eval(`performance.getEntriesByType("navigation").concat(performance.getEntriesByType("resource")).reduce((sum, e) => sum + e.transferSize, 0) / 1024`, &r.received); err != nil {
		return r, err
	}
	if err := page.Eval("performance.memory.usedJSHeapSize / 1048576", &r.page); err != nil {
		return r, err
	}
	if v.zoom() != "" {
		err = page.Eval(v.zoom(), &r.zoom)
	}
	return r, err
}
