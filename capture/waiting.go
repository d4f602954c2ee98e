package capture

import "hallmark/internal/quota"

// waitingRoom is the memory for samples that wait for unwind tables, with copies of their stacks and the
// mappings of their processes. Samples in processes of root and of this user may take maxWaiting bytes, and those
// in all others as much together, of which each user gets a share.
type waitingRoom struct {
	held   int64 // by samples in processes of root and of this user
	others *quota.Pool
}

const (
	maxWaiting = 64 << 20
	// leastWaiting is what each of the other users may have in any case, in bytes.
	leastWaiting = 1 << 20
	// waitingSize is what a sample takes at least that waits, in bytes, whatever was copied of its
	// stack: registers, labels, and a hundred frames.
	waitingSize = 8 << 10
)

func newWaitingRoom() waitingRoom { return waitingRoom{others: quota.New(maxWaiting, leastWaiting)} }

// take takes room for so many bytes of a sample in a process of a user, if there is some left.
func (w *waitingRoom) take(user uint32, n int64) bool {
	switch {
	case !w.others.IsExempt(user):
		return w.others.Take(user, n)
	case w.held+n > maxWaiting:
		return false
	}
	w.held += n
	return true
}

// give gives room back.
func (w *waitingRoom) give(user uint32, n int64) {
	if w.others.IsExempt(user) {
		w.held -= n
	} else {
		w.others.Return(user, n)
	}
}
