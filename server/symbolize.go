package server

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"time"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/internal/plaintext"
	"hallmark/server/api"
	"hallmark/server/blob"
	"hallmark/server/columns"
	"hallmark/server/store"
	"hallmark/server/symbols"
	"hallmark/symbol"
)

// Limits of questions.
const (
	maxQuestion = 32 << 20  // bytes
	maxFiles    = 1 << 16   // of a question
	maxCalls    = 16 << 20  // frames of all addresses, each as often as it is there
	maxText     = 256 << 20 // bytes of names in an answer as JSON, each as often as it is there
	defaultWait = 30 * time.Second
	longestWait = 5 * time.Minute
)

// symbolize answers with functions and lines, in columns or as JSON.
func (s *Server) symbolize(w *exchange, r *http.Request, _ caller) error {
	if s.Symbols == nil {
		return fail(http.StatusNotFound, "this server does not symbolize")
	}
	body, given, err := s.readMessage(r, w.client, http.MaxBytesReader(w, r.Body, maxQuestion))
	if err != nil {
		return err
	}
	defer given()
	if w.slot, err = s.takeHeavy(r.Context(), w.client); err != nil {
		return err
	}
	defer w.slot.release()
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if kind == "application/x-protobuf" {
		q, err := columns.ParseQuestion(body, api.MaxAddresses)
		if err != nil {
			return &statusError{status: http.StatusBadRequest, err: err}
		}
		return s.symbolizeColumns(w, r, q)
	}
	return s.symbolizeJSON(w, r, body)
}

// Bounds of what waits of an answer in columns before a part of it is sent.
const (
	partAddresses = 1 << 16
	partTime      = 250 * time.Millisecond
)

// symbolizeColumns answers in parts, so that neither the client has to wait for all indexes, nor the answer has to
// be in memory here.
func (s *Server) symbolizeColumns(w *exchange, r *http.Request, q *columns.Question) error {
	var part []byte
	b, begun, last, waiting := columns.NewBuilder(), false, time.Now(), 0
	err := s.answer(r, w.asker(), q, b, func(n int) error {
		waiting += n
		if waiting < partAddresses && time.Since(last) < partTime {
			return nil
		}
		w.Header().Set("Content-Type", columns.MediaType)
		part, begun, last, waiting = b.Part(part[:0]), true, time.Now(), 0
		if _, err := w.Write(part); err != nil {
			return err
		}
		return http.NewResponseController(w).Flush()
	})
	switch {
	case err != nil && !begun:
		return err
	case err != nil:
		if s.Log != nil && r.Context().Err() == nil {
			s.Log.LogAttrs(r.Context(), slog.LevelWarn, "an answer ended before its time", slog.Any("error", err))
		}
		_, err = w.Write(columns.AppendError(nil, publicText(err)))
		return ignoreGone(err)
	}
	part = b.Part(part[:0])
	w.Header().Set("Content-Type", columns.MediaType)
	if !begun {
		w.Header().Set("Content-Length", strconv.Itoa(len(part)))
	}
	_, err = w.Write(part)
	return ignoreGone(err)
}

