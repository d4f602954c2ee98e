#!/bin/sh
# pairs.sh OLD NEW PAIRS ARGUMENT...: runs two hallmarks in turns beside a load, and prints the CPU time of each
# run in ms (user and system, by GNU time), sorted:
#
#	cost/pairs.sh ./hallmark-before ./hallmark 6 record -a -F 999 -d 7s -o /tmp/profile.pb.gz
set -eu
old=$1 new=$2 pairs=$3
shift 3
dir=$(mktemp -d)
trap 'touch "$dir/stop"; wait; rm -rf "$dir"' EXIT
for load in 1 2; do
	(while [ ! -e "$dir/stop" ]; do
		GOCACHE=$dir/cache$load go build -a -o /dev/null cmd/gofmt
	done) >"$dir/load$load" 2>&1 &
done
sleep 4
for _ in $(seq "$pairs"); do
	/usr/bin/time -a -o "$dir/before" -f '%U %S' "$old" "$@" >/dev/null 2>&1
	/usr/bin/time -a -o "$dir/now" -f '%U %S' "$new" "$@" >/dev/null 2>&1
done
for version in before now; do
	echo "$version" $(awk '{ print ($1 + $2) * 1000 }' "$dir/$version" | sort -n)
done
