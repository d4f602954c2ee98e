package main

import (
	"bytes"
	"crypto/md5"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"
)

// debName returns the name of the Debian package's file.
func (p pack) debName() string {
	return fmt.Sprintf("hallmark_%s_%s.deb", debVersion(p.version), p.architecture)
}

// debVersion returns a version of Go's as one that Debian sorts in the same order. A hyphen begins what
// comes before a release there (1.2.0-rc.1), which is a tilde here; later hyphens would begin a revision
// of Debian's.
func debVersion(version string) string {
	release, before, found := strings.Cut(version, "-")
	if !found {
		return version
	}
	return release + "~" + strings.ReplaceAll(before, "-", ".")
}

// Where Debian has completions: those of packages, that an administrator's own come before.
var debCompletions = map[string]string{
	"bash": "usr/share/bash-completion/completions/hallmark",
	"zsh":  "usr/share/zsh/vendor-completions/_hallmark",
	"fish": "usr/share/fish/vendor_completions.d/hallmark.fish",
}

const debDocuments = "usr/share/doc/hallmark"

// debCopyright, with the year of the commit, is written in the format that its first line names. Debian's policy wants a reference to
// the text of the Apache license.
const debCopyright = `Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: Hallmark
Comment: The licenses of Go and of the Go modules that the command contains are in
 /usr/share/doc/hallmark/licenses.

Files: *
Copyright: YEAR the authors of Hallmark
License: Apache-2.0
 On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.

Files: internal/bpf/*.bpf.c
Copyright: YEAR the authors of Hallmark
License: GPL-2.0-only or BSD-2-Clause
 The BPF programs may be used under the terms of either license. On Debian systems
 the text of the first one is in /usr/share/common-licenses/GPL-2.
`

// debOverrides are the findings of lintian that are meant to be so.
const debOverrides = `# A static binary runs on each release and in each container.
hallmark: statically-linked-binary [usr/bin/hallmark]
# Each module's terms stay the file that its authors wrote.
hallmark: extra-license-file *
`

// debFiles returns the files that the package installs.
func (p pack) debFiles() ([]file, error) {
	files := []file{
		{"usr/bin/hallmark", 0o755, p.program},
		{path.Join(debDocuments, "copyright"), 0o644, []byte(strings.ReplaceAll(debCopyright, "YEAR", p.commit.at.Format("2006")))},
		{"usr/share/lintian/overrides/hallmark", 0o644, []byte(debOverrides)},
	}
	for _, f := range p.contents.documents {
		if f.name != "LICENSE" { // copyright refers to it
			files = append(files, below(debDocuments, []file{f})...)
		}
	}
	files = append(files, below(path.Join(debDocuments, "licenses"), p.licenses)...)
	for shell, name := range debCompletions {
		files = append(files, file{name, 0o644, p.contents.completions[shell]})
	}
	zipped := append(below("usr/share/man/man1", p.contents.pages), file{path.Join(debDocuments, "changelog"), 0o644, p.debChangelog()})
	for _, f := range zipped {
		data, err := compressed(f.data)
		if err != nil {
			return nil, err
		}
		files = append(files, file{f.name + ".gz", f.mode, data})
	}
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return files, nil
}

// debChangelog returns a changelog of Debian's, which refers to the one that people write.
func (p pack) debChangelog() []byte {
	return fmt.Appendf(nil, "hallmark (%s) unstable; urgency=medium\n\n  * Commit %s.\n    CHANGELOG.md beside this file has the changes.\n\n -- %s  %s\n",
		debVersion(p.version), p.commit.hash, p.commit.committer, p.commit.at.Format(time.RFC1123Z))
}

// kibOf returns how many KiB files take when they are installed.
func kibOf(files []file) (kib int) {
	for _, f := range files {
		kib += (len(f.data) + 1023) / 1024
	}
	return kib
}

// debControl returns the fields by which dpkg knows the package: deb-control(5).
func (p pack) debControl(files []file) []byte {
	return fmt.Appendf(nil, `Package: hallmark
Version: %s
Architecture: %s
Maintainer: %s
Installed-Size: %d
Suggests: bash-completion, ca-certificates
Section: devel
Priority: optional
Description: which exact file each stack frame and mapping came from
 Hallmark gives every stack frame, every mapping and every program on a Linux
 machine two numbers: the build ID of the exact file it came from, and the
 offset in that file. From these numbers it finds functions and lines, here or
 on another machine, today or in a year.
 .
 It records profiles, watches executions, lists who runs which build, and
 answers for addr2line and llvm-symbolizer.
`, debVersion(p.version), p.architecture, p.commit.committer, kibOf(files))
}

// writeDeb writes the Debian package: deb(5).
func (p pack) writeDeb(w *bytes.Buffer) error {
	files, err := p.debFiles()
	if err != nil {
		return err
	}
	return writeDeb(w, files, []file{{"control", 0o644, p.debControl(files)}}, p.commit.at)
}

// writeDeb writes a package of files, which about describes.
func writeDeb(w *bytes.Buffer, files, about []file, at time.Time) error {
	var sums bytes.Buffer
	for _, f := range files {
		fmt.Fprintf(&sums, "%x  %s\n", md5.Sum(f.data), f.name)
	}
	var control, data bytes.Buffer
	if err := writeTarGz(&control, "./", append(about, file{"md5sums", 0o644, sums.Bytes()}), at); err != nil {
		return err
	}
	if err := writeTarGz(&data, "./", files, at); err != nil {
		return err
	}
	return writeAr(w, at, []file{
		{"debian-binary", 0o644, []byte("2.0\n")}, {"control.tar.gz", 0o644, control.Bytes()}, {"data.tar.gz", 0o644, data.Bytes()},
	})
}

// writeAr writes members in their order as an archive: ar(5). Names have at most 16 bytes.
func writeAr(w io.Writer, at time.Time, members []file) error {
	if _, err := io.WriteString(w, "!<arch>\n"); err != nil {
		return err
	}
	for _, m := range members {
		if len(m.name) > 16 {
			return fmt.Errorf("%q is too long for an ar archive", m.name)
		}
		padding := ""
		if len(m.data)%2 == 1 {
			padding = "\n"
		}
		if _, err := fmt.Fprintf(w, "%-16s%-12d%-6d%-6d%-8o%-10d`\n%s%s", m.name, at.Unix(), 0, 0, 0o100000|m.mode, len(m.data), m.data, padding); err != nil {
			return err
		}
	}
	return nil
}
