package debuginfo

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"hallmark/buildid"
)

const lockSuffix = ".lock"

// lockInterval is how often is asked whether a lock is free.
const lockInterval = 20 * time.Millisecond

// lock lets one process at a time make the index of an identity. Others wait until
// unlock is called, or the process ends, or their ctx is done.
func (c *Indexes) lock(ctx context.Context, id buildid.ID) (unlock func(), err error) {
	name, err := c.Path(id)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		return nil, err
	}
	name = strings.TrimSuffix(name, suffix) + lockSuffix
	for {
		f, err := tryLock(name)
		if err == nil {
			return func() {
				_ = os.Remove(name) // while it is locked: see tryLock
				_ = f.Close()
			}, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(lockInterval):
		}
	}
}

// tryLock locks a file, which is made for it. The error is EWOULDBLOCK if it is locked.
func tryLock(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return nil, err
	}
	if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
		// Whoever had it before has removed it: a lock of a file that nobody else can
		// open is none.
		mine, statErr := f.Stat()
		if there, err := os.Stat(name); statErr == nil && err == nil && os.SameFile(mine, there) {
			return f, nil
		}
		err = syscall.EWOULDBLOCK
	}
	f.Close()
	return nil, err
}
