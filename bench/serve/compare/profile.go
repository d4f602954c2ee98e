package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	pprof "github.com/google/pprof/profile"
)

// profiles records the machine without symbols, and compares names from files with names from the server, in a root
// directory where nothing is but the program and the profile.
func profiles(hallmark, dir, url, unpacked string) (bool, error) {
	away := filepath.Join(dir, "away")
	if err := os.Mkdir(away, 0o755); err != nil {
		return false, err
	}
	name := filepath.Join(away, "x.pb.gz")
	stop, err := startLoad(unpacked)
	if err != nil {
		return false, err
	}
	out, err := exec.Command(hallmark, "record", "-a", "-d", duration.String(), "--no-symbols", "-o", name).CombinedOutput()
	stop()
	if err != nil {
		return false, fmt.Errorf("record: %w\n%s", err, out)
	}
	before, err := readProfile(name)
	if err != nil {
		return false, err
	}
	// Programs that run may be in none of the directories, and push reports those that are gone by now.
	gone, _ := exec.Command(hallmark, "push", "--server", url, name).CombinedOutput()
	if err := install(hallmark, filepath.Join(away, "hallmark")); err != nil {
		return false, err
	}
	var paths []string
	trees, err := filepath.Glob(unpacked + "/*")
	if err != nil {
		return false, err
	}
	for _, tree := range trees {
		if debug := filepath.Join(tree, "usr/lib/debug"); isDir(debug + "/.build-id") {
			tree = debug
		}
		paths = append(paths, "--debug-path", tree)
	}
	plain := func(args ...string) *exec.Cmd { return exec.Command(hallmark, args...) }
	here := func(args ...string) *exec.Cmd { return exec.Command(hallmark, append(args, paths...)...) }
	there := func(args ...string) *exec.Cmd {
		c := exec.Command("/hallmark", append(args, "--server", url)...)
		c.Path, c.Err, c.Dir = "/hallmark", nil, "/"
		c.Env = []string{"HOME=/home", "XDG_CACHE_HOME=/cache", "PATH=/"}
		c.SysProcAttr = &syscall.SysProcAttr{Chroot: away}
		return c
	}
	type side struct {
		names    map[place]string
		report   report
		messages string
		time     time.Duration
	}
	look := func(run func(args ...string) *exec.Cmd, file, named, written string) (s side, err error) {
		var messages strings.Builder
		begun := time.Now()
		c := run("convert", "-o", named, file)
		c.Stderr = &messages
		if err := c.Run(); err != nil {
			return s, fmt.Errorf("convert: %w\n%s", err, messages.String())
		}
		s.time = time.Since(begun)
		p, err := readProfile(written)
		if err != nil {
			return s, err
		}
		s.names = namesOf(p)
		c = run("report", "--json", "--top", "0", file)
		text, err := c.Output()
		if err == nil {
			err = json.Unmarshal(text, &s.report)
		}
		s.messages = messages.String()
		return s, err
	}
	installed, err := look(plain, name, filepath.Join(dir, "plain.pb.gz"), filepath.Join(dir, "plain.pb.gz"))
	if err != nil {
		return false, fmt.Errorf("here: %w", err)
	}
	l, err := look(here, name, filepath.Join(dir, "here.pb.gz"), filepath.Join(dir, "here.pb.gz"))
	if err != nil {
		return false, fmt.Errorf("here, with the packages: %w", err)
	}
	r, err := look(there, "/x.pb.gz", "/there.pb.gz", filepath.Join(away, "there.pb.gz"))
	if err != nil {
		return false, fmt.Errorf("there: %w", err)
	}
	bare := 0
	for _, text := range namesOf(before) {
		if text == "" {
			bare++
		}
	}
	fmt.Printf("\n## A profile that knows nothing but identities\n\n%d places in %d files, %d without a name; pushed: %s\n", len(l.names), len(before.Mapping), bare, strings.TrimSpace(lastLine(string(gone))))
	fmt.Printf("Names in %.1f s by the files, in %.1f s by the server.\n%s%s", l.time.Seconds(), r.time.Seconds(), l.messages, r.messages)
	kinds := map[string][]string{}
	explained := map[string]bool{} // files
	better := 0
	for p := range merged(l.names, r.names) {
		kind, note := compareNames(url, p, l.names, r.names)
		kinds[kind] = append(kinds[kind], note)
		if strings.HasPrefix(kind, "explained") {
			explained[p.file+" "+p.id] = true
		}
		if l.names[p] == r.names[p] && installed.names[p] != r.names[p] {
			better++
		}
	}
	fmt.Printf("\n| names of a place, by the files and by the server | places |\n|---|--:|\n")
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Printf("| %s | %d |\n", kind, len(kinds[kind]))
	}
	fmt.Printf("\n%d of these have names, or more of them, by packages that are not installed.\n", better)
	ok := true
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		if strings.HasPrefix(kind, "equal") || strings.HasPrefix(kind, "explained") {
			continue
		}
		ok = false
		slices.Sort(kinds[kind])
		for _, note := range kinds[kind][:min(40, len(kinds[kind]))] {
			fmt.Println(note)
		}
	}
	for _, file := range slices.Sorted(maps.Keys(explained)) {
		fmt.Println("explained:", file)
	}
	return compareReports(l.report, r.report, explained) && ok, nil
}

