package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// source is a program with a function that is inlined. The number makes another one of it, of other size. With an
// argument it is busy until it is killed.
func source(number int) string {
	return fmt.Sprintf(`#include <stdio.h>
static inline unsigned twice(unsigned x)
{
	for (int i = 0; i < 50; i++)
		x = x * 2654435761u ^ x >> 7;
	return x;
}
__attribute__((noinline)) unsigned work(unsigned x) { return twice(x) + %d; }
%s
int main(int argc, char **argv)
{
	unsigned x = argc;
	do
		x = work(x);
	while (argc > 1 || x == 0);
	printf("%%u\n", x);
	return 0;
}
`, number, strings.Repeat("int filler(int x) { return x * x; }\n", min(number, 1)))
}

// program is a program in three forms.
type program struct{ whole, stripped, debug string }

// compile compiles a program and splits it.
func compile(dir, name string, number int, flags ...string) (p program, err error) {
	text := filepath.Join(dir, name+".c")
	if err := os.WriteFile(text, []byte(source(number)), 0o600); err != nil {
		return p, err
	}
	p = program{filepath.Join(dir, name), filepath.Join(dir, name+".stripped"), filepath.Join(dir, name+".debug")}
	for _, args := range [][]string{
		append([]string{"gcc", "-g", "-O2", "-o", p.whole, text}, flags...),
		{"objcopy", "--only-keep-debug", p.whole, p.debug},
		{"strip", "-o", p.stripped, p.whole},
	} {
		if err := command(dir, args...); err != nil {
			return p, err
		}
	}
	return p, nil
}

func command(dir string, args ...string) error {
	c := exec.Command(args[0], args[1:]...)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// packages packs two programs: one into Debian's kind of packages, with its debug file in a second one, and one, whose
// debug information is compressed, into RPM's kind.
func packages(dir, out string) error {
	deb, err := compile(dir, "in-deb", 1, "-Wl,--build-id")
	if err != nil {
		return err
	}
	rpm, err := compile(dir, "in-rpm", 2, "-Wl,--build-id", "-gz")
	if err != nil {
		return err
	}
	for name, file := range map[string][2]string{
		"in-deb":        {deb.stripped, "usr/bin/in-deb"},
		"in-deb-dbgsym": {deb.debug, "usr/lib/debug/usr/bin/in-deb.debug"},
	} {
		tree := filepath.Join(dir, "tree", name)
		if err := install(file[0], filepath.Join(tree, file[1])); err != nil {
			return err
		}
		control := fmt.Sprintf("Package: %s\nVersion: 1\nArchitecture: amd64\nMaintainer: nobody <nobody@example.org>\nDescription: a program\n", name)
		if err := os.MkdirAll(filepath.Join(tree, "DEBIAN"), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(tree, "DEBIAN", "control"), []byte(control), 0o644); err != nil {
			return err
		}
		if err := command(dir, "dpkg-deb", "-b", tree, filepath.Join(out, name+".deb")); err != nil {
			return err
		}
	}
	if _, err := exec.LookPath("rpmbuild"); err != nil {
		fmt.Fprintln(os.Stderr, "without a package of RPM's kind:", err)
		return nil
	}
	spec := fmt.Sprintf(`%%define debug_package %%{nil}
%%define __os_install_post %%{nil}
%%define _build_id_links none
Name: in-rpm
Version: 1
Release: 1
Summary: a program
License: none
%%description
%%package debuginfo
Summary: its debug file
%%description debuginfo
%%install
install -D %s %%{buildroot}/usr/bin/in-rpm
install -D %s %%{buildroot}/usr/lib/debug/usr/bin/in-rpm.debug
%%files
/usr/bin/in-rpm
%%files debuginfo
/usr/lib/debug/usr/bin/in-rpm.debug
`, rpm.stripped, rpm.debug)
	name := filepath.Join(dir, "in-rpm.spec")
	if err := os.WriteFile(name, []byte(spec), 0o644); err != nil {
		return err
	}
	return command(dir, "rpmbuild", "-bb", "--define", "_topdir "+dir+"/rpmbuild", "--define", "_rpmdir "+out, name)
}

func install(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o755)
}

// claim is a file that is pushed by somebody.
type claim struct {
	path string
	by   trust
}

// contest has files of several programs claim one build ID, in the order in which they are pushed.
type contest struct {
	name   string
	claims []claim
}

// contests makes what the rules are for: each build ID is claimed by programs of different code, or by different files
// of one program.
func contests(dir string) (all []contest, err error) {
	n := 0
	pair := func() (a, b program, err error) {
		n++
		id := fmt.Sprintf("-Wl,--build-id=0x%040x", 0xc0de0000+n)
		if a, err = compile(dir, fmt.Sprint("a", n), 2*n+1, id); err != nil {
			return a, b, err
		}
		b, err = compile(dir, fmt.Sprint("b", n), 0, id)
		return a, b, err
	}
	for _, c := range []struct {
		name   string
		claims func(a, b program) []claim
	}{
		{"all files of one program", func(a, _ program) []claim { return []claim{{a.stripped, ci}, {a.debug, ci}, {a.whole, ci}} }},
		{"the later one knows more", func(a, b program) []claim { return []claim{{a.stripped, ci}, {b.whole, ci}} }},
		{"both know the same", func(a, b program) []claim { return []claim{{a.stripped, ci}, {b.stripped, ci}} }},
		{"both know the same, the other way round", func(a, b program) []claim { return []claim{{b.stripped, ci}, {a.stripped, ci}} }},
		{"both know lines", func(a, b program) []claim { return []claim{{a.whole, ci}, {b.whole, ci}} }},
		{"both know lines, the other way round", func(a, b program) []claim { return []claim{{b.whole, ci}, {a.whole, ci}} }},
		{"a debug file of other code", func(a, b program) []claim { return []claim{{a.debug, ci}, {b.stripped, ci}} }},
		{"two debug files, of which one fits", func(a, b program) []claim { return []claim{{a.debug, ci}, {b.debug, ci}, {b.stripped, ci}} }},
		{"an agent knows more than who builds", func(a, b program) []claim { return []claim{{a.whole, agent}, {b.stripped, ci}} }},
		{"an agent's debug file fits", func(a, _ program) []claim { return []claim{{a.debug, agent}, {a.stripped, ci}} }},
		{"nobody but an agent", func(a, _ program) []claim { return []claim{{a.stripped, agent}, {a.debug, agent}} }},
		{"an operator after who builds", func(a, b program) []claim { return []claim{{a.whole, ci}, {b.stripped, operator}} }},
		{"an operator's debug file", func(a, b program) []claim { return []claim{{a.whole, ci}, {b.debug, operator}, {b.stripped, ci}} }},
		{"what an agent sent comes again from who builds", func(a, b program) []claim { return []claim{{a.whole, agent}, {b.stripped, ci}, {a.whole, ci}} }},
	} {
		a, b, err := pair()
		if err != nil {
			return nil, err
		}
		all = append(all, contest{c.name, c.claims(a, b)})
	}
	return all, nil
}
