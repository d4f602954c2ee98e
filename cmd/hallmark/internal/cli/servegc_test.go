package cli

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/server/blob"
	"hallmark/server/store"
)

// TestGCNamesDaysAndSizes removes an identity that was sent on one day and used on the next.
func TestGCNamesDaysAndSizes(t *testing.T) {
	blobs, err := blob.OpenDir(t.TempDir())
	must(t, err)
	defer blobs.Close()
	day := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s := &store.Store{Blobs: blobs, Scratch: t.TempDir(), Now: func() time.Time { return day }}
	defer s.Close()
	f, err := os.Open("/proc/self/exe")
	must(t, err)
	defer f.Close()
	spool, err := s.Spool(t.Context(), f)
	must(t, err)
	defer spool.Close()
	added, err := s.Add(t.Context(), spool, store.Claim{Origin: store.Origin{Trust: store.CI}})
	must(t, err)
	day = day.AddDate(0, 0, 1)
	must(t, s.Use(t.Context(), added.Manifest))
	day = day.AddDate(0, 0, 20)
	gc := func(asJSON bool) string {
		var stdout, stderr bytes.Buffer
		e := &verb.Env{Stdout: &stdout, Stderr: &stderr, Stdin: strings.NewReader("")}
		must(t, runServeGC(t.Context(), e, s, store.Collection{Retention: store.Retention{Age: 10 * 24 * time.Hour}, DryRun: true}, asJSON))
		return stdout.String()
	}
	if out := gc(false); !regexp.MustCompile(`(?m), last used 2026-03-02, [0-9.]+MiB$`).MatchString(out) ||
		!regexp.MustCompile(`(?m)^would be removed: 1 identity \([0-9.]+MiB\); would be freed now: 0$`).MatchString(out) {
		t.Errorf("%s", out)
	}
	if out := gc(true); !strings.Contains(out, `"last_used":"2026-03-02"`) {
		t.Errorf("%s", out)
	}
}
