#!/bin/sh
# Of how many frames does perf know the build ID from the kernel's records alone?
# perfids.sh SECONDS CMD [ARG...] runs the command again and again meanwhile.
set -eu
seconds=$1
shift
data=$(mktemp)
trap 'rm -f "$data"' EXIT
perf record -q -e cpu-clock -F 997 -g --buildid-mmap -o "$data" -- \
	timeout "$seconds" sh -c 'while :; do "$@" || exit; done >/dev/null 2>&1' sh "$@" || true
perf script -i "$data" --show-mmap-events -F comm,tid,event,ip,dso | awk '
	/PERF_RECORD_MMAP2/ {
		path = $NF
		id[path] = id[path] || /<[0-9a-f]+>\]: /
		next
	}
	/^[ \t]+[0-9a-f]+ \(.*\)$/ {
		dso = $2
		for (i = 3; i <= NF; i++) dso = dso " " $i
		dso = substr(dso, 2, length(dso) - 2)
		if (dso ~ /^\[(kernel|guest)/) next
		frames++
		if (dso !~ /^\// || dso ~ /^\/\/anon/ || dso ~ /^\/tmp\/perf-/) nowhere++
		else if (id[dso]) known++
		else unknown++
	}
	END {
		printf "%d frames of user code; in mapped files %.2f %%, of these with build ID %.2f %%\n", \
			frames, 100 * (known + unknown) / frames, 100 * known / (known + unknown)
	}'
