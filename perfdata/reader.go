package perfdata

import (
	"errors"
	"fmt"
	"io"

	"hallmark/internal/cursor"
)

// ReaderOptions say how a file is read.
type ReaderOptions struct {
	// FileOrder returns records as they come, and FINISHED_ROUND among them, instead
	// of in the order of their times.
	FileOrder bool
	// MaxPending limits the bytes of records that wait for their turn, with what is
	// noted down of each, 256 MiB by default. A file in which more must wait is not quite in order, see Reader.Forced.
	MaxPending int
	// More are the other files of a recording that is a directory (perf record --threads): each
	// has records alone, of one ring of the kernel's and so in the order of their times but for
	// little. They are for a file, not for a stream.
	More []io.Reader
	// Names are what errors call the files of More.
	Names []string
}

// A Reader reads a perf.data file, or what perf record writes into a pipe, in a
// bounded amount of memory.
//
// Records come in the order of their times. Those without a time, which perf wrote
// itself, come as soon as they are met: what runs already and its mappings stand
// before everything else.
type Reader struct {
	opts   ReaderOptions
	big    bool
	pipe   bool
	file   io.ReaderAt // nil in pipe mode
	head   fileHeader
	events events
	info   Info
	closer io.Closer

	pool    blocks
	sources []*source // more than one of a directory
	turn    *source   // that is read now
	queue   queue
	err     error // what comes behind the records that wait

	held     *block // of the record that was returned last
	current  *Event
	place    int64
	forced   int
	damage   error // of one file of several
	problems []error
	early    Decoder // for perf's own records
}

// Open opens a perf.data file, or a directory of them as perf record --threads writes it.
func Open(name string) (*Reader, error) { return OpenWith(name, ReaderOptions{}) }

// OpenWith is Open with options, whose More are the files of the directory.
func OpenWith(name string, opts ReaderOptions) (*Reader, error) {
	files, err := OpenFiles(name)
	if err != nil {
		return nil, err
	}
	opts.More, opts.Names = nil, nil
	for _, f := range files[1:] {
		opts.More = append(opts.More, f)
		opts.Names = append(opts.Names, f.Name())
	}
	r, err := NewReader(files[0], opts)
	if err != nil {
		files.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	r.closer = files
	return r, nil
}

// NewReader reads the head of a file or of a stream, which begins at r's current
// place. A file has its events before the records and the rest of Info behind them:
// it can only be read from an io.ReaderAt. A stream is read as it comes. The error
// wraps ErrNotPerfData for what is neither.
func NewReader(r io.Reader, opts ReaderOptions) (*Reader, error) {
	if opts.MaxPending == 0 {
		opts.MaxPending = 256 << 20
	}
	var b [pipeHeaderSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotPerfData, unexpected(err))
	}
	big, size, err := parseMagic(b[:])
	if err != nil {
		return nil, err
	}
	p := &Reader{opts: opts, big: big, pipe: size == pipeHeaderSize, events: events{big: big}, early: Decoder{big: big}}
	if p.pipe {
		if len(opts.More) > 0 {
			return nil, fmt.Errorf("%w: a stream in a directory", ErrNotPerfData)
		}
		p.addSource("", r, pipeHeaderSize, 0)
		return p, nil
	}
	at, ok := r.(io.ReaderAt)
	if !ok {
		return nil, fmt.Errorf("perf.data: the records of a file cannot be read from a stream (perf record -o - writes one)")
	}
	return p, p.openFile(at, size)
}

func (r *Reader) openFile(file io.ReaderAt, size uint64) error {
	r.file = file
	var err error
	if r.head, err = readFileHeader(file, r.big, size); err != nil {
		return err
	}
	list, err := r.head.readAttrs(file)
	if err != nil {
		return err
	}
	for _, e := range list {
		if err := r.events.add(e); err != nil {
			return err
		}
	}
	data := r.head.data
	if data.offset > 1<<62 || data.size > 1<<62 {
		return fmt.Errorf("%w: records at offset %#x, %d bytes", ErrNotPerfData, data.offset, data.size)
	}
	if data.size == 0 {
		// perf writes the size, and the features, when the recording ends.
		r.problem(ErrNotEnded)
		data.size = 1 << 62
	} else {
		r.readFeatures()
	}
	r.addSource("", io.NewSectionReader(file, int64(data.offset), int64(data.size)), int64(data.offset), r.head.data.end())
	for i, more := range r.opts.More {
		name := fmt.Sprintf("file %d", i+1)
		if i < len(r.opts.Names) {
			name = r.opts.Names[i]
		}
		r.addSource(name, more, 0, 0)
	}
	// Each file needs blocks of its own, however little waits in them.
	r.opts.MaxPending += 3 * blockSize * len(r.opts.More)
	if r.info.DirFormat > 0 && len(r.opts.More) == 0 {
		r.problem(errors.New("this is one file of a directory, whose others have most of the records: give the directory"))
	}
	return nil
}

// readFeatures reads the sections behind the records. One that is damaged is a
// problem of its own.
func (r *Reader) readFeatures() {
	table := section{offset: r.head.data.offset + r.head.data.size}
	for f := range Feature(featureCount) {
		if r.hasFeature(f) {
			table.size += 16
		}
	}
	b, err := table.load(r.file)
	if err != nil {
		r.problem(fmt.Errorf("features: %w", err))
		return
	}
	c := cursor.New(b, int64(table.offset), r.big)
	for f := range Feature(featureCount) {
		if !r.hasFeature(f) {
			continue
		}
		s := section{c.U64(), c.U64()}
		if !known(f) {
			if err := s.check(r.file); err != nil {
				r.problem(err)
			}
			continue
		}
		data, err := s.load(r.file)
		if err == nil {
			err = r.info.learn(f, data, r.big, r.events.list)
		}
		if err != nil {
			r.problem(err)
		}
	}
}

