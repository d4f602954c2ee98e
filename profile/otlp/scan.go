package otlp

import (
	"fmt"
	"reflect"
	"sync"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/profiles/v1development"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/slim/otlp/profiles/v1development"
	resource "go.opentelemetry.io/proto/slim/otlp/resource/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"hallmark/profile"
)

// maxDepth is how deep messages may be in each other: values of attributes can have values.
const maxDepth = 64

// shape is what the scan knows of a type of messages.
type shape struct {
	size     int64 // bytes of memory of one, with its pointer
	fields   []fieldShape
	isSample bool
}

// fieldShape is what the scan knows of a field.
type fieldShape struct {
	known   bool
	message *shape
	element int64 // bytes of memory of a number
}

// Bytes of memory. Lists grow by doubling, and leave what they were.
const (
	growth      = 3
	pointerSize = 8
	stringSize  = 16
	unknownCost = growth // for each byte of a field that has no name here
)

// requestShape returns the shape of a whole message.
var requestShape = sync.OnceValue(func() *shape {
	sizes := map[protoreflect.FullName]int64{}
	for _, m := range []proto.Message{
		&collector.ExportProfilesServiceRequest{}, &otlp.ResourceProfiles{}, &otlp.ScopeProfiles{}, &otlp.Profile{}, &otlp.Sample{},
		&otlp.ProfilesDictionary{}, &otlp.Mapping{}, &otlp.Location{}, &otlp.Line{}, &otlp.Function{}, &otlp.Link{}, &otlp.Stack{},
		&otlp.ValueType{}, &otlp.KeyValueAndUnit{}, &common.AnyValue{}, &common.ArrayValue{}, &common.KeyValueList{}, &common.KeyValue{},
		&common.InstrumentationScope{}, &common.EntityRef{}, &resource.Resource{},
	} {
		sizes[m.ProtoReflect().Descriptor().FullName()] = int64(reflect.TypeOf(m).Elem().Size())
	}
	// A value of an attribute is in a value of its own, behind an interface.
	sizes[(&common.AnyValue{}).ProtoReflect().Descriptor().FullName()] += 2 * stringSize
	return shapeOf((&collector.ExportProfilesServiceRequest{}).ProtoReflect().Descriptor(), sizes, map[protoreflect.FullName]*shape{})
})

func shapeOf(d protoreflect.MessageDescriptor, sizes map[protoreflect.FullName]int64, known map[protoreflect.FullName]*shape) *shape {
	if s := known[d.FullName()]; s != nil {
		return s
	}
	size, ok := sizes[d.FullName()]
	if !ok {
		panic("no size of " + d.FullName()) // every message reads this, so every test does
	}
	s := &shape{size: size + growth*pointerSize, isSample: d.Name() == "Sample"}
	known[d.FullName()] = s
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		n := int(f.Number())
		for len(s.fields) <= n {
			s.fields = append(s.fields, fieldShape{})
		}
		at := &s.fields[n]
		at.known = true
		switch f.Kind() {
		case protoreflect.MessageKind:
			at.message = shapeOf(f.Message(), sizes, known)
		case protoreflect.StringKind, protoreflect.BytesKind:
		default:
			at.element = growth * pointerSize
		}
	}
	return s
}

// Cost returns how many bytes of memory the message takes when it is decoded. A few bytes can stand
// for very many. The errors are those of Parse, but for what the indices say.
func Cost(b []byte, o Options) (int64, error) {
	if n := int64(len(b)); n > o.size() {
		return n, fmt.Errorf("%w: a message of %d bytes, and at most %d are read", profile.ErrTooLarge, n, o.size())
	}
	s := scan{most: o.memory()}
	err := s.message(requestShape(), b, 0)
	return s.cost, err
}

// scan goes through a message that nobody has decoded.
type scan struct {
	cost, most int64
}

func (s *scan) take(n int64) error {
	if s.cost += n; s.cost > s.most {
		return fmt.Errorf("%w: the message takes more than %d MiB of memory", profile.ErrTooLarge, s.most>>20)
	}
	return nil
}

func (s *scan) message(sh *shape, b []byte, depth int) error {
	if depth > maxDepth {
		return formatf("messages are more than %d deep in each other", maxDepth)
	}
	if err := s.take(sh.size); err != nil {
		return err
	}
	for len(b) > 0 {
		number, wire, n := protowire.ConsumeTag(b)
		if n < 0 {
			return formatf("%w", protowire.ParseError(n))
		}
		if sh.isSample && isOldSample(number, wire) {
			return ErrOldProtocol
		}
		b = b[n:]
		if wire == protowire.StartGroupType || wire == protowire.EndGroupType {
			return formatf("a group, of which there are none")
		}
		size := protowire.ConsumeFieldValue(number, wire, b)
		if size < 0 {
			return formatf("%w", protowire.ParseError(size))
		}
		var f fieldShape
		if int(number) < len(sh.fields) {
			f = sh.fields[number]
		}
		body := b[:size]
		b = b[size:]
		var err error
		switch {
		case !f.known, f.message != nil && wire != protowire.BytesType:
			err = s.take(unknownCost * int64(n+size))
		case wire != protowire.BytesType:
			err = s.take(max(f.element, unknownCost*int64(n+size)))
		default:
			content, _ := protowire.ConsumeBytes(body)
			err = s.bytes(f, content, depth)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// bytes counts a field that has a length: a message, a text, or packed numbers.
func (s *scan) bytes(f fieldShape, content []byte, depth int) error {
	if f.message != nil {
		return s.message(f.message, content, depth+1)
	}
	if f.element == 0 {
		return s.take(growth*stringSize + int64(len(content)))
	}
	// A number has at least a byte that ends it; numbers of fixed size have eight.
	ends := int64(len(content) / 8)
	for _, c := range content {
		if c < 0x80 {
			ends++
		}
	}
	return s.take(ends*f.element + unknownCost*int64(len(content)))
}

// Fields of a sample in protocol 1.10 and later.
const (
	sampleLink   = 3
	sampleValues = 4
)

// isOldSample reports whether a field of a sample is one of protocol 1.9 or earlier, by the form of
// its value. There 3 are the attributes, or before 1.8 the values, and 4 is the link, a number; since
// 1.10 3 is the link, and 4 are the values, which are packed.
func isOldSample(number protowire.Number, wire protowire.Type) bool {
	return number == sampleLink && wire == protowire.BytesType || number == sampleValues && wire == protowire.VarintType
}
