package compact

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"unsafe"

	pprof "github.com/google/pprof/profile"

	"hallmark/profile"
)

// Fields of protobuf messages (pprof's proto/profile.proto).
const (
	profileSampleType  = 1
	profileSample      = 2
	profileMapping     = 3
	profileLocation    = 4
	profileFunction    = 5
	profileString      = 6
	profileDropFrames  = 7
	profileKeepFrames  = 8
	profileTime        = 9
	profileDuration    = 10
	profilePeriodType  = 11
	profilePeriod      = 12
	profileComment     = 13
	profileDefaultType = 14
	profileDocURL      = 15

	sampleLocation = 1
	sampleValue    = 2
	sampleLabel    = 3

	labelKey    = 1
	labelText   = 2
	labelNumber = 3
	labelUnit   = 4
)

// decoder reads the messages of a profile as they come. Much of what they refer to comes
// later, strings last of all.
type decoder struct {
	stream
	*builder
	options profile.ReadOptions
	inFile  func() int64
	cost    int64 // bytes of memory, about
	limit   int64 // of cost, as it was last

	locationIDs, functionIDs, mappingIDs ids

	mappings  []rawMapping
	functions []rawFunction // by number of the ID
	known     []bool        // locations that are defined, by number of the ID

	texts    vec[string]
	block    []byte         // room for texts
	types    vec[[2]uint64] // numbers of texts
	period   [2]uint64
	choice   uint64
	drop     uint64
	keep     uint64
	url      uint64
	comments []uint64

	stack   []uint32 // of the sample at hand
	values  []int64
	numbers []uint64
	seen    bool // a sample
}

type rawMapping struct {
	pprof.Mapping
	number        uint32 // of the ID
	file, buildID uint64
}

type rawFunction struct {
	name, system, file uint64
	start              int64
	known              bool
}

func newDecoder(r io.Reader, o profile.ReadOptions, inFile func() int64) *decoder {
	d := &decoder{builder: newBuilder(), options: o, inFile: inFile}
	d.stream = stream{r: r, check: d.checkSize}
	return d
}

// checkSize refuses a profile of too many bytes.
func (d *decoder) checkSize(read int64) error {
	if limit := cmp.Or(d.options.MaxSize, profile.DefaultMaxSize); read > limit {
		return fmt.Errorf("%w: more than %d bytes", profile.ErrTooLarge, limit)
	}
	return nil
}

// take counts memory.
func (d *decoder) take(bytes int) error {
	d.cost += int64(bytes)
	return d.room(0)
}

// room refuses what takes so much memory more for a while.
func (d *decoder) room(bytes int64) error {
	if d.cost+bytes <= d.limit {
		return nil
	}
	d.limit = d.options.Limits(d.inFile()).Memory
	if d.cost+bytes <= d.limit {
		return nil
	}
	return fmt.Errorf("%w: at offset %d, uncompressed, it takes more than %d MiB of memory", profile.ErrTooLarge, d.offset(), d.limit>>20)
}

// damaged returns the error of what is wrong at an offset.
func damaged(offset int64, format string, args ...any) error {
	return fmt.Errorf("%w: at offset %d, uncompressed: %s", profile.ErrFormat, offset, fmt.Sprintf(format, args...))
}

func (d *decoder) run() (*Profile, error) {
	if d.ended() {
		return nil, fmt.Errorf("%w: empty", profile.ErrFormat)
	}
	for !d.ended() {
		if err := d.field(); err != nil {
			return nil, err
		}
	}
	p, err := d.finishAll()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", profile.ErrFormat, err)
	}
	p.limits = d.options.Limits(d.inFile())
	if err := p.Check(); err != nil {
		return nil, err
	}
	return p, nil
}

// varint reads a number.
func (d *decoder) varint() (uint64, error) {
	d.have(10)
	v, n := uvarint(d.window[d.from:])
	if n <= 0 {
		return 0, d.cut("a number is cut or too long")
	}
	d.from += n
	return v, nil
}

