package perfring

import (
	"bytes"
	"encoding/binary"
	"math/bits"

	"hallmark/perfdata"
)

// Joiner puts the two records of one mapping together. A record has room either for the build ID of the file, or
// for its device, inode and generation. So each thread and CPU has an event for either, and both write into one
// ring, of which there is one Joiner.
//
// The kernel writes both records in one go, with preemption off, so no other mapping comes between them
// (perf_event_mmap_event and perf_iterate_sb in kernel/events/core.c). The event that was opened last comes first:
// list_add_rcu puts it at the head of the list. So a record with numbers belongs to the record with a build ID
// that follows it, if both are of the same thread, addresses, offset and path. Where records were lost
// the ring says so before the next one, and nothing is joined across that.
type Joiner struct {
	numbers map[uint64]bool // events whose records have numbers
	trailer int             // bytes at the end of each record that are of the event
	held    []byte          // the last record of a mapping, empty for none
	// isNumbered says that it has numbers, and else it has a build ID for which there were none.
	isNumbered bool
	isReversed bool // a kernel has the events in the other order: then nothing is known of what belongs together
}

// Parts of struct perf_event_mmap_event, PERF_RECORD_MMAP2 of include/uapi/linux/perf_event.h.
const (
	mmapWhere   = perfdata.HeaderSize // process, thread, address, length, offset
	mmapUnion   = mmapWhere + 32      // build ID, or numbers
	mmapHow     = mmapUnion + 24      // protection, flags, path
	miscBuildID = 1 << 14             // PERF_RECORD_MISC_MMAP_BUILD_ID
)

// Joiner returns what joins the records of a ring. More events may be opened afterwards.
func (p *Plan) Joiner() *Joiner {
	return &Joiner{numbers: p.numbers, trailer: 8 * trailed(perfdata.SampleType(p.Changes.Sample_type))}
}

// trailed returns how many words of a record are of the event.
func trailed(fields perfdata.SampleType) int {
	const all = perfdata.SampleTID | perfdata.SampleTime | perfdata.SampleID | perfdata.SampleCPU
	return bits.OnesCount64(uint64(fields & all))
}

// Mapping decodes the record of a mapping, with a decoder of the plan. It has device, inode and generation beside a
// build ID if both records are there. It returns nil for the first record of two. The next call of the
// decoder overwrites the record that is returned.
func (j *Joiner) Mapping(d *perfdata.Decoder, rec []byte) (*perfdata.Mmap2, error) {
	if j.numbers[d.Event(rec)] {
		// The kernel sets the bit in what all events share: see decodeMmap of perfdata.
		misc := binary.NativeEndian.Uint16(rec[4:])
		binary.NativeEndian.PutUint16(rec[4:], misc&^miscBuildID)
		j.isReversed = j.isReversed || !j.isNumbered && j.isOther(rec)
		j.held, j.isNumbered = append(j.held[:0], rec...), true
		return nil, nil
	}
	r, err := d.Decode(rec)
	if err != nil {
		j.Break()
		return nil, err
	}
	m := r.(*perfdata.Mmap2)
	switch {
	case m.BuildID == nil: // it has numbers itself
		j.Break()
	case j.isNumbered && j.isOther(rec) && !j.isReversed:
		j.addNumbers(m)
		j.Break()
	default:
		j.held, j.isNumbered = append(j.held[:0], rec...), false
	}
	return m, nil
}

// IsTwice reports whether a record is there once more, of another event: whoever asks for mappings gets the begin
// and the end of tasks as well (perf_event_task_match in kernel/events/core.c).
func (j *Joiner) IsTwice(d *perfdata.Decoder, rec []byte) bool {
	switch perfdata.TypeOf(rec) {
	case perfdata.TypeFork, perfdata.TypeExit:
		return j.numbers[d.Event(rec)]
	}
	return false
}

// Break says that a record may be missing.
func (j *Joiner) Break() { j.held, j.isNumbered = j.held[:0], false }

// isOther reports whether a record says the same as the one that is held, but for what is known of the file.
func (j *Joiner) isOther(rec []byte) bool {
	n := len(rec) - j.trailer
	return len(j.held) == len(rec) && n >= mmapHow &&
		perfdata.TypeOf(rec) == perfdata.TypeMmap2 && perfdata.TypeOf(j.held) == perfdata.TypeMmap2 &&
		bytes.Equal(j.held[mmapWhere:mmapUnion], rec[mmapWhere:mmapUnion]) && bytes.Equal(j.held[mmapHow:n], rec[mmapHow:n])
}

// addNumbers adds those of the record that is held.
func (j *Joiner) addNumbers(m *perfdata.Mmap2) {
	u, order := j.held[mmapUnion:mmapHow], binary.NativeEndian
	m.Major, m.Minor = order.Uint32(u), order.Uint32(u[4:])
	m.Inode, m.Generation = order.Uint64(u[8:]), order.Uint64(u[16:])
}
