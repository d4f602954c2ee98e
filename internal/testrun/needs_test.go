package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"hallmark/internal/testenv"
)

// TestNeedsAreComplete wants each tool that a test looks for by name to come with Debian's
// essential packages or with one that this command installs, or with what these depend on: a
// machine on which somebody installed the rest by hand hides what is missing.
func TestNeedsAreComplete(t *testing.T) {
	dpkg := testenv.Tool(t, "dpkg-query")
	users := namedTools(t)
	listed, err := exec.Command(dpkg, "-W", "-f", packageFormat).Output()
	if err != nil {
		t.Fatal(err)
	}
	wanted := []string{"toolchains"}
	for _, n := range slices.Concat(needs, kernelNeeds, thoroughNeeds) {
		wanted = append(wanted, n.debian)
	}
	comes := parsePackages(string(listed)).closure(wanted)
	paths := map[string][]string{} // of tools, as a package may call them
	var all []string
	for tool := range users {
		path, err := exec.LookPath(tool)
		if err == nil && tool != "go" { // else the test is skipped, or this one would not run
			paths[tool] = pathsOf(path)
			all = append(all, paths[tool]...)
		}
	}
	owned, _ := exec.Command(dpkg, append([]string{"-S"}, all...)...).Output() // fails where one has no owner
	owners := ownersOf(string(owned))
	if len(owners) == 0 {
		t.Error("no tool has an owner")
	}
	for tool, paths := range paths {
		var found []string
		for _, path := range paths {
			found = append(found, owners[path]...)
		}
		// A tool without an owner is somebody's own.
		if len(found) > 0 && !slices.ContainsFunc(found, func(owner string) bool { return comes[owner] }) {
			t.Errorf("%s, which %s looks for, is in Debian's %s, which is not installed", tool, users[tool], strings.Join(slices.Compact(found), ", "))
		}
	}
}

// namedTools returns the tools that tests look for by name, and for each a file of such a test.
func namedTools(t *testing.T) map[string]string {
	t.Helper()
	named := regexp.MustCompile(`testenv\.Tool\([\w.]+, "([^"]+)"\)|\[!?(?:exec|tool):([^]]+)\]`)
	users := map[string]string{}
	err := filepath.WalkDir(filepath.Join("..", ".."), func(path string, entry os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") && filepath.Ext(path) != ".txtar" {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			users[m[1]+m[2]] = path
		}
		return err
	})
	if err != nil || len(users) < 20 {
		t.Fatalf("%d tools, %v", len(users), err)
	}
	return users
}

// packageFormat is how dpkg-query prints a package for parsePackages.
const packageFormat = "${Package}\t${Essential}\t${Priority}\t${Pre-Depends}, ${Depends}\t${Provides}\n"

// packages are those of a machine: what each depends on, which are always there, and which provide
// another name.
type packages struct {
	depends   map[string]string
	basic     []string
	providers map[string][]string
}

func parsePackages(listed string) packages {
	p := packages{depends: map[string]string{}, providers: map[string][]string{}}
	for line := range strings.Lines(listed) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 5 {
			continue
		}
		p.depends[f[0]] = f[3]
		if f[1] == "yes" || f[2] == "required" {
			p.basic = append(p.basic, f[0])
		}
		for name := range strings.SplitSeq(f[4], ",") {
			p.providers[packageName(name)] = append(p.providers[packageName(name)], f[0])
		}
	}
	return p
}

// packageName returns the name in a relation: "libc6:amd64 (>= 2.38)" is libc6.
func packageName(relation string) string {
	name, _, _ := strings.Cut(strings.TrimSpace(relation), " ")
	name, _, _ = strings.Cut(name, ":")
	return name
}

