#!/bin/sh
# What a build machine does: compilers, interpreters, compression, digests, and thousands
# of processes that live a few milliseconds. Ends after $1 seconds; $2 is a directory for
# what is made.
end=$(($(date +%s) + $1))
dir=$2
cat >"$dir/a.c" <<'C'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static int less(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
int main(int c, char **v) { int a[2000]; for (int i = 0; i < 2000; i++) a[i] = i * 7919 % 2003; qsort(a, 2000, 4, less); return a[c] > 1 && strlen(v[0]) > 9999; }
C
printf 'package main\n\nimport "fmt"\n\nfunc main() { fmt.Println(1) }\n' >"$dir/a.go"
head -c 3000000 /dev/urandom | base64 >"$dir/text"
gcc -O2 -o "$dir/short" "$dir/a.c"
more() { [ "$(date +%s)" -lt $end ]; }
storm() { while more; do for i in 1 2 3 4 5 6 7 8 9 10; do "$dir/short"; /bin/true; expr $i + 1 >/dev/null; echo "$i" | sed s/1/2/ | cksum >/dev/null; done; done; }
compile() { while more; do gcc -O2 -o "$dir/b" "$dir/a.c"; done; }
golang() { while more; do GOCACHE=$dir/gocache CGO_ENABLED=0 go build -a -o "$dir/c" "$dir/a.go"; done; }
python() { while more; do /usr/bin/python3 -c 'import json, re; s = json.dumps([{"a": i, "b": [str(i)] * 5} for i in range(20000)]); json.loads(s); re.sub("[0-9]+", lambda m: m.group(0)[::-1], s); sorted(s.split(), key=lambda w: w[::-1])'; done; }
node_() { while more; do node -e 'const a = []; for (let i = 0; i < 200000; i++) a.push("x" + i * 7919 % 104729); a.sort((x, y) => x < y ? -1 : 1); JSON.parse(JSON.stringify(a))'; done; }
tools() { while more; do xz -3 <"$dir/text" >/dev/null; gzip <"$dir/text" >/dev/null; sort "$dir/text" | uniq | sha256sum >/dev/null; openssl dgst -sha512 "$dir/text" >/dev/null; openssl speed -seconds 1 -evp aes-128-gcm >/dev/null 2>&1; done; }
storm &
compile &
command -v go >/dev/null && golang &
[ -x /usr/bin/python3 ] && python &
command -v node >/dev/null && node_ &
tools &
wait
