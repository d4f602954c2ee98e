#!/bin/sh
# switches.sh HALLMARK ARGUMENT...: what a hallmark with symbols waits for, by the function of the Go runtime that
# called the kernel, with the number of voluntary switches:
#
#	go build -ldflags=-w -C .. -o bench/hallmark ./cmd/hallmark
#	cost/switches.sh ./hallmark record -a -F 99 -d 10s --no-symbols -o /tmp/profile.pb.gz    # as root
set -eu
data=$(mktemp)
trap 'rm -f "$data"' EXIT
perf record -B -q -e sched:sched_switch --filter 'prev_state==1' -g -o "$data" -- "$@" >/dev/null
perf script -i "$data" -F comm,ip,sym 2>/dev/null | awk -v name="$(basename "$1" | cut -c1-15)" '
	BEGIN { RS = "" }
	index($0, name) == 1 {
		split($0, lines, "\n")
		caller = "other"
		for (i = 2; i in lines; i++)
			if (match(lines[i], /runtime\.(sysmon|netpoll|stopm|findRunnable|gcBgMarkWorker|notetsleep_internal)/)) {
				caller = substr(lines[i], RSTART, RLENGTH)
				if (caller != "runtime.notetsleep_internal")
					break
			}
		count[caller]++
	}
	END { for (caller in count) print count[caller], caller }' | sort -rn
