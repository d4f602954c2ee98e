package debuginfo

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"time"
)

const lockSuffix = ".lock"

// lockInterval is how often is asked whether a lock is free.
const lockInterval = 20 * time.Millisecond

// lock lets one process at a time make the index of a file. Others wait until
// unlock is called, or the process ends, or their ctx is done.
func (c *Indexes) lock(ctx context.Context, o Origin) (unlock func(), err error) {
	files, err := c.files()
	if err != nil {
		return nil, err
	}
	name := strings.TrimSuffix(files.Name(o.ID, o.names()...), suffix) + lockSuffix
	for {
		unlock, err := files.TryLock(name)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return unlock, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(lockInterval):
		}
	}
}