// cut returns the error of bytes that are not there.
func (d *decoder) cut(why string) error {
	if d.err != nil && d.err != io.EOF {
		return fmt.Errorf("reading profile at offset %d, uncompressed: %w", d.base+int64(len(d.window)), d.err)
	}
	return damaged(d.offset(), "%s", why)
}

// field reads a field of the profile.
func (d *decoder) field() error {
	at := d.offset()
	key, err := d.varint()
	if err != nil {
		return err
	}
	number := int(key >> 3)
	if key>>3 == 0 || key>>3 > 1<<29-1 {
		return damaged(at, "a field has an impossible number")
	}
	switch key & 7 {
	case 0:
		v, err := d.varint()
		if err != nil {
			return err
		}
		return d.number(number, v)
	case 2:
		length, err := d.varint()
		if err != nil {
			return err
		}
		if limit := cmp.Or(d.options.MaxSize, profile.DefaultMaxSize); length > uint64(limit) {
			return d.cut("a field is longer than a profile may be")
		}
		if err := d.room(memoryOf(number, int64(length))); err != nil {
			return err
		}
		if !d.have(int(length)) {
			return d.cut("a field is longer than the profile")
		}
		body := d.window[d.from : d.from+int(length)]
		if err := d.message(number, body, at); err != nil {
			return err
		}
		d.from += int(length)
		return nil
	case 1, 5:
		size := 8
		if key&7 == 5 {
			size = 4
		}
		if !d.have(size) {
			return d.cut("a field is cut")
		}
		d.from += size
		return nil
	}
	return damaged(at, "a field has an unknown type")
}

// memoryOf returns how much memory a message takes while it is read, at most: it is in the window, which doubles and
// has its last contents beside it, and a byte of it can be a number of a list, which has those of its kinds and
// twice of what it grows by.
func memoryOf(field int, length int64) int64 {
	const window, numbers = 3, 8*3 + 4*3
	if field == profileString {
		return window * length
	}
	return (window + numbers) * length
}

// number reads a field that is a number.
func (d *decoder) number(field int, v uint64) error {
	switch field {
	case profileDropFrames:
		d.drop = v
	case profileKeepFrames:
		d.keep = v
	case profileTime:
		d.p.time = int64(v)
	case profileDuration:
		d.p.duration = durationOf(int64(v))
	case profilePeriod:
		d.p.period = int64(v)
	case profileComment:
		d.comments = append(d.comments, v)
		return d.take(commentCost)
	case profileDefaultType:
		d.choice = v
	case profileDocURL:
		d.url = v
	}
	return nil
}

// message reads a field that has a length, and begins at an offset.
func (d *decoder) message(number int, body []byte, at int64) error {
	m := message{data: body}
	var err error
	switch number {
	case profileSample:
		err = d.sample(&m)
	case profileString:
		return d.string(body)
	case profileLocation:
		err = d.location(&m)
	case profileFunction:
		err = d.function(&m)
	case profileMapping:
		err = d.mapping(&m)
	case profileSampleType:
		d.types.add(valueType(&m))
		err = d.take(typeCost)
	case profilePeriodType:
		d.period = valueType(&m)
	case profileComment:
		f := field{number: number, body: body, packed: true}
		d.comments = m.numbers(&f, d.comments)
		err = d.take(commentCost * len(body))
	}
	if m.bad != "" {
		return damaged(at, "%s", m.bad)
	}
	if err != nil && !isBounds(err) {
		return damaged(at, "%s", err)
	}
	return err
}

func valueType(m *message) (t [2]uint64) {
	for f := (field{}); m.next(&f); {
		if !f.packed && (f.number == 1 || f.number == 2) {
			t[f.number-1] = f.value
		}
	}
	return t
}

// string keeps a text.
func (d *decoder) string(body []byte) error {
	if err := d.take(16 + len(body)); err != nil {
		return err
	}
	const blockSize = 1 << 14
	if cap(d.block)-len(d.block) < len(body) {
		d.block = make([]byte, 0, max(blockSize, len(body)))
	}
	from := len(d.block)
	d.block = append(d.block, body...)
	text := ""
	if len(body) > 0 {
		text = unsafe.String(&d.block[from], len(body)) // nobody writes there any more
	}
	d.texts.add(text)
	return nil
}

