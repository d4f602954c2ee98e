package unwind

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"hallmark/internal/testenv"
)

// compile runs a compiler in an empty directory and returns the file that it made.
func compile(t testing.TB, command string) string {
	t.Helper()
	source, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "compiled")
	for _, step := range strings.Split(command, " && ") {
		words := strings.Fields(step)
		for i, word := range words { // the paths may have spaces in them
			words[i] = strings.NewReplacer("$SRC", source, "$OUT", out).Replace(word)
		}
		cmd := exec.Command(testenv.Tool(t, words[0]), words[1:]...)
		if msg, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", step, err, msg)
		}
	}
	return out
}

const arm64 = "clang-19 --target=aarch64-linux-gnu"

// compilations are ways to make files whose every row is compared.
var compilations = []struct{ name, command, section string }{
	{"gcc -O0", "gcc -shared -fPIC -O0 $SRC/forms.c -o $OUT", ".eh_frame"},
	{"gcc -O1", "gcc -shared -fPIC -O1 $SRC/forms.c -o $OUT", ".eh_frame"},
	{"gcc -O2", "gcc -shared -fPIC -O2 $SRC/forms.c -o $OUT", ".eh_frame"},
	{"gcc -O3 AVX", "gcc -shared -fPIC -O3 -mavx2 $SRC/forms.c -o $OUT", ".eh_frame"},
	{"gcc -Os CET", "gcc -shared -fPIC -Os -fcf-protection -Wl,-z,ibtplt $SRC/forms.c -o $OUT", ".eh_frame"},
	{"gcc frame pointers", "gcc -shared -fPIC -O2 -fno-omit-frame-pointer $SRC/forms.c -o $OUT", ".eh_frame"},
	{"gcc lazy binding", "gcc -shared -fPIC -O2 -Wl,-z,lazy $SRC/forms.c -o $OUT", ".eh_frame"},
	{"gcc, lld", "gcc -fPIC -O2 -c $SRC/forms.c -o $OUT.o && ld.lld-19 -shared $OUT.o -o $OUT", ".eh_frame"},
	{"gcc, gold", "gcc -shared -fPIC -O2 -fuse-ld=gold $SRC/forms.c -o $OUT", ".eh_frame"},
	{"gcc sections thrown away", "gcc -shared -fPIC -O2 -ffunction-sections -Wl,--gc-sections $SRC/forms.c -o $OUT", ".eh_frame"},
	{"gcc large model", "gcc -shared -fPIC -O2 -mcmodel=large $SRC/forms.c -o $OUT", ".eh_frame"},
	{"clang", "clang-19 -shared -fPIC -O2 $SRC/forms.c -o $OUT", ".eh_frame"},
	{"clang -Oz", "clang-19 -shared -fPIC -Oz -mavx2 $SRC/forms.c -o $OUT", ".eh_frame"},
	{"gas", "gcc -shared -fPIC $SRC/forms.S -o $OUT", ".eh_frame"},
	{"debug_frame", "gcc -shared -fPIC -O2 -g -fno-asynchronous-unwind-tables $SRC/forms.c -nostdlib -o $OUT", ".debug_frame"},
	{"debug_frame of DWARF 5", "clang-19 -shared -fPIC -O2 -gdwarf-5 -fno-asynchronous-unwind-tables $SRC/forms.c -nostdlib -o $OUT", ".debug_frame"},
	{"debug_frame of 64 bits", "clang-19 -shared -fPIC -O2 -gdwarf-5 -gdwarf64 -fno-asynchronous-unwind-tables $SRC/forms.c -nostdlib -o $OUT", ".debug_frame"},
	{"zlib", "gcc -shared -fPIC -O2 -g -fno-asynchronous-unwind-tables $SRC/forms.c -nostdlib -Wl,--compress-debug-sections=zlib -o $OUT", ".debug_frame"},
	{"zlib, the old way", "gcc -shared -fPIC -O2 -g -fno-asynchronous-unwind-tables $SRC/forms.c -nostdlib -o $OUT.plain && objcopy --compress-debug-sections=zlib-gnu $OUT.plain $OUT", ".debug_frame"},
	{"zstd", "gcc -shared -fPIC -O2 -g -fno-asynchronous-unwind-tables $SRC/forms.c -nostdlib -o $OUT && llvm-objcopy-19 --compress-debug-sections=zstd $OUT", ".debug_frame"},
	{"arm64", arm64 + " -O2 -c $SRC/forms.c -o $OUT.o && ld.lld-19 -shared $OUT.o -o $OUT", ".eh_frame"},
	{"arm64 -O0", arm64 + " -O0 -c $SRC/forms.c -o $OUT.o && ld.lld-19 -shared $OUT.o -o $OUT", ".eh_frame"},
	{"arm64 frame pointers", arm64 + " -O1 -fno-omit-frame-pointer -mno-omit-leaf-frame-pointer -c $SRC/forms.c -o $OUT.o && ld.lld-19 -shared $OUT.o -o $OUT", ".eh_frame"},
	{"arm64 signed addresses", arm64 + " -O2 -mbranch-protection=pac-ret+leaf+b-key -c $SRC/forms.c -o $OUT.o && ld.lld-19 -shared $OUT.o -o $OUT", ".eh_frame"},
}

func TestCompiledRows(t *testing.T) {
	for _, c := range compilations {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			name := compile(t, c.command)
			raw, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			w := newWitness(t, raw, BuildOptions{})
			if _, err := os.Stat(name + ".plain"); err == nil {
				name += ".plain" // what llvm-dwarfdump can read
			}
			w.compareLLVM(t, name, c.section)
			if w.rows < 10 {
				t.Errorf("%d rows were compared", w.rows)
			}
			t.Logf("%d rows: %v", w.rows, w.seen)
		})
	}
}
