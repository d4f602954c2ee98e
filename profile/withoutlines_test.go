package profile_test

import (
	"slices"
	"testing"

	pprof "github.com/google/pprof/profile"

	"hallmark/profile"
)

// TestWithoutLines has a note on more files than it names, of which one has a name with a line break.
func TestWithoutLines(t *testing.T) {
	note := profile.WithoutLinesNote([]string{"/z", "/b", "/a\nb", "/c", "/d", "/e", "/f"})
	if want := `functions only, no source lines, of files with much debug information: "/a\nb", /b, /c, /d, /e, 2 more`; note != want {
		t.Errorf("%q, want %q", note, want)
	}
	p := &pprof.Profile{Comments: []string{"3 records were lost", note}}
	if notes := profile.WithoutLines(p); !slices.Equal(notes, []string{note}) {
		t.Errorf("%q", notes)
	}
}
