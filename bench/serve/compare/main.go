// Command compare pushes files to 'hallmark serve' and asks for all of them by elfutils' own client. Each answer has to be,
// byte for byte, the file that the rules of docs/server.md choose. It also records the machine without symbols, and
// compares the names that the server gives with those that the files themselves give.
//
//	apt-get install debuginfod dpkg-dev rpm    # its client, and what packs
//	cd bench && go run ./serve/compare -packages 32    # as root
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"hallmark/bench/browser"
	"hallmark/bench/internal/process"
	"hallmark/bench/internal/trial"
)

var (
	roots    = flag.String("dirs", "/usr/bin,/usr/lib", "directories whose files are pushed")
	count    = flag.Int("packages", 32, "how many of Debian's packages with names that end in -dbg are fetched, those of programs that are installed first")
	debs     = flag.String("debs", "", "a directory of .deb files to use, instead of packages that are fetched")
	every    = flag.Int("sections", 10, "ask for sections of one identity in so many, 0 for none")
	workers  = flag.Int("at-once", 2, "questions at a time")
	duration = flag.Duration("record", 5*time.Second, "how long the machine is recorded, 0 for not")
	load     = flag.String("load", "while :; do gcc -O2 -c -x c /dev/null -o /dev/null; python3 -c 'sum(i*i for i in range(300000))'; perl -e '$x += $_ for 1 .. 500000'; seq 100000 | sort -R | gzip | gunzip | iconv -f latin1 -t utf16 | md5sum; done", "what sh runs while the machine is recorded")
)

func main() { trial.Main("compare", run) }

func run(dir string) error {
	for tool, from := range map[string]string{"debuginfod-find": "debuginfod", "dpkg-deb": "dpkg", "gcc": "gcc", "objcopy": "binutils"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("needs %s (Debian's package %s)", tool, from)
		}
	}
	hallmark := filepath.Join(dir, "hallmark")
	build := exec.Command("go", "build", "-o", hallmark, "./cmd/hallmark")
	build.Dir, build.Stderr, build.Env = "..", os.Stderr, append(os.Environ(), "CGO_ENABLED=0")
	if err := build.Run(); err != nil {
		return err
	}
	own := filepath.Join(dir, "own")
	for _, name := range []string{"HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"} {
		os.Setenv(name, filepath.Join(own, name))
	}
	for _, name := range []string{"DEBUGINFOD_URLS", "HALLMARK_SERVER", "HALLMARK_TOKEN"} {
		os.Unsetenv(name)
	}
	if err := os.MkdirAll(own, 0o700); err != nil {
		return err
	}
	failed := false
	for _, part := range []func(hallmark, dir string) (bool, error){contested, everything} {
		ok, err := part(hallmark, dir)
		if err != nil {
			return err
		}
		failed = failed || !ok
	}
	if failed {
		return errors.New("there are differences")
	}
	return nil
}

// contested pushes files that claim the build IDs of others, as an agent, as who builds, and as the operator.
func contested(hallmark, dir string) (bool, error) {
	files, home := filepath.Join(dir, "contested"), filepath.Join(dir, "trust")
	if err := errors.Join(os.Mkdir(files, 0o755), os.Mkdir(home, 0o755)); err != nil {
		return false, err
	}
	all, err := contests(files)
	if err != nil {
		return false, err
	}
	tokens := filepath.Join(home, "tokens.json")
	secrets := map[trust]string{}
	headers := filepath.Join(home, "headers")
	for who, role := range map[trust]string{agent: "upload:agent", ci: "upload:ci", operator: "admin", -1: "read"} {
		out, err := exec.Command(hallmark, "serve", "token", "--tokens", tokens, "--name", role, "--role", role).Output()
		if err != nil {
			return false, fmt.Errorf("serve token: %w", err)
		}
		secrets[who] = strings.TrimSpace(string(out))
	}
	if err := os.WriteFile(headers, []byte("Authorization: Bearer "+secrets[-1]+"\n"), 0o600); err != nil {
		return false, err
	}
	s, err := browser.StartServer(hallmark, home, "--tokens", tokens)
	if err != nil {
		return false, err
	}
	defer s.Stop()
	ids, names := map[string][]*file{}, map[string]string{}
	n := 0
	for _, c := range all {
		for _, one := range c.claims {
			n++
			push := exec.Command(hallmark, "push", "--server", s.URL, one.path)
			push.Env, push.Stderr = append(os.Environ(), "HALLMARK_TOKEN="+secrets[one.by]), os.Stderr
			if err := push.Run(); err != nil {
				return false, fmt.Errorf("%s: push: %w", c.name, err)
			}
			f, err := read(one.path)
			if err != nil {
				return false, err
			}
			f.push, f.trust, f.from = n, one.by, filepath.Base(one.path)
			names[f.id] = c.name
			known := add(ids, f)
			known.trust = max(known.trust, f.trust)
		}
	}
	t, err := askAll(dir, s.URL, headers, ids, 1)
	if err != nil {
		return false, err
	}
	fmt.Printf("## Files that claim one build ID\n\n%d build IDs, %d files: ", len(ids), n)
	for i := range t.notes {
		for id, name := range names {
			t.notes[i] = strings.ReplaceAll(t.notes[i], id, id+", "+name)
		}
	}
	t.print(os.Stdout)
	return len(t.notes) == 0, nil
}

