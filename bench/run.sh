#!/bin/sh
# Makes the tables of README.md anew on this machine. Each peer is measured beside
# hallmark, in the same run. It takes some minutes, and wants a quiet machine.
set -eu
cd "$(dirname "$0")"
echo "## id"
go run ./id
echo
echo "## procmap"
go run ./procmap
echo
echo "## unwind"
go run ./unwind
echo
if [ "$(id -u)" = 0 ]; then
	echo "## inventory"
	go run ./inventory
	echo
fi
echo "## perfdata"
go run ./perfdata
echo
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
go build -C .. -o "$tmp/hallmark" ./cmd/hallmark
if [ "$(id -u)" = 0 ]; then
	echo "## exec"
	go run ./exec -hallmark "$tmp/hallmark"
	echo
fi
echo "## record"
go run ./record -hallmark "$tmp/hallmark"
if [ "$(id -u)" = 0 ]; then
	echo
	echo "## cost"
	go run ./cost -hallmark "$tmp/hallmark"
	echo
	echo "## identity"
	for load in load/*.sh; do
		echo
		echo "$load"
		"$tmp/hallmark" bench identity -d 30s -- "$load"
		./perfids.sh 10 "$load"
	done
fi
