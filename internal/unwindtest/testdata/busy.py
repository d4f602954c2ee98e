# CPython that calls itself through C: keys of sorts, replacements of expressions,
# decoders with hooks, generators, classes, exceptions.
import decimal, functools, hashlib, itertools, json, re, struct, sys, time, zlib

end = time.monotonic() + (int(sys.argv[1]) if len(sys.argv) > 1 else 1000) / 1000


class Key:
    def __init__(self, v):
        self.v = v

    def __lt__(self, other):
        return str(self.v) < str(other.v)


def key(v):
    return Key(v)


def replace(m):
    return hashlib.sha256(m.group(0).encode()).hexdigest()[:4]


def hook(d):
    return {k: sorted(str(v)) for k, v in d.items()}


def deep(n):
    return max(map(lambda v: deep(v), [n - 1])) + 1 if n > 0 else sum(x * x for x in range(200))


def thrower(n):
    try:
        if n == 0:
            raise ValueError(n)
        return thrower(n - 1)
    except ValueError as e:
        if n % 3:
            raise
        return str(e)


text = json.dumps({"a": [{"b": i, "c": [str(i)] * 3} for i in range(40)]})
n = 0
while time.monotonic() < end:
    n += 1
    sorted(range(200), key=key)
    sorted(range(100), key=functools.cmp_to_key(lambda a, b: (a * 7919 % 101) - (b * 7919 % 101)))
    re.sub(r"([a-z]+)([0-9]*)", replace, "abc12 def x9 " * 10)
    json.loads(text, object_hook=hook)
    deep(n % 30)
    thrower(n % 9)
    zlib.decompress(zlib.compress(text.encode() * 4))
    decimal.Decimal(n).sqrt() ** decimal.Decimal("1.5")
    list(itertools.accumulate(range(300), lambda a, b: a ^ b))
    struct.unpack("200I", struct.pack("200I", *range(200)))
