package perfdata

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"

	"hallmark/addr"
)

// The text form of a file has a line for each event, one for Info, and one for each
// record:
//
//	event {Name="page-faults" IDs=[5 6] Attr={Type=1 Config=2 Fields=IP|TID|TIME|IDENTIFIER}}
//	info {Hostname="here"}
//	0 Sample {PID=7 TID=7 Time=1000 Event=5 IP=0x401000}
//	- Marker {Type=68}
//
// The number is that of the record's event, and "-" stands for none. Fields that are
// zero are left out; bytes are hexadecimal digits behind an x. Lines that are empty
// or begin with # say nothing.

// textKinds are the records that can be read from text.
var textKinds = map[string]func() Record{
	"Sample": func() Record { return &Sample{} }, "Mmap2": func() Record { return &Mmap2{} }, "Comm": func() Record { return &Comm{} },
	"Task": func() Record { return &Task{} }, "Lost": func() Record { return &Lost{} }, "Throttle": func() Record { return &Throttle{} },
	"Ksymbol": func() Record { return &Ksymbol{} }, "Cgroup": func() Record { return &Cgroup{} }, "Unknown": func() Record { return &Unknown{} },
	"Malformed": func() Record { return &Malformed{} }, "Reading": func() Record { return &Reading{} }, "Aux": func() Record { return &Aux{} },
	"ItraceStart": func() Record { return &ItraceStart{} }, "Switch": func() Record { return &Switch{} },
	"Namespaces": func() Record { return &Namespaces{} }, "BPFEvent": func() Record { return &BPFEvent{} },
	"TextPoke": func() Record { return &TextPoke{} }, "AuxOutputHWID": func() Record { return &AuxOutputHWID{} },
	"CallchainDeferred": func() Record { return &CallchainDeferred{} }, "HeaderAttr": func() Record { return &HeaderAttr{} },
	"EventUpdate": func() Record { return &EventUpdate{} }, "HeaderBuildID": func() Record { return &HeaderBuildID{} },
	"IDIndex": func() Record { return &IDIndex{} }, "Auxtrace": func() Record { return &Auxtrace{} }, "ThreadMap": func() Record { return &ThreadMap{} },
	"CPUMap": func() Record { return &CPUMap{} }, "TimeConv": func() Record { return &TimeConv{} },
	"HeaderFeature": func() Record { return &HeaderFeature{} }, "Marker": func() Record { return &Marker{} }, "Stat": func() Record { return &Stat{} },
	"StatRound": func() Record { return &StatRound{} },
}

// Text returns a record in its text form.
func Text(r Record) string {
	v := reflect.ValueOf(r).Elem()
	return string(appendText([]byte(v.Type().Name()+" "), v))
}

// ParseText returns the record that Text made the text of.
func ParseText(text string) (Record, error) {
	name, rest, _ := strings.Cut(text, " ")
	make, ok := textKinds[name]
	if !ok {
		return nil, fmt.Errorf("no kind of record: %q", name)
	}
	r := make()
	return r, parseStruct(rest, r)
}

// WriteText writes what is left in a file as text.
func WriteText(to io.Writer, r *Reader) error {
	w := bufio.NewWriter(to)
	number := map[*Event]int{}
	known := func() {
		for _, e := range r.Events()[len(number):] {
			number[e] = len(number)
			fmt.Fprintf(w, "event %s\n", appendText(nil, reflect.ValueOf(e).Elem()))
		}
	}
	known()
	if !r.Pipe() {
		fmt.Fprintf(w, "info %s\n", appendText(nil, reflect.ValueOf(r.Info()).Elem()))
	}
	for {
		rec, err := r.Next()
		if err != nil {
			if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				err = nil
			}
			return errors.Join(err, w.Flush())
		}
		known()
		if e := r.Event(); e != nil {
			fmt.Fprintf(w, "%d %s\n", number[e], Text(rec))
		} else {
			fmt.Fprintf(w, "- %s\n", Text(rec))
		}
	}
}

// ReadText writes the file that a text reports. The error names the line.
func ReadText(from io.Reader, w *Writer) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		if err := w.readLine(line); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	return lines.Err()
}

func (w *Writer) readLine(line string) error {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "event":
		e := &Event{}
		if err := parseStruct(rest, e); err != nil {
			return err
		}
		return w.AddEvent(e)
	case "info":
		return parseStruct(rest, &w.Info)
	}
	r, err := ParseText(rest)
	if err != nil || word == "-" {
		return errors.Join(err, w.writeIf(err == nil, r, nil))
	}
	n, err := strconv.Atoi(word)
	if err != nil || n < 0 || n >= len(w.events) {
		return fmt.Errorf("no number of an event: %q", word)
	}
	return w.Write(r, w.events[n])
}

