package client

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sync"

	"hallmark/server/api"
)

// A Pusher sends files, of which it first asks the server which ones it wants. Its methods must
// be called by one goroutine.
type Pusher struct {
	Client *Client
	// Done is called for each file, in no order, with what became of it: err is nil where it
	// was sent or the server had it. It is called by one goroutine at a time.
	Done func(f *File, action string, stored api.Stored, err error)
	// Sent is called with how many more bytes the server has; nil for no call.
	Sent func(int64)

	waiting []*pushed
	size    int64
	mu      sync.Mutex
}

type pushed struct {
	File
	close func() error
}

// Bounds of one plan, and of what is sent at a time.
const (
	planFiles = 100
	planBytes = 512 << 20
	atOnce    = 4
)

// Add takes a file, whose SHA256 and Size it sets. It calls close when the file is not needed
// any more. An error is one of reading the file, or a failure that the following files would
// meet, too.
func (p *Pusher) Add(ctx context.Context, f File, close func() error) error {
	h := sha256.New()
	n, err := io.Copy(h, io.NewSectionReader(f.Content, 0, 1<<62))
	if err != nil {
		return errors.Join(err, close())
	}
	f.Size, f.SHA256 = n, hex.EncodeToString(h.Sum(nil))
	p.waiting = append(p.waiting, &pushed{f, close})
	p.size += n
	if len(p.waiting) < planFiles && p.size < planBytes {
		return nil
	}
	return p.Flush(ctx)
}

// Flush sends what was taken.
func (p *Pusher) Flush(ctx context.Context) error {
	files := p.waiting
	p.waiting, p.size = nil, 0
	defer func() {
		for _, f := range files {
			_ = f.close()
		}
	}()
	if len(files) == 0 {
		return nil
	}
	var plan []api.PlanFile
	for _, f := range files {
		plan = append(plan, f.PlanFile)
	}
	planned, err := p.Client.Plan(ctx, plan)
	if err != nil {
		return err
	}
	return p.send(ctx, files, planned)
}

// send sends the files that are wanted, several at a time. Of two with the same content, one is
// sent, and the server hears the name of the other one.
func (p *Pusher) send(ctx context.Context, files []*pushed, planned []api.PlannedFile) error {
	slots := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	var fatal error
	seen := map[string]bool{}
	var again []*pushed
	for i, f := range files {
		action := planned[i]
		switch {
		case action.Action == api.Refuse:
			p.done(f, action.Action, api.Stored{}, errors.New(action.Message))
			continue
		case action.Action == api.Upload && seen[f.SHA256]:
			again = append(again, f)
			continue
		case action.Action != api.Upload:
			p.done(f, api.Skip, api.Stored{ID: f.ID, SHA256: f.SHA256, Disputed: action.Disputed, Served: action.Served, Alone: action.Alone, Nameless: action.Nameless}, nil)
			continue
		}
		seen[f.SHA256] = true
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			stored, err := p.Client.Send(ctx, &f.File, max(0, min(action.Have, f.Size)), p.Sent)
			p.done(f, api.Upload, stored, err)
			if isFatal(err) {
				p.mu.Lock()
				fatal = err
				p.mu.Unlock()
			}
		})
		p.mu.Lock()
		failed := fatal
		p.mu.Unlock()
		if failed != nil {
			break
		}
	}
	wg.Wait()
	if fatal != nil {
		return fmt.Errorf("not all was sent: %w", fatal)
	}
	return p.sendAgain(ctx, again)
}

// sendAgain has the server note the names of files whose content was sent under another one.
func (p *Pusher) sendAgain(ctx context.Context, files []*pushed) error {
	if len(files) == 0 {
		return nil
	}
	var plan []api.PlanFile
	for _, f := range files {
		plan = append(plan, f.PlanFile)
	}
	planned, err := p.Client.Plan(ctx, plan)
	if err != nil {
		return err
	}
	for i, f := range files {
		stored := api.Stored{ID: f.ID, SHA256: f.SHA256, Disputed: planned[i].Disputed, Served: planned[i].Served, Alone: planned[i].Alone, Nameless: planned[i].Nameless}
		if planned[i].Action == api.Refuse {
			p.done(f, api.Refuse, api.Stored{}, errors.New(planned[i].Message))
			continue
		}
		p.done(f, api.Skip, stored, nil) // where the server wants it still, the one that was sent failed, which was reported
	}
	return nil
}

// isFatal reports whether an error would come for every other file, too.
func isFatal(err error) bool {
	var answer *Error
	if errors.As(err, &answer) {
		return answer.Status == 401 || answer.Status == 403 || answer.Status == 507
	}
	return err != nil
}

func (p *Pusher) done(f *pushed, action string, stored api.Stored, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Done != nil {
		p.Done(&f.File, action, stored, err)
	}
}
