#!/bin/sh
# A Python program that works in the interpreter and in libraries.
exec python3 -c '
import hashlib, json, re, sqlite3, zlib

def words(n):
    return [hashlib.sha256(str(i).encode()).hexdigest() for i in range(n)]

db = sqlite3.connect(":memory:")
db.execute("create table t (k text primary key, v int)")
for _ in range(10):
    text = words(20000)
    found = sum(1 for w in text if re.search("[a-f]{4}[0-9]{4}", w))
    packed = zlib.compress(json.dumps(text).encode())
    counts = {}
    for w in text:
        counts[w[:3]] = counts.get(w[:3], 0) + 1
    db.executemany("insert or replace into t values (?, ?)", counts.items())
    db.execute("select sum(v) from t where k like ?", ("a%",)).fetchall()
'
