package otlp

import (
	"errors"
	"fmt"
	"slices"

	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/slim/otlp/profiles/v1development"
	"google.golang.org/protobuf/proto"
)

// checker checks the indices of a message.
type checker struct {
	d *otlp.ProfilesDictionary
	// keys has for each string in which sample it was last the key of an attribute.
	keys   []int32
	sample int32
}

// inTable returns an error unless an index is one of a table. A table that is missing has the zero
// value all the same.
func inTable(index int32, size int, of string) error {
	if index < 0 || int(index) >= max(1, size) {
		return fmt.Errorf("%s %d of %d", of, index, size)
	}
	return nil
}

func (c *checker) text(indices ...int32) error {
	for _, i := range indices {
		if err := inTable(i, len(c.d.GetStringTable()), "string"); err != nil {
			return err
		}
	}
	return nil
}

// check returns an error if an index is outside of its table, or if the first element of a table is
// not the zero value.
func (m *Message) check() error {
	c := &checker{d: m.in.GetDictionary()}
	c.keys = make([]int32, max(1, len(c.d.GetStringTable())))
	if err := c.zeros(); err != nil {
		return err
	}
	if err := c.dictionary(); err != nil {
		return err
	}
	for i, r := range m.in.GetResourceProfiles() {
		if err := c.values(r.GetResource().GetAttributes()); err != nil {
			return in("resource", i, err)
		}
		for j, s := range r.GetScopeProfiles() {
			if err := c.values(s.GetScope().GetAttributes()); err != nil {
				return in("resource", i, in("scope", j, err))
			}
			for k, p := range s.GetProfiles() {
				if err := c.profile(p); err != nil {
					return in("resource", i, in("profile", k, err))
				}
			}
		}
	}
	return nil
}

// in says which element an error is about.
func in(what string, i int, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %d: %w", what, i, err)
}

// zeros checks the first elements of the tables.
func (c *checker) zeros() error {
	isZero := func(m proto.Message) bool { return proto.Size(m) == 0 }
	for _, first := range []struct {
		table string
		ok    bool
	}{
		{"string", len(c.d.GetStringTable()) == 0 || c.d.StringTable[0] == ""},
		{"mapping", len(c.d.GetMappingTable()) == 0 || isZero(c.d.MappingTable[0])},
		{"location", len(c.d.GetLocationTable()) == 0 || isZero(c.d.LocationTable[0])},
		{"function", len(c.d.GetFunctionTable()) == 0 || isZero(c.d.FunctionTable[0])},
		{"attribute", len(c.d.GetAttributeTable()) == 0 || isZeroAttribute(c.d.AttributeTable[0])},
		{"stack", len(c.d.GetStackTable()) == 0 || isZero(c.d.StackTable[0])},
		{"link", len(c.d.GetLinkTable()) == 0 || isZeroLink(c.d.LinkTable[0])},
	} {
		if !first.ok {
			return fmt.Errorf("%s 0 is not the zero value, which it has to be: the index 0 is none", first.table)
		}
	}
	return nil
}

// isZeroAttribute is also true where the value is there, and none.
func isZeroAttribute(a *otlp.KeyValueAndUnit) bool {
	return a.GetKeyStrindex() == 0 && a.GetUnitStrindex() == 0 && a.GetValue().GetValue() == nil
}

// isZeroLink is also true for numbers that are written out, of zeros.
func isZeroLink(l *otlp.Link) bool {
	isSet := func(b byte) bool { return b != 0 }
	return !slices.ContainsFunc(l.GetTraceId(), isSet) && !slices.ContainsFunc(l.GetSpanId(), isSet)
}

func (c *checker) dictionary() error {
	for i, f := range c.d.GetFunctionTable() {
		if err := c.text(f.GetNameStrindex(), f.GetSystemNameStrindex(), f.GetFilenameStrindex()); err != nil {
			return in("function", i, err)
		}
	}
	for i, a := range c.d.GetAttributeTable() {
		if err := errors.Join(c.text(a.GetKeyStrindex(), a.GetUnitStrindex()), c.value(a.GetValue(), 0)); err != nil {
			return in("attribute", i, err)
		}
	}
	for i, m := range c.d.GetMappingTable() {
		if err := errors.Join(c.text(m.GetFilenameStrindex()), c.attributes(m.GetAttributeIndices())); err != nil {
			return in("mapping", i, err)
		}
	}
	for i, l := range c.d.GetLocationTable() {
		if err := c.location(l); err != nil {
			return in("location", i, err)
		}
	}
	for i, s := range c.d.GetStackTable() {
		for _, l := range s.GetLocationIndices() {
			if err := inTable(l, len(c.d.GetLocationTable()), "location"); err != nil {
				return in("stack", i, err)
			}
		}
	}
	return nil
}

