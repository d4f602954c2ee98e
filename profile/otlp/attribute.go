package otlp

import (
	"encoding/hex"
	"strconv"
	"strings"

	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/slim/otlp/profiles/v1development"

	"hallmark/buildid"
	"hallmark/profile"
)

// Keys of attributes (OpenTelemetry's semantic conventions, and our own).
const (
	gnuKey       = "process.executable.build_id.gnu"
	goKey        = "process.executable.build_id.go"
	htlKey       = "process.executable.build_id.htlhash"
	identityKey  = "hallmark.identity" // in the form of buildid, where it is of no other kind
	contentKey   = "hallmark.content"  // of the file that has the identity
	frameTypeKey = "profile.frame.type"

	pidKey        = "process.pid"
	processKey    = "process.executable.name"
	cgroupKey     = "process.linux.cgroup"
	containerKey  = "container.id"
	threadKey     = "thread.name"
	tidKey        = "thread.id"
	foldedKey     = "pprof.location.is_folded"
	commentKey    = "pprof.profile.comment"
	docURLKey     = "pprof.profile.doc_url"
	dropFramesKey = "pprof.profile.drop_frames"
	keepFramesKey = "pprof.profile.keep_frames"
	defaultKey    = "pprof.scope.default_sample_type"
	orderKey      = "pprof.scope.sample_type_order"
)

// Values of profile.frame.type.
const (
	kernelFrame = "kernel"
	nativeFrame = "native"
)

// isNative reports whether the address of a frame of some type is one in a file. Of frames of
// interpreters and compilers at run time it is not.
func isNative(frameType string) bool {
	switch frameType {
	case "", nativeFrame, kernelFrame, "go", "rust":
		return true
	}
	return false
}

// dictionary reads a dictionary whose indices are sound. A table that is missing has the zero value.
type dictionary struct{ *otlp.ProfilesDictionary }

func (d dictionary) text(i int32) string {
	if int(i) >= len(d.GetStringTable()) {
		return ""
	}
	return d.StringTable[i]
}

func at[T any](table []*T, i int32) *T {
	if int(i) >= len(table) {
		return nil // the zero value, by its getters
	}
	return table[i]
}

// attribute is one in either form.
type attribute struct {
	key, unit string
	value     *common.AnyValue
}

// attributes yields those of a list of the dictionary.
func (d dictionary) attributes(indices []int32) func(yield func(attribute) bool) {
	return func(yield func(attribute) bool) {
		for _, i := range indices {
			a := at(d.GetAttributeTable(), i)
			if i != 0 && !yield(attribute{d.text(a.GetKeyStrindex()), d.text(a.GetUnitStrindex()), a.GetValue()}) {
				return
			}
		}
	}
}

// direct yields those that are written out.
func (d dictionary) direct(all []*common.KeyValue) func(yield func(attribute) bool) {
	return func(yield func(attribute) bool) {
		for _, kv := range all {
			key := kv.GetKey()
			if key == "" {
				key = d.text(kv.GetKeyStrindex())
			}
			if !yield(attribute{key: key, value: kv.GetValue()}) {
				return
			}
		}
	}
}

// string returns a value that is a text, false for any other.
func (d dictionary) string(v *common.AnyValue) (string, bool) {
	switch v := v.GetValue().(type) {
	case *common.AnyValue_StringValue:
		return v.StringValue, true
	case *common.AnyValue_StringValueStrindex:
		return d.text(v.StringValueStrindex), true
	}
	return "", false
}

// label returns a value in the form that pprof's labels have: texts or numbers. It has neither for a
// value that has parts with names.
func (d dictionary) label(v *common.AnyValue) (texts []string, numbers []int64) {
	if text, ok := d.string(v); ok {
		return []string{text}, nil
	}
	switch v := v.GetValue().(type) {
	case *common.AnyValue_IntValue:
		return nil, []int64{v.IntValue}
	case *common.AnyValue_BoolValue:
		return []string{strconv.FormatBool(v.BoolValue)}, nil
	case *common.AnyValue_DoubleValue:
		return []string{strconv.FormatFloat(v.DoubleValue, 'g', -1, 64)}, nil
	case *common.AnyValue_BytesValue:
		return []string{hex.EncodeToString(v.BytesValue)}, nil
	case *common.AnyValue_ArrayValue:
		for _, e := range v.ArrayValue.GetValues() {
			if _, isArray := e.GetValue().(*common.AnyValue_ArrayValue); isArray {
				continue
			}
			t, n := d.label(e)
			texts, numbers = append(texts, t...), append(numbers, n...)
		}
	}
	return texts, numbers
}

// file is what the attributes of a mapping say of its file.
type file struct {
	id      buildid.ID // the best of those that are there, zero for none
	content buildid.Content
}

// file returns what the attributes of a mapping say. Text that is no identity says nothing.
func (d dictionary) file(m *otlp.Mapping) (f file) {
	var found [buildid.HTL + 1]buildid.ID
	note := func(id buildid.ID, err error) {
		if err == nil && found[id.Kind()].IsZero() {
			found[id.Kind()] = id
		}
	}
	ofHex := func(kind buildid.Kind, text string) (buildid.ID, error) {
		if len(text) > 2*buildid.MaxSize {
			return buildid.ID{}, strconv.ErrRange
		}
		b, err := hex.DecodeString(text)
		if err != nil {
			return buildid.ID{}, err
		}
		return buildid.New(kind, b)
	}
	for a := range d.attributes(m.GetAttributeIndices()) {
		text, ok := d.string(a.value)
		if !ok {
			continue
		}
		switch a.key {
		case gnuKey:
			note(ofHex(buildid.GNU, text))
		case goKey:
			note(buildid.New(buildid.Go, []byte(text)))
		case htlKey:
			note(ofHex(buildid.HTL, text))
		case identityKey:
			id, err := buildid.Parse(text)
			isClaim := profile.IsClaimedRange(m.GetMemoryStart(), m.GetMemoryLimit())
			if id.Kind() == buildid.ByContent || isClaim && id.Kind() == buildid.GNU {
				note(id, err)
			}
		case contentKey:
			if c, err := buildid.ParseContent(text); err == nil {
				f.content = c
			}
		}
	}
	for _, id := range found { // the best kind first
		if !id.IsZero() {
			f.id = id
			break
		}
	}
	// A file that has its content for an identity has it because nobody believes its build ID.
	if !found[buildid.ByContent].IsZero() {
		f.id = found[buildid.ByContent]
	}
	return f
}

// frameType returns the type of the frame at a location, "" where nobody says.
func (d dictionary) frameType(l *otlp.Location) string {
	for a := range d.attributes(l.GetAttributeIndices()) {
		if a.key == frameTypeKey {
			text, _ := d.string(a.value)
			return text
		}
	}
	return ""
}

// keyValue returns an attribute that is written out.
func keyValue(key string, v *common.AnyValue) *common.KeyValue {
	return &common.KeyValue{Key: key, Value: v}
}

func textValue(s string) *common.AnyValue {
	return &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: valid(s)}}
}

func intValue(n int64) *common.AnyValue {
	return &common.AnyValue{Value: &common.AnyValue_IntValue{IntValue: n}}
}

func arrayValue(values []*common.AnyValue) *common.AnyValue {
	return &common.AnyValue{Value: &common.AnyValue_ArrayValue{ArrayValue: &common.ArrayValue{Values: values}}}
}

// valid returns a text as the messages can have it.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
