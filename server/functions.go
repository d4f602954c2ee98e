package server

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"hallmark/buildid"
	"hallmark/server/api"
	"hallmark/server/store"
	"hallmark/symbol"
)

// Bounds of searches for functions.
const (
	leastSearch    = 3   // bytes of what is searched
	maxFunctionsOf = 100 // functions of one binary
	// No other binary is searched for a page with so many functions, or after that time: the next page goes on.
	maxFunctions  = 200
	functionsTime = 2 * time.Second
	// One binary is left, with more in it, after these bytes of names, and that time.
	maxFunctionText = 1 << 20
	longestSearch   = 20 * time.Second
)

// findFunctions answers which functions have a text in their name, of people or of the linker. It searches the indexes
// that are on the disk of this server, and counts the others: an index is there once its binary was symbolized.
func (s *Server) findFunctions(w *exchange, r *http.Request, _ caller) error {
	if s.Symbols == nil {
		return fail(http.StatusNotFound, "this server does not symbolize")
	}
	q := r.URL.Query()
	text := strings.TrimSpace(q.Get("q"))
	if len(text) < leastSearch || len(text) > maxSearch {
		return fail(http.StatusBadRequest, "q needs %d to %d bytes", leastSearch, maxSearch)
	}
	slot, err := s.takeHeavy(r.Context(), w.client)
	if err != nil {
		return err
	}
	defer slot.release()
	begun, size := time.Now(), 0
	out := api.FunctionsAnswer{Functions: []api.FoundFunction{}, Complete: s.catalog.isComplete()}
	for _, b := range s.catalog.indexed(q.Get("after"), q.Get("id")) {
		if err := r.Context().Err(); err != nil {
			return err
		}
		size += s.searchIn(r.Context(), &out, &b, text)
		if time.Since(begun) > functionsTime || len(out.Functions) >= maxFunctions || size >= maxFunctionText {
			out.Next = b.id.String()
			break
		}
	}
	slot.release()
	return writeJSON(w, out)
}

// searchIn adds what is found in a binary to an answer, and returns how many bytes the texts of that have.
func (s *Server) searchIn(ctx context.Context, out *api.FunctionsAnswer, b *indexed, text string) (size int) {
	x, closeIndex, ok := s.Symbols.Here(b.id, b.index)
	if !ok {
		out.NotHere++
		return 0
	}
	defer closeIndex()
	found, size, more := functionsOf(ctx, x, b, text)
	if x.Damage() != nil {
		out.NotHere++
		return 0
	}
	out.Functions = append(out.Functions, found...)
	out.Searched++
	if more {
		out.Cut++
	}
	return size
}

// functionsOf returns functions of a binary that have a text in their name, how many bytes their texts have, and
// whether there may be more.
func functionsOf(ctx context.Context, x *symbol.Index, b *indexed, text string) (found []api.FoundFunction, size int, more bool) {
	ctx, cancel := context.WithTimeout(ctx, longestSearch)
	defer cancel()
	for f := range x.Functions() {
		if ctx.Err() != nil {
			return found, size, true
		}
		name := symbol.Demangle(f.Linkage)
		if !strings.Contains(name, text) && !strings.Contains(f.Linkage, text) {
			continue
		}
		if len(found) == maxFunctionsOf || size >= maxFunctionText {
			return found, size, true
		}
		one := api.FoundFunction{ID: b.id, Binary: b.name, Function: strings.Clone(name), File: strings.Clone(f.File), Line: f.Start, Virtual: uint64(f.Virt), Inlined: f.Inlined}
		if name != f.Linkage {
			one.Linkage = strings.Clone(f.Linkage)
		}
		size += len(one.Function) + len(one.Linkage) + len(one.File) + len(one.Binary)
		found = append(found, one) // its texts outlive the index
	}
	return found, size, false
}

// indexed is a binary that has an index, or may have one.
type indexed struct {
	id    buildid.ID
	name  string
	index string
}

// indexed returns the binaries with symbols behind one, by their text, or the one with an identity where only is not
// empty.
func (c *catalog) indexed(after, only string) []indexed {
	order := c.order()
	c.mu.RLock()
	defer c.mu.RUnlock()
	from := 0
	if after != "" {
		from, _ = slices.BinarySearchFunc(order, after, func(id buildid.ID, text string) int { return strings.Compare(id.String(), text) }) // one may be removed meanwhile
	}
	var all []indexed
	for _, id := range order[from:] {
		e := c.entries[id]
		index := e.index.With(c.entries[e.index.Dwz].dwz)
		if index == "" || e.symbols == store.NoSymbols || e.text == after || only != "" && e.text != only {
			continue
		}
		b := indexed{id: id, index: index}
		if len(e.names) > 0 {
			b.name = e.names[0].File
		}
		all = append(all, b)
	}
	return all
}
