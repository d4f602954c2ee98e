package capture

import (
	"bytes"
	"encoding/binary"
	"os"
	"testing"

	pprof "github.com/google/pprof/profile"

	"hallmark/buildid"
	"hallmark/internal/proctest"
	"hallmark/internal/reach"
	"hallmark/internal/testenv"
	"hallmark/reason"
)

// withHashing bounds how much is hashed until the test ends.
func withHashing(t *testing.T, bytes int64) {
	t.Helper()
	before := reach.Hashing
	t.Cleanup(func() { reach.Hashing = before })
	reach.Hashing = buildid.Budget{Bytes: bytes}
}

// TestRecordingIsBounded wants the samples of a file that is not hashed to count under the
// reason.
func TestRecordingIsBounded(t *testing.T) {
	for _, backend := range []Backend{Perf, BPF} {
		t.Run(backend.String(), func(t *testing.T) {
			testenv.Root(t)
			withHashing(t, 100)
			none := proctest.BuildC(t, "-Wl,--build-id=none")
			p, _, stats := recordCommand(t, Options{Backend: backend}, none, "300")
			found := samplesInFile(p, "["+reason.HashBudget.Code()+"] "+none)
			checkMost(t, "without identity", found, int64(stats.Samples), 0.1)
		})
	}
}

// samplesInFile counts the samples whose innermost frame is in a file of this name.
func samplesInFile(p *pprof.Profile, name string) (n int64) {
	for _, s := range p.Sample {
		if len(s.Location) > 0 && s.Location[0].Mapping != nil && s.Location[0].Mapping.File == name {
			n += s.Value[0]
		}
	}
	return n
}

// TestContentsAreToldApart records two builds without build IDs that differ in one word, and
// wants two identities.
func TestContentsAreToldApart(t *testing.T) {
	one, two := proctest.BuildC(t, "-Wl,--build-id=none"), proctest.BuildC(t, "-Wl,--build-id=none")
	patch(t, two)
	a, b := proctest.OwnID(t, one), proctest.OwnID(t, two)
	if a == b || a.Kind() != buildid.ByContent {
		t.Fatalf("%v and %v", a, b)
	}
	for _, backend := range []Backend{Perf, BPF} {
		t.Run(backend.String(), func(t *testing.T) {
			testenv.Root(t)
			p, misses, _ := recordCommand(t, Options{Backend: backend}, "/bin/sh", "-c", one+" 200 & "+two+" 200; wait")
			found := samplesIn(p, "burn")
			if found[a] == 0 || found[b] == 0 || len(found) != 2 {
				t.Errorf("samples %v, want some of %v and of %v", found, a, b)
			}
			checkIdentified(t, p, misses)
			for _, m := range p.Mapping {
				if id, err := buildid.Parse(m.BuildID); err == nil && (id == a) != (m.File == one) {
					t.Errorf("%s has %v", m.File, id)
				}
			}
		})
	}
}

// patch changes a factor in the code of busy.c.
func patch(t *testing.T, name string) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	factor := binary.LittleEndian.AppendUint64(nil, 6364136223846793005)
	if bytes.Count(b, factor) != 1 {
		t.Fatalf("%s has the factor %d times", name, bytes.Count(b, factor))
	}
	copy(b[bytes.Index(b, factor):], []byte{factor[0] ^ 2})
	if err := os.WriteFile(name, b, 0o755); err != nil {
		t.Fatal(err)
	}
}