// symbolizeJSON answers people and scripts.
func (s *Server) symbolizeJSON(w *exchange, r *http.Request, body []byte) error {
	var in api.SymbolizeRequest
	if err := decodeJSON(bytes.NewReader(body), &in); err != nil {
		return err
	}
	if len(in.Files) > maxFiles {
		return fail(http.StatusRequestEntityTooLarge, "more than %d files", maxFiles)
	}
	q := &columns.Question{WaitMS: uint64(max(0, in.WaitSeconds) * 1000)}
	order := make([][]int, len(in.Files))
	total := 0
	for i, f := range in.Files {
		if total += len(f.Addresses); total > api.MaxAddresses {
			return fail(http.StatusRequestEntityTooLarge, "more than %d addresses", api.MaxAddresses)
		}
		if _, err := parseID(f.ID); err != nil {
			return err
		}
		c := columns.File{ID: f.ID, Virtual: f.Virtual}
		for j := range f.Addresses {
			order[i] = append(order[i], j)
		}
		slices.SortFunc(order[i], func(a, b int) int { return cmp.Compare(f.Addresses[a], f.Addresses[b]) })
		for _, j := range order[i] {
			c.Addresses = append(c.Addresses, uint64(f.Addresses[j]))
		}
		q.Files = append(q.Files, c)
	}
	b := columns.NewBuilder()
	if err := s.answer(r, w.asker(), q, b, func(int) error { return nil }); err != nil {
		return err
	}
	a := &b.Answer
	results, text := a.Reader(), int64(0)
	for i := range in.Files {
		if in.Chains {
			text += textOnce(a, results, i)
		} else {
			text += results.Text(i)
		}
		if text > maxText {
			return fail(http.StatusRequestEntityTooLarge, `the answer has more than %d bytes of names: ask for fewer addresses at once, with "chains":true, or in columns`, maxText)
		}
	}
	w.slot.release() // the client may be slow
	w.Header().Set("Content-Type", "application/json")
	return ignoreGone(writeSymbols(w, &in, a, results, order))
}

// writeSymbols writes an api.SymbolizeAnswer, of which no more than one result is in memory: a
// question of few bytes can have a large answer. order has the places in the question of the results.
func writeSymbols(w io.Writer, in *api.SymbolizeRequest, a *columns.Answer, results *columns.Reader, order [][]int) error {
	out := bufio.NewWriterSize(w, 64<<10)
	e := json.NewEncoder(plaintext.JSON(out))
	fmt.Fprint(out, `{"files":[`)
	for i := range in.Files {
		if i > 0 {
			out.WriteByte(',')
		}
		file := api.SymbolizedFile{ID: in.Files[i].ID, Why: a.Files[i].Why, Code: a.Files[i].Code}
		if id, err := buildid.Parse(file.ID); err == nil && isShort(id) && file.Why == string(symbols.NoFile) {
			file.Why = "short"
		}
		if results.Len(i) == 0 {
			if err := e.Encode(file); err != nil {
				return err
			}
			continue
		}
		fmt.Fprint(out, `{"id":`)
		if err := e.Encode(file.ID); err != nil {
			return err
		}
		fmt.Fprintf(out, `,"code":"%s",`, file.Code)
		back := make([]int, results.Len(i))
		for j, at := range order[i] {
			back[at] = j
		}
		write := writeEach
		if in.Chains {
			write = writeChains
		}
		if err := write(out, e, a, results, i, back); err != nil {
			return err
		}
	}
	fmt.Fprintln(out, `]}`)
	return out.Flush()
}

// writeEach writes the results of a file, one for each address.
func writeEach(out *bufio.Writer, e *json.Encoder, _ *columns.Answer, results *columns.Reader, file int, back []int) error {
	out.WriteString(`"results":[`)
	for j, at := range back {
		if j > 0 {
			out.WriteByte(',')
		}
		if err := e.Encode(symbolized(results.At(file, at))); err != nil {
			return err
		}
	}
	out.WriteString(`]}`)
	return nil
}

// chainKey is what results have in common that are the same.
type chainKey struct{ chain, from uint64 }

func keyAt(a *columns.Answer, file, at int) chainKey {
	f := &a.Files[file]
	return chainKey{f.Chains[at], f.From[at]}
}

// writeChains writes the different results of a file, and for each address the number of its own.
func writeChains(out *bufio.Writer, e *json.Encoder, a *columns.Answer, results *columns.Reader, file int, back []int) error {
	numbers := map[chainKey]int{}
	out.WriteString(`"chains":[`)
	for _, at := range back {
		key := keyAt(a, file, at)
		if _, ok := numbers[key]; ok {
			continue
		}
		if len(numbers) > 0 {
			out.WriteByte(',')
		}
		numbers[key] = len(numbers)
		if err := e.Encode(symbolized(results.At(file, at))); err != nil {
			return err
		}
	}
	out.WriteString(`],"numbers":[`)
	for j, at := range back {
		if j > 0 {
			out.WriteByte(',')
		}
		out.WriteString(strconv.Itoa(numbers[keyAt(a, file, at)]))
	}
	out.WriteString(`]}`)
	return nil
}