// startLoad starts the load, and the programs that were built, whose names are in packages alone.
func startLoad(unpacked string) (stop func(), err error) {
	built, err := filepath.Glob(unpacked + "/in-*/usr/bin/in-*")
	if err != nil {
		return nil, err
	}
	var all []*exec.Cmd
	stop = func() {
		for _, c := range all {
			_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
			_ = c.Wait()
		}
	}
	commands := []*exec.Cmd{exec.Command("sh", "-c", *load)}
	for _, name := range built {
		commands = append(commands, exec.Command(name, "busy"))
	}
	for _, c := range commands {
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := c.Start(); err != nil {
			stop()
			return nil, err
		}
		all = append(all, c)
	}
	return stop, nil
}

func isDir(name string) bool {
	st, err := os.Stat(name)
	return err == nil && st.IsDir()
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

func readProfile(name string) (*pprof.Profile, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return pprof.Parse(f)
}

// place is code in a file.
type place struct {
	file, id string
	offset   uint64
}

// namesOf returns functions and lines, innermost first, by place.
func namesOf(p *pprof.Profile) map[place]string {
	all := map[place]string{}
	for _, l := range p.Location {
		at := place{offset: l.Address}
		if m := l.Mapping; m != nil {
			at = place{m.File, m.BuildID, l.Address - m.Start + m.Offset}
		}
		var text []string
		for _, line := range l.Line {
			if f := line.Function; f != nil {
				text = append(text, fmt.Sprintf("%s (%s) %s:%d:%d", f.Name, f.SystemName, f.Filename, line.Line, line.Column))
			}
		}
		all[at] = strings.Join(text, " < ")
	}
	return all
}

func merged(a, b map[place]string) map[place]bool {
	all := map[place]bool{}
	for p := range a {
		all[p] = true
	}
	for p := range b {
		all[p] = true
	}
	return all
}

// compareNames says how the names of a place differ, and why where that is known.
func compareNames(url string, p place, here, there map[place]string) (kind, note string) {
	h, isHere := here[p]
	t, isThere := there[p]
	switch {
	case !isHere || !isThere:
		kind = "the place is in one of the profiles alone"
	case h == t && h == "":
		kind = "equal: neither has a name"
	case h == t && strings.Contains(h, " :0:0"):
		kind = "equal: functions"
	case h == t:
		kind = "equal: functions and lines"
	case t == "" && strings.HasPrefix(p.file, "["):
		kind = "explained: the code is in no file"
	case t == "" && !onServer(url, p.id):
		kind = "explained: the server has no such file"
	case h == "" && !isThisFile(p):
		kind = "explained: the server has the file, and this machine no longer"
	case h == "":
		kind = "the server alone has a name"
	case t == "":
		kind = "the files alone have a name"
	default:
		kind = "names differ"
	}
	return kind, fmt.Sprintf("%s: %s %s+%#x\n\tfiles:  %s\n\tserver: %s", kind, p.id, p.file, p.offset, h, t)
}

func onServer(url, id string) bool {
	resp, err := http.Get(strings.TrimSuffix(url, "/") + "/v1/identities/" + id)
	if err != nil {
		return true // which makes it a difference
	}
	resp.Body.Close()
	return resp.StatusCode != http.StatusNotFound
}

func isThisFile(p place) bool {
	f, err := read(p.file)
	if err != nil || f == nil {
		return false
	}
	if f.open != nil {
		f.open.Close()
	}
	return f.id == p.id
}

// report is what 'hallmark report --json' prints.
type report struct {
	Total, Samples int64
	Functions      []struct {
		Function string `json:"function"`
		Unnamed  bool   `json:"unnamed"`
		Source   string `json:"source_file"`
		Binary   string `json:"binary"`
		ID       string `json:"build_id"`
		Content  string `json:"content"`
		Flat     int64  `json:"flat"`
		Cum      int64  `json:"cum"`
	}
}

// lines has the values of each function with a name, and how many have none.
func (r *report) lines(explained map[string]bool) (named map[string]bool, unnamed int) {
	named = map[string]bool{}
	for _, f := range r.Functions {
		switch {
		case f.Unnamed:
			unnamed++
		case !explained[f.Binary+" "+f.ID]:
			named[fmt.Sprint(f.Function, " ", f.Source, " ", f.Binary, " ", f.ID, " ", f.Content, " ", f.Flat, " ", f.Cum)] = true
		}
	}
	return named, unnamed
}

// compareReports wants the same functions with the same values, but for those of files with explained differences. What
// has no name is shown by where its function starts if the file is there, and else as one: these are counted alone.
func compareReports(here, there report, explained map[string]bool) bool {
	h, unnamedHere := here.lines(explained)
	t, unnamedThere := there.lines(explained)
	var differ []string
	for line := range h {
		if !t[line] {
			differ = append(differ, "files:  "+line)
		}
	}
	for line := range t {
		if !h[line] {
			differ = append(differ, "server: "+line)
		}
	}
	slices.Sort(differ)
	fmt.Printf("\nReports: %d functions of other files by the files, %d by the server, %d lines differ; code without names: %d lines by the files, %d by the server.\n",
		len(h), len(t), len(differ), unnamedHere, unnamedThere)
	for _, line := range differ[:min(40, len(differ))] {
		fmt.Println(line)
	}
	return len(differ) == 0 && here.Total == there.Total && here.Samples == there.Samples
}
