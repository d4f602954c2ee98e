package elffile

import (
	"sync"

	"hallmark/internal/defect"
)

// An Inflating is a section that is decompressed as far as it is needed.
type Inflating struct {
	image *Image
	to    *Content
	from  Decompressor

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

// NewInflating returns section b, to be decompressed as far as it is needed.
func NewInflating(m *Image, b *Content) *Inflating {
	p := &Inflating{image: m, to: b}
	p.changed.L = &p.mu
	return p
}

// Need returns when the first bytes of the section are there, up to end.
func (p *Inflating) Need(end uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	size := uint64(len(p.to.Out))
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

// Stop returns when nobody looks at the section any more.
func (p *Inflating) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.goal = 0; p.running; {
		p.changed.Wait()
	}
	if p.from != nil {
		p.from.Close()
	}
}

// run decompresses up to the goal.
func (p *Inflating) run() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.err == nil && p.ready < p.goal {
		end := min(p.ready+inflateStep, uint64(len(p.to.Out)))
		p.mu.Unlock()
		ready, err := p.fill(int(end))
		p.mu.Lock()
		p.ready = max(p.ready, uint64(ready))
		switch {
		case defect.Is(err):
			p.err = p.image.Damage(err)
		case err != nil:
			p.err = p.image.Fail(p.to.Offset, "compressed section: "+err.Error())
		}
		p.changed.Broadcast()
	}
	p.running = false
	p.changed.Broadcast()
}

func (p *Inflating) fill(end int) (ready int, err error) {
	err = WhileMapped(func() (err error) {
		if p.from == nil {
			if p.from, err = p.to.Open(p.to.Out, p.to.Raw); err != nil {
				return err
			}
		}
		ready, err = p.from.Fill(end)
		return err
	})
	return ready, err
}