// textOnce returns how many bytes the texts of a file's different results have.
func textOnce(a *columns.Answer, results *columns.Reader, file int) (sum int64) {
	seen := map[chainKey]bool{}
	for at := range results.Len(file) {
		key := keyAt(a, file, at)
		if key.chain == 0 || seen[key] {
			continue
		}
		seen[key] = true
		for _, f := range results.At(file, at).Frames {
			sum += int64(len(f.Func) + len(f.Linkage) + len(f.Symbol) + len(f.File))
		}
	}
	return sum
}

func symbolized(r symbol.Result) (out api.Symbolized) {
	if len(r.Frames) == 0 {
		out.Reason = r.Reason.Code()
		return out
	}
	out.Source = r.Source.String()
	for _, f := range r.Frames {
		a := api.Frame{Function: f.Func, File: f.File, Line: f.Line, Column: f.Column, Start: f.Start, Symbol: f.Symbol, Inlined: f.Inlined, Language: f.Lang.String()}
		if f.Linkage != f.Func {
			a.Linkage = f.Linkage
		}
		out.Frames = append(out.Frames, a)
	}
	return out
}

// answer answers a question into b, and calls each after each file with the number of its addresses.
func (s *Server) answer(r *http.Request, by asker, q *columns.Question, b *columns.Builder, each func(addresses int) error) error {
	wait := defaultWait
	if q.WaitMS > 0 {
		wait = min(time.Duration(min(q.WaitMS, 1<<30))*time.Millisecond, longestWait)
	}
	waiting, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	calls := maxCalls
	for i := range q.Files {
		left := calls
		a, err := s.answerFile(r, waiting, by, b, &q.Files[i], &calls)
		if errors.Is(err, symbols.ErrDamaged) { // the next index is another one
			calls = left
			a, err = s.answerFile(r, waiting, by, b, &q.Files[i], &calls)
		}
		if err != nil {
			return err
		}
		result := "named"
		if a.Why != "" {
			result = a.Why
		}
		s.metrics.add(int64(len(q.Files[i].Addresses)), "hallmark_addresses_total", "result", result)
		b.Files = append(b.Files, a)
		if err := each(len(q.Files[i].Addresses)); err != nil {
			return err
		}
	}
	return nil
}

// answerFile answers for one file, of which no more calls may be than calls has left. An error is one
// of the store, or that there are more.
func (s *Server) answerFile(r *http.Request, waiting context.Context, by asker, b *columns.Builder, f *columns.File, calls *int) (columns.FileAnswer, error) {
	x, m, err := s.openIndex(r, waiting, by, f.ID)
	var miss *symbols.MissError
	var broken *store.BrokenError
	switch {
	case errors.As(err, &miss):
		return columns.FileAnswer{Why: string(miss.Miss)}, nil
	case errors.As(err, &broken):
		return columns.FileAnswer{Why: string(symbols.Damaged)}, nil
	case err != nil:
		return columns.FileAnswer{}, err
	}
	defer x.Close()
	a := columns.FileAnswer{Code: x.Code.String(), Chains: make([]uint64, len(f.Addresses)), From: make([]uint64, len(f.Addresses))}
	if !x.HasCode() && m.DebugFileNames() {
		a.Segments = x.CodeSegments()
	}
	cursor := x.Cursor()
	for i, address := range f.Addresses {
		if i&0xffff == 0xffff && r.Context().Err() != nil {
			return a, r.Context().Err()
		}
		v, ok := addr.Virt(address), true
		if !f.Virtual {
			v, ok = x.Virt(addr.Offset(address))
		}
		var frames []symbol.Frame
		var source symbol.Source
		if ok {
			if frames, source, err = cursor.Frames(v); err != nil {
				return a, err
			}
		}
		if *calls -= len(frames); *calls < 0 {
			return a, fail(http.StatusRequestEntityTooLarge, "the answer has more than %d calls: ask for fewer addresses at once", maxCalls)
		}
		if len(frames) > 0 {
			a.Chains[i], a.From[i] = b.Chain(frames), uint64(source)
			continue
		}
		a.From[i] = b.Reason(x.WhyNot(f.Virtual, address))
	}
	return a, nil
}

