package capture

import (
	"context"
	"slices"
	"sync"
	"time"

	"hallmark/addr"
	"hallmark/debuginfo"
	"hallmark/profile"
	"hallmark/reason"
	"hallmark/symbol"
)

// Bounds of reading debug information when a recording ends: files of other users are read as
// well, and somebody waits.
const (
	// maxDebugInfo is how many bytes of .debug_info a file may have, as they are stored.
	maxDebugInfo = 128 << 20

	// linesTime is how long all files may take together.
	linesTime = 5 * time.Second
)

// Symbolize gives symbols to the frames of files, from the files as they were
// kept open while recording, and returns the reasons for those that stay
// without. The Session must not be Closed yet.
//
// Lines and inlined calls come from an index, if one was prepared, or from the debug information
// of the file, of which only the units are read that have a frame. A file with very much of it has
// functions only, by its symbol tables, and a comment of the profile names the file. So it is with
// the last files, if all together take seconds. No server is asked.
//
// When ctx is done, files that were not asked for stay without symbols, and the error is that of ctx.
func (r *Recording) Symbolize(ctx context.Context) (profile.Misses, error) {
	inTime, cancel := context.WithTimeout(ctx, linesTime)
	defer cancel()
	l := &liner{Recording: r, inTime: inTime, most: maxDebugInfo}
	misses, err := profile.Symbolize(ctx, r.Profile, l)
	if len(l.left) > 0 {
		r.Profile.Comments = append(r.Profile.Comments, profile.WithoutLinesNote(l.left))
	}
	return misses, err
}

// SymbolizeFunctions does what Symbolize does, but reads no debug information: functions come from the symbol tables.
func (r *Recording) SymbolizeFunctions(ctx context.Context) (profile.Misses, error) {
	return profile.Symbolize(ctx, r.Profile, r)
}

var _ profile.Witness = (*Recording)(nil)

// Claimed answers for a file whose identity is a claim, from the very file that the process had mapped.
func (r *Recording) Claimed(ctx context.Context, b *profile.Binary, offsets []addr.Offset) []symbol.Result {
	known := r.files[distinct{id: b.ID, path: b.Path, claimant: *b.Claimant, claim: unconfirmed}]
	switch {
	case known == nil || known.file == nil || *b.Claimant == (profile.Claimant{UID: profile.UnknownOwner}):
		return slices.Repeat([]symbol.Result{symbol.Miss(reason.Unproven)}, len(offsets))
	case known.doubtful:
		return slices.Repeat([]symbol.Result{symbol.Miss(reason.FileChanged)}, len(offsets))
	}
	r.reading.Lock()
	defer r.reading.Unlock()
	known.file.EndWith(ctx)
	known.file.NoDWARF = true
	results := known.file.LookupOffsets(offsets)
	debuginfo.Detach(results)
	return results
}

// Lookup answers for the files of the recording as SymbolizeFunctions does. It makes a Recording the
// profile.Symbols of its profile.
func (r *Recording) Lookup(ctx context.Context, b *profile.Binary, offsets []addr.Offset) []symbol.Result {
	return r.lookup(ctx, b, offsets, func(table *symbol.File) {
		table.EndWith(ctx)
		table.NoDWARF = true
	})
}

// lookup answers from an index of a file, or from the file as it is after the call of prepare.
func (r *Recording) lookup(ctx context.Context, b *profile.Binary, offsets []addr.Offset, prepare func(*symbol.File)) []symbol.Result {
	known := r.files[distinctOf(b.ID, b.Content, b.Path)]
	if known == nil {
		known = r.files[distinct{id: b.ID, content: b.Content, path: b.Path}]
	}
	if known != nil && known.doubtful {
		return slices.Repeat([]symbol.Result{symbol.Miss(reason.FileChanged)}, len(offsets))
	}
	if results := r.prepared(b, offsets); results != nil {
		return results
	}
	table, why := r.open(ctx, b, known)
	if table == nil {
		return slices.Repeat([]symbol.Result{symbol.Miss(why)}, len(offsets))
	}
	defer table.Close()
	r.reading.Lock()
	defer r.reading.Unlock()
	prepare(table)
	return table.LookupOffsets(offsets)
}

// A liner answers with lines and inlined calls, within bounds.
type liner struct {
	*Recording
	inTime context.Context // ends when there is no more time for debug information
	most   int64           // bytes of debug information of a file

	mu   sync.Mutex
	left []string // files whose debug information was not read
}

// Lookup answers for a file with lines, or without where they are beyond the bounds.
func (l *liner) Lookup(ctx context.Context, b *profile.Binary, offsets []addr.Offset) []symbol.Result {
	reads, tooMuch := false, false
	results := l.lookup(ctx, b, offsets, func(table *symbol.File) {
		size := table.DebugSize()
		tooMuch = size > l.most || size > 0 && l.inTime.Err() != nil
		table.NoDWARF = tooMuch
		if reads = size > 0 && !tooMuch; reads {
			table.EndWith(l.inTime)
		}
	})
	if reads && l.inTime.Err() != nil {
		tooMuch = true
		results = l.Recording.Lookup(ctx, b, offsets)
	}
	if tooMuch && slices.ContainsFunc(results, lacksLine) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.left = append(l.left, b.Path)
	}
	return results
}

func lacksLine(r symbol.Result) bool { return len(r.Frames) > 0 && r.Frames[0].Line == 0 }

// prepared answers from the index of a file, if there is one that is as good as the
// file can be.
func (r *Recording) prepared(b *profile.Binary, offsets []addr.Offset) []symbol.Result {
	if b.Content.IsZero() {
		return nil
	}
	x, err := new(debuginfo.Indexes).Open(b.ID, b.Content)
	if err != nil {
		return nil
	}
	defer x.Close()
	if !debuginfo.IsComplete(x) {
		return nil
	}
	results := x.LookupOffsets(offsets)
	debuginfo.Detach(results)
	return results
}

func (r *Recording) open(ctx context.Context, b *profile.Binary, known *identified) (*symbol.File, reason.Reason) {
	q := debuginfo.Query{ID: b.ID, Content: b.Content, Rival: b.Rival, Local: true}
	if known != nil && known.file != nil {
		q.File = known.file
	} else {
		q.Paths = []string{b.Path}
	}
	finder := debuginfo.Finder{Careful: true}
	file, err := finder.Search(ctx, q)
	return file, reason.Of(err)
}
