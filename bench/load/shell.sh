#!/bin/sh
# A shell that starts thousands of processes, most of which live 1 to 5 ms.
i=0
while [ $i -lt 1000 ]; do
	/bin/true
	expr $i + 1 >/dev/null
	echo "$i" | sed 's/1/2/' | gzip -c | cksum >/dev/null
	i=$((i + 1))
done
