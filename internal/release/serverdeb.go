package main

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"
)

// serverDebName returns the name of the file of the Debian package that runs the symbol server as a service.
func (p pack) serverDebName() string {
	return fmt.Sprintf("hallmark-server_%s_all.deb", debVersion(p.version))
}

// serverDebPlaces says where the package has the files of deploy.
var serverDebPlaces = map[string]string{
	"deploy/hallmark-server.service":  "usr/lib/systemd/system/hallmark-server.service",
	"deploy/hallmark-server.sysusers": "usr/lib/sysusers.d/hallmark-server.conf",
	"deploy/hallmark-server.default":  "etc/default/hallmark-server",
}

// serverDebScripts are run by dpkg: deb-postinst(5). The package starts no service, restarts one that runs,
// and leaves the store and its user when it is removed. Purging removes the cache, which is made again.
var serverDebScripts = []file{
	{"postinst", 0o755, []byte(`#!/bin/sh
set -e
if [ "$1" = configure ]; then
	systemd-sysusers ${DPKG_ROOT:+--root="$DPKG_ROOT"} hallmark-server.conf
	if [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ]; then
		systemctl --system daemon-reload
		if [ -n "$2" ]; then
			deb-systemd-invoke try-restart hallmark-server.service
		fi
	fi
fi
`)},
	{"prerm", 0o755, []byte(`#!/bin/sh
set -e
if [ "$1" = remove ] && [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ]; then
	deb-systemd-invoke stop hallmark-server.service
fi
`)},
	{"postrm", 0o755, []byte(`#!/bin/sh
set -e
if [ "$1" = purge ]; then
	rm -f "$DPKG_ROOT/etc/systemd/system/multi-user.target.wants/hallmark-server.service"
	rm -rf "$DPKG_ROOT/var/cache/hallmark-server"
fi
if [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ]; then
	systemctl --system daemon-reload
fi
`)},
}

// writeServerDeb writes the package, which has no program: that is in the package of the command.
func (p pack) writeServerDeb(w *bytes.Buffer) error {
	const documents = "usr/share/doc/hallmark-server"
	changelog, err := compressed(bytes.Replace(p.debChangelog(), []byte("hallmark ("), []byte("hallmark-server ("), 1))
	if err != nil {
		return err
	}
	files := []file{
		{path.Join(documents, "copyright"), 0o644, []byte(strings.ReplaceAll(debCopyright, "YEAR", p.commit.at.Format("2006")))},
		{path.Join(documents, "changelog.gz"), 0o644, changelog},
	}
	for from, to := range serverDebPlaces {
		i := slices.IndexFunc(p.contents.documents, func(f file) bool { return f.name == from })
		if i < 0 {
			return fmt.Errorf("there is no %s", from)
		}
		files = append(files, file{to, 0o644, p.contents.documents[i].data})
	}
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	control := fmt.Appendf(nil, `Package: hallmark-server
Version: %s
Architecture: all
Maintainer: %s
Installed-Size: %d
Depends: hallmark (= %s), systemd | systemd-sysusers
Recommends: ca-certificates
Section: devel
Priority: optional
Description: symbol server of Hallmark as a service
 The symbol server keeps programs, libraries and debug files by build ID, and
 serves them to debuggers, profilers and other clients of debuginfod.
 .
 This package has the service for systemd, in a sandbox and with a user of its
 own. It does not start it.
`, debVersion(p.version), p.commit.committer, kibOf(files), debVersion(p.version))
	about := append([]file{{"control", 0o644, control}, {"conffiles", 0o644, []byte("/etc/default/hallmark-server\n")}}, serverDebScripts...)
	return writeDeb(w, files, about, p.commit.at)
}
