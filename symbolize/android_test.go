package symbolize

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestAndroid gives lines as libunwindstack and logcat print them.
func TestAndroid(t *testing.T) {
	p := compile(t, "asan.c", "gcc", "-O1")
	source, err := filepath.Abs("testdata/asan.c")
	if err != nil {
		t.Fatal(err)
	}
	id := fmt.Sprintf(" (BuildId: %s)", p.id)
	main := fmt.Sprintf("      #01 pc %016x  /system/lib64/libx.so", p.at(t, "main", 0))
	outer := fmt.Sprintf("#00 pc %08x  /data/app/~~x==/base.apk!libx.so (offset 0x1000)", p.at(t, "outer", 0))
	for _, test := range []struct{ name, line, want string }{
		{"no function", main + id, main + " (main)" + id + " SOURCE:13:33"},
		{"a function", main + " (main+4)" + id, main + " (main+4)" + id + " SOURCE:13:33"},
		{"a function with parameters", main + " (main(int, char**)+4)" + id, main + " (main(int, char**)+4)" + id + " SOURCE:13:33"},
		{"another function", main + " (abort+4)" + id, ""},
		{"in a log", "01-02 03:04:05.678  12  12 F DEBUG   : " + main + id + "\x1b[0m", "01-02 03:04:05.678  12  12 F DEBUG   : " + main + " (main)" + id + " SOURCE:13:33\x1b[0m"},
		{"in a package, inlined", outer + id, outer + " (inner)" + id + " SOURCE:5:10 (inlined)\n" + outer + " (outer)" + id + " SOURCE:9:10"},
		{"no identity", main, ""},
		{"nothing", "#00 pc \n#00 pc 1\n#00 pc 1  \n#00 pc 1   (offset 0x\n#00 pc 1  /x (\n#00 pc 1  /x (+)" + id + "\n#00 pc 1  /x (BuildId: xx)", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, _ := rewrite(t, &Filter{Library: p.library}, test.line)
			want := strings.ReplaceAll(test.want, "SOURCE", source)
			if want == "" {
				want = test.line
			}
			if got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}
