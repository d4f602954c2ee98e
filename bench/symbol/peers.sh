#!/bin/sh
# Installs what symbols are compared with from Debian's packages, as root, and builds
# the two small programs that ask libraries into a directory:
#
#	peers.sh [DIRECTORY]
set -eu
dir=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/hallmark/bench/symbol}/peers
src=$(cd "$(dirname "$0")/peers" && pwd)
registry=/usr/share/cargo/registry

missing=
need() { # COMMAND PACKAGE
	command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}
need addr2line binutils
need eu-addr2line elfutils
need llvm-symbolizer-19 llvm-19
need g++ g++
need cargo cargo
[ -e /usr/lib/llvm-19/include/llvm/DebugInfo/GSYM/GsymReader.h ] || missing="$missing llvm-19-dev"
for crate in addr2line memmap2 object; do
	ls -d "$registry/$crate"-* >/dev/null 2>&1 || missing="$missing librust-$crate-dev"
done
if [ -n "$missing" ]; then
	# shellcheck disable=SC2086
	DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing
fi

mkdir -p "$dir"
g++ -O2 -std=c++17 -I/usr/lib/llvm-19/include -o "$dir/gsym-peer" "$src/gsym.cc" -L/usr/lib/llvm-19/lib -lLLVM-19

build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
cp -r "$src/addr2line/." "$build"
cd "$build"
cargo build --release --offline --config 'source.crates-io.replace-with="debian"' \
	--config "source.debian.directory=\"$registry\""
cp target/release/addr2line-peer "$dir"