// everything pushes directories and packages.
func everything(hallmark, dir string) (bool, error) {
	packed := filepath.Join(dir, "packages")
	build := filepath.Join(dir, "build")
	if err := errors.Join(os.Mkdir(packed, 0o755), os.Mkdir(build, 0o755)); err != nil {
		return false, err
	}
	if err := packages(build, packed); err != nil {
		return false, err
	}
	theirs := *debs
	if theirs == "" {
		theirs = filepath.Join(dir, "debs")
		if err := errors.Join(os.Mkdir(theirs, 0o755), fetch(theirs)); err != nil {
			return false, err
		}
	}
	s, err := browser.StartServer(hallmark, filepath.Join(dir, "all"))
	if err != nil {
		return false, err
	}
	defer s.Stop()
	p := &pusher{hallmark: hallmark, url: s.URL, all: map[string][]*file{}}
	fmt.Printf("\n## Everything\n\n| pushed | ELF files with a GNU build ID | others | sent | there already | refused | seconds |\n|---|--:|--:|--:|--:|--:|--:|\n")
	for root := range strings.SplitSeq(*roots, ",") {
		if err := p.push(root, root); err != nil {
			return false, err
		}
	}
	unpacked := filepath.Join(dir, "unpacked")
	for _, from := range []string{theirs, packed} {
		err := filepath.WalkDir(from, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".deb") && !strings.HasSuffix(path, ".rpm") {
				return err
			}
			tree := filepath.Join(unpacked, filepath.Base(path))
			return errors.Join(unpack(path, tree), p.push(path, tree))
		})
		if err != nil {
			return false, err
		}
	}
	p.print()
	t, err := p.ask(dir)
	if err != nil {
		return false, err
	}
	fmt.Printf("\nThe server had %.0f MiB at most.\n", process.Peak(s.PID()))
	if *duration == 0 {
		return len(t.notes)+len(p.notes) == 0, nil
	}
	ok, err := profiles(hallmark, dir, s.URL, unpacked)
	return ok && len(t.notes)+len(p.notes) == 0, err
}

// fetch fetches packages of debug files: first those of what is installed, then others, by name. It also fetches what
// they are the debug files of.
func fetch(dir string) error {
	out, err := exec.Command("apt-cache", "dumpavail").Output()
	if err != nil {
		return fmt.Errorf("apt-cache dumpavail: %w", err)
	}
	var here, others []string
	known := map[string]bool{}
	for paragraph := range strings.SplitSeq(string(out), "\n\n") {
		fields := map[string]string{}
		for line := range strings.Lines(paragraph) {
			if key, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ": "); ok {
				fields[key] = value
			}
		}
		name := fields["Package"]
		known[name] = true
		of, isDebug := strings.CutSuffix(name, "-dbg")
		size, _ := strconv.ParseInt(fields["Size"], 10, 64)
		switch {
		case !isDebug || strings.HasPrefix(name, "linux-image") || slices.Contains(here, name) || slices.Contains(others, name):
		case size < 45_000_000 && exec.Command("dpkg", "-s", of).Run() == nil:
			here = append(here, name)
		case size > 50_000 && size < 10_000_000:
			others = append(others, name)
		}
	}
	slices.Sort(others)
	all := append(here, others...)
	all = all[:min(*count, len(all))]
	for _, name := range slices.Clone(all) { // what they are the debug files of
		of := strings.TrimSuffix(name, "-dbg")
		if known[of] {
			all = append(all, of)
		}
	}
	get := exec.Command("apt-get", append([]string{"download", "-q", "-q"}, all...)...)
	get.Dir, get.Stderr = dir, os.Stderr
	return get.Run()
}

