package symbol

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hallmark/addr"
	"hallmark/internal/testenv"
)

// localNames is a program whose functions have no linkage name in GCC's debug information: they
// are local to the file.
const localNames = `
#include <cstdio>
#define KEPT __attribute__((noinline, noclone))
namespace shop { namespace {
template<typename T> struct Cache {
	T last;
	KEPT T get(T x) { return last += x; }
	KEPT T operator+(T x) { return last -= x; }
	KEPT ~Cache() { std::printf("%d\n", int(last)); }
};
} KEPT static int sorter2(int x) { return x * 3; } }
template<typename F> KEPT int call(F f, int x) { return f(x) + 1; }
int main(int argc, char **) {
	shop::Cache<int> i{argc}; shop::Cache<long> l{argc};
	auto one = [](int x) KEPT { return x * 7; };
	auto two = [](int x) KEPT { return x / 3; };
	return i.get(2) + l.get(3) + (i + 4) + int(l + 5) + call(one, argc) + call(two, argc) + shop::sorter2(argc);
}
`

// TestNamesOfLocalCode wants functions that are local to a file to be distinguished: the symbol has
// the name that the debug information leaves out.
func TestNamesOfLocalCode(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "local.cc"), []byte(localNames), 0o666); err != nil {
		t.Fatal(err)
	}
	shell(t, dir, testenv.Tool(t, "g++")+" -std=c++20 -O1 -g local.cc -o prog")
	name := filepath.Join(dir, "prog")
	tables := map[string]Table{"file": open(t, name), "index": index(t, name)}
	seen := map[string]bool{}
	for _, line := range output(t, nil, testenv.Tool(t, "nm"), name) {
		words := strings.Fields(line)
		if len(words) != 3 || !strings.Contains("tTwW", words[1]) || !strings.HasPrefix(words[2], "_Z") {
			continue
		}
		for kind, table := range tables {
			frames := table.LookupVirt(addr.Virt(hex(t, words[0]))).Frames
			if len(frames) == 0 {
				t.Errorf("%s: nothing at %s", kind, line)
				continue
			}
			// Constructors and destructors have two names for one code.
			got, want := frames[len(frames)-1], words[2]
			if got.Linkage != want && got.Func != Demangle(want) {
				t.Errorf("%s: %s is %+v", kind, line, got)
			}
			seen[got.Func] = true
		}
	}
	for _, want := range []string{
		"shop::(anonymous namespace)::Cache<int>::get", "shop::(anonymous namespace)::Cache<long>::get",
		"main::{lambda(int)#1}::operator()", "main::{lambda(int)#2}::operator()", "shop::sorter2",
		"shop::(anonymous namespace)::Cache<int>::operator+", "shop::(anonymous namespace)::Cache<long>::~Cache",
	} {
		if !seen[want] {
			t.Errorf("no %s in %v", want, seen)
		}
	}
}

func TestMangles(t *testing.T) {
	for _, test := range []struct {
		symbol, name string
		want         bool
	}{
		{"_ZN4shop5Cache3getEi", "get", true},
		{"_ZN4x1233getEv", "get", true},
		{"_ZN4shop5Cache6forgetEi", "get", false},
		{"_ZN3getC2Ev", "get", true},
		{"_ZN5CacheD2Ev", "~Cache", true},
		{"_ZZ4mainENKUlvE_clEv", "operator()", true},
		{"_ZSt4sortIPiEvT_S1_", "sort<int*>", true},
		{"get", "get", false},
		{"_Z3gotv", "get", false},
		{"_Z3getv", "_Z3gotv", false},
		{"_Z3getv", "~", false},
		{"_Z", "<lambda>", false},
	} {
		if got := mangles(test.symbol, test.name); got != test.want {
			t.Errorf("mangles(%q, %q) = %v", test.symbol, test.name, got)
		}
	}
}
