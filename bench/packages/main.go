// Command packages measures what it costs to serve a directory of Debian's packages, by 'hallmark serve --scan' and by
// elfutils' debuginfod -U, until each knows all of them; and asks both for every file.
//
//	apt-get install debuginfod libarchive-tools    # elfutils' server reads .deb by bsdtar
//	cd bench && go run ./packages -packages 1000
package main

import (
	"bufio"
	"bytes"
	"debug/elf"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"hallmark/bench/internal/trial"
)

var (
	count   = flag.Int("packages", 1000, "how many packages are fetched")
	from    = flag.String("dir", "", "a directory of .deb files to use, instead of packages that are fetched by apt-get")
	largest = flag.Int64("largest", 2_000_000, "bytes of the largest package")
	compare = flag.Bool("compare", true, "ask both for each file, and elfutils' own client for it at hallmark's")
)

func main() { trial.Main("packages", run) }

func run(dir string) error {
	for tool, from := range map[string]string{"debuginfod": "debuginfod", "debuginfod-find": "debuginfod", "bsdtar": "libarchive-tools", "dpkg-deb": "dpkg"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("needs %s (Debian's package %s)", tool, from)
		}
	}
	command := filepath.Join(dir, "hallmark")
	build := exec.Command("go", "build", "-o", command, "./cmd/hallmark")
	build.Dir, build.Stderr = "..", os.Stderr
	if err := build.Run(); err != nil {
		return err
	}
	packages := *from
	if packages == "" {
		packages = filepath.Join(dir, "packages")
		if err := fetch(packages); err != nil {
			return err
		}
	}
	files, err := filepath.Glob(filepath.Join(packages, "*.deb"))
	if err != nil || len(files) == 0 {
		return errors.Join(errors.New("no packages in "+packages), err)
	}
	bytes := int64(0)
	for _, name := range files {
		if st, err := os.Stat(name); err == nil {
			bytes += st.Size()
		}
	}
	fmt.Printf("%d packages, %.1f MiB\n\n| | seconds | CPU s, with children | identities | index KiB | %% of the packages |\n|---|--:|--:|--:|--:|--:|\n", len(files), mib(bytes))
	var servers []*server
	for _, s := range []*server{hallmark(command, dir, packages, len(files)), debuginfod(dir, packages)} {
		// Each alone, and again to be asked: what is measured ends with the process.
		r, err := s.measure()
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		fmt.Printf("| %s | %.2f | %.2f | %s | %.0f | %.3f |\n", s.name, r.wall.Seconds(), r.cpu.Seconds(), r.identities, float64(r.index)/1024, 100*float64(r.index)/float64(bytes))
		servers = append(servers, s)
	}
	if !*compare {
		return nil
	}
	return ask(dir, servers, files)
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

