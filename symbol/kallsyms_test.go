package symbol

import (
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"hallmark/addr"
	"hallmark/internal/testenv"
	"hallmark/reason"
)

// TestKallsymsOfThisKernel compares with the nearest lines of the file.
func TestKallsymsOfThisKernel(t *testing.T) {
	data, err := os.ReadFile("/proc/kallsyms")
	if err != nil {
		t.Fatal(err)
	}
	k, err := ReadKallsyms(strings.NewReader(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	testenv.Need(t, !k.Hidden(), "the addresses of kernel symbols: root, kernel.kptr_restrict of 0 or 1")
	lines := kallsymsLines(t, string(data))
	if k.Damaged() != 0 || k.Text() != lines.named["_text"] || k.Stext() != lines.named["_stext"] || k.Etext() != lines.named["_etext"] {
		t.Errorf("%d lines damaged; _text %v, _stext %v, _etext %v", k.Damaged(), k.Text(), k.Stext(), k.Etext())
	}
	r, named := random(), 0
	for range 20000 {
		a := k.Stext() + addr.Abs(r.Uint64N(uint64(k.Etext()-k.Stext())))
		at, symbols := lines.nearest(a)
		got := k.Lookup(a)
		if got.Frames == nil {
			if a-at < maxKernelGap && symbols != nil {
				t.Errorf("%v has no symbol, want one of %v", a, symbols)
			}
			continue
		}
		named++
		module, ok := k.Module(a)
		if want, isSymbol := symbols[got.Frames[0].Linkage]; !isSymbol || !ok || module != want {
			t.Errorf("%v is %v of %q, want one of %v", a, got, module, symbols)
		}
	}
	if named < 15000 {
		t.Errorf("only %d of 20000 addresses have a symbol", named)
	}
}

// kernelLines are the lines of /proc/kallsyms: for each address the names of code
// there and their modules.
type kernelLines struct {
	at     map[addr.Abs]map[string]string
	sorted []addr.Abs // the addresses
	named  map[string]addr.Abs
}

func kallsymsLines(t *testing.T, data string) kernelLines {
	lines := kernelLines{at: map[addr.Abs]map[string]string{}, named: map[string]addr.Abs{}}
	for line := range strings.Lines(data) {
		f := strings.Fields(line)
		a, module := addr.Abs(hex(t, f[0])), ""
		if len(f) == 4 {
			module = strings.Trim(f[3], "[]")
		}
		if lines.at[a] == nil {
			lines.at[a] = map[string]string{}
		}
		if strings.Contains("tTwW", f[1]) {
			lines.at[a][f[2]] = module
			lines.named[f[2]] = a
		}
	}
	lines.sorted = slices.Sorted(maps.Keys(lines.at))
	return lines
}

// nearest returns the last address up to a that has lines, and its names.
func (l kernelLines) nearest(a addr.Abs) (addr.Abs, map[string]string) {
	i, exact := slices.BinarySearch(l.sorted, a)
	if !exact {
		i--
	}
	at := l.sorted[i]
	return at, l.at[at]
}

const kallsyms = `0000000000000000 A fixed_percpu_data
ffffffff81000000 T _stext
ffffffff81000000 T startup_64
ffffffff81000100 t local
ffffffff81000100 W weak
ffffffff81000100 T __global
ffffffff81000100 T global_too
ffffffff81000200 d data
ffffffff81000300 T last
ffffffff81000400 T _etext
ffffffffc0000000 t nft_do_chain	[nf_tables]
ffffffffc0000040 d nft_table	[nf_tables]
ffffffffc0100000 t bpf_prog_0a1b2c3d4e5f6071_on_exec	[bpf]
ffffffffc0100080 t _RNvNtCs1234_7mycrate3foo3bar	[rust_module]
`

func TestKallsyms(t *testing.T) {
	k, err := ReadKallsyms(strings.NewReader(kallsyms))
	if err != nil {
		t.Fatal(err)
	}
	if k.Damaged() != 0 || k.Hidden() || k.Stext() != 0xffffffff81000000 || k.Etext() != 0xffffffff81000400 || k.Text() != 0 {
		t.Errorf("damaged %d, hidden %v, _stext %v, _etext %v, _text %v", k.Damaged(), k.Hidden(), k.Stext(), k.Etext(), k.Text())
	}
	for _, test := range []struct {
		a            addr.Abs
		name, module string
	}{
		{0, "", ""},
		{0xffffffff80ffffff, "", ""},
		{0xffffffff81000000, "startup_64", ""},
		{0xffffffff810000ff, "startup_64", ""},
		{0xffffffff81000100, "weak", ""},
		{0xffffffff81000200, "", ""},
		{0xffffffff810002ff, "", ""},
		{0xffffffff81000300, "last", ""},
		{0xffffffffb0000000, "", ""},
		{0xffffffffc0000030, "nft_do_chain", "nf_tables"},
		{0xffffffffc0000040, "", ""},
		{0xffffffffc0100000, "bpf_prog_0a1b2c3d4e5f6071_on_exec", "bpf"},
		{0xffffffffc0100081, "mycrate::foo::bar", "rust_module"},
		{0xffffffffc0110080, "", ""},
	} {
		got, name := k.Lookup(test.a), ""
		if len(got.Frames) == 1 {
			name = got.Frames[0].Func
		}
		if module, _ := k.Module(test.a); name != test.name || module != test.module {
			t.Errorf("%v is %q of %q, want %q of %q", test.a, name, module, test.name, test.module)
		}
		if wanted := reason.NoSymbol; name == "" && got.Reason != wanted {
			t.Errorf("%v: %v, want %v", test.a, got.Reason, wanted)
		}
	}
}

func TestKallsymsReasons(t *testing.T) {
	for _, test := range []struct {
		data    string
		damaged int
		want    reason.Reason
	}{
		{"0000000000000000 T _text\n0000000000000000 t x\n", 0, reason.KernelHidden},
		{"", 0, reason.NoSymbolTable},
		{"no symbols\nffffffff81000000\nffffffff81000000 T\nffffffff81000000 T \n", 4, reason.NoSymbolTable},
		{"ffffffff81000000 T x" + strings.Repeat("x", maxLine) + "\n", 1, reason.NoSymbolTable},
		{"ffffffff81000000 T x" + strings.Repeat("x", maxLine), 1, reason.NoSymbolTable},
		{"ffffffff81000000 d data\n", 0, reason.NoSymbolTable},
	} {
		k, err := ReadKallsyms(strings.NewReader(test.data))
		if err != nil {
			t.Fatal(err)
		}
		if got := k.Lookup(0xffffffff81000000).Reason; got != test.want || k.Damaged() != test.damaged {
			t.Errorf("%.50q: %v with %d damaged lines, want %v with %d", test.data, got, k.Damaged(), test.want, test.damaged)
		}
	}
}

// TestReadKallsymsAt wants the same answers from what was read for some addresses
// as from the whole table: for every symbol of this kernel's code, in the file's
// order and in any other.
func TestReadKallsymsAt(t *testing.T) {
	data, err := os.ReadFile("/proc/kallsyms")
	if err != nil {
		t.Fatal(err)
	}
	whole, err := ReadKallsyms(strings.NewReader(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	testenv.Need(t, !whole.Hidden(), "the addresses of kernel symbols: root, kernel.kptr_restrict of 0 or 1")
	r := random()
	shuffled := slices.Collect(strings.Lines(string(data)))
	r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	var all, some []addr.Abs
	for i, start := range whole.ranges.Starts {
		a := addr.Abs(start + r.Uint64N(uint64(whole.ranges.Sizes[i])))
		all = append(all, a)
		if r.IntN(100) == 0 {
			some = append(some, a, a+addr.Abs(r.Uint64N(2*maxKernelGap)))
		}
	}
	some = append(some, 0, 1, whole.Text(), whole.Etext()-1, ^addr.Abs(0))
	r.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
	for _, test := range []struct {
		name, data string
		addresses  []addr.Abs
	}{
		{"all", string(data), all},
		{"some", string(data), some},
		{"some of shuffled lines", strings.Join(shuffled, ""), some},
	} {
		t.Run(test.name, func(t *testing.T) { compareKallsyms(t, whole, test.data, test.addresses) })
	}
	t.Run("built", func(t *testing.T) {
		k, err := ReadKallsyms(strings.NewReader(kallsyms))
		if err != nil {
			t.Fatal(err)
		}
		var addresses []addr.Abs
		for _, start := range []addr.Abs{0xffffffff81000000, 0xffffffffc0000000, 0xffffffffc0100000} {
			for a := range addr.Abs(0x500) {
				addresses = append(addresses, start-1+a)
			}
		}
		compareKallsyms(t, k, kallsyms, addresses)
	})
}

// compareKallsyms reads data for these addresses and wants the answers of whole.
func compareKallsyms(t *testing.T, whole *Kallsyms, data string, addresses []addr.Abs) {
	k, err := ReadKallsymsAt(strings.NewReader(data), addresses)
	if err != nil {
		t.Fatal(err)
	}
	if k.Text() != whole.Text() || k.Etext() != whole.Etext() || k.Hidden() != whole.Hidden() || k.Damaged() != whole.Damaged() {
		t.Errorf("_text %v, _etext %v, hidden %v, %d damaged", k.Text(), k.Etext(), k.Hidden(), k.Damaged())
	}
	for _, a := range addresses {
		got, want := k.Lookup(a), whole.Lookup(a)
		gotModule, gotOK := k.Module(a)
		wantModule, wantOK := whole.Module(a)
		if !reflect.DeepEqual(got, want) || gotModule != wantModule || gotOK != wantOK {
			t.Errorf("%v is %v of %q, in the whole table %v of %q", a, got, gotModule, want, wantModule)
		}
	}
}