func (r *Reader) hasFeature(f Feature) bool { return r.head.features[f/64]>>(f%64)&1 != 0 }

// known reports whether Info has something of the feature.
func known(f Feature) bool {
	switch f {
	case FeatureBuildID, FeatureCPUs, FeatureTotalMemory, FeatureCmdline, FeatureEventDesc, FeaturePMUs, FeatureGroups,
		FeatureSampleTime, FeatureClockID, FeatureDirFormat, FeatureCompressed, FeatureClockData:
		return true
	}
	return (&Info{}).text(f) != nil
}

// maxProblems is how many are kept.
const maxProblems = 100

func (r *Reader) problem(err error) {
	if len(r.problems) < maxProblems {
		r.problems = append(r.problems, err)
	}
}

// Info returns what the file says of the machine and the recording. In a stream it
// grows as records are read.
func (r *Reader) Info() *Info { return &r.info }

// Events returns the events that were recorded. In a stream the list grows as
// records are read.
func (r *Reader) Events() []*Event { return r.events.list }

// BigEndian reports the byte order of the machine that recorded.
func (r *Reader) BigEndian() bool { return r.big }

// Pipe reports whether it is a stream and no file.
func (r *Reader) Pipe() bool { return r.pipe }

// Problems returns what was wrong beside the records, the first 100 of it. A file
// whose recording was not ended properly has one.
func (r *Reader) Problems() []error { return r.problems }

// Forced returns how often records were returned before all that are older were
// read, because no more could be kept waiting.
func (r *Reader) Forced() int { return r.forced }

// Event returns the event of the last record, nil when it is of none.
func (r *Reader) Event() *Event { return r.current }

// Offset returns where the last record is in the file, or in the stream. Of a
// record that was compressed it is the place in what was compressed.
func (r *Reader) Offset() int64 { return r.place }

// Close closes what Open opened, and gives up what reading compressed records needs.
func (r *Reader) Close() error {
	for _, s := range r.sources {
		if s.unpacked != nil {
			s.unpacked.close()
		}
	}
	if r.closer == nil {
		return nil
	}
	return r.closer.Close()
}

// Next returns the next record. It is valid until the next call. A record that is
// damaged in itself is returned as Malformed; where the file is damaged so that the
// next record cannot be found, all that stand before are returned first, and then
// an error with the offset. The error is io.EOF at the end.
func (r *Reader) Next() (Record, error) {
	if r.held != nil {
		r.pool.release(r.held)
		r.held = nil
	}
	for {
		if w, ok := r.queue.take(); ok {
			return r.deliver(w), nil
		}
		if r.err != nil {
			return nil, r.err
		}
		rec, err := r.step()
		if rec != nil {
			return rec, nil
		}
		if err != nil {
			r.err = err
			r.queue.letOut(^uint64(0))
		}
	}
}

func (r *Reader) deliver(w waiting) Record {
	r.held = w.in
	r.place = w.in.base + int64(w.at)
	var rec Record
	rec, r.current = r.events.decode(w.in.buf[w.at : w.at+w.size])
	return rec
}

// stepIn reads one record of a source from c, and returns it if it need not wait.
func (r *Reader) stepIn(from *source, c *cutter) (Record, error) {
	b, at, err := c.next()
	if err != nil {
		return nil, err
	}
	rec := b.buf[at : at+c.size]
	kind := r.early.kind(rec)
	if kind >= firstUserType {
		r.place, r.current = b.base+int64(at), nil
		return r.own(from, c, kind, rec)
	}
	w := waiting{in: b, at: uint32(at), size: uint32(c.size)}
	if !r.opts.FileOrder {
		w.time = r.time(rec)
	}
	b.uses++
	if w.time == 0 || w.time == ^uint64(0) {
		return r.deliver(w), nil
	}
	r.queue.add(w)
	from.newest = max(from.newest, w.time)
	if r.pool.live*blockSize+r.queue.size() > r.opts.MaxPending {
		r.relieve()
	}
	return nil, nil
}

// time returns when a record was written, 0 for a record that cannot say.
func (r *Reader) time(rec []byte) uint64 {
	e := r.events.of(rec)
	if e == nil {
		return 0
	}
	return e.decoder.Time(rec)
}

// relieve lets out the older half of what waits; and all, where that does not help.
func (r *Reader) relieve() {
	r.forced++
	if r.forced%2 == 0 {
		r.queue.letOut(^uint64(0))
		return
	}
	r.queue.letOut(r.queue.half())
}

// own handles a record that perf wrote itself.
func (r *Reader) own(from *source, c *cutter, kind Type, rec []byte) (Record, error) {
	var err error
	rec, err = r.complete(c, kind, rec)
	if err != nil {
		return nil, err
	}
	switch kind {
	case TypeCompressed, TypeCompressed2:
		return r.unpack(from, kind, rec)
	case TypeFinishedRound:
		if !r.opts.FileOrder {
			if len(r.sources) == 1 {
				r.queue.finishRound()
			}
			return nil, nil
		}
	}
	got, err := r.early.Decode(rec)
	if err != nil {
		got = malformed(rec, err, r.big)
	}
	if err := r.take(got); err != nil {
		return nil, err
	}
	return got, nil
}