// Bytes of memory, about, of what a profile has many of. A row has its place in the tree, and
// has one in lists that order the stacks.
const (
	rowCost   = 80
	valueCost = 8

	// A type has its numbers, its texts and a column, of which the first values are in two pieces.
	typeCost   = int(2*8 + unsafe.Sizeof(ValueType{}) + unsafe.Sizeof(column{}))
	columnCost = 24 + 16*4

	commentCost = 3*8 + 16
	labelCost   = 64
	timeCost    = 12
	idCost      = 48 // of a large one
)

func (d *decoder) sample(m *message) error {
	d.stack, d.values = d.stack[:0], d.values[:0]
	measured, labels, large := d.p.numbers.value.n, 0, len(d.locationIDs.large)
	for f := (field{}); m.next(&f); {
		switch f.number {
		case sampleLocation:
			d.numbers = m.numbers(&f, d.numbers[:0])
			for _, id := range d.numbers {
				d.stack = append(d.stack, d.locationIDs.number(id))
			}
		case sampleValue:
			d.numbers = m.numbers(&f, d.numbers[:0])
			for _, v := range d.numbers {
				d.values = append(d.values, int64(v))
			}
		case sampleLabel:
			labels++
			if err := d.label(&message{data: f.body}, m); err != nil {
				return err
			}
		}
	}
	if m.bad != "" {
		return nil
	}
	times := d.p.numbers.value.n - measured
	large = len(d.locationIDs.large) - large
	if err := d.take(rowCost + 4*len(d.stack) + valueCost*len(d.values) + timeCost*times + idCost*large); err != nil {
		return err
	}
	if !d.seen {
		if err := d.take((typeCost + columnCost) * len(d.values)); err != nil {
			return err
		}
		d.seen, d.p.values = true, make([]column, len(d.values))
	}
	if len(d.values) != len(d.p.values) {
		return fmt.Errorf("a sample has %d values, and others have %d", len(d.values), len(d.p.values))
	}
	for i, v := range d.values {
		d.p.values[i].add(v)
	}
	slices.Reverse(d.stack) // the outermost frame first
	at, ok := d.sameAsLast()
	if !ok {
		var list []uint32
		if at, list, ok = d.frames.room(len(d.stack)); !ok {
			return errTooMuch
		}
		copy(list, d.stack)
	}
	sets := d.sets.bytes.len()
	d.row(at, uint32(len(d.stack)), measured)
	if d.sets.bytes.len() > sets {
		if len(d.sets.bytes.data) > math.MaxUint32-1<<20 {
			return errTooMuch
		}
		return d.take(labelCost * (labels + 1))
	}
	return nil
}

// sameAsLast returns where the stack of the last row is, if the one at hand is the same:
// profiles with times may have a row for each of them.
func (d *decoder) sameAsLast() (at uint32, same bool) {
	if d.stacks.n == 0 {
		return 0, false
	}
	last := d.stacks.at(d.stacks.n - 1)
	return last.at, slices.Equal(d.frames.at(last.at, last.n), d.stack)
}

func (d *decoder) label(m, in *message) error {
	var v [5]uint64
	for f := (field{}); m.next(&f); {
		if f.number < len(v) && !f.packed {
			v[f.number] = f.value
		}
	}
	switch {
	case m.bad != "":
		in.fail(m.bad)
	case v[labelText] != 0:
		d.builder.label(v[labelKey], v[labelText], 0)
	case v[labelUnit] != 0:
		if !d.measure(v[labelKey], v[labelUnit], int64(v[labelNumber])) {
			return errTooMuch
		}
	case v[labelNumber] != 0:
		d.builder.label(v[labelKey], 0, v[labelNumber])
	}
	return nil
}