func (c *checker) location(l *otlp.Location) error {
	if err := inTable(l.GetMappingIndex(), len(c.d.GetMappingTable()), "mapping"); err != nil {
		return err
	}
	for _, line := range l.GetLines() {
		if err := inTable(line.GetFunctionIndex(), len(c.d.GetFunctionTable()), "function"); err != nil {
			return err
		}
	}
	return c.attributes(l.GetAttributeIndices())
}

func (c *checker) attributes(indices []int32) error {
	for _, i := range indices {
		if err := inTable(i, len(c.d.GetAttributeTable()), "attribute"); err != nil {
			return err
		}
	}
	return nil
}

// values checks attributes that are not in the dictionary.
func (c *checker) values(all []*common.KeyValue) error {
	for _, kv := range all {
		if err := errors.Join(c.text(kv.GetKeyStrindex()), c.value(kv.GetValue(), 0)); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) value(v *common.AnyValue, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("values are more than %d deep in each other", maxDepth)
	}
	switch v := v.GetValue().(type) {
	case *common.AnyValue_StringValueStrindex:
		return c.text(v.StringValueStrindex)
	case *common.AnyValue_ArrayValue:
		for _, e := range v.ArrayValue.GetValues() {
			if err := c.value(e, depth+1); err != nil {
				return err
			}
		}
	case *common.AnyValue_KvlistValue:
		for _, e := range v.KvlistValue.GetValues() {
			if err := errors.Join(c.text(e.GetKeyStrindex()), c.value(e.GetValue(), depth+1)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *checker) profile(p *otlp.Profile) error {
	for _, t := range []*otlp.ValueType{p.GetSampleType(), p.GetPeriodType()} {
		if err := c.text(t.GetTypeStrindex(), t.GetUnitStrindex()); err != nil {
			return err
		}
	}
	if err := c.attributes(p.GetAttributeIndices()); err != nil {
		return err
	}
	for i, s := range p.GetSamples() {
		if err := c.oneSample(s); err != nil {
			return in("sample", i, err)
		}
	}
	return nil
}

// oneSample checks a sample. In an earlier protocol its values are where the attributes are now: that
// shows where there are no values, and attributes that no sample has.
func (c *checker) oneSample(s *otlp.Sample) error {
	if err := inTable(s.GetStackIndex(), len(c.d.GetStackTable()), "stack"); err != nil {
		return err
	}
	if err := inTable(s.GetLinkIndex(), len(c.d.GetLinkTable()), "link"); err != nil {
		return err
	}
	values, times, attributes := len(s.GetValues()), len(s.GetTimestampsUnixNano()), s.GetAttributeIndices()
	outside := c.attributes(attributes)
	switch {
	case values == 0 && len(attributes) > 0 && (times == 0 || outside != nil || !c.mayBeOfSample(attributes)):
		return ErrOldProtocol
	case outside != nil:
		return outside
	case values == 0 && times == 0:
		return fmt.Errorf("neither values nor timestamps")
	case values != 0 && times != 0 && values != times:
		return fmt.Errorf("%d values and %d timestamps", values, times)
	}
	return nil
}

// mayBeOfSample reports whether a sample can have these attributes: none of them is about a file or a
// frame, and no key is there twice.
func (c *checker) mayBeOfSample(indices []int32) bool {
	c.sample++
	for _, i := range indices {
		if int(i) >= len(c.d.GetAttributeTable()) {
			continue // 0, which is none
		}
		key := c.d.AttributeTable[i].GetKeyStrindex()
		if c.keys[key] == c.sample {
			return false
		}
		c.keys[key] = c.sample
		if int(key) < len(c.d.GetStringTable()) && isOfFile(c.d.StringTable[key]) {
			return false
		}
	}
	return true
}

// isOfFile reports whether a key is that of an attribute of files or frames.
func isOfFile(key string) bool {
	switch key {
	case gnuKey, goKey, htlKey, frameTypeKey, identityKey, contentKey:
		return true
	}
	return false
}
