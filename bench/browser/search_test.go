package browser

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	pprof "github.com/google/pprof/profile"
)

// wide returns a profile of main, which calls so many functions, each of which calls memcpy: they are too narrow to be
// in a file.
func wide(functions int) *maker {
	m := newMaker()
	app := m.mapping("/srv/app/server", ServerID, 0x400000)
	main := m.at(app, 0x100, "/src/main.c", "main")
	copied := m.at(app, 0x200, "/src/string.c", "memcpy")
	for i := range functions {
		at := m.at(app, uint64(0x1000+16*i), "/src/work.c", fmt.Sprintf("work%d", i))
		m.p.Sample = append(m.p.Sample, &pprof.Sample{Location: []*pprof.Location{copied, at, main}, Value: []int64{1, period}})
	}
	return m
}

// TestFileSearch searches in a file that has not all of its profile.
func TestFileSearch(t *testing.T) {
	from := save(t, "wide.pb.gz", wide(20_000))
	file := filepath.Join(t.TempDir(), "wide.html")
	if out, err := exec.Command(command, "convert", "--no-debuginfod", "-o", file, from).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	p := openURL(t, Look{}, "file://"+file)
	for q, want := range map[string]string{
		"memcpy": "at least 1 function, 100% (200 s)", "string.c": "at least 1 function, 100%", "(?i)MEMCPY": "at least 1 function, 100%",
		"^work10$": "at least 1 function, at least 10 ms (<0.01%)", "^main$": "at least 1 function, 100%", "app/server": "functions, 100%",
	} {
		p.show("q=" + q)
		p.await(fmt.Sprintf("document.querySelector('#found').textContent.includes(%q)", want))
	}
}
