package lookupprint

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"unsafe"

	"hallmark/symbol"
)

// frameCells knows how functions and files of frames are printed. The same ones come
// again and again, and names are costly to make readable. It may be used by several
// goroutines at once.
type frameCells struct {
	functions, files           *cellsByPlace // of Linkage and of File
	renderFunction, renderFile func(*symbol.Frame) string
	answerEnd                  string // of each object of JSON
}

func newFrameCells(function, file func(*symbol.Frame) string) *frameCells {
	return &frameCells{functions: newCellsByPlace(), files: newCellsByPlace(), renderFunction: function, renderFile: file}
}

func (c *frameCells) function(f *symbol.Frame) string {
	return c.functions.of(f.Linkage, f, c.renderFunction)
}

func (c *frameCells) file(f *symbol.Frame) string {
	return c.files.of(f.File, f, c.renderFile)
}

// cellsByPlace are cells by the first byte of the strings that they are of, which stay
// where they are while a cell points to them. Symbols have one copy of each string, so
// this finds it without looking at the text. What is there is found without a lock, and
// what is made by two goroutines at once is the same.
type cellsByPlace struct {
	slots  atomic.Pointer[cellSlots]
	adding sync.Mutex
	used   int // slots
}

// cellSlots is a hash table. Its size is a power of two, and it is at most half full.
type cellSlots []atomic.Pointer[cell]

// cell is how the string of this size at this place is printed.
type cell struct {
	place *byte
	size  int
	text  string
}

const (
	minCells = 1 << 10

	// maxCells bounds how many functions, and how many files, are remembered.
	maxCells = 1 << 18
)

func newCellsByPlace() *cellsByPlace {
	c := new(cellsByPlace)
	c.reset(2 * minCells)
	return c
}

// reset makes c empty, with room for half as many cells as slots.
func (c *cellsByPlace) reset(slots int) cellSlots {
	s := make(cellSlots, slots)
	c.slots.Store(&s)
	c.used = 0
	return s
}

// of returns the cell of a string, which is made of f if it is new.
func (c *cellsByPlace) of(s string, f *symbol.Frame, render func(*symbol.Frame) string) string {
	place := unsafe.StringData(s)
	found := c.slots.Load().slot(place, len(s)).Load()
	if found == nil {
		found = &cell{place, len(s), render(f)}
		c.add(found)
	}
	return found.text
}

func (c *cellsByPlace) add(made *cell) {
	c.adding.Lock()
	defer c.adding.Unlock()
	slots := *c.slots.Load()
	switch {
	case c.used == maxCells:
		slots = c.reset(2 * minCells)
	case 2*c.used == len(slots):
		slots = slots.doubled()
		c.slots.Store(&slots)
	}
	if slot := slots.slot(made.place, made.size); slot.Load() == nil {
		slot.Store(made)
		c.used++
	}
}

// doubled returns a table of twice the size with the same cells.
func (s cellSlots) doubled() cellSlots {
	to := make(cellSlots, 2*len(s))
	for i := range s {
		if c := s[i].Load(); c != nil {
			to.slot(c.place, c.size).Store(c)
		}
	}
	return to
}

// cellOdd makes hashes those of this process alone: who makes an index cannot know
// which of its names collide.
var cellOdd = rand.Uint64() | 1

// slot returns the slot of a string, or the empty one where it belongs.
func (s cellSlots) slot(place *byte, size int) *atomic.Pointer[cell] {
	hash := uint64(uintptr(unsafe.Pointer(place))) * cellOdd >> 32
	for ; ; hash++ {
		slot := &s[hash&uint64(len(s)-1)]
		if c := slot.Load(); c == nil || c.place == place && c.size == size {
			return slot
		}
	}
}
