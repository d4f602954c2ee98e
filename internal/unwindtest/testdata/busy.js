// Node: compiled and interpreted JavaScript, V8's builtins with callbacks, native code.
const crypto = require("crypto"), zlib = require("zlib");
const end = Date.now() + (Number(process.argv[2]) || 1000);

function deep(n) { return n ? [n - 1].map((v) => deep(v))[0] + 1 : 0; }
function tree(n) { return n ? { n, children: [tree(n - 1), tree(n - 1)], text: "x".repeat(n) } : null; }
function thrower(n) { if (n === 0) throw new Error("caught"); return thrower(n - 1) + 1; }

for (let n = 0; Date.now() < end; n++) {
  const words = Array.from({ length: 300 }, (_, i) => String((i * 7919 * (n + 1)) % 100003));
  words.sort((a, b) => (a < b ? -1 : 1));
  JSON.parse(JSON.stringify(tree(7)), (k, v) => v);
  "abc12 def x9 ".repeat(20).replace(/([a-z]+)([0-9]*)/g, (m) => m.length);
  deep(n % 60);
  try { thrower(n % 30); } catch (e) { void e.stack; }
  crypto.createHash("sha256").update(words.join("")).digest("hex");
  if (n % 10 === 0) zlib.deflateSync(words.join(","));
  new Map(words.map((w) => [w, new Set(w)])).forEach((v) => v.size);
}