// closure returns what is there where the wanted packages are: these, what is always there, and
// what they depend on. Of a name that several packages provide, such as awk, any will do; of
// alternatives the first one, which is what apt would install.
func (p packages) closure(wanted []string) map[string]bool {
	there := map[string]bool{}
	var add func(name string)
	add = func(name string) {
		if name == "" || there[name] {
			return
		}
		there[name] = true
		for _, provider := range p.providers[name] {
			if _, isReal := p.depends[name]; !isReal {
				add(provider)
			}
		}
		for relation := range strings.SplitSeq(p.depends[name], ",") {
			first, _, _ := strings.Cut(relation, "|")
			add(packageName(first))
		}
	}
	for _, name := range slices.Concat(wanted, p.basic) {
		add(name)
	}
	return there
}

// ownersOf reads what dpkg -S prints: the packages of each path. A file that is diverted has lines
// that say where to, and is listed with all packages that have it.
func ownersOf(listed string) map[string][]string {
	owners := map[string][]string{}
	for line := range strings.Lines(listed) {
		names, path, found := strings.Cut(strings.TrimSpace(line), ": ")
		if !found || strings.Contains(names, "diversion ") {
			continue
		}
		for name := range strings.SplitSeq(names, ",") {
			owners[path] = append(owners[path], packageName(name))
		}
	}
	return owners
}

// alternatives is where update-alternatives(1) has its links.
const alternatives = "/etc/alternatives/"

// pathsOf returns the paths that a file may have in its package: as it is called, all that this leads
// to, and without /usr, which did not have /bin before. Of a name that several packages have, it
// returns the paths of all: which of them is chosen depends on the machine.
func pathsOf(path string) (list []string) {
	add := func(path string) {
		list = append(list, path, strings.TrimPrefix(path, "/usr"))
		if real, err := filepath.EvalSymlinks(path); err == nil {
			list = append(list, real, strings.TrimPrefix(real, "/usr"))
		}
	}
	for range 40 {
		add(path)
		if name, found := strings.CutPrefix(path, alternatives); found {
			for _, other := range alternativesOf(name) {
				add(other)
			}
		}
		to, err := os.Readlink(path)
		if err != nil {
			break
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(path), to)
		}
		path = to
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// alternativesOf returns the files that a name may stand for. A name that comes along with another
// one, as a page of its manual does, has none of its own.
func alternativesOf(name string) (list []string) {
	out, err := exec.Command("update-alternatives", "--list", name).Output()
	if err != nil {
		return nil
	}
	return strings.Fields(string(out))
}

// TestPackages reads packages as dpkg prints them. awk is no package: where mawk is removed for
// gawk, base-files is content.
func TestPackages(t *testing.T) {
	p := parsePackages("base-files\tyes\trequired\tawk, \t\n" +
		"gawk\tno\toptional\t, libc6 (>= 2.38), libreadline8t64 (>= 6.0)\tawk\n" +
		"libc6\tno\toptional\t, libgcc-s1\tlibc6-2.40\n" +
		"perf\tno\toptional\t, python3:any | python2\t\n" +
		"python3\tno\toptional\tpython3-minimal (= 3.13), \tpython3-profiler\n" +
		"python3-minimal\tno\toptional\t, \t\n" +
		"python2\tno\toptional\t, \t\n" +
		"bystander\tno\toptional\t, \tpython3\n")
	there := p.closure([]string{"perf"})
	for name, want := range map[string]bool{"base-files": true, "gawk": true, "libc6": true, "python3-minimal": true, "python2": false, "bystander": false} {
		if there[name] != want {
			t.Errorf("%s: %t, want %t", name, there[name], want)
		}
	}
	owners := ownersOf("diversion by dash from: /bin/sh\ndiversion by dash to: /bin/sh.distrib\ndash, bash: /bin/sh\n" +
		"local diversion from: /usr/bin/ls\nlocal diversion to: /usr/bin/ls.real\ncoreutils: /usr/bin/ls\nlibc6:amd64: /usr/bin/ldd\n")
	for path, want := range map[string][]string{"/bin/sh": {"dash", "bash"}, "/usr/bin/ls": {"coreutils"}, "/usr/bin/ldd": {"libc6"}} {
		if !slices.Equal(owners[path], want) {
			t.Errorf("%s is of %q, want %q", path, owners[path], want)
		}
	}
	if len(owners) != 3 {
		t.Errorf("%q", owners)
	}
}