func (d *decoder) mapping(m *message) error {
	raw := rawMapping{}
	for f := (field{}); m.next(&f); {
		if f.packed {
			continue
		}
		switch v := f.value; f.number {
		case 1:
			raw.ID = v
		case 2:
			raw.Start = v
		case 3:
			raw.Limit = v
		case 4:
			raw.Offset = v
		case 5:
			raw.file = v
		case 6:
			raw.buildID = v
		case 7:
			raw.HasFunctions = v != 0
		case 8:
			raw.HasFilenames = v != 0
		case 9:
			raw.HasLineNumbers = v != 0
		case 10:
			raw.HasInlineFrames = v != 0
		}
	}
	if raw.ID == 0 {
		return fmt.Errorf("a mapping has no ID")
	}
	raw.number = d.mappingIDs.number(raw.ID)
	d.mappings = append(d.mappings, raw)
	return d.take(3 * int(unsafe.Sizeof(raw)))
}

func (d *decoder) function(m *message) error {
	raw, id := rawFunction{known: true}, uint64(0)
	for f := (field{}); m.next(&f); {
		if f.packed {
			continue
		}
		switch v := f.value; f.number {
		case 1:
			id = v
		case 2:
			raw.name = v
		case 3:
			raw.system = v
		case 4:
			raw.file = v
		case 5:
			raw.start = int64(v)
		}
	}
	if id == 0 {
		return fmt.Errorf("a function has no ID")
	}
	n := int(d.functionIDs.number(id))
	if err := d.takeFunctions(); err != nil {
		return err
	}
	if d.functions[n].known {
		return fmt.Errorf("two functions have the ID %d", id)
	}
	d.functions[n] = raw
	return nil
}

// takeFunctions makes room for all functions that are mentioned.
func (d *decoder) takeFunctions() error {
	more := int(d.functionIDs.count) - len(d.functions)
	if more <= 0 {
		return nil
	}
	if err := d.take(more * int(unsafe.Sizeof(rawFunction{})+unsafe.Sizeof(Function{}))); err != nil {
		return err
	}
	d.functions = slices.Grow(d.functions, more)[:int(d.functionIDs.count)]
	return nil
}

func (d *decoder) location(m *message) error {
	l := Location{line: uint32(len(d.p.lines))}
	id := uint64(0)
	for f := (field{}); m.next(&f); {
		switch {
		case f.packed && f.number == 4:
			line := message{data: f.body}
			d.p.lines = append(d.p.lines, d.line(&line))
			if line.bad != "" {
				m.fail(line.bad)
			}
			if err := d.take(2 * int(unsafe.Sizeof(Line{}))); err != nil {
				return err
			}
		case f.packed:
		case f.number == 1:
			id = f.value
		case f.number == 2 && f.value != 0:
			l.mapping = d.mappingIDs.number(f.value) + 1
		case f.number == 3:
			l.Address = f.value
		case f.number == 5:
			l.folded = f.value != 0
		}
	}
	if id == 0 {
		return fmt.Errorf("a location has no ID")
	}
	l.end = uint32(len(d.p.lines))
	return d.addLocation(id, l)
}

func (d *decoder) addLocation(id uint64, l Location) error {
	n := int(d.locationIDs.number(id))
	if more := int(d.locationIDs.count) - len(d.known); more > 0 {
		if err := d.take(more * 2 * int(unsafe.Sizeof(l))); err != nil {
			return err
		}
		d.known = slices.Grow(d.known, more)[:d.locationIDs.count]
		d.p.locations = slices.Grow(d.p.locations, more)[:d.locationIDs.count]
	}
	if d.known[n] {
		return fmt.Errorf("two locations have the ID %d", id)
	}
	d.known[n], d.p.locations[n] = true, l
	return d.takeFunctions()
}

func (d *decoder) line(m *message) (l Line) {
	for f := (field{}); m.next(&f); {
		switch {
		case f.packed:
		case f.number == 1 && f.value != 0:
			l.function = d.functionIDs.number(f.value) + 1
		case f.number == 2:
			l.Line = int64(f.value)
		case f.number == 3:
			l.Column = int64(f.value)
		}
	}
	return l
}

