package server

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var errBusy = errors.New("busy")

func TestPoolShares(t *testing.T) {
	p := &pool{size: 10, busy: errBusy}
	a, err := p.take(t.Context(), "a", 8, time.Second)
	if err != nil {
		t.Fatalf("one that holds nothing: %v", err)
	}
	for client, n := range map[string]int64{"a": 1, "b": 3} {
		if _, err := p.take(t.Context(), client, n, time.Millisecond); err != errBusy {
			t.Errorf("%s, which may not have %d more: %v", client, n, err)
		}
	}
	b, err := p.take(t.Context(), "b", 1, time.Second)
	if err != nil {
		t.Error(err)
	}
	a.release()
	a.release()
	b.release()
	if p.used != 0 || len(p.clients) != 0 || len(p.queue) != 0 {
		t.Errorf("%d are held by %d clients, and %d wait", p.used, len(p.clients), len(p.queue))
	}
}

// TestPoolTurns has one client want a pool of one all the time, many times at once, and another one once at a time: each
// gets every second turn.
func TestPoolTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pool{size: 1, busy: errBusy, eager: true}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var answers [2]int
		work := func(client int) {
			for {
				s, err := p.take(ctx, fmt.Sprint(client), 1, time.Hour)
				if err != nil {
					return
				}
				time.Sleep(time.Second)
				answers[client]++
				s.release()
			}
		}
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() { work(0) })
		}
		all.Go(func() { work(1) })
		all.Wait()
		if answers[1] < 1790 || answers[0] < 1790 {
			t.Errorf("%v turns of 3600", answers)
		}
	})
}

// TestSlotPauses has a request give its slot back twice at once, and after its end.
func TestSlotPauses(t *testing.T) {
	p := &pool{size: 1, busy: errBusy, eager: true}
	s, err := p.take(t.Context(), "a", 1, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	s.pause()
	s.pause()
	other, err := p.take(t.Context(), "b", 1, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.resume(t.Context()); err != nil || s.held {
		t.Errorf("the first of two: %v, %v", s.held, err)
	}
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := s.resume(short); err == nil {
		t.Error("a slot that another one has")
	}
	other.release()
	s.pause()
	if err := s.resume(t.Context()); err != nil || !s.held {
		t.Errorf("%v, %v", s.held, err)
	}
	s.release()
	s.pause()
	if err := s.resume(t.Context()); err != nil || p.inUse() != 0 {
		t.Errorf("after its end: %v, %d", err, p.inUse())
	}
}

// TestStrangersApart has strangers of many networks, none of them slow, take all that there is for them: who is known, who
// watches and an administrator are let in.
func TestStrangersApart(t *testing.T) {
	g := newGates(32)
	enter := func(client string, roles []Role, known, watch bool) error {
		e := newExchange(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		e.client, e.who.roles = client, roles
		_, err := g.enter(e, known, watch)
		return err
	}
	taken := 0
	for enter(fmt.Sprint("network ", taken), nil, false, false) == nil {
		taken++
	}
	if taken != 8 {
		t.Errorf("%d strangers", taken)
	}
	for i := range 32 {
		if err := enter(fmt.Sprint("token ", i), []Role{Read}, true, false); err != nil {
			t.Errorf("token %d: %v", i, err)
		}
	}
	if enter("token", []Role{Read}, true, false) == nil {
		t.Error("more than there is room for")
	}
	if err := errors.Join(enter("token", []Role{Read}, true, true), enter("admin", []Role{Admin}, true, false)); err != nil {
		t.Error(err)
	}
}
