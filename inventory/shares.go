package inventory

import (
	"time"
	"unsafe"

	"hallmark/internal/procfs"
	"hallmark/internal/quota"
	"hallmark/procmap"
)

// Bounds in sum of a list of the machine, for processes that are neither root's nor this user's. Anybody
// may start any number of processes, each with as many mappings as the kernel lets it have.
const (
	maxBytes = 256 << 20
	maxTime  = 30 * time.Second // of looks, several of which are at the same time
	minBytes = 1 << 20          // that a user has in any case
	minTime  = time.Second / 4
	// maxMappings is how many executable mappings of a process are listed: as many as it may have of all
	// kinds, unless root allows more (vm.max_map_count).
	maxMappings = 1 << 16
)

// mappingBytes is what a mapping takes here, until it is printed, with the places that point to it. Its
// path is shared by the mappings of a process.
const mappingBytes = int64(unsafe.Sizeof(Code{})) + 128

// shares are what is left for users. The methods may be called by several goroutines at once. Nil has no
// bounds.
type shares struct{ bytes, time *quota.Pool }

func newShares() *shares {
	return &shares{bytes: quota.New(maxBytes, minBytes), time: quota.New(int64(maxTime), int64(minTime))}
}

// takeBytes reports whether a user had something left, and takes so much.
func (s *shares) takeBytes(user uint32, n int64) bool { return s == nil || s.bytes.Take(user, n) }

// spend calls look, at something of a user's, if that user has time left. It reports whether it did.
func (s *shares) spend(user uint32, look func()) bool {
	if s == nil {
		look()
		return true
	}
	return s.time.Spend(user, look)
}

func (s *shares) isExempt(user uint32) bool { return s == nil || s.time.IsExempt(user) }

// A meter measures the mappings of a process while they are listed.
type meter struct {
	shares *shares
	user   uint32
	count  int
	due    int64           // and not taken yet
	names  map[string]bool // that were counted
}

func (s *shares) meterOf(pid int) *meter {
	return &meter{shares: s, user: procfs.AccountOf(uint32(pid)), names: map[string]bool{}}
}

// atOnce is how much a meter takes at once.
const atOnce = 16 << 10

// add reports whether another mapping may be listed.
func (m *meter) add(v procmap.VMA) bool {
	m.count++
	m.due += mappingBytes
	if !m.names[v.Name] {
		m.names[v.Name] = true
		m.due += int64(len(v.Name))
	}
	return m.count <= maxMappings && (m.due < atOnce || m.settle())
}

// settle takes what is due, and reports whether the user had as much left.
func (m *meter) settle() bool {
	due := m.due
	m.due = 0
	return m.shares.takeBytes(m.user, due)
}
