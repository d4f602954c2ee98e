package profile

import (
	"errors"
	"fmt"
	"math/bits"
)

// ErrSum is the error for values that add up to more than any sum here can hold. It arrives wrapped.
var ErrSum = errors.New("values add up to too much")

// mostSum is the largest sum: differences of two of them fit into 64 bits.
const mostSum = 1 << 62

// Magnitude adds up values without their signs, and knows when that is too much.
type Magnitude struct {
	sum    uint64
	isOver bool
}

// Add adds a value so many times.
func (m *Magnitude) Add(value int64, times uint64) {
	size := uint64(value)
	if value < 0 {
		size = -size
	}
	high, low := bits.Mul64(size, times)
	sum, carry := bits.Add64(m.sum, low, 0)
	m.sum = sum
	m.isOver = m.isOver || high|carry != 0 || sum > mostSum
}

// Sum returns the sum, which is of use where Err returns nil.
func (m *Magnitude) Sum() uint64 { return m.sum }

// Err returns ErrSum where what was added is too much; it names the values.
func (m *Magnitude) Err(values string) error {
	if !m.isOver {
		return nil
	}
	return fmt.Errorf("%w: those of %q to more than 2^62", ErrSum, values)
}
