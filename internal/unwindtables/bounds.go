package unwindtables

import (
	"errors"
	"os"
	"syscall"
	"time"

	"hallmark/internal/objects"
	"hallmark/internal/patience"
	"hallmark/internal/procfs"
	"hallmark/internal/quota"
	"hallmark/internal/trust"
	"hallmark/unwind"
)

// bounds are what the tables of files may take in sum that others than root and this user can have written.
// Anybody can have very many such files, each with as much call frame information as one may have. The owner
// of a file has a share.
type bounds struct {
	time  patience.Shares // to build
	bytes *quota.Pool     // of tables that this process keeps
}

const (
	// userTime is how long the tables of an owner may take to build at once, and allTime those of all.
	userTime, allTime = 5 * time.Second, 15 * time.Second
	// maxBytes bounds the tables of all owners that are kept, and an owner has minBytes in any case.
	maxBytes, minBytes = 128 << 20, 4 << 20
)

func newBounds() *bounds {
	return &bounds{time: patience.Shares{User: userTime, All: allTime}, bytes: quota.New(maxBytes, minBytes)}
}

// errNoTime is the error of a table whose file's owner has no time left. There may be some later.
var errNoTime = errors.New("tables of its owner took too long")

// ownerOf returns whose share a table takes, 0 for a file that only root and this user can have written.
func ownerOf(s objects.Source) uint32 {
	f, ok := s.Content.(*os.File)
	if !ok {
		return procfs.NoUser
	}
	if trust.TrustedFile(f) {
		return 0
	}
	st, err := f.Stat()
	if err != nil {
		return procfs.NoUser
	}
	owner := procfs.AccountOfUser(st.Sys().(*syscall.Stat_t).Uid)
	if owner == 0 || owner == uint32(os.Geteuid()) {
		return procfs.NoUser // the group can write it, or all can
	}
	return owner
}

// build calls make, which builds a table of a file of an owner, small or not, if there is time for it.
func (b *bounds) build(owner uint32, make func(small bool) (*unwind.Table, error)) (*unwind.Table, error) {
	end := b.time.Take(owner)
	if end == nil {
		return nil, errNoTime
	}
	defer end()
	return make(owner != 0)
}

// keep takes room for a table that is to be kept, if there is some. release gives it back.
func (b *bounds) keep(owner uint32, t *unwind.Table) bool {
	return b.bytes.Take(owner, int64(len(t.Bytes())))
}

func (b *bounds) release(owner uint32, t *unwind.Table) {
	b.bytes.Return(owner, int64(len(t.Bytes())))
}
