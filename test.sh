#!/bin/sh
# Checks everything: formatting, vet, staticcheck, the other architecture, and all
# tests, those of concurrent code under the race detector. What the tests compare
# with (readelf, perf ...) is installed from Debian's packages when run as root.
set -eu
cd "$(dirname "$0")"

need() { # COMMAND PACKAGE: remember the package when the command is missing
	command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}
missing=
need readelf binutils
need eu-readelf elfutils
need llvm-symbolizer llvm
need gcc gcc
need perf linux-perf
need python3 python3
need file file
need c++filt binutils
need clang-19 clang-19
need llvm-strip-19 llvm-19
[ -e /usr/include/bpf/bpf_helpers.h ] || missing="$missing libbpf-dev"
[ -e /usr/include/stdio.h ] || missing="$missing libc6-dev"
[ -d /usr/lib/debug/.build-id ] || missing="$missing libc6-dbg"
if [ -n "$missing" ]; then
	if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
		echo "installing$missing"
		apt-get update -q >/dev/null
		# shellcheck disable=SC2086
		DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing >/dev/null
	else
		echo "WARNING: without$missing some tests are skipped; as root this script installs them from Debian's packages"
	fi
fi
[ "$(id -u)" = 0 ] || echo "WARNING: not run as root, so what needs root is not checked"

echo "== format, vet, staticcheck, arm64"
unformatted=$(gofmt -l $(git ls-files '*.go'))
[ -z "$unformatted" ] || { echo "gofmt would change: $unformatted"; exit 1; }
go mod tidy -diff
go vet ./...
go tool -modfile=tools/go.mod staticcheck ./...
GOARCH=arm64 go vet ./...
(cd tools && go vet ./...)
(cd bench && go vet ./...)

echo "== tests"
summary=$(mktemp -d)
trap 'rm -rf "$summary"' EXIT
go build -C tools -o "$summary/testsum" ./testsum
race=
if command -v gcc >/dev/null; then race="-race"; fi
# shellcheck disable=SC2086
go test -json -timeout 20m $race ./... 2>&1 | "$summary/testsum"
