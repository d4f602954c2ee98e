package readable

import (
	"bytes"
	"debug/elf"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ianlancetaylor/demangle"

	"hallmark/internal/testenv"
)

// mistakes are names that the library misreads.
var mistakes = []struct{ name, want string }{
	{
		"_ZSteqIcEN9__gnu_cxx11__enable_ifIXsr9__is_charIT_EE7__valueEbE6__typeERKSbIS2_St11char_traitsIS2_ESaIS2_EES9_",
		"__gnu_cxx::__enable_if<__is_char<char>::__value, bool>::__type std::operator==<char>(std::basic_string<char, std::char_traits<char>, std::allocator<char> > const&, std::basic_string<char, std::char_traits<char>, std::allocator<char> > const)",
	}, {
		"_Z3twoIJicEJlsEE4listIJDp4pairIT_T0_EEES0_IJDpS2_EES0_IJDpS3_EE",
		"list<pair<int, long>, pair<char, short> > two<int, char, long, short>(list<int, char>, list<long, short>)",
	}, {
		"_Z5twiceIJicEE4listIJDp4pairIPKT_RS2_EEEDpS1_IS2_S2_E",
		"list<pair<int const*, int&>, pair<char const*, char&> > twice<int, char>(pair<int, int>, pair<char, char>)",
	}, {
		"_ZSt12__get_helperILm0EOiJEERT0_RSt11_Tuple_implIXT_EJS1_DpT1_EE",
		"int& std::__get_helper<0ul, int&&>(std::_Tuple_impl<0ul, int&&>&)",
	},
}

func TestMistakes(t *testing.T) {
	for _, m := range mistakes {
		if got, err := String(m.name); got != m.want {
			t.Errorf("%s is %s (%v), want %s", m.name, got, err, m.want)
		}
	}
}

// TestParentheses reads a name with an expansion among the arguments of a template, in the
// style of LLVM.
func TestParentheses(t *testing.T) {
	const (
		name = "_ZSt10__invoke_rIbRNSt8__detail12_CharMatcherINSt7__cxx1112regex_traitsIcEELb0ELb0EEEJcEENSt9enable_ifIX16is_invocable_r_vIT_T0_DpT1_EES8_E4typeEOS9_DpOSA_"
		want = "std::enable_if<is_invocable_r_v<bool, std::__detail::_CharMatcher<std::__cxx11::regex_traits<char>, false, false>&, char>, bool>::type std::__invoke_r<bool, std::__detail::_CharMatcher<std::__cxx11::regex_traits<char>, false, false>&, char>(std::__detail::_CharMatcher<std::__cxx11::regex_traits<char>, false, false>&, char&&)"
	)
	if got, err := String(name, demangle.LLVMStyle); got != want {
		t.Errorf("%s is %s (%v)", name, got, err)
	}
	if got, err := demangle.ToString(name, demangle.LLVMStyle); got == want {
		t.Errorf("the library reads %s as %s (%v)", name, got, err)
	}
}

// TestLibraryIsWrong fails once the library has mended a mistake. Then the correction of
// it here can go.
func TestLibraryIsWrong(t *testing.T) {
	for _, m := range mistakes {
		if got, err := demangle.ToString(m.name); err != nil || got == m.want {
			t.Errorf("the library reads %s as %s (%v)", m.name, got, err)
		}
	}
}

// TestUncertain expects that a name with references that cannot be resolved stays.
func TestUncertain(t *testing.T) {
	for _, old := range []string{ // of older versions of GCC
		"_ZN2wi3addIliEENS_13binary_traitsIT_T0_XsrNS_10int_traitsIS2_EE14precision_typeEXsrNS4_IS3_EE14precision_typeEE11result_typeERKS2_RKS3_",
		"_Z11unresolvedsIciEN6enableIXaasr7is_charIT_E5valueoosrS1_I4pairIS2_T0_EE5valuesrS3_5valueES6_E4typeES2_S5_",
	} {
		if got, err := String(old); err == nil {
			t.Errorf("%s is %s", old, got)
		}
	}
	long := "_Z1fIcEvN1xIXsr1yIT_EE1zEbE" + strings.Repeat("RK1aIiESt", 20000)
	if _, err := String(long); err == nil {
		t.Error("a very long name was read")
	}
}