// fetch fetches packages with programs: the first ones by name that need the C library.
func fetch(dir string) error {
	out, err := exec.Command("apt-cache", "dumpavail").Output()
	if err != nil {
		return fmt.Errorf("apt-cache dumpavail: %w", err)
	}
	var names []string
	for paragraph := range strings.SplitSeq(string(out), "\n\n") {
		fields := map[string]string{}
		for line := range strings.Lines(paragraph) {
			if key, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ": "); ok {
				fields[key] = value
			}
		}
		size, _ := strconv.ParseInt(fields["Size"], 10, 64)
		if size > 0 && size <= *largest && strings.Contains(fields["Depends"], "libc6") && len(names) < *count {
			names = append(names, fields["Package"]+":"+fields["Architecture"]+"="+fields["Version"])
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for len(names) > 0 {
		n := min(100, len(names))
		get := exec.Command("apt-get", append([]string{"download", "-q", "-q"}, names[:n]...)...)
		get.Dir = dir
		if err := get.Run(); err != nil {
			fmt.Fprintln(os.Stderr, "apt-get download:", err)
		}
		names = names[n:]
	}
	return nil
}

// server is a program that serves the packages.
type server struct {
	name  string
	args  []string
	url   string
	index func() int64 // bytes on disk that are no files of packages
	known func(url string) (identities string, all bool)
	fresh func() error  // begins anew
	idle  time.Duration // that it has to have nothing to do before it is known to have all
}

type result struct {
	wall, cpu  time.Duration
	identities string
	index      int64
}

func freePort() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "0"
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

func hallmark(command, dir, packages string, count int) *server {
	store, cache, port := filepath.Join(dir, "store"), filepath.Join(dir, "cache"), freePort()
	return &server{
		name: "hallmark serve --scan",
		args: []string{command, "serve", "--listen", "127.0.0.1:" + port, "--no-upstream", "--quiet", "--store", store, "--cache", cache, "--scan", packages},
		url:  "http://127.0.0.1:" + port,
		known: func(url string) (string, bool) {
			m := metrics(url)
			return m["hallmark_scanned_identities"], m["hallmark_scanned_packages"] == strconv.Itoa(count)
		},
		index: func() int64 { return sizeOf(store) + sizeOf(cache) },
		fresh: func() error { return errors.Join(os.RemoveAll(store), os.RemoveAll(cache)) },
	}
}

func debuginfod(dir, packages string) *server {
	database, port := filepath.Join(dir, "elfutils"), freePort()
	const idle = time.Second
	quiet := time.Time{}
	return &server{
		idle: idle,
		name: "elfutils' debuginfod -U",
		args: []string{"debuginfod", "-U", "-d", filepath.Join(database, "db.sqlite"), "-p", port, packages},
		url:  "http://127.0.0.1:" + port,
		known: func(url string) (string, bool) {
			m := metrics(url)
			busy := m[`thread_work_total{role="traverse"}`] == "" || isBusy(m)
			if busy {
				quiet = time.Time{}
			} else if quiet.IsZero() {
				quiet = time.Now()
			}
			return "", !quiet.IsZero() && time.Since(quiet) > idle
		},
		index: func() int64 { return sizeOf(database) },
		fresh: func() error { return errors.Join(os.RemoveAll(database), os.Mkdir(database, 0o755)) },
	}
}

// isBusy reports whether elfutils' server still looks at files.
func isBusy(m map[string]string) bool {
	for key, value := range m {
		if (strings.HasPrefix(key, "thread_busy{role=\"scan") || strings.HasPrefix(key, "thread_busy{role=\"traverse") || strings.HasPrefix(key, "thread_work_pending{role=\"scan")) && value != "0" {
			return true
		}
	}
	return false
}

func metrics(url string) map[string]string {
	m := map[string]string{}
	resp, err := http.Get(url + "/metrics")
	if err != nil {
		return m
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if i := strings.LastIndexByte(lines.Text(), ' '); i > 0 {
			m[lines.Text()[:i]] = lines.Text()[i+1:]
		}
	}
	return m
}

func sizeOf(dir string) (sum int64) {
	_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		if st, err := d.Info(); err == nil {
			sum += st.Size()
		}
		return nil
	})
	return sum
}

// start starts the server and returns what ends it, and what it and its children took of the processors.
func (s *server) start() (stop func() time.Duration, err error) {
	cmd := exec.Command(s.args[0], s.args[1:]...)
	cmd.Env = append(os.Environ(), "DEBUGINFOD_URLS=")
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() time.Duration {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}, nil
}

func (s *server) wait() (identities string, err error) {
	for began := time.Now(); time.Since(began) < 30*time.Minute; time.Sleep(50 * time.Millisecond) {
		identities, all := s.known(s.url)
		if all {
			return identities, nil
		}
	}
	return "", errors.New("it does not know all packages after half an hour")
}

func (s *server) measure() (result, error) {
	if err := s.fresh(); err != nil {
		return result{}, err
	}
	began := time.Now()
	stop, err := s.start()
	if err != nil {
		return result{}, err
	}
	r := result{}
	r.identities, err = s.wait()
	r.wall = time.Since(began) - s.idle
	r.cpu = stop()
	r.index = s.index()
	return r, err
}