func unpack(name, tree string) error {
	if err := os.MkdirAll(tree, 0o755); err != nil {
		return err
	}
	if strings.HasSuffix(name, ".deb") {
		return command(tree, "dpkg-deb", "-x", name, tree)
	}
	return command(tree, "sh", "-c", `rpm2cpio "$1" | cpio -idm --quiet`, "sh", name)
}

// pusher pushes, and knows what was pushed.
type pusher struct {
	hallmark, url string
	all           map[string][]*file
	pushes        int
	rows          []row
	notes         []string
}

type row struct {
	name                                string
	ours, others, sent, skipped, failed int
	time                                time.Duration
}

// record is a line that push prints.
type record struct {
	ID     string `json:"build_id"`
	Name   string `json:"binary"`
	Action string `json:"action"`
	Error  string `json:"error"`
}

// push sends what is at a path, whose files are below a directory.
func (p *pusher) push(path, tree string) error {
	p.pushes++
	r := row{name: filepath.Base(path)}
	if path == tree {
		r.name = path
	}
	seen := map[string]bool{} // by name
	var err error
	r.others, err = collect(tree, p.pushes, p.all, func(name string) string {
		r.ours++
		if path != tree {
			name = strings.TrimPrefix(name, tree)
		}
		seen[name] = true
		return name
	})
	if err != nil {
		return err
	}
	begun := time.Now()
	push := exec.Command(p.hallmark, "push", "--json", "--server", p.url, path)
	var stderr bytes.Buffer
	push.Stderr = &stderr
	out, err := push.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return err
	}
	r.time = time.Since(begun)
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var one record
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return fmt.Errorf("push %s: %w: %s", path, err, lines.Text())
		}
		name := one.Name
		if path != tree {
			name = "/" + strings.TrimLeft(strings.TrimPrefix(name, "."), "/")
		}
		switch one.Action {
		case "sent":
			r.sent++
		case "skipped":
			r.skipped++
		default:
			r.failed++
			note := fmt.Sprintf("push %s: %s %s %s: %s", r.name, one.Action, one.ID, one.Name, one.Error)
			if seen[name] {
				p.notes = append(p.notes, note)
			} else {
				fmt.Fprintln(os.Stderr, note+" (it has no GNU build ID)")
			}
		}
		delete(seen, name)
	}
	for name := range seen {
		p.notes = append(p.notes, fmt.Sprintf("push %s: %s was not looked at", r.name, name))
	}
	if exit != nil && r.failed == 0 {
		return fmt.Errorf("push %s: %w: %s", path, err, stderr.String())
	}
	p.rows = append(p.rows, r)
	return nil
}

// print prints a row for each directory, and one for all packages.
func (p *pusher) print() {
	var rest row
	n := 0
	for _, r := range p.rows {
		if strings.HasPrefix(r.name, "/") {
			r.print()
			continue
		}
		n++
		rest = row{"", rest.ours + r.ours, rest.others + r.others, rest.sent + r.sent, rest.skipped + r.skipped, rest.failed + r.failed, rest.time + r.time}
	}
	rest.name = fmt.Sprintf("%d packages", n)
	rest.print()
	fmt.Println()
	slices.Sort(p.notes)
	for _, n := range p.notes {
		fmt.Println(n)
	}
}

func (r row) print() {
	fmt.Printf("| %s | %d | %d | %d | %d | %d | %.0f |\n", r.name, r.ours, r.others, r.sent, r.skipped, r.failed, r.time.Seconds())
}

func (p *pusher) ask(dir string) (*tally, error) {
	begun := time.Now()
	t, err := askAll(dir, p.url, "", p.all, *every)
	if err != nil {
		return nil, err
	}
	several, files := 0, 0
	for _, all := range p.all {
		files += len(all)
		if len(all) > 1 {
			several++
		}
	}
	fmt.Printf("%d build IDs of %d different files, %d of them of more than one. %.0f s: ", len(p.all), files, several, time.Since(begun).Seconds())
	t.print(os.Stdout)
	return t, nil
}
