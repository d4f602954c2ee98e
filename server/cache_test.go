package server

import (
	"context"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"hallmark/buildid"
	"hallmark/internal/testenv"
	"hallmark/server/store"
)

// failingLocal is a machine whose disk fails.
type failingLocal struct{ err error }

func (f failingLocal) Publish(context.Context, buildid.ID, bool, func(*store.Arriving)) (bool, error) {
	return false, f.err
}
func (f failingLocal) Pending(context.Context, buildid.ID) (bool, error) { return true, nil }
func (f failingLocal) Source(context.Context, *store.Manifest, string, func() (func(), error)) (io.ReadCloser, store.Origin, bool, error) {
	return nil, store.Origin{}, false, f.err
}
func (f failingLocal) Names(buildid.ID, func(kind string, id buildid.ID, file, archive string) bool) bool {
	return true
}
func (f failingLocal) Counts() (packages, identities int64) { return 0, 0 }

// TestFullCache has the disk of the cache full while the store has room: the answer names the cache, and the log its
// directory. The server is ready, as it serves the files of the store.
func TestFullCache(t *testing.T) {
	testenv.Root(t)
	scratch := t.TempDir()
	if err := syscall.Mount("hallmark", scratch, "tmpfs", 0, "size=64k"); err != nil {
		testenv.Need(t, false, "a tmpfs of its own: "+err.Error())
	}
	t.Cleanup(func() { _ = syscall.Unmount(scratch, syscall.MNT_DETACH) })
	var log lockedBuffer
	p := program(t)
	s, base := start(t, nil)
	upload(t, base, p.stripped, "").want(t, 201)
	_, base = again(t, s, func(c *Config) { c.Store.Scratch, c.Log = scratch, slog.New(slog.NewTextHandler(&log, nil)) })
	big := append(slices.Clone(p.full), make([]byte, 1<<20)...)
	a := upload(t, base, big, "").want(t, 507)
	if !strings.Contains(string(a.body), "no space is left in the cache directory of the server") || strings.Contains(string(a.body), scratch) {
		t.Errorf("the answer: %s", a.body)
	}
	if !strings.Contains(log.String(), scratch) {
		t.Errorf("the log does not name %s:\n%s", scratch, log.String())
	}
	ask(t, "GET", base+"/readyz", nil).want(t, 200)
	ask(t, "GET", base+"/buildid/"+p.id.String()+"/executable", nil).want(t, 200)
}

// TestReadOnlyCache has the directory for what is in the making become read-only: that is no defect of the server.
func TestReadOnlyCache(t *testing.T) {
	scratch := t.TempDir()
	for path, want := range map[string]int{scratch: 503, filepath.Join(scratch, "x"): 503, scratch + "-x": 500, "/store/x": 500} {
		_, base := start(t, func(c *Config) {
			c.Store.Scratch = scratch
			c.Local = failingLocal{&fs.PathError{Op: "open", Path: path, Err: syscall.EROFS}}
		})
		a := ask(t, "GET", base+"/buildid/"+strings.Repeat("ab", 20)+"/executable", nil).want(t, want)
		if said := strings.Contains(string(a.body), "cannot write to its cache directory"); said != (want == 503) || strings.Contains(string(a.body), scratch) {
			t.Errorf("%s: %s", path, a.body)
		}
	}
}
