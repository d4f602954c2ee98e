#!/bin/sh
# Fetches the files whose symbols are measured into a directory, where they stay:
#
#	fetch.sh [DIRECTORY]
#
# They are debug files of Debian 12, by apt, and a build of prometheus; each as it is
# shipped or built, and with its debug information uncompressed (NAME.raw). It takes
# 1.4 GB of downloads and leaves 2.4 GB.
set -eu
dir=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/hallmark/bench/symbol}
prometheus=v0.55.1
mkdir -p "$dir"
cd "$dir"
tmp=$(mktemp -d "$PWD/fetch.XXXXXX")
trap 'chmod -R u+w "$tmp"; rm -rf "$tmp"' EXIT

# package NAME PACKAGE DIRECTORY: keeps the largest file of the directory in the package
package() {
	[ -e "$1" ] || {
		(cd "$tmp" && apt-get -q download "$2" && mkdir "$1" && dpkg-deb -x "$2"_*.deb "$1" && rm "$2"_*.deb)
		find "$tmp/$1/$3" -type f -printf '%s %p\n' | sort -n | sed -n '$s/^[0-9]* //p' |
			xargs -I FILE mv FILE "$1"
		rm -rf "${tmp:?}/$1"
	}
}

package libc libc6-dbg usr/lib/debug/.build-id
kernel=$(apt-cache pkgnames linux-image-6.1 | grep -E '^linux-image-6\.1\.0-[0-9]+-amd64-dbg$' | sort -V | tail -n 1)
package vmlinux "$kernel" usr/lib/debug/boot
package ceph ceph-osd-dbg usr/lib/debug/.build-id
[ -e prometheus ] || {
	module=$(cd "$tmp" && go mod download -json "github.com/prometheus/prometheus@$prometheus" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
	cp -r "$module" "$tmp/prometheus"
	chmod -R u+w "$tmp/prometheus"
	mkdir -p "$tmp/prometheus/web/ui/static"
	(cd "$tmp/prometheus" && go build -o "$dir/prometheus" ./cmd/prometheus)
}
for name in libc vmlinux prometheus ceph; do
	[ -e "$name.raw" ] || objcopy --decompress-debug-sections "$name" "$name.raw"
done
