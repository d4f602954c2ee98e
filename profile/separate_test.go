package profile_test

import (
	"slices"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"hallmark/buildid"
	"hallmark/profile"
)

// TestSeparate has profiles of one file each, at one path under one build ID. What pprof
// merges are files of one content, and files of others stay what they are.
func TestSeparate(t *testing.T) {
	id := gnuID(t, 1)
	profileOf := func(text string) *pprof.Profile {
		b := &profile.Binary{ID: id, Path: "/bin/x", Segments: []profile.Segment{{Size: 0x1000}}}
		if text != "" {
			b.Content = contentOf(t, text)
		}
		return build(t, []profile.Frame{{Binary: b, Offset: 0x10}})
	}
	for _, test := range []struct {
		name     string
		texts    []string
		mappings int
		notes    int
	}{
		{"copies", []string{"one", "one"}, 1, 0},
		{"builds", []string{"one", "two"}, 2, 1},
		{"builds and a copy", []string{"one", "two", "one"}, 2, 1},
		{"unknown", []string{"", ""}, 1, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			var all []*pprof.Profile
			for _, text := range test.texts {
				all = append(all, profileOf(text))
			}
			notes := profile.Separate(all...)
			if again := profile.Separate(all...); !slices.Equal(again, notes) {
				t.Errorf("again it notes %q, not %q", again, notes)
			}
			merged, err := pprof.Merge(all)
			if err != nil {
				t.Fatal(err)
			}
			if len(merged.Mapping) != test.mappings || len(notes) != test.notes {
				t.Fatalf("%d mappings, notes %q", len(merged.Mapping), notes)
			}
			binaries := profile.Binaries(merged)
			contents := map[buildid.Content]bool{}
			for _, m := range merged.Mapping {
				b := binaries[m]
				contents[b.Content] = true
				if b.ID != id {
					t.Errorf("%s is said to claim %v", m.BuildID, b.ID)
				}
			}
			if len(contents) != test.mappings {
				t.Errorf("contents %v", contents)
			}
		})
	}
}

// TestSeparateStrangers has profiles that know different things of their files.
func TestSeparateStrangers(t *testing.T) {
	profileOf := func(file, buildID string) *pprof.Profile {
		p := &pprof.Profile{Mapping: []*pprof.Mapping{{ID: 1, File: "[kernel]"}, {ID: 2, File: file, BuildID: buildID}}}
		p.Location = []*pprof.Location{{ID: 1, Mapping: p.Mapping[1]}}
		return p
	}
	none, path, identity := profileOf("", ""), profileOf("/bin/x", ""), profileOf("/bin/x", gnuID(t, 1).String())
	for _, test := range []struct {
		name     string
		profiles []*pprof.Profile
		want     string
	}{
		{"folded stacks", []*pprof.Profile{none, none}, ""},
		{"paths", []*pprof.Profile{path, path}, ""},
		{"identities", []*pprof.Profile{identity, profileOf("/bin/y", gnuID(t, 2).String())}, ""},
		{"an empty one", []*pprof.Profile{{}, identity}, ""},
		{"folded stacks and identities", []*pprof.Profile{none, identity}, "files that its functions are in"},
		{"identities and folded stacks", []*pprof.Profile{identity, none}, "files that its functions are in"},
		{"paths and folded stacks", []*pprof.Profile{path, none}, "files that its functions are in"},
		{"paths and identities", []*pprof.Profile{path, identity}, "identity of any file"},
	} {
		notes := profile.Separate(test.profiles...)
		if test.want == "" && len(notes) > 0 || test.want != "" && (len(notes) != 1 || !strings.Contains(notes[0], test.want)) {
			t.Errorf("%s: %q", test.name, notes)
		}
	}
}