// text returns the text of a number.
func (d *decoder) text(n uint64) (string, error) {
	if n >= uint64(d.texts.n) {
		return "", fmt.Errorf("string %d of %d is referred to", n, d.texts.n)
	}
	return d.texts.at(int(n)), nil
}

// texting is d.text for many, of which the first error counts.
type texting struct {
	d   *decoder
	err error
}

func (t *texting) of(n uint64) string {
	s, err := t.d.text(n)
	if err != nil && t.err == nil {
		t.err = err
	}
	return s
}

// finishAll puts together what was read.
func (d *decoder) finishAll() (*Profile, error) {
	if d.texts.n == 0 || d.texts.at(0) != "" {
		return nil, fmt.Errorf("the first string is not empty")
	}
	if d.seen && d.types.n == 0 {
		return nil, fmt.Errorf("samples are there, and no types of them")
	}
	if d.types.n != len(d.p.values) && d.seen {
		return nil, fmt.Errorf("samples have %d values, and there are %d types of them", len(d.p.values), d.types.n)
	}
	if int(d.locationIDs.count) > len(d.known) {
		return nil, fmt.Errorf("a location is not there that a sample has")
	}
	for _, known := range d.known {
		if !known {
			return nil, fmt.Errorf("a location is not there that a sample has")
		}
	}
	t := &texting{d: d}
	d.finishHead(t)
	if err := d.finishMappings(t); err != nil {
		return nil, err
	}
	d.p.functions = make([]Function, len(d.functions))
	for i, f := range d.functions {
		d.p.functions[i] = Function{t.of(f.name), t.of(f.system), t.of(f.file), f.start}
	}
	for _, l := range d.p.lines {
		if l.function == 0 || !d.functions[l.function-1].known {
			return nil, fmt.Errorf("a line of a location is of a function that is not there")
		}
	}
	d.p.comments = slices.Grow(d.p.comments, len(d.comments))
	for _, c := range d.comments {
		d.p.comments = append(d.p.comments, t.of(c))
	}
	if t.err != nil {
		return nil, t.err
	}
	d.functions, d.known, d.window = nil, nil, nil
	d.locationIDs, d.functionIDs, d.mappingIDs = ids{}, ids{}, ids{}
	return d.finish(d.text)
}

func (d *decoder) finishHead(t *texting) {
	h := &d.p.head
	h.types = make([]ValueType, 0, d.types.n)
	for i := range d.types.n {
		v := d.types.at(i)
		h.types = append(h.types, ValueType{t.of(v[0]), t.of(v[1])})
	}
	if d.p.values == nil {
		d.p.values = make([]column, d.types.n)
	}
	h.periodType = ValueType{t.of(d.period[0]), t.of(d.period[1])}
	h.defaultType, h.dropFrames, h.keepFrames, h.docURL = t.of(d.choice), t.of(d.drop), t.of(d.keep), t.of(d.url)
}

// finishMappings keeps the order of mappings: the first one is that of the program.
func (d *decoder) finishMappings(t *texting) error {
	at := make([]uint32, d.mappingIDs.count) // by the number of the ID: number of the mapping + 1
	own := make([]pprof.Mapping, len(d.mappings))
	for i, raw := range d.mappings {
		if at[raw.number] != 0 {
			return fmt.Errorf("two mappings have the ID %d", raw.ID)
		}
		at[raw.number] = uint32(i + 1)
		own[i] = raw.Mapping
		own[i].ID, own[i].File, own[i].BuildID = uint64(i+1), t.of(raw.file), t.of(raw.buildID)
		d.p.mappings = append(d.p.mappings, &own[i])
	}
	for i := range d.p.locations {
		if m := d.p.locations[i].mapping; m != 0 {
			d.p.locations[i].mapping = at[m-1]
		}
	}
	d.mappings = nil
	return nil
}

// isBounds reports whether an error says that the profile is too large.
func isBounds(err error) bool { return errors.Is(err, profile.ErrTooLarge) }
