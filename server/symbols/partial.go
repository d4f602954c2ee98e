package symbols

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"hallmark/internal/seekable"
)

// A partial is the content of a large index, of which only the chunks are brought that somebody looks
// at. It is memory as long as the content, where looking at what is not there is a fault: [partial.look]
// brings that chunk and looks again. An index answers from it as from any other memory, and one that is
// whole pays nothing for it.
type partial struct {
	memory []byte // whole pages
	name   string // for messages
	size   int
	// bring returns the whole content as a file of the local disk.
	bring func() (*os.File, error)
	// isWhole says that there is no chunk any more that has to be brought, and isBroken that one could not be.
	isWhole, isBroken atomic.Bool

	mu     sync.Mutex // of what brings
	source source
	there  []bool // chunks
	left   int    // chunks that are still brought alone
	err    error  // the first: the content is not asked again
}

// A source has the content.
type source interface {
	io.ReaderAt
	io.Closer
}

const (
	// chunkSize is the size of the frames that the store reads with one request.
	chunkSize = seekable.FrameSize
	// maxChunks are brought one after the other, each by a request, before the whole is brought: a few
	// addresses need ten or so.
	maxChunks = 32
)

// newPartial returns the content of a source, which it closes, with no chunk brought.
func newPartial(source source, size int64, name string, bring func() (*os.File, error)) (*partial, error) {
	if size <= 0 || int64(int(size)) != size {
		source.Close()
		return nil, fmt.Errorf("%s: no index has %d bytes", name, size)
	}
	page := os.Getpagesize()
	memory, err := unix.Mmap(-1, 0, (int(size)+page-1)/page*page, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		source.Close()
		return nil, os.NewSyscallError("mmap", err)
	}
	return &partial{
		memory: memory, name: name, size: int(size), bring: bring, source: source,
		there: make([]bool, (int(size)+chunkSize-1)/chunkSize), left: maxChunks,
	}, nil
}

// content returns the content, which must be looked at by look alone.
func (p *partial) content() []byte { return p.memory[:p.size:p.size] }

// look calls f, which looks at the content, and calls it again from its start after each chunk that was
// missing. The chunks that f has seen stay there until close.
func (p *partial) look(f func()) error {
	// As often as there are chunks, and some more: others bring them too, and the whole takes their place.
	for range len(p.there) + 16 {
		fault := faultOf(f)
		if fault == 0 {
			return nil
		}
		at := fault - uintptr(unsafe.Pointer(unsafe.SliceData(p.memory)))
		if at >= uintptr(len(p.memory)) {
			return fmt.Errorf("%s: a fault at an address that is not of it", p.name)
		}
		if err := p.fill(int(at) / chunkSize); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s: the local copy was cut off", p.name)
}

// faultOf calls f and returns the address that it could not look at, 0 if there is none.
func faultOf(f func()) (address uintptr) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch r := recover().(type) {
		case nil:
		case interface{ Addr() uintptr }:
			address = r.Addr()
		default:
			panic(r)
		}
	}()
	f()
	return 0
}

// fill brings a chunk, or everything once many were brought.
func (p *partial) fill(chunk int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.err != nil || p.isWhole.Load() || p.there[chunk]:
		return p.err
	case p.left == 0:
		p.err = p.fillAll()
	default:
		p.left--
		p.err = p.fillOne(chunk)
	}
	p.isBroken.Store(p.err != nil)
	return p.err
}

// fillOne brings a chunk to memory of its own, which takes its place once it is complete: nobody sees a part of it.
func (p *partial) fillOne(chunk int) error {
	from := chunk * chunkSize
	place := p.memory[from:min(from+chunkSize, len(p.memory))]
	size := uintptr(len(place))
	at, err := unix.MmapPtr(-1, 0, nil, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	if err := p.moveIn(at, place, from); err != nil {
		unix.MunmapPtr(at, size)
		return err
	}
	p.there[chunk] = true
	return nil
}

// moveIn reads the content of a place to other memory, at an address, and moves that memory to the place.
func (p *partial) moveIn(at unsafe.Pointer, place []byte, from int) error {
	b := unsafe.Slice((*byte)(at), len(place))
	content := b[:min(len(place), p.size-from)]
	if n, err := p.source.ReadAt(content, int64(from)); n < len(content) {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("%s: %w", p.name, err)
	}
	if err := unix.Mprotect(b, unix.PROT_READ); err != nil {
		return os.NewSyscallError("mprotect", err)
	}
	to := unsafe.Pointer(unsafe.SliceData(place))
	_, err := unix.MremapPtr(at, uintptr(len(b)), to, uintptr(len(b)), unix.MREMAP_MAYMOVE|unix.MREMAP_FIXED)
	return os.NewSyscallError("mremap", err)
}

// fillAll puts the local file in the place of the chunks, which have the same bytes: the kernel does so
// in one step (mmap(2), MAP_FIXED).
func (p *partial) fillAll() error {
	f, err := p.bring()
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() != int64(p.size) {
		return fmt.Errorf("%s: %d bytes, where there were %d", p.name, info.Size(), p.size)
	}
	_, err = unix.MmapPtr(int(f.Fd()), 0, unsafe.Pointer(unsafe.SliceData(p.memory)), uintptr(len(p.memory)),
		unix.PROT_READ, unix.MAP_SHARED|unix.MAP_FIXED)
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	p.isWhole.Store(true)
	return p.source.Close()
}

// close gives the memory back. Nobody must look at the content any more.
func (p *partial) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.isWhole.Load() {
		p.source.Close()
	}
	p.err = os.ErrClosed
	return os.NewSyscallError("munmap", unix.Munmap(p.memory))
}
