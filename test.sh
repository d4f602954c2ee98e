#!/bin/sh
# Runs every check and test of the repository: ./test.sh --help. This script only builds
# internal/testrun, which does it; with a HOME that is not for this user to write to, or
# that cannot be written, what the Go command keeps is in a temporary directory.
set -eu
cd "$(dirname "$0")"
command -v go >/dev/null || {
	echo "test.sh: needs the Go command, of the version that go.mod names: https://go.dev/dl" >&2
	exit 2
}
scratch=$(mktemp -d "${TMPDIR:-/tmp}/hallmark-test.XXXXXXXX")
trap 'chmod -R u+w "$scratch"; rm -rf "$scratch"' EXIT
trap 'echo "interrupted before anything was run"; echo "0 passed, 1 failed, 0 skipped"; exit 1' INT TERM HUP

usable() { # DIRECTORY: is ours, and a file can be made in it
	[ -d "$1" ] && [ -O "$1" ] && probe=$(mktemp "$1/.hallmark-test.XXXXXXXX" 2>/dev/null) && rm "$probe"
}
if ! usable "${HOME:-/nonexistent}"; then
	echo "HOME (${HOME:-not set}) is not a directory that this user can write to: caches are temporary,"
	echo "and all is built anew, which takes minutes. With HOME=DIRECTORY ./test.sh they are kept."
	GOPROXY="$(go env GOPROXY)"
	modules=$(go env GOMODCACHE)/cache/download
	[ ! -d "$modules" ] || GOPROXY="file://$modules,$GOPROXY"
	HOME=$scratch/home GOFLAGS="${GOFLAGS:-} -modcacherw"
	mkdir "$HOME"
	export HOME GOPROXY GOFLAGS
	unset XDG_CACHE_HOME XDG_CONFIG_HOME GOCACHE GOMODCACHE GOPATH
fi
[ -t 1 ] && echo "Building what runs the tests (minutes, the first time)"
go build -o "$scratch/testrun" ./internal/testrun || {
	echo "test.sh: the program that runs the tests cannot be built. Go fetches modules at first: is there a network?"
	echo "0 passed, 1 failed, 0 skipped"
	exit 1
}
exec "$scratch/testrun" --scratch "$scratch" "$@"
