package local

import (
	"os"
	"testing"

	"hallmark/addr"
	"hallmark/internal/procfs"
	"hallmark/internal/proctest"
	"hallmark/internal/testenv"
	"hallmark/profile"
	"hallmark/reason"
	"hallmark/symbol"
)

// TestClaimed asks for the names of a claim: the file of its claimant has some, at its path in its mount namespace and
// since this machine was started. No other file has, though it is the same and root's.
func TestClaimed(t *testing.T) {
	testenv.Root(t)
	program := proctest.BuildC(t)
	file, err := symbol.OpenFile(program)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	functions, err := file.Functions()
	if err != nil {
		t.Fatal(err)
	}
	var at addr.Offset
	for _, f := range functions {
		if f.Name == "burn" {
			at, _ = file.Offset(f.Virt)
		}
	}
	const other = 65534
	here, boot := procfs.OwnMountNamespace(), procfs.BootID()
	for name, test := range map[string]struct {
		owner    int
		claimant profile.Claimant
		isNamed  bool
	}{
		"its own file":        {other, profile.Claimant{UID: other, Mount: here, Boot: boot}, true},
		"root's file":         {0, profile.Claimant{UID: other, Mount: here, Boot: boot}, false},
		"another user's file": {other - 1, profile.Claimant{UID: other, Mount: here, Boot: boot}, false},
		"a container's root":  {0, profile.Claimant{UID: 0, Mount: here + 1, Boot: boot}, false},
		"before a restart":    {other, profile.Claimant{UID: other, Mount: here, Boot: "another"}, false},
		"nobody knows whose":  {other, profile.Claimant{UID: profile.UnknownOwner, Mount: here, Boot: boot}, false},
		"nobody knows where":  {other, profile.Claimant{UID: other}, false},
	} {
		if err := os.Chown(program, test.owner, 0); err != nil {
			t.Fatal(err)
		}
		b := &profile.Binary{ID: proctest.FileID(t, program), Path: program, Rival: true, Claimant: &test.claimant}
		r := new(Symbols).Claimed(t.Context(), b, []addr.Offset{at})[0]
		switch {
		case test.isNamed && (len(r.Frames) == 0 || r.Frames[0].Func != "burn"):
			t.Errorf("%s: %+v", name, r)
		case !test.isNamed && (len(r.Frames) > 0 || r.Reason == reason.None):
			t.Errorf("%s: %+v", name, r)
		}
	}
}
