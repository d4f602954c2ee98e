package aside

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// Bounds of what is waited for. All that this process asks of silent or slow servers, however
// many there are, costs it maxWait at a time; what it has waited comes back slowly.
const (
	maxWait = 2 * time.Second
	// eachWait is how long one answer may take, and half of what all those about one file system
	// may that are asked in a row.
	eachWait = time.Second
	// AnswerTime is how long a function may work that could work for longer, and has an answer
	// for that: it is to come in time.
	AnswerTime = eachWait * 3 / 4
	// silence is for how long nobody is asked again who did not answer.
	silence = 10 * time.Second
	// graceTime is how long who was never silent is waited for when no patience is left, so that
	// silent servers do not take everybody's; so often in all, until there is patience again.
	graceTime = 10 * time.Millisecond
	maxGraces = 100
	// refill is how much longer it takes to get patience back than to lose it.
	refill = 5
)

// patience knows who is not worth waiting for.
type patience struct {
	mu     sync.Mutex
	left   time.Duration // of maxWait
	asOf   time.Time     // left was right
	asking int           // questions that are waited for now
	graces int           // that were used in vain
	about  map[string]*matter

	busyUntil time.Time // answers are waited for on a busy machine
	why       error     // of the last question without an answer
}

// matter is what is asked about.
type matter struct {
	silentUntil time.Time
	spent       time.Duration // waiting, which is forgotten slowly
	last        time.Time     // that it was asked
	why         error         // of the last question without an answer
}

var waits = patience{left: maxWait, about: map[string]*matter{}}

// maxMatters bounds what is remembered.
const maxMatters = 1024

// begin returns how long to wait for an answer; 0 for not at all.
func (p *patience) begin(about string, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settle(now)
	m := p.about[about]
	if m == nil {
		if len(p.about) >= maxMatters {
			clear(p.about)
		}
		m = new(matter)
		p.about[about] = m
	}
	if now.Before(m.silentUntil) {
		return 0
	}
	m.spent = max(0, m.spent-now.Sub(m.last)/refill)
	m.last = now
	left := p.left
	if p.graces < maxGraces {
		left = max(left, graceTime)
	}
	most := min(left, eachWait, 2*eachWait-m.spent)
	if most < minWait {
		return 0
	}
	p.asking++
	return most
}

// minWait is a time in which nothing is answered.
const minWait = 5 * time.Millisecond

// end notes how long an answer took, or that there was none.
func (p *patience) end(about string, began, now time.Time, answered bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settle(now)
	p.asking--
	m := p.about[about]
	if m == nil {
		return
	}
	m.spent += now.Sub(began)
	if answered {
		return
	}
	m.silentUntil = now.Add(silence)
	if p.left < graceTime {
		p.graces++
	}
}

// settle brings left up to date. The caller holds mu.
func (p *patience) settle(now time.Time) {
	passed := now.Sub(p.asOf)
	switch {
	case p.asOf.IsZero():
	case p.asking > 0:
		p.left = max(0, p.left-passed)
	default:
		p.left = min(maxWait, p.left+passed/refill)
		if p.left > maxWait/2 {
			p.graces = 0
		}
	}
	p.asOf = now
}

// ask asks the helper, if it is worth it.
func ask(about string, q question) (*reply, error) {
	if !Available() {
		return nil, errNobody
	}
	return worthIt(about, func(most time.Duration) (*reply, error) {
		h, err := take()
		switch {
		case errors.Is(err, ErrUnanswered):
			return nil, err
		case err != nil:
			return nil, fmt.Errorf("%w: %w", errNobody, err)
		}
		defer giveBack()
		return h.askOrLeave(q, most)
	})
}

// askOf asks one helper, which has a file open.
func askOf(h *helper, about string, q question) (*reply, error) {
	return worthIt(about, func(most time.Duration) (*reply, error) { return h.askOrLeave(q, most) })
}

// worthIt calls a function with the time that it may take, unless that is none.
func worthIt(about string, f func(most time.Duration) (*reply, error)) (*reply, error) {
	began := time.Now()
	most := waits.begin(about, began)
	if most == 0 {
		return nil, waits.reason(about)
	}
	r, err := f(most)
	now := time.Now()
	if now.Sub(began) > most {
		began = now.Add(-most) // the machine was busy for the rest
	}
	if waits.end(about, began, now, !errors.Is(err, ErrUnanswered)); errors.Is(err, ErrUnanswered) {
		waits.note(about, err)
	}
	return r, err
}

// note keeps why a question has no answer.
func (p *patience) note(about string, why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.why = why
	if m := p.about[about]; m != nil {
		m.why = why
	}
}

// reason returns why a question is not asked: earlier ones had no answer.
func (p *patience) reason(about string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m := p.about[about]; m != nil && m.why != nil {
		return m.why
	}
	if p.why != nil {
		return p.why
	}
	return errSilent
}
