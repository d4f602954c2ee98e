#!/bin/bash
# What does a sample cost by two versions of hallmark? Both record the machine at once, so that they see the
# same load, and the kernel counts what their programs take. Run it as root:
#
#	unwind/pair.sh HALLMARK-BEFORE HALLMARK [ROUNDS [HZ]]
set -eu
before=$1 now=$2 rounds=${3:-5} hz=${4:-199}
dir=$(mktemp -d)
enabled=$(cat /proc/sys/kernel/bpf_stats_enabled)
trap 'echo "$enabled" > /proc/sys/kernel/bpf_stats_enabled; rm -rf "$dir"' EXIT
echo 1 > /proc/sys/kernel/bpf_stats_enabled

# cost prints ns and runs of the programs on perf events (type 7) of a process.
cost() {
	cat /proc/"$1"/fdinfo/* 2>/dev/null | awk '/^prog_type:/ { type = $2 } /^run_time_ns:/ && type == 7 { ns += $2 } /^run_cnt:/ && type == 7 { runs += $2 } END { print ns + 0, runs + 0 }'
}

for ((i = 1; i <= rounds; i++)); do
	# Which of them starts first changes: the kernel calls them in this order.
	if ((i % 2)); then order=("$before" "$now"); else order=("$now" "$before"); fi
	pids=()
	for program in "${order[@]}"; do
		"$program" record -a --no-symbols --backend bpf -F "$hz" -d 25s -o "$dir/$((i + ${#pids[@]})).pb.gz" >"$dir/log" 2>&1 &
		pids+=($!)
	done
	sleep 5
	first=$(cost "${pids[0]}") second=$(cost "${pids[1]}")
	sleep 17
	first="$first $(cost "${pids[0]}")" second="$second $(cost "${pids[1]}")"
	wait "${pids[@]}"
	if ((i % 2)); then set -- $first $second; else set -- $second $first; fi
	awk -v i="$i" 'BEGIN { b = (ARGV[3] - ARGV[1]) / (ARGV[4] - ARGV[2]); n = (ARGV[7] - ARGV[5]) / (ARGV[8] - ARGV[6])
		printf "round %d: before %.0f ns a sample (%d), now %.0f (%d), ratio %.3f\n", i, b, ARGV[4] - ARGV[2], n, ARGV[8] - ARGV[6], n / b }' "$@"
done
