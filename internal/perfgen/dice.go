package perfgen

import (
	"reflect"
)

// dice makes decisions of bytes, one after the other. When there are none left, all are 0.
type dice struct{ data []byte }

func (d *dice) left() bool { return len(d.data) > 0 }

func (d *dice) byte() byte {
	if len(d.data) == 0 {
		return 0
	}
	b := d.data[0]
	d.data = d.data[1:]
	return b
}

// below returns a number below n, which is at most 256.
func (d *dice) below(n int) int { return int(d.byte()) % n }

// bits returns n bytes as a number.
func (d *dice) bits(n int) (v uint64) {
	for range n {
		v = v<<8 | uint64(d.byte())
	}
	return v
}

// numbers are those that records mostly have, and those at which something ends.
var numbers = []uint64{0, 1, 2, 5, 7, 8, 11, 12, 0x80, 0x400000, 0x400010, 0x401000, 0x7ffc00000000, 0xffffffff81000000,
	1<<16 - 1, 1<<31 - 1, 1 << 32, 1<<32 - 1, 1 << 62, 1<<63 - 1, 1 << 63, 1<<64 - 1,
	1<<64 - 128, 1<<64 - 512, 1<<64 - 4095} // PERF_CONTEXT_*

// number returns a plausible number: a usual one, a small one, or any.
func (d *dice) number() uint64 {
	switch n := d.byte(); {
	case n < 160:
		return numbers[int(n)%len(numbers)]
	case n < 250:
		return uint64(d.byte()) << (n % 4 * 4)
	}
	return d.bits(8)
}

// names are what mappings, programs and events are called.
var names = []string{"", "/bin/a", "/lib/b.so", "/bin/a (deleted)", "[vdso]", "[heap]", "//anon", "[jit] f/g", "[kernel.kallsyms]_text",
	"[kernel.kallsyms]", "/lib/modules/6.1.0/kernel/net/nf-tables.ko.xz", "[nf_tables]", "/memfd:x (deleted)", "/dev/zero", "x86_64", "aarch64",
	"cycles:u", "dummy:HG", "a\x00b", "\xff\xfe", "/proc/sys", "sh", "hallmark"}

func (d *dice) name() string { return names[d.below(len(names))] }

func (d *dice) bytes(most int) []byte {
	b := make([]byte, d.below(most+1))
	for i := range b {
		b[i] = d.byte()
	}
	return b
}

// fill gives all fields of a struct plausible values.
func (d *dice) fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				d.fill(v.Field(i))
			}
		}
	case reflect.Pointer:
		if d.below(2) == 1 {
			v.Set(reflect.New(v.Type().Elem()))
			d.fill(v.Elem())
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes(d.bytes(40))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), d.below(5), 5))
		d.fillAll(v)
	case reflect.Array:
		d.fillAll(v)
	case reflect.String:
		v.SetString(d.name())
	case reflect.Bool:
		v.SetBool(d.below(2) == 1)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(d.number()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(d.number() & (1<<v.Type().Bits() - 1))
	}
}

func (d *dice) fillAll(v reflect.Value) {
	for i := range v.Len() {
		d.fill(v.Index(i))
	}
}
