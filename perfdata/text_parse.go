package perfdata

import (
	"encoding/hex"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// textParser reads the values that appendText writes. Texts are written by people,
// for tests: an error says what is expected where.
type textParser struct {
	text string
	pos  int
}

// parseStruct reads a value into what the pointer points at, up to the text's end.
func parseStruct(text string, into any) error {
	p := textParser{text: text}
	if err := p.value(reflect.ValueOf(into).Elem()); err != nil {
		return err
	}
	if rest := strings.TrimSpace(p.text[p.pos:]); rest != "" {
		return p.expected("the end")
	}
	return nil
}

func (p *textParser) expected(what string) error {
	return fmt.Errorf("column %d: expected %s, got %.20q", p.pos, what, p.text[p.pos:])
}

// accept passes over a byte if it is next.
func (p *textParser) accept(c byte) bool {
	for p.pos < len(p.text) && p.text[p.pos] == ' ' {
		p.pos++
	}
	if p.pos < len(p.text) && p.text[p.pos] == c {
		p.pos++
		return true
	}
	return false
}

// word returns what is next, up to a space or a bracket.
func (p *textParser) word() string {
	p.accept(' ')
	n := strings.IndexAny(p.text[p.pos:], " ={}[]")
	if n < 0 {
		n = len(p.text) - p.pos
	}
	p.pos += n
	return p.text[p.pos-n : p.pos]
}

func (p *textParser) value(v reflect.Value) error {
	start := p.pos
	var err error
	switch v.Kind() {
	case reflect.Bool:
		var set bool
		set, err = strconv.ParseBool(p.word())
		v.SetBool(set)
	case reflect.String:
		return p.quoted(v)
	case reflect.Float64:
		var f float64
		f, err = strconv.ParseFloat(p.word(), 64)
		v.SetFloat(f)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		var n int64
		n, err = strconv.ParseInt(p.word(), 0, v.Type().Bits())
		v.SetInt(n)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return p.number(v)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return p.value(v.Elem())
	case reflect.Slice, reflect.Array:
		return p.list(v)
	case reflect.Struct:
		return p.fields(v)
	default:
		err = fmt.Errorf("a %v has no text", v.Type())
	}
	if err != nil {
		return fmt.Errorf("column %d: %w", start, err)
	}
	return nil
}

func (p *textParser) number(v reflect.Value) error {
	start := p.pos
	word := p.word()
	var n uint64
	var err error
	if v.Type() == reflect.TypeFor[SampleType]() {
		var t SampleType
		t, err = parseFields(word)
		n = uint64(t)
	} else {
		n, err = strconv.ParseUint(word, 0, v.Type().Bits())
	}
	if err != nil {
		return fmt.Errorf("column %d: %w", start, err)
	}
	v.SetUint(n)
	return nil
}

func (p *textParser) quoted(v reflect.Value) error {
	p.accept(' ')
	quoted, err := strconv.QuotedPrefix(p.text[p.pos:])
	if err != nil {
		return p.expected("a quoted string")
	}
	s, err := strconv.Unquote(quoted)
	if err != nil {
		return p.expected("a quoted string")
	}
	p.pos += len(quoted)
	v.SetString(s)
	return nil
}

func (p *textParser) list(v reflect.Value) error {
	if v.Type().Elem().Kind() == reflect.Uint8 {
		return p.bytes(v)
	}
	if !p.accept('[') {
		return p.expected("[")
	}
	for !p.accept(']') {
		if p.pos == len(p.text) {
			return p.expected("]")
		}
		one := reflect.New(v.Type().Elem()).Elem()
		if err := p.value(one); err != nil {
			return err
		}
		v.Set(reflect.Append(v, one))
	}
	return nil
}

func (p *textParser) bytes(v reflect.Value) error {
	if !p.accept('x') {
		return p.expected("x and hexadecimal digits")
	}
	digits := ""
	if p.pos < len(p.text) && p.text[p.pos] != ' ' { // or there are no bytes
		digits = p.word()
	}
	data, err := hex.DecodeString(digits)
	if err != nil {
		return fmt.Errorf("column %d: %w", p.pos, err)
	}
	if v.Kind() == reflect.Slice {
		v.SetBytes(data)
		return nil
	}
	if len(data) != v.Len() {
		return fmt.Errorf("column %d: %d bytes, expected %d", p.pos, len(data), v.Len())
	}
	reflect.Copy(v, reflect.ValueOf(data))
	return nil
}

func (p *textParser) fields(v reflect.Value) error {
	if !p.accept('{') {
		return p.expected("{")
	}
	for !p.accept('}') {
		name := p.word()
		f, ok := v.Type().FieldByName(name)
		if !ok || !inText(f) || f.Anonymous {
			return p.expected(fmt.Sprintf("a field of %s instead of %q", v.Type().Name(), name))
		}
		if !p.accept('=') {
			return p.expected("=")
		}
		if err := p.value(v.FieldByName(name)); err != nil {
			return err
		}
	}
	return nil
}
