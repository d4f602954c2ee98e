package symbol

import (
	"bytes"
	"io"
	"sync"

	"hallmark/internal/defect"
)

// inflating is a section that is decompressed as far as it is needed.
type inflating struct {
	image *image
	to    *debugSection
	from  io.Reader

	mu      sync.Mutex
	changed sync.Cond
	ready   uint64 // bytes of to.out that are there
	goal    uint64 // bytes of it that will be
	running bool   // somebody is at it
	err     error
}

// Sizes of the steps in which a section is decompressed, and how far ahead of what is
// needed, so that this and the search through it go on side by side.
const (
	inflateStep  = 256 << 10
	inflateAhead = 8 << 20
)

func newInflating(m *image, b *debugSection) *inflating {
	p := &inflating{image: m, to: b}
	p.changed.L = &p.mu
	return p
}

// need returns when the first bytes of the section are there, up to end.
func (p *inflating) need(end uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	size := uint64(len(p.to.out))
	p.goal = max(p.goal, min(end+inflateAhead, size))
	if !p.running && p.err == nil && p.ready < p.goal {
		p.running = true
		go p.run()
	}
	for p.ready < end && p.err == nil {
		p.changed.Wait()
	}
	if p.ready < end {
		return p.err
	}
	return nil
}

// stop returns when nobody looks at the section any more.
func (p *inflating) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.goal = 0; p.running; {
		p.changed.Wait()
	}
	if c, ok := p.from.(io.Closer); ok {
		c.Close()
	}
}

// run decompresses up to the goal.
func (p *inflating) run() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.err == nil && p.ready < p.goal {
		at := p.ready
		p.mu.Unlock()
		n, err := p.step(at)
		p.mu.Lock()
		p.ready += uint64(n)
		switch {
		case defect.Is(err):
			p.err = p.image.damage(err)
		case err != nil:
			p.err = p.image.fail(p.to.off, "compressed section: "+err.Error())
		}
		p.changed.Broadcast()
	}
	p.running = false
	p.changed.Broadcast()
}

func (p *inflating) step(at uint64) (n int, err error) {
	err = whileMapped(func() (err error) {
		if p.from == nil {
			if p.from, err = p.to.open(bytes.NewReader(p.to.raw)); err != nil {
				return err
			}
		}
		part := p.to.out[at:]
		n, err = io.ReadFull(p.from, part[:min(len(part), inflateStep)])
		return err
	})
	return n, err
}
