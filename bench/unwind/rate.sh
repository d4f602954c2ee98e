#!/bin/sh
# What each second of recording costs: two recordings of different length, so that starting
# and ending is told apart, beside perf with copied stacks. perf has no stacks then: what
# `perf script` takes for finding them belongs to its time. The load is that of
# unwind/mix. As root, from this module's directory:
#
#	unwind/rate.sh HALLMARK [ROUNDS]
set -eu
hallmark=$(realpath "$1")
rounds=${2:-3}
short=5 long=35
here=$(dirname "$(realpath "$0")")
dir=$(mktemp -d)
export XDG_CACHE_HOME="$dir/cache"
trap 'rm -rf "$dir"' EXIT

# cpu COMMAND...: its CPU time in ms, of user and kernel.
cpu() {
	/usr/bin/time -f '%U %S' -o "$dir/time" "$@" >"$dir/log" 2>&1 || { cat "$dir/log" >&2; exit 1; }
	awk 'END { print ($1 + $2) * 1000 }' "$dir/time"
}
sampling() { cpu "$hallmark" record -a -F 99 -d "$1s" -o "$dir/hallmark.pb.gz"; }
copying() { cpu perf record -a -F 99 --call-graph dwarf -o "$dir/perf.data" -- sleep "$1"; }

mkdir "$dir/load"
setsid sh "$here/mix/load.sh" $((rounds * (2 * short + 3 * long + 30) + 30)) "$dir/load" >"$dir/load.log" 2>&1 &
load=$!
trap 'kill -- -$load 2>/dev/null; sleep 1; rm -rf "$dir"' EXIT
sleep 3
sampling $short >/dev/null # its caches
echo "| round | hallmark, $short s, CPU ms | $long s | a second | perf --call-graph dwarf, $short s | $long s | a second | perf script of that | perf, with that, ÷ hallmark, $long s |"
echo '|---|--:|--:|--:|--:|--:|--:|--:|--:|'
for round in $(seq "$rounds"); do
	a=$(sampling $short)
	b=$(copying $short)
	c=$(sampling $long)
	d=$(copying $long)
	e=$(cpu perf script --no-inline -F ip,sym -i "$dir/perf.data")
	echo "$round $a $b $c $d $e" | awk -v s=$short -v l=$long '{
		printf "| %d | %d | %d | %.1f | %d | %d | %.1f | %d | %.1f |\n", $1, $2, $4, ($4 - $2) / (l - s), $3, $5, ($5 - $3) / (l - s), $6, ($5 + $6) / $4
	}'
done
