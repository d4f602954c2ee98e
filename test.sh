#!/bin/sh
# Checks everything: formatting, vet, staticcheck, the other architecture, and all
# tests, those of concurrent code under the race detector, and those that depend on
# the kernel on other kernels too, one of them for arm64, in QEMU. What the tests
# compare with (readelf, perf ...) and QEMU are installed from Debian's packages when
# run as root; the kernels are fetched once, into a directory of the user's cache.
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
need g++ g++
need dwz dwz
need perf linux-perf
need python3 python3
need file file
need debuginfod debuginfod
need debuginfod-find debuginfod
need c++filt binutils
need clang-19 clang-19
need llvm-strip-19 llvm-19
need llvm-dwp-19 llvm-19
need ld.lld-19 lld-19
need mold mold
need qemu-system-x86_64 qemu-system-x86
need qemu-system-aarch64 qemu-system-arm
need aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu
need busybox busybox-static
need cpio cpio
need xz xz-utils
[ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || missing="$missing debian-archive-keyring"
[ -e /usr/include/bpf/bpf_helpers.h ] || missing="$missing libbpf-dev"
[ -e /usr/lib/llvm-19/lib/clang/19/lib/linux/libclang_rt.asan-x86_64.a ] || missing="$missing libclang-rt-19-dev"
[ -e /usr/include/stdio.h ] || missing="$missing libc6-dev"
[ -e /usr/aarch64-linux-gnu/include/stdio.h ] || missing="$missing libc6-dev-arm64-cross"
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
(cd bench && go vet ./... && go test ./symbol)

echo "== kernels"
kernels=${HALLMARK_KERNELS:-${XDG_CACHE_HOME:-$HOME/.cache}/hallmark/kernels}
if internal/vmtest/getkernels.sh "$kernels" || { sleep 10; internal/vmtest/getkernels.sh "$kernels"; }; then
	export HALLMARK_KERNELS="$kernels"
else
	echo "WARNING: without Debian's kernels nothing is tested on them"
	unset HALLMARK_KERNELS
fi

echo "== tests"
summary=$(mktemp -d)
trap 'rm -rf "$summary"' EXIT
go build -C tools -o "$summary/testsum" ./testsum
race=
if command -v gcc >/dev/null; then race="-race"; fi
run() { # ARGUMENTS of go test
	# What Go remembers of earlier runs knows nothing of kernels, compilers and what else
	# the machine has. Vet has looked at everything already. If go fails and says of no
	# package that it did, that is a failure too.
	go test -json -count=1 -vet=off -timeout 60m "$@" 2>&1 || echo '{"Action":"fail","Package":"go test"}'
}
# These look at all that the machine does, so they are tested one at a time.
alone="./buildid ./capture ./cmd/hallmark ./internal/bpf"
# shellcheck disable=SC2086
others=$(go list ./... | grep -vxF "$(go list ./internal/vmtest $alone)")
{
	# Other kernels take longest, so all else is tested beside them.
	run ./internal/vmtest >"$summary/kernels" &
	# shellcheck disable=SC2086
	run -p 1 $race $alone
	# shellcheck disable=SC2086
	run $race $others
	# Under the race detector these look at a part of what they otherwise look at.
	if [ -n "$race" ]; then run ./symbol ./unwind; fi
	wait
	cat "$summary/kernels"
} | "$summary/testsum"
