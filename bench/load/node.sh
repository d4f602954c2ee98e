#!/bin/sh
# A Node program: generated code, and a large binary.
exec node -e '
const crypto = require("crypto"), zlib = require("zlib")
const end = Date.now() + 5000
while (Date.now() < end) {
  const rows = []
  for (let i = 0; i < 20000; i++) rows.push({ i, s: "row " + i * 7919 % 104729, f: Math.sqrt(i) })
  rows.sort((a, b) => a.s < b.s ? -1 : 1)
  const text = JSON.stringify(rows)
  JSON.parse(text).map(r => r.s.replace(/[0-9]+/, n => n * 2))
  zlib.gzipSync(text)
  crypto.createHash("sha256").update(text).digest("hex")
}'
