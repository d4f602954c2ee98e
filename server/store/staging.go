package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"hallmark/server/blob"
)

// An Upload is a file that arrives in parts, at any of several servers. Parts are kept under the
// name of whoever sends them, so that nobody spoils the upload of another.
type Upload struct {
	s      *Store
	prefix string
	parts  []blob.Info
}

// stagingAge is how long an upload that is cut short can be taken up again.
const stagingAge = 24 * time.Hour

// Staged returns what is there of an upload of an object.
func (s *Store) Staged(ctx context.Context, who, object string) (*Upload, error) {
	s.init()
	u := &Upload{s: s, prefix: "staging/" + hashOf(who)[:16] + "/" + object + "/"}
	var next int64
	for info, err := range s.Blobs.List(ctx, u.prefix) {
		if err != nil {
			return nil, err
		}
		off, err := strconv.ParseInt(strings.TrimPrefix(info.Key, u.prefix), 16, 64)
		if err != nil || off != next {
			break // what is behind a hole is sent again
		}
		u.parts = append(u.parts, info)
		next += info.Size
	}
	return u, nil
}

// Size returns how many bytes from the start of the file are there.
func (u *Upload) Size() (n int64) {
	for _, p := range u.parts {
		n += p.Size
	}
	return n
}

// An OffsetError says that a part does not continue an upload.
type OffsetError struct{ Have, Got int64 }

func (e *OffsetError) Error() string {
	return fmt.Sprintf("this part starts at %d, and %d bytes are there", e.Got, e.Have)
}

// Append stores the next part of the file, of size bytes. One that is there already is no error.
func (u *Upload) Append(ctx context.Context, off int64, r io.Reader, size int64) error {
	have := u.Size()
	if off < have {
		for at, i := int64(0), 0; i < len(u.parts); i++ {
			if at == off && u.parts[i].Size == size {
				return nil
			}
			at += u.parts[i].Size
		}
	}
	if off != have {
		return &OffsetError{have, off}
	}
	if off+size > u.s.MaxFile {
		return fmt.Errorf("%w: more than %d bytes", ErrTooLarge, u.s.MaxFile)
	}
	_, err := u.s.Blobs.PutIfAbsent(ctx, fmt.Sprintf("%s%016x", u.prefix, off), r, size)
	if errors.Is(err, blob.ErrExist) {
		return &OffsetError{have, off} // sent twice at the same time
	}
	return err
}

// Spool puts the parts together.
func (u *Upload) Spool(ctx context.Context) (*Spool, error) {
	return u.s.Spool(ctx, &joined{ctx: ctx, u: u})
}

// Remove removes the parts.
func (u *Upload) Remove(ctx context.Context) error {
	for _, p := range u.parts {
		if err := u.s.Blobs.Delete(ctx, p.Key); err != nil {
			return err
		}
	}
	return nil
}

// joined reads the parts of an upload one after another.
type joined struct {
	ctx  context.Context
	u    *Upload
	next int
	r    io.ReadCloser
}

func (j *joined) Read(p []byte) (int, error) {
	for {
		if j.r == nil {
			if j.next == len(j.u.parts) {
				return 0, io.EOF
			}
			r, _, err := j.u.s.Blobs.Get(j.ctx, j.u.parts[j.next].Key, 0, -1)
			if err != nil {
				return 0, err
			}
			j.r = r
			j.next++
		}
		n, err := j.r.Read(p)
		if err == io.EOF {
			err = j.r.Close()
			j.r = nil
			if n == 0 && err == nil {
				continue
			}
		}
		return n, err
	}
}

// Sweep removes what is left of uploads that were cut short a day ago.
func (s *Store) Sweep(ctx context.Context) error {
	s.init()
	_, err := s.sweep(ctx, "staging/", stagingAge, false)
	return err
}

// sweep removes the objects with a prefix that nobody has changed for a time, and returns how many. A dry
// run counts them.
func (s *Store) sweep(ctx context.Context, prefix string, age time.Duration, dry bool) (n int64, err error) {
	return s.sweepBut(ctx, prefix, nil, age, dry)
}

// sweepBut is sweep for all but some keys.
func (s *Store) sweepBut(ctx context.Context, prefix string, but map[string]bool, age time.Duration, dry bool) (n int64, err error) {
	for info, err := range s.Blobs.List(ctx, prefix) {
		if err != nil {
			return n, err
		}
		if s.Now().Sub(info.Modified) < age || but[info.Key] {
			continue
		}
		if !dry {
			if err := s.Blobs.Delete(ctx, info.Key); err != nil {
				return n, err
			}
		}
		n++
	}
	return n, nil
}
