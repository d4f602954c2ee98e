package fromperf

import (
	"strings"
	"testing"

	"hallmark/buildid"
	"hallmark/perfdata"
	"hallmark/profile"
)

// TestContents has two files to which one build ID is given. They are one file if their
// contents are the same, and else two, none of which keeps the build ID. Files that no frame
// is in are not read.
func TestContents(t *testing.T) {
	id, err := buildid.Parse("0123456789abcdef0123456789abcdef01234567")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name     string
		contents map[string]string
		mappings int
		notes    int
	}{
		{"copies", map[string]string{"/a": "one", "/b": "one"}, 1, 0},
		{"builds", map[string]string{"/a": "one", "/b": "two"}, 2, 1},
		{"unknown", nil, 2, 0},
		{"one unknown", map[string]string{"/a": "one"}, 2, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := Options{
				Identify: func(*perfdata.Mmap2, *perfdata.Mmap2) buildid.ID { return id },
				Content: func(file *perfdata.Mmap2) (c buildid.Content) {
					text, ok := test.contents[file.Name]
					if file.Name == "/unused" {
						t.Error("a file was read that no frame is in")
					}
					if ok {
						c, err = buildid.ReadContent(t.Context(), strings.NewReader(text))
					}
					return c
				},
			}
			p, _, err := fromText(t, o, clockEvent,
				`0 Mmap2 {Type=10 Owner=7 Start=0x1000 Size=0x1000 Inode=1 Prot=5 Name="/a"}`,
				`0 Mmap2 {Type=10 Owner=7 Start=0x2000 Size=0x1000 Inode=2 Prot=5 Name="/b"}`,
				`0 Mmap2 {Type=10 Owner=7 Start=0x3000 Size=0x1000 Inode=3 Prot=5 Name="/unused"}`,
				`0 Sample {PID=7 TID=7 Time=1 Period=1 Callchain=[`+user+` 0x1010]}`,
				`0 Sample {PID=7 TID=7 Time=2 Period=1 Callchain=[`+user+` 0x2010]}`)
			if err != nil {
				t.Fatal(err)
			}
			if len(p.Mapping) != test.mappings || len(profile.Disagreements(p)) != test.notes {
				t.Errorf("mappings %v, comments %q", p.Mapping, p.Comments)
			}
			for _, b := range profile.Binaries(p) {
				if b.ID != id {
					t.Errorf("%+v, want the claim %v", b, id)
				}
			}
		})
	}
}
