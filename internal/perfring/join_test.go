package perfring

import (
	"encoding/binary"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"hallmark/internal/testenv"
	"hallmark/perfdata"
)

// mapped is a record of a mapping.
type mapped struct {
	event, start uint64
	id           byte   // of the build ID, 0 for none
	inode        uint64 // where there is none
	tid          uint32 // besides 7
	name         string // besides "/lib/x"
	misc         uint16 // set in what all events share
}

const (
	numbersEvent = 5 // reports numbers
	changesEvent = 6 // reports build IDs
)

// joinFields are what each record has in the tests.
const joinFields = perfdata.SampleTID | perfdata.SampleTime | perfdata.SampleID | perfdata.SampleCPU

// record returns the bytes that the kernel writes.
func (m mapped) record() []byte {
	order := binary.NativeEndian
	tid, name := m.tid, m.name
	if tid == 0 {
		tid = 7
	}
	if name == "" {
		name = "/lib/x"
	}
	b := order.AppendUint32(nil, uint32(perfdata.TypeMmap2))
	misc := m.misc
	if m.id != 0 {
		misc |= 1 << 14
	}
	b = order.AppendUint16(order.AppendUint16(b, misc), 0)
	b = order.AppendUint32(order.AppendUint32(b, 7), tid)
	for _, n := range []uint64{m.start, 0x1000, 0} {
		b = order.AppendUint64(b, n)
	}
	if m.id != 0 {
		b = append(b, 20, 0, 0, 0)
		b = append(b, make([]byte, 20)...)
		b[len(b)-20] = m.id
	} else {
		b = order.AppendUint32(order.AppendUint32(b, 254), 1)
		b = order.AppendUint64(order.AppendUint64(b, m.inode), m.inode*10)
	}
	b = order.AppendUint32(order.AppendUint32(b, 5), 2)
	b = append(b, name...)
	b = append(b, make([]byte, 8-len(name)%8)...)
	b = order.AppendUint32(order.AppendUint32(b, 7), tid)
	for _, n := range []uint64{1, m.event, 0} { // time, event, CPU
		b = order.AppendUint64(b, n)
	}
	order.PutUint16(b[6:], uint16(len(b)))
	return b
}

func numbers(start, inode uint64) mapped {
	return mapped{event: numbersEvent, start: start, inode: inode}
}

func identity(start uint64, id byte) mapped { return mapped{event: changesEvent, start: start, id: id} }

func joinerForTest(t testing.TB) (*Joiner, *perfdata.Decoder) {
	p := NewPlan(1)
	p.Samples.Sample_type, p.Changes.Sample_type = uint64(joinFields), uint64(joinFields)
	p.numbers = map[uint64]bool{numbersEvent: true}
	d, err := p.Decoder()
	if err != nil {
		t.Fatal(err)
	}
	return p.Joiner(), d
}

// TestJoin has the records of mappings come as the kernel writes them, and as it does not.
func TestJoin(t *testing.T) {
	const other = 0x9000
	type got struct {
		id    byte
		inode uint64
	}
	for name, c := range map[string]struct {
		records []mapped // one without an event is a loss
		want    []got
	}{
		"two mappings": {
			[]mapped{numbers(1, 11), identity(1, 'a'), numbers(2, 12), identity(2, 'b')},
			[]got{{'a', 11}, {'b', 12}},
		},
		"the same place twice": {
			[]mapped{numbers(1, 11), identity(1, 'a'), numbers(1, 12), identity(1, 'b')},
			[]got{{'a', 11}, {'b', 12}},
		},
		"begins with numbers": {
			[]mapped{numbers(1, 11), numbers(1, 12), identity(1, 'b')},
			[]got{{'b', 12}},
		},
		"begins with an identity": {
			[]mapped{identity(1, 'a'), numbers(2, 12), identity(2, 'b')},
			[]got{{'a', 0}, {'b', 12}},
		},
		"a loss between": {
			[]mapped{numbers(1, 11), {}, identity(1, 'b')},
			[]got{{'b', 0}},
		},
		"another place": {
			[]mapped{numbers(1, 11), identity(other, 'b')},
			[]got{{'b', 0}},
		},
		"another thread": {
			[]mapped{numbers(1, 11), {event: changesEvent, start: 1, id: 'b', tid: 8}},
			[]got{{'b', 0}},
		},
		"another path": {
			[]mapped{numbers(1, 11), {event: changesEvent, start: 1, id: 'b', name: "/lib/y"}},
			[]got{{'b', 0}},
		},
		"numbers once": {
			[]mapped{numbers(1, 11), identity(1, 'a'), identity(1, 'b')},
			[]got{{'a', 11}, {'b', 0}},
		},
		"without an identity": {
			[]mapped{numbers(1, 11), {event: changesEvent, start: 1, inode: 11}, identity(1, 'b')},
			[]got{{0, 11}, {'b', 0}},
		},
		"the bit of another recording": {
			[]mapped{{event: numbersEvent, start: 1, inode: 11, misc: 1 << 14}, identity(1, 'a')},
			[]got{{'a', 11}},
		},
		"in the other order": {
			[]mapped{identity(1, 'a'), numbers(1, 11), identity(1, 'b'), numbers(1, 12), identity(1, 'c')},
			[]got{{'a', 0}, {'b', 0}, {'c', 0}},
		},
	} {
		j, d := joinerForTest(t)
		var all []got
		for _, r := range c.records {
			if r.event == 0 {
				j.Break()
				continue
			}
			m, err := j.Mapping(d, r.record())
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if m == nil {
				continue
			}
			g := got{inode: m.Inode}
			if m.BuildID != nil {
				g.id = m.BuildID[0]
			}
			if m.Inode != 0 && (m.Major != 254 || m.Minor != 1 || m.Generation != 10*m.Inode) {
				t.Errorf("%s: %+v", name, m)
			}
			all = append(all, g)
		}
		if len(all) != len(c.want) {
			t.Errorf("%s: %v, want %v", name, all, c.want)
			continue
		}
		for i := range all {
			if all[i] != c.want[i] {
				t.Errorf("%s: %v, want %v", name, all, c.want)
			}
		}
	}
}

