package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"hallmark/debuginfo/debuginfod"
	"hallmark/server"
	"hallmark/server/blob"
	"hallmark/server/scan"
	"hallmark/server/store"
)

// asked is what the flags of elfutils' server ask for, as far as Hallmark's has it.
type asked struct {
	port    string
	cors    bool
	passive bool
	dirs    []string
}

// takesValue has the flags of debuginfod(8) that have a value: as the next argument, or behind the letter.
const takesValue = "dpZtgcIXD"

func parse(args []string) (a asked, err error) {
	a.port = "8002"
	for i := 0; i < len(args); i++ {
		arg := args[i]
		name, value, hasValue := strings.Cut(arg, "=")
		switch {
		case arg == "--cors":
			a.cors = true
		case arg == "--passive":
			a.passive = true
		case name == "--port" && hasValue:
			a.port = value
		case name == "--koji-sigcache", name == "--regex-groom", strings.HasPrefix(arg, "--") && hasValue:
		case strings.HasPrefix(arg, "--"): // with its value behind it
			i++
		case strings.HasPrefix(arg, "-") && len(arg) > 1:
			if at := strings.IndexAny(arg, takesValue); at > 0 {
				if value = arg[at+1:]; value == "" && i+1 < len(args) {
					i++
					value = args[i]
				}
				if arg[at] == 'p' {
					a.port = value
				}
			}
		default:
			dir, err := filepath.Abs(arg)
			if err != nil {
				return a, err
			}
			a.dirs = append(a.dirs, dir)
		}
	}
	return a, nil
}

// serve is Hallmark's server with the flags of elfutils'.
func serve(args []string) error {
	a, err := parse(args)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "hallmark-debuginfod")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	blobs, err := blob.OpenDir(filepath.Join(dir, "store"))
	if err != nil {
		return err
	}
	defer blobs.Close()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	s := &store.Store{Blobs: blobs, Scratch: dir}
	defer s.Close()
	c := server.Config{Store: s, Log: log, CORS: a.cors}
	if c.Upstream, err = debuginfod.FromEnvironment(); err != nil {
		return err
	}
	if len(c.Upstream.URLs) > 0 {
		// The scripts mend at once the files that they break: nothing is remembered.
		c.Upstream.Dir, c.Upstream.MissTime, c.Upstream.SameHost = filepath.Join(dir, "upstream"), time.Nanosecond, true
	} else {
		c.Upstream = nil
	}
	n := &numbers{dirs: a.dirs}
	var scanner *scan.Scanner
	if len(a.dirs) > 0 {
		scanner = &scan.Scanner{Dirs: a.dirs, Store: s, Log: log}
		c.Local = scanner
	}
	h := server.New(c)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := h.Load(ctx); err != nil {
		return err
	}
	again := make(chan os.Signal, 100)
	signal.Notify(again, syscall.SIGUSR1, syscall.SIGUSR2)
	go n.scans(ctx, scanner, again)
	if !a.passive {
		for _, name := range []string{"scan", "groom", "traverse"} {
			go thread(name)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:"+a.port)
	if err != nil {
		return err
	}
	one := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			n.write(w)
		}
		h.ServeHTTP(w, r)
	})}
	go func() {
		<-ctx.Done()
		one.Close()
	}()
	if err := one.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// thread has a thread with a name of elfutils' server, which scripts look for before they go on.
func thread(name string) {
	runtime.LockOSThread()
	if p, err := unix.BytePtrFromString(name); err == nil {
		_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(p)), 0, 0, 0) // a script says what it lacks
	}
	select {}
}

// numbers are those that scripts wait for.
type numbers struct {
	dirs    []string
	scanned atomic.Int64
	busy    atomic.Int64

	mu    sync.Mutex
	kinds map[string]int // files that were looked at, by the end of their names
}

// scans looks at the directories, and again when it is asked to.
func (n *numbers) scans(ctx context.Context, s *scan.Scanner, again <-chan os.Signal) {
	for {
		if s != nil {
			n.busy.Store(1)
			if err := s.Scan(ctx); err != nil && ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, "scan:", err)
			}
			n.count()
			n.busy.Store(0)
		}
		n.scanned.Add(1)
		for sig := syscall.Signal(0); sig != syscall.SIGUSR1; {
			select {
			case <-ctx.Done():
				return
			case one := <-again:
				sig = one.(syscall.Signal)
			}
		}
	}
}

// count counts the packages that are there.
func (n *numbers) count() {
	kinds := map[string]int{}
	for _, dir := range n.dirs {
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				for _, end := range []string{".rpm", ".deb", ".ddeb", ".tar.xz", ".tar.bz2"} {
					if strings.HasSuffix(path, end) {
						kinds[end]++
					}
				}
			}
			return nil
		})
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.kinds = kinds
}

func (n *numbers) write(w io.Writer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	fmt.Fprintf(w, "ready 1\nthread_work_total{role=\"traverse\"} %d\nthread_work_pending{role=\"scan\"} 0\nthread_busy{role=\"scan\"} %d\n", n.scanned.Load(), n.busy.Load())
	fmt.Fprintf(w, "thread_busy{role=\"http-metrics\"} 1\nthread_busy{role=\"http-buildid\"} 0\n")
	for _, end := range slices.Sorted(func(yield func(string) bool) {
		for end := range n.kinds {
			if !yield(end) {
				return
			}
		}
	}) {
		fmt.Fprintf(w, "scanned_files_total{source=\"%s archive\"} %d\n", end, n.kinds[end])
	}
}
