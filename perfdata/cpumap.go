package perfdata

import "hallmark/internal/cursor"

// CPUMap lists the CPUs that were recorded (CPU_MAP).
type CPUMap struct{ CPUs []uint16 }

func (*CPUMap) record() {}

// How a CPUMap is written, PERF_CPU_MAP__*.
const (
	cpuList  = 0
	cpuMask  = 1
	cpuRange = 2
)

// cpuMap reads struct perf_record_cpu_map_data: a list, a mask of words of 4 or 8
// bytes, or (since Linux 6.0) a range.
func cpuMap(c *cursor.Cursor) *CPUMap {
	r := &CPUMap{}
	switch how := c.U16(); how {
	case cpuList:
		for n := c.U16(); n > 0 && c.Err() == nil; n-- {
			r.CPUs = append(r.CPUs, c.U16())
		}
	case cpuMask:
		n, size := c.U16(), c.U16()
		if size == 8 {
			c.Skip(2)
		} else if size != 4 {
			c.Fail("mask of CPUs in words of %d bytes", size)
		}
		r.mask(c, int(n), int(size))
	case cpuRange:
		c.Skip(2) // whether there was any CPU, and padding
		first, last := c.U16(), c.U16()
		for cpu := uint32(first); cpu <= uint32(last) && c.Err() == nil; cpu++ {
			r.CPUs = append(r.CPUs, uint16(cpu))
		}
	default:
		c.Fail("CPUs in the form %d", how)
	}
	return r
}

func (r *CPUMap) mask(c *cursor.Cursor, words, size int) {
	for i := range words {
		w := c.Word(size)
		for bit := range 8 * size {
			if cpu := i*8*size + bit; w>>bit&1 != 0 && cpu <= 0xffff {
				r.CPUs = append(r.CPUs, uint16(cpu))
			}
		}
		if c.Err() != nil {
			return
		}
	}
}

// cpuMap appends a range where it is one, as perf does since Linux 6.0.
func (b *builder) cpuMap(r *CPUMap) {
	n := len(r.CPUs)
	if !r.isRange() {
		b.u16(cpuList)
		b.u16(uint16(n))
		for _, cpu := range r.CPUs {
			b.u16(cpu)
		}
		b.align()
		return
	}
	b.u16(cpuRange)
	b.u16(0)
	b.u16(r.CPUs[0])
	b.u16(r.CPUs[n-1])
}

func (r *CPUMap) isRange() bool {
	for i, cpu := range r.CPUs {
		if int(cpu) != int(r.CPUs[0])+i {
			return false
		}
	}
	return len(r.CPUs) > 0
}