func (w *Writer) writeIf(ok bool, r Record, e *Event) error {
	if !ok {
		return nil
	}
	return w.Write(r, e)
}

// fieldNames are those of SampleType, lowest bit first.
var fieldNames = strings.Fields("IP TID TIME ADDR READ CALLCHAIN ID CPU PERIOD STREAM_ID RAW BRANCH_STACK REGS_USER STACK_USER WEIGHT " +
	"DATA_SRC IDENTIFIER TRANSACTION REGS_INTR PHYS_ADDR AUX CGROUP DATA_PAGE_SIZE CODE_PAGE_SIZE WEIGHT_STRUCT")

// String returns the kernel's names of the fields, and what has none as a number.
func (t SampleType) String() string {
	var names []string
	for i, name := range fieldNames {
		if t>>i&1 != 0 {
			names = append(names, name)
		}
	}
	if rest := t &^ sampleKnown; rest != 0 || t == 0 {
		names = append(names, fmt.Sprintf("%#x", uint64(rest)))
	}
	return strings.Join(names, "|")
}

func parseFields(s string) (SampleType, error) {
	var t SampleType
words:
	for word := range strings.SplitSeq(s, "|") {
		for i, name := range fieldNames {
			if word == name {
				t |= 1 << i
				continue words
			}
		}
		n, err := strconv.ParseUint(word, 0, 64)
		if err != nil {
			return 0, fmt.Errorf("no field of samples: %q", word)
		}
		t |= SampleType(n)
	}
	return t, nil
}

// inHex reports whether numbers of a type are written in hexadecimal.
func inHex(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[addr.Abs](), reflect.TypeFor[addr.Offset](), reflect.TypeFor[AttrFlags](), reflect.TypeFor[BranchType]():
		return true
	}
	return false
}

// appendText appends a value as text.
func appendText(b []byte, v reflect.Value) []byte {
	if t, ok := v.Interface().(SampleType); ok {
		return append(b, t.String()...)
	}
	switch v.Kind() {
	case reflect.Bool:
		return strconv.AppendBool(b, v.Bool())
	case reflect.String:
		return strconv.AppendQuote(b, v.String())
	case reflect.Float64:
		return strconv.AppendFloat(b, v.Float(), 'g', -1, 64)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return strconv.AppendInt(b, v.Int(), 10)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if inHex(v.Type()) || v.Uint() > 1<<40 {
			return fmt.Appendf(b, "%#x", v.Uint())
		}
		return strconv.AppendUint(b, v.Uint(), 10)
	case reflect.Pointer:
		return appendText(b, v.Elem())
	case reflect.Slice, reflect.Array:
		return appendList(b, v)
	}
	b = append(b, '{')
	b = appendStructFields(b, v)
	return append(b, '}')
}

func appendList(b []byte, v reflect.Value) []byte {
	if v.Type().Elem().Kind() == reflect.Uint8 {
		b = append(b, 'x')
		for i := range v.Len() {
			b = fmt.Appendf(b, "%02x", v.Index(i).Uint())
		}
		return b
	}
	b = append(b, '[')
	for i := range v.Len() {
		if i > 0 {
			b = append(b, ' ')
		}
		b = appendText(b, v.Index(i))
	}
	return append(b, ']')
}

func appendStructFields(b []byte, v reflect.Value) []byte {
	for i := range v.NumField() {
		f, field := v.Type().Field(i), v.Field(i)
		if f.Anonymous {
			b = appendStructFields(b, field)
			continue
		}
		if !inText(f) || isEmpty(field) {
			continue
		}
		if b[len(b)-1] != '{' {
			b = append(b, ' ')
		}
		b = append(append(b, f.Name...), '=')
		b = appendText(b, field)
	}
	return b
}

// inText reports whether a field is part of the text: not what belongs to a Reader,
// nor why a record is malformed.
func inText(f reflect.StructField) bool {
	return f.IsExported() && f.Type.Kind() != reflect.Interface
}

func isEmpty(v reflect.Value) bool {
	if v.Kind() == reflect.Slice {
		return v.IsNil() || v.Len() == 0 && v.Type().Elem().Kind() != reflect.Uint8
	}
	return v.IsZero()
}
