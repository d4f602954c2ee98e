package server

import (
	"context"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"hallmark/buildid"
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