// FuzzJoin has any bytes be records. A mapping has both build ID and numbers only after a record with numbers.
func FuzzJoin(f *testing.F) {
	f.Add(numbers(1, 11).record(), identity(1, 'a').record())
	f.Add(identity(1, 'a').record(), numbers(1, 11).record())
	f.Fuzz(func(t *testing.T, one, two []byte) {
		j, d := joinerForTest(t)
		for i, rec := range [][]byte{one, two, two} {
			if n, whole := perfdata.Size(rec); !whole || n != len(rec) {
				return
			}
			if kind := perfdata.TypeOf(rec); kind != perfdata.TypeMmap2 && kind != perfdata.TypeMmap {
				return
			}
			isNumbers := d.Event(rec) == numbersEvent
			m, err := j.Mapping(d, rec)
			if m != nil && (err != nil || isNumbers) {
				t.Fatalf("%+v, %v", m, err)
			}
			if i == 0 && m != nil && m.BuildID != nil && m.Inode != 0 {
				t.Fatalf("numbers of no record: %+v", m)
			}
		}
	})
}

// TestKernelJoins maps a program of the system, and wants each mapping to have its build ID, and the device and inode
// that stat shows.
func TestKernelJoins(t *testing.T) {
	p := NewPlan(1)
	p.WithNumbers()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p.Changes.Bits &^= unix.PerfBitInherit // of one event on all CPUs
	events, err := p.OpenChanges(0, -1)
	testenv.Need(t, err == nil && events.Numbers >= 0, "perf events with build IDs (Linux 5.12)")
	defer events.Close()
	r, err := NewRing(events.Changes, changePages, &p.Changes)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.Share(events.Numbers); err != nil {
		t.Fatal(err)
	}
	if err := Enable([]int{events.Numbers, events.Changes}); err != nil {
		t.Fatal(err)
	}
	var mappings []*perfdata.Mmap2
	name, err := exec.LookPath("true")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadFile(name); err != nil { // the kernel reads a build ID of what is in memory alone
		t.Fatal(err)
	}
	st := mapThrice(t, name)
	Disable([]int{events.Numbers, events.Changes})
	d, err := p.Decoder()
	if err != nil {
		t.Fatal(err)
	}
	j := p.Joiner()
	r.Drain(nil, func(rec []byte) {
		if perfdata.TypeOf(rec) != perfdata.TypeMmap2 {
			return
		}
		m, err := j.Mapping(d, rec)
		if err != nil {
			t.Fatal(err)
		}
		if m != nil && m.Inode == st.Ino {
			kept := *m
			mappings = append(mappings, &kept)
		}
	})
	if len(mappings) != 3 {
		t.Fatalf("%d mappings have build ID and numbers, want 3", len(mappings))
	}
	for _, m := range mappings {
		if len(m.BuildID) != 20 || m.Major != unix.Major(st.Dev) || m.Minor != unix.Minor(st.Dev) {
			t.Errorf("%+v, and stat says %+v", m, st)
		}
	}
}

// mapThrice maps a file three times, at one place, from a thread whose events are open.
func mapThrice(t *testing.T, name string) (st unix.Stat_t) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	var at unsafe.Pointer
	for range 3 {
		if at, err = unix.MmapPtr(int(f.Fd()), 0, at, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE); err != nil {
			t.Fatal(err)
		}
		if err := unix.MunmapPtr(at, 4096); err != nil {
			t.Fatal(err)
		}
	}
	return st
}
