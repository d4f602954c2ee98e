package dwarftest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// invent makes the model: which code there is, whose it is, and its lines.
func (g *generator) invent() {
	g.is64, g.big, g.align = !g.oneIn(3), g.oneIn(3), pick(g, uint64(1), 1, 2, 4)
	g.word, g.signed = 4, g.oneIn(6)
	if g.is64 {
		g.word = 8
	}
	for range 1 + g.IntN(4) {
		g.units = append(g.units, g.newCompilation())
	}
	g.placeCode()
	for _, u := range g.units {
		for _, s := range u.scopes {
			if !s.bare {
				g.inline(u, s, 0)
			}
			u.spans = append(u.spans, s.spans...)
		}
		slices.SortFunc(u.spans, func(a, b span) int { return cmp.Compare(a.low, b.low) })
		g.makeRows(u)
	}
}

// name returns a name that nothing else has.
func (g *generator) name(prefix string) string {
	g.names++
	return fmt.Sprintf("%s%d", prefix, g.names)
}

func (g *generator) newCompilation() *compilation {
	u := &compilation{dir: pick(g, "/gen", "/gen/", "/gen/deep/er", "/")}
	if g.oneIn(10) {
		u.dir = ""
	}
	for range g.IntN(4) {
		u.dirs = append(u.dirs, pick(g, "/usr/include", "sub", "../up", "/abs/dir/", "a/b/c")+g.name("d"))
	}
	for range 1 + g.IntN(5) {
		f := &source{name: g.name("s") + ".c", dir: g.IntN(len(u.dirs) + 1)}
		if g.oneIn(8) {
			f.name = "/root/of/" + f.name
		}
		u.sources = append(u.sources, f)
	}
	if g.oneIn(8) {
		return u // without code
	}
	for range 1 + g.IntN(4) {
		s := &scope{function: g.newFunction()}
		for range pick(g, 1, 1, 1, 2, 3) {
			s.spans, s.symbols = append(s.spans, span{}), append(s.symbols, "")
		}
		g.nameSymbols(s)
		u.scopes = append(u.scopes, s)
	}
	return u
}

func (g *generator) newFunction() *function {
	f := &function{name: g.name("fn"), line: 1 + g.IntN(1<<pick(g, 4, 10, 17)), declared: 1 + g.IntN(300)}
	if g.oneIn(2) {
		f.linkage = "link_" + f.name
		if g.oneIn(20) {
			f.linkage += strings.Repeat("x", g.IntN(3000))
		}
	}
	return f
}

// nameSymbols decides which symbols a function has.
func (g *generator) nameSymbols(s *scope) {
	name := cmp.Or(s.linkage, s.name)
	switch g.IntN(4) {
	case 0:
		s.bare = g.oneIn(6) // as padding is: there are only lines
		return
	case 1:
		name = "alias_" + name
	case 2:
		s.bare = g.oneIn(6)
	}
	for i := range s.symbols {
		s.symbols[i] = name
		if name += ".part"; g.oneIn(4) && !s.bare {
			break
		}
	}
}

// placeCode gives all functions addresses.
func (g *generator) placeCode() {
	var all []*span
	for _, u := range g.units {
		for _, s := range u.scopes {
			for i := range s.spans {
				all = append(all, &s.spans[i])
			}
		}
	}
	shuffle(g, all)
	at := pick(g, uint64(0x1000), 0x401000, 0x7ff000, 0xc0001000)
	if g.is64 {
		at = pick(g, at, 0x7f0000001000, 0xffffffff81001000)
	}
	cut := len(all) + 1
	if g.oneIn(3) {
		cut = g.IntN(len(all) + 1)
	}
	t := span{at, at}
	for i, s := range all {
		if i == cut && i > 0 {
			t.high = at + g.align*g.Uint64N(3)
			g.text = append(g.text, t)
			at = t.high + 0x1000
			t.low = at
		}
		if g.oneIn(2) {
			at += g.align * g.Uint64N(20)
		}
		size := g.align * (1 + g.Uint64N(pick(g, uint64(8), 60, 60, 600)))
		*s = span{at, at + size}
		at += size
	}
	t.high = at + 1 + g.align*g.Uint64N(3)
	g.text = append(g.text, t)
}

// within returns an aligned address from s.low up to, and with, s.high.
func (g *generator) within(s span) uint64 {
	return s.low + g.align*g.Uint64N((s.high-s.low)/g.align+1)
}

// inline has calls inlined into a scope.
func (g *generator) inline(u *compilation, s *scope, depth int) {
	free := slices.Clone(s.spans)
	for range g.IntN(4 - min(depth, 3)) {
		c := &scope{function: g.newFunction()}
		if len(u.scopes) > 1 && g.oneIn(5) {
			c.function = u.functions()[g.IntN(len(u.functions()))]
		}
		for range pick(g, 1, 1, 2, 3) {
			i := g.IntN(len(free))
			f := free[i]
			a, b := g.within(f), g.within(f)
			if a > b {
				a, b = b, a
			}
			if g.oneIn(6) {
				a, b = f.low, f.high
			}
			if a == b {
				continue
			}
			free[i] = span{f.low, a}
			free = append(free, span{b, f.high})
			c.spans = append(c.spans, span{a, b})
		}
		if len(c.spans) == 0 {
			continue
		}
		c.callLine, c.callCol = 1+g.IntN(1<<pick(g, 3, 7, 9, 17)), g.IntN(pick(g, 1, 100, 300))
		if c.callFile = pick(g, u.sources...); g.oneIn(20) {
			c.callFile, c.callLine, c.callCol = nil, 0, 0
		}
		s.children = append(s.children, c)
		g.inline(u, c, depth+1)
	}
}

// functions returns the functions that the scopes of a unit are instances of, those that
// were inlined.
func (u *compilation) functions() (all []*function) {
	seen := map[*function]bool{}
	var add func(s *scope)
	add = func(s *scope) {
		if !seen[s.function] {
			seen[s.function] = true
			all = append(all, s.function)
		}
		for _, c := range s.children {
			add(c)
		}
	}
	for _, s := range u.scopes {
		if !s.bare {
			add(s)
		}
	}
	if len(all) == 0 {
		all = append(all, u.scopes[0].function)
	}
	return all
}

// makeRows gives the code of a unit lines.
func (g *generator) makeRows(u *compilation) {
	for i, s := range u.spans {
		bare := slices.ContainsFunc(u.scopes, func(c *scope) bool { return c.bare && slices.Contains(c.spans, s) })
		if g.oneIn(25) && !bare {
			continue // without lines
		}
		q := &sequence{span: s}
		if n := len(u.sequences); i > 0 && n > 0 && u.sequences[n-1].high == s.low && g.oneIn(2) {
			q = u.sequences[n-1]
			q.high = s.high
		} else {
			u.sequences = append(u.sequences, q)
		}
		at := s.low
		if len(q.rows) > 0 {
			at = g.within(span{s.low, s.high - g.align})
		}
		for range 1 + g.IntN(6) {
			r := row{addr: at, file: pick(g, u.sources...), line: 1 + g.IntN(1<<pick(g, 3, 6, 10, 17)), col: g.IntN(pick(g, 1, 10, 200, 3000))}
			if g.oneIn(20) {
				r.line = 0
			}
			q.rows = append(q.rows, r)
			if g.oneIn(8) {
				continue // another one at the same address
			}
			if at += g.align * g.Uint64N(20); at >= s.high {
				break
			}
		}
	}
}
