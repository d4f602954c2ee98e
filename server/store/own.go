package store

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"hallmark/server/blob"
)

// Recognize returns whether a directory is a store: a server has opened it, or it is a copy of one that has files. An error
// says that it cannot be read.
func Recognize(dir string) (bool, error) {
	has := func(name string) (bool, error) {
		info, err := os.Stat(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return err == nil && info.IsDir(), err
	}
	opened := true
	for _, name := range blob.DirNames() {
		ok, err := has(name)
		if err != nil {
			return false, err
		}
		opened = opened && ok
	}
	if opened {
		return true, nil
	}
	for _, pattern := range []string{"cas/??/*", "id/*/*/*", "profiles/id/??/*"} {
		found, err := filepath.Glob(filepath.Join(globLiteral.ReplaceAllString(dir, `\$0`), pattern))
		if err != nil {
			return false, err
		}
		for _, name := range found {
			rel, err := filepath.Rel(dir, name)
			if key := filepath.ToSlash(rel); err == nil && (isOwn(key) || kindOfKey.MatchString(key)) {
				return true, nil
			}
		}
	}
	return false, nil
}

var (
	globLiteral = regexp.MustCompile(`[*?\[\\]`)
	kindOfKey   = regexp.MustCompile(`^id/(gnu|go)/[0-9a-f]{2}/[0-9a-f_]+$`) // of most identities
	indexPlace  = regexp.MustCompile(`^index/v[0-9]+/.`)
	dayPlace    = regexp.MustCompile(`^profiles/[0-9]{4}-[0-9]{2}-[0-9]{2}$`)
)

// isOwn reports whether a store can have an object with a key. Other files are of somebody else.
func isOwn(key string) bool {
	parts := strings.Split(key, "/")
	n := len(parts)
	dir, name := strings.Join(parts[:n-1], "/"), parts[n-1]
	switch parts[0] {
	case "cas", "dead", "broken":
		return n == 3 && isObjectName(name) && parts[1] == name[:2]
	case "id": // id/KIND/ab/cdef…/manifest.json
		return n >= 5 && "/"+name == manifestName
	case "src": // src/KIND/ab/cdef…/LIFE/SHA256
		return n >= 6 && IsObject(name)
	case "build":
		return n == 3 && IsObject(parts[1]) && IsObject(name)
	case "index":
		return indexPlace.MatchString(key)
	case "profiles":
		return IsObject(name) && profileKey(name) == key || isObjectName(name) && dayPlace.MatchString(dir)
	}
	return true
}

// list lists the store's own objects with a prefix. It reports others once.
func (s *Store) list(ctx context.Context, prefix string) iter.Seq2[blob.Info, error] {
	return func(yield func(blob.Info, error) bool) {
		for info, err := range s.Blobs.List(ctx, prefix) {
			if err == nil && !isOwn(info.Key) {
				s.noteStray(info.Key)
				continue
			}
			if !yield(info, err) {
				return
			}
		}
	}
}

func (s *Store) noteStray(key string) {
	s.mu.Lock()
	known := s.strays[key] || len(s.strays) >= maxBroken
	if !known {
		s.strays[key] = true
	}
	s.mu.Unlock()
	if !known && s.OnStray != nil {
		s.OnStray(key)
	}
}

// Strays returns how many objects were found that are not the store's.
func (s *Store) Strays() int64 {
	s.init()
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(len(s.strays))
}
