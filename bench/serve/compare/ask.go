package main

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// asker asks a server by elfutils' client, which keeps what it gets in a cache that is new.
type asker struct {
	url, cache, headers string
}

// find asks as debuginfod-find does. The name is empty where the server has no such thing.
func (a *asker) find(args ...string) (name string, err error) {
	find := exec.Command("debuginfod-find", args...)
	find.Env = append(os.Environ(), "DEBUGINFOD_URLS="+a.url, "DEBUGINFOD_CACHE_PATH="+a.cache, "DEBUGINFOD_PROGRESS=", "DEBUGINFOD_TIMEOUT=300")
	if a.headers != "" {
		find.Env = append(find.Env, "DEBUGINFOD_HEADERS_FILE="+a.headers)
	}
	var stderr bytes.Buffer
	find.Stderr = &stderr
	out, err := find.Output()
	if err == nil {
		return strings.TrimSpace(string(out)), nil
	}
	if strings.Contains(stderr.String(), "No such file or directory") {
		return "", nil
	}
	return "", fmt.Errorf("debuginfod-find %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
}

// forget removes from the cache what is of an ID.
func (a *asker) forget(id string) { _ = os.RemoveAll(filepath.Join(a.cache, id)) }

// asked is the result of one question.
type asked struct {
	what  string // executable, debuginfo, section
	rule  string // by which the file was chosen, or why there is none
	equal bool
	note  string // a difference
}

const (
	noExecutable = "404: only debug files were pushed"
	noDebug      = "404: only files without debug information were pushed"
	noFit        = "404: no such file fits the one that is served"
	noSection    = "404: neither file has the section"
)

// identity asks for all of an ID. Where sections are asked for, these too.
func (a *asker) identity(id string, files []*file, sections []string) (all []asked, err error) {
	defer a.forget(id)
	exe, debug := served(files)
	for _, q := range []struct {
		what, none string
		want       choice
	}{{"executable", noExecutable, exe}, {"debuginfo", noDebug, debug}} {
		if q.want.rule == byFitting && len(q.want.files) == 0 {
			q.none = noFit
		}
		got, err := a.file(q.what, q.none, id, q.want, files)
		if err != nil {
			return nil, err
		}
		all = append(all, got)
	}
	a.forget(id)
	for _, name := range sections {
		got, err := a.section(id, name, debug, exe)
		if err != nil {
			return nil, err
		}
		all = append(all, got)
	}
	return all, nil
}

func (a *asker) file(what, none, id string, want choice, files []*file) (asked, error) {
	name, err := a.find(what, id)
	if err != nil {
		return asked{}, err
	}
	q := asked{what: what, rule: want.rule}
	if len(want.files) == 0 {
		q.rule, q.equal = none, name == ""
	}
	if name == "" {
		if !q.equal {
			q.note = "404, " + want.files[0].from + " was pushed"
		}
		return q, nil
	}
	for _, f := range want.files {
		if q.equal, err = sameFile(name, f); err != nil || q.equal {
			return q, err
		}
	}
	q.note = "it is none of the files that were pushed"
	for _, f := range files {
		is, err := sameFile(name, f)
		if err != nil {
			return q, err
		}
		if is {
			q.note = fmt.Sprintf("it is %s, which the rules do not say", f.from)
		}
	}
	return q, nil
}

func (a *asker) section(id, section string, debug, exe choice) (asked, error) {
	name, err := a.find("section", id, section)
	if err != nil {
		return asked{}, err
	}
	q := asked{what: "section " + section, rule: noSection}
	for _, c := range []choice{debug, exe} {
		for _, f := range c.files {
			is, found, err := sameSection(name, f, section)
			if err != nil {
				return q, err
			}
			if found {
				q.rule, q.equal = "from the debug file, else the executable", q.equal || is
			}
		}
		if q.rule != noSection {
			break
		}
	}
	switch {
	case q.rule == noSection:
		q.equal = name == ""
		if name != "" {
			q.note = "the server has a section that neither file has"
		}
	case name == "":
		q.note = "404, but the file has it"
	case !q.equal:
		q.note = "it differs"
	}
	return q, nil
}

// sameSection compares an answer with a section. An empty name is none.
func sameSection(name string, f *file, section string) (is, found bool, err error) {
	want, err := f.section(section)
	if err != nil || want == nil || name == "" {
		return false, want != nil, err
	}
	got, err := os.Open(name)
	if err != nil {
		return false, true, err
	}
	defer got.Close()
	is, err = same(got, want)
	return is, true, err
}

func sameFile(name string, f *file) (bool, error) {
	got, err := os.Open(name)
	if err != nil {
		return false, err
	}
	defer got.Close()
	return same(got, f.content())
}

// tally counts answers.
type tally struct {
	mu    sync.Mutex
	asked int
	equal map[[2]string]int // by what was asked for, and by which rule
	notes []string
}

func (t *tally) add(id string, all []asked) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, q := range all {
		t.asked++
		if q.equal {
			t.equal[[2]string{q.what, q.rule}]++
			continue
		}
		t.notes = append(t.notes, fmt.Sprintf("%s %s (%s): %s", q.what, id, q.rule, q.note))
	}
}

func (t *tally) print(w io.Writer) {
	fmt.Fprintf(w, "%d questions, %d answers as they have to be, %d others\n\n| asked for | which file, by the rules | equal |\n|---|---|--:|\n", t.asked, t.asked-len(t.notes), len(t.notes))
	keys := slices.SortedFunc(maps.Keys(t.equal), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) })
	for _, k := range keys {
		fmt.Fprintf(w, "| %s | %s | %d |\n", k[0], k[1], t.equal[k])
	}
	slices.Sort(t.notes)
	for _, n := range t.notes {
		fmt.Fprintln(w, n)
	}
}

// askAll asks for every identity, and for sections of one in so many.
func askAll(dir, url, headers string, all map[string][]*file, every int) (*tally, error) {
	t := &tally{equal: map[[2]string]int{}}
	ids := slices.Sorted(maps.Keys(all))
	next := make(chan int)
	failures := make(chan error, *workers)
	var wg sync.WaitGroup
	for w := range *workers {
		a := &asker{url: url, headers: headers, cache: filepath.Join(dir, fmt.Sprint("client-", w))}
		wg.Go(func() {
			for i := range next {
				var sections []string
				if every > 0 && i%every == 0 {
					sections = []string{".text", ".debug_info", ".symtab", ".note.gnu.build-id"}
				}
				answers, err := a.identity(ids[i], all[ids[i]], sections)
				if err != nil {
					select {
					case failures <- err:
					default:
					}
				}
				t.add(ids[i], answers)
			}
		})
	}
	for i := range ids {
		next <- i
	}
	close(next)
	wg.Wait()
	for w := range *workers {
		_ = os.RemoveAll(filepath.Join(dir, fmt.Sprint("client-", w)))
	}
	select {
	case err := <-failures:
		return t, err
	default:
		return t, nil
	}
}
