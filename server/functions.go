package server

import (
	"context"
	"iter"
	"net/http"
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
	out := api.FunctionsAnswer{Functions: []api.FoundFunction{}, Complete: s.Store.Catalog().Complete()}
	for b := range s.indexed(q.Get("after"), q.Get("id")) {
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
	return s.writeJSON(w, out)
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

// indexed returns the binaries with symbols behind one, in the order of the catalogue, or the one with an identity where only
// is not empty.
func (s *Server) indexed(after, only string) iter.Seq[indexed] {
	c := s.Store.Catalog()
	entries := c.After(after)
	if only != "" {
		entries = func(yield func(store.Entry) bool) {
			id, err := buildid.Parse(only)
			if e, ok := c.Entry(id); err == nil && ok {
				yield(e)
			}
		}
	}
	return func(yield func(indexed) bool) {
		for e := range entries {
			dwz, _ := c.Entry(e.Dwz())
			index := e.Index(dwz)
			if index == "" || e.Symbols == store.NoSymbols {
				continue
			}
			b := indexed{id: e.ID, index: index}
			if len(e.Names) > 0 {
				b.name = e.Names[0].File
			}
			if !yield(b) {
				return
			}
		}
	}
}
