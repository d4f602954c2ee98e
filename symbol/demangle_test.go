package symbol

import (
	"strings"
	"testing"
)

func TestDemangle(t *testing.T) {
	for name, want := range map[string]string{
		"":                                  "",
		"main":                              "main",
		"_start":                            "_start",
		"main.(*T).Method":                  "main.(*T).Method",
		"_ZN3foo3barEi":                     "foo::bar",
		"_ZNSt6vectorIiSaIiEE9push_backEOi": "std::vector<int, std::allocator<int> >::push_back",
		"_ZNK3FooltERKS_":                   "Foo::operator<",
		"_ZN3FooC1Ev":                       "Foo::Foo",
		"_ZN3foo3barEi.cold":                "foo::bar",
		"_ZN3foo3barEi.part.0.constprop.1":  "foo::bar",
		"_ZZ3foovENKUlvE_clEv":              "foo()::{lambda()#1}::operator()",
		"_ZTV3Foo":                          "vtable for Foo",
		"_ZN4core3fmt9Formatter3pad17h0123456789abcdefE":          "core::fmt::Formatter::pad",
		"_ZN4core3fmt9Formatter3pad17h0123456789abcdefE.llvm.123": "core::fmt::Formatter::pad",
		"_RNvNtCs1234_7mycrate3foo3bar":                           "mycrate::foo::bar",
		"_RNvMs0_NtCs1234_7mycrate3fooNtB5_3Bar3new":              "<mycrate::foo::Bar>::new",
		"_ZN3foo3barEi@plt":                                       "foo::bar@plt",
		"puts@plt":                                                "puts@plt",
		"_Zbroken":                                                "_Zbroken",
		"_Rbroken":                                                "_Rbroken",
		"_Z":                                                      "_Z",
		"_ZN3foo3barEi" + strings.Repeat("x", maxMangled): "_ZN3foo3barEi" + strings.Repeat("x", maxMangled),
	} {
		if got := Demangle(name); got != want {
			t.Errorf("%.60q is %.80q, want %.80q", name, got, want)
		}
	}
}

// TestDemangleAgainstCxxfilt compares with c++filt -p, which leaves parameters out
// too, on the names of real libraries. It writes out what the mangling abbreviates.
func TestDemangleAgainstCxxfilt(t *testing.T) {
	var names []string
	for _, file := range realFiles(t) {
		if strings.Contains(file, "libstdc++") {
			for _, s := range readelf(t, file).symbols {
				names = append(names, s.name)
			}
		}
	}
	want := output(t, strings.NewReader(strings.Join(names, "\n")), "c++filt", "-p")
	if len(names) < 1000 || len(want) != len(names) {
		t.Fatalf("%d names of %d", len(want), len(names))
	}
	for i, name := range names {
		if got := Demangle(name); abbreviate(got) != abbreviate(want[i]) {
			t.Errorf("%s is %s, want %s", name, got, want[i])
		}
	}
}

func abbreviate(name string) string {
	return strings.NewReplacer(
		"std::basic_string<char, std::char_traits<char>, std::allocator<char> >", "std::string",
		"std::basic_istream<char, std::char_traits<char> >", "std::istream",
		"std::basic_ostream<char, std::char_traits<char> >", "std::ostream",
		"std::basic_iostream<char, std::char_traits<char> >", "std::iostream",
		" >", ">",
	).Replace(name)
}