// isShort reports whether an identity that no file has may be the start of another one: the shortest that linkers
// make by themselves has 8 bytes (--build-id=fast of LLD).
func isShort(id buildid.ID) bool { return len(id.Bytes()) < 8 }

// openIndex returns the index of an identity with its manifest, whose files may come from this machine or from
// upstream.
func (s *Server) openIndex(r *http.Request, waiting context.Context, by asker, text string) (*symbols.Index, *store.Manifest, error) {
	id, err := buildid.Parse(text)
	if err != nil || id.Kind() == buildid.HTL {
		return nil, nil, &symbols.MissError{Miss: symbols.NoFile}
	}
	// Both files, as far as they are known: either may have the symbols.
	if err := s.bring(r, waiting, id, executable, debugFile); err != nil {
		return nil, nil, err
	}
	m, err := s.Store.Manifest(r.Context(), id)
	if errors.Is(err, blob.ErrNotExist) {
		if !isShort(id) {
			s.missing.note(by.name, id, "")
		}
		return nil, nil, &symbols.MissError{Miss: symbols.NoFile}
	}
	if err != nil {
		return nil, nil, err
	}
	if dwz := m.IndexName().Dwz; !dwz.IsZero() {
		if err := s.bring(r, waiting, dwz, debugFile); err != nil {
			return nil, nil, err
		}
	}
	s.usedForIndex(r.Context(), by.name, m)
	x, err := s.index(r.Context(), waiting, by.slot, m)
	var broken *store.BrokenError
	if !errors.As(err, &broken) {
		return x, m, err
	}
	for _, a := range []artefact{executable, debugFile} {
		if err := s.regain(r.WithContext(waiting), id, a); err != nil {
			return nil, nil, err
		}
	}
	x, err = s.index(r.Context(), waiting, by.slot, m)
	return x, m, err
}

// bring takes files of an identity into the store, from this machine or from upstream. That there are none is no error.
func (s *Server) bring(r *http.Request, waiting context.Context, id buildid.ID, files ...artefact) error {
	for _, a := range files {
		_, _, err := s.find(r.WithContext(waiting), id, a)
		switch {
		case err == nil || statusOf(err) == http.StatusNotFound:
		case r.Context().Err() != nil:
			return r.Context().Err()
		case waiting.Err() != nil:
			return &symbols.MissError{Miss: symbols.Pending}
		case statusOf(err) != http.StatusServiceUnavailable:
			return err
		}
	}
	return nil
}

// usedForIndex notes that the index of an identity is asked for, which the file of dwz belongs to.
func (s *Server) usedForIndex(ctx context.Context, who string, m *store.Manifest) {
	s.used(who, m)
	id := m.IndexName().Dwz
	if id.IsZero() {
		return
	}
	switch dwz, err := s.Store.Manifest(ctx, id); {
	case err == nil:
		s.used(who, dwz)
	case errors.Is(err, blob.ErrNotExist):
		s.missing.note(who, id, "")
	}
}

// index returns the index of files of the store, for the caller to close. A request that waits for it gives its slot back
// meanwhile.
func (s *Server) index(ctx, waiting context.Context, held *slot, m *store.Manifest) (*symbols.Index, error) {
	if held == nil {
		return s.Symbols.Get(ctx, waiting, m)
	}
	now, cancel := context.WithCancel(ctx)
	cancel()
	x, err := s.Symbols.Get(ctx, now, m)
	var miss *symbols.MissError
	if !errors.As(err, &miss) || miss.Miss != symbols.Pending {
		return x, err
	}
	held.pause()
	x, err = s.Symbols.Get(ctx, waiting, m)
	if gone := held.resume(ctx); gone != nil {
		if x != nil {
			x.Close()
		}
		return nil, gone
	}
	return x, err
}
