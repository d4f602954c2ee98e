package inventory

import (
	"os"
	"sync"
	"time"
	"unsafe"

	"hallmark/internal/procfs"
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
type shares struct {
	mu     sync.Mutex
	bytes  pool
	time   pool
	exempt uint32 // a user besides root
}

func newShares() *shares {
	return &shares{bytes: pool{left: maxBytes, floor: minBytes}, time: pool{left: int64(maxTime), floor: int64(minTime)}, exempt: uint32(os.Geteuid())}
}

// A pool is for all users. Users who take at the same time get as much each as is left in the end. Of
// those who come one after the other, each gets half of what is left. So each of the first maxFloors
// users has a floor besides, which the others cannot take.
type pool struct {
	left  int64
	floor int64
	taken map[uint32]int64
}

// maxFloors bounds the users who have a floor.
const maxFloors = 64

// has reports whether a user has something left to take.
func (p *pool) has(user uint32) bool {
	taken, isKnown := p.taken[user]
	return taken < p.left || taken < p.floor && (isKnown || len(p.taken) < maxFloors)
}

func (p *pool) take(user uint32, n int64) {
	if p.taken == nil {
		p.taken = map[uint32]int64{}
	}
	p.left -= n
	p.taken[user] += n
}

// takeBytes reports whether a user had as much left.
func (s *shares) takeBytes(user uint32, n int64) bool {
	if s.isExempt(user) {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.bytes.has(user) {
		return false
	}
	s.bytes.take(user, n)
	return true
}

// spend calls look, at something of a user's, if that user has time left. It reports whether it did.
func (s *shares) spend(user uint32, look func()) bool {
	if s.isExempt(user) {
		look()
		return true
	}
	s.mu.Lock()
	has := s.time.has(user)
	s.mu.Unlock()
	if !has {
		return false
	}
	began := time.Now()
	look()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.time.take(user, int64(time.Since(began)))
	return true
}

func (s *shares) isExempt(user uint32) bool { return s == nil || user == 0 || user == s.exempt }

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