// ask unpacks the packages by dpkg, and asks for each file by the build ID that Go's own reader finds in it.
func ask(dir string, servers []*server, packages []string) error {
	for _, s := range servers {
		stop, err := s.start()
		if err != nil {
			return err
		}
		defer stop()
		if _, err := s.wait(); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	wanted := map[string][][]byte{}
	for _, name := range packages {
		tree := filepath.Join(dir, "unpacked")
		if out, err := exec.Command("dpkg-deb", "-x", name, tree).CombinedOutput(); err != nil {
			return fmt.Errorf("dpkg-deb -x %s: %w\n%s", name, err, out)
		}
		err := filepath.WalkDir(tree, func(path string, d os.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			id, isDebug := buildIDOf(path)
			if id == "" || isDebug {
				return nil
			}
			b, err := os.ReadFile(path)
			wanted[id] = append(wanted[id], b)
			return err
		})
		if err := errors.Join(err, os.RemoveAll(tree)); err != nil {
			return err
		}
	}
	same, differ, lacks, client, theirs := 0, 0, 0, 0, 0
	for id, all := range wanted {
		own, err := get(servers[0].url + "/buildid/" + id + "/executable")
		switch {
		case err != nil:
			lacks++
			fmt.Fprintln(os.Stderr, id, err)
		case isOneOf(own, all):
			same++
		default:
			differ++
			fmt.Fprintln(os.Stderr, id, "differs from what the package has")
		}
		if other, err := get(servers[1].url + "/buildid/" + id + "/executable"); err == nil && (bytes.Equal(own, other) || isOneOf(other, all)) {
			theirs++
		}
		cache := filepath.Join(dir, "client")
		find := exec.Command("debuginfod-find", "executable", id)
		find.Env = append(os.Environ(), "DEBUGINFOD_URLS="+servers[0].url, "DEBUGINFOD_CACHE_PATH="+cache, "DEBUGINFOD_PROGRESS=")
		if out, err := find.Output(); err == nil {
			if b, err := os.ReadFile(strings.TrimSpace(string(out))); err == nil && isOneOf(b, all) {
				client++
			}
		}
		_ = os.RemoveAll(cache)
	}
	fmt.Printf("\n%d build IDs: hallmark serves %d as the package has them, %d otherwise, %d not; elfutils' client gets %d from it; elfutils' server has %d.\n",
		len(wanted), same, differ, lacks, client, theirs)
	if differ+lacks > 0 {
		return errors.New("hallmark does not serve all files")
	}
	return nil
}

func isOneOf(b []byte, all [][]byte) bool {
	for _, one := range all {
		if bytes.Equal(b, one) {
			return true
		}
	}
	return false
}

func get(url string) ([]byte, error) {
	resp, err := http.Get(url)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(resp.Status)
	}
	return io.ReadAll(resp.Body)
}

var hex = regexp.MustCompile(`^[0-9a-f]+$`)

// buildIDOf returns the build ID of a file by Go's own reader of ELF, and whether the file has nothing but debug
// information.
func buildIDOf(path string) (id string, isDebug bool) {
	f, err := elf.Open(path)
	if err != nil {
		return "", false
	}
	defer f.Close()
	text := f.Section(".text")
	isDebug = text != nil && text.Type == elf.SHT_NOBITS
	note := f.Section(".note.gnu.build-id")
	if note == nil || f.Type != elf.ET_EXEC && f.Type != elf.ET_DYN {
		return "", isDebug
	}
	b, err := note.Data()
	if err != nil || len(b) < 16 {
		return "", isDebug
	}
	size := f.ByteOrder.Uint32(b[4:])
	if int(size) > len(b)-16 {
		return "", isDebug
	}
	id = fmt.Sprintf("%x", b[16:16+size])
	if !hex.MatchString(id) {
		return "", isDebug
	}
	return id, isDebug
}