// TestAgainstWitnesses compares with llvm-cxxfilt and c++filt on the names of libraries,
// and on those of a program that is all packs.
func TestAgainstWitnesses(t *testing.T) {
	names := libraryNames(t)
	for _, compiler := range []string{"g++", "clang++-19"} {
		object := filepath.Join(t.TempDir(), "packs.o")
		run(t, "", compiler, "-std=c++20", "-c", "-o", object, "testdata/packs.cc")
		names = append(names, symbolNames(t, object)...)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if testenv.Brief() {
		names = slices.DeleteFunc(names, func(n string) bool { return len(n)%7 != 0 && !strings.Contains(n, "sr") })
	}
	llvm, gnu := filter(t, names, "llvm-cxxfilt-19"), filter(t, names, "c++filt")
	classes := map[string]int{}
	for i, name := range names {
		w := witnesses{name: name, llvm: llvm[i], gnu: gnu[i], asLLVM: name, asGNU: name}
		if s, err := String(name, demangle.LLVMStyle); err == nil {
			w.asLLVM = s
		}
		if s, err := String(name); err == nil {
			w.asGNU = s
		}
		class := w.class()
		if class == "" {
			t.Errorf("%s\n is %s\nLLVM %s\n GNU %s", name, w.asLLVM, w.llvm, w.gnu)
		}
		classes[class]++
	}
	for class, n := range classes {
		t.Logf("%6d %s", n, class)
	}
}

// witnesses are what three readers make of a name: LLVM, GNU, and we in the style of each.
type witnesses struct{ name, llvm, gnu, asLLVM, asGNU string }

// class says who is right about a name, and why. It is empty where we might not be.
func (w *witnesses) class() string {
	sameLLVM, sameGNU := unspaced(w.llvm) == unspaced(w.asLLVM), unspaced(w.gnu) == unspaced(w.asGNU)
	switch {
	case sameLLVM && sameGNU:
		return "all three agree"
	case sameLLVM && w.gnu == w.name:
		return "LLVM agrees, GNU does not know it"
	case sameLLVM && w.asGNU != w.name:
		return "LLVM agrees, GNU has another style of abbreviations and parentheses"
	case sameLLVM && w.llvm == w.name:
		return "neither LLVM nor we know it, GNU does"
	case sameGNU && w.llvm == w.name:
		return "GNU agrees, LLVM does not know it"
	case sameGNU:
		return "GNU agrees, LLVM writes a qualifier twice, or other parentheses"
	case w.asLLVM == w.name:
		return "we do not know it"
	case strings.Contains(w.name, "fp"):
		return "LLVM has parameters of functions expanded where the language has not: (fp...) + ..."
	case isLambdaOfOtherTemplate(w.name):
		// The reference to a parameter of a template was recorded in one template and is used
		// in another: it means the parameter of the one that uses it.
		return "LLVM and GNU read a parameter of a template as that of another template"
	case strings.Contains(w.name, "Ut_"):
		return "the constructor of a type without a name has none"
	}
	return ""
}

// isLambdaOfOtherTemplate reports whether a function or lambda of another template is
// among the arguments of a template.
func isLambdaOfOtherTemplate(name string) bool {
	return strings.Contains(name, "L_Z") || strings.Contains(name, "IZ") || strings.Contains(name, "RZ") || strings.Contains(name, "EZ")
}

var unspaced = strings.NewReplacer(" ", "").Replace

// libraryNames returns the mangled names of the libraries of C++ and of LLVM.
func libraryNames(t *testing.T) (names []string) {
	t.Helper()
	for _, pattern := range []string{"/usr/lib/*-linux-gnu/libstdc++.so.6", "/usr/lib/*-linux-gnu/libLLVM.so.19*", "/usr/lib/llvm-19/lib/libclang-cpp.so.19*"} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			names = append(names, symbolNames(t, found[0])...)
		}
	}
	testenv.Need(t, len(names) > 40000, "the libraries of C++ and LLVM 19")
	return names
}

// symbolNames returns the mangled names of a file.
func symbolNames(t *testing.T, file string) (names []string) {
	t.Helper()
	f, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	static, _ := f.Symbols()
	dynamic, _ := f.DynamicSymbols()
	for _, s := range append(static, dynamic...) {
		if name, _, _ := strings.Cut(s.Name, "@"); strings.HasPrefix(name, "_Z") {
			names = append(names, name)
		}
	}
	return names
}

// filter has a tool read names, one a line.
func filter(t *testing.T, names []string, tool string) []string {
	t.Helper()
	lines := strings.Split(run(t, strings.Join(names, "\n")+"\n", tool), "\n")
	if len(lines) != len(names)+1 {
		t.Fatalf("%s: %d lines for %d names", tool, len(lines), len(names))
	}
	return lines[:len(names)]
}

func run(t *testing.T, input, tool string, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	c := exec.Command(testenv.Tool(t, tool), args...)
	c.Stdin, c.Stdout, c.Stderr = strings.NewReader(input), &out, &out
	if err := c.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", tool, err, out.Bytes())
	}
	return out.String()
}

func FuzzString(f *testing.F) {
	for _, m := range mistakes {
		f.Add(m.name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if len(name) > 2<<10 {
			return
		}
		s, err := String(name, demangle.MaxLength(14))
		if err == nil && len(s) > 1<<15 {
			t.Errorf("%d bytes", len(s))
		}
	})
}
