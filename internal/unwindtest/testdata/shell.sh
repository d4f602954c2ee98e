# A shell that starts the programs of a machine over and over.
end=$(($(date +%s%N) / 1000000 + ${1:-1000}))
while [ $(($(date +%s%N) / 1000000)) -lt $end ]; do
	xz -9 <libc.c | gzip -9 | sha256sum >/dev/null
	awk '{ print length }' libc.c | sort -n >/dev/null
	sed s/a/b/g libc.c | grep -c static >/dev/null
done
exit 0
