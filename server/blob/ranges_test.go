package blob_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"hallmark/server/blob"
)

// silent is a service that begins to send an object, and then sends nothing.
type silent struct{ blob.Store }

func (silent) Head(_ context.Context, key string) (blob.Info, error) {
	return blob.Info{Key: key, Size: 1000, Tag: "t"}, nil
}

func (silent) Get(ctx context.Context, key string, _, _ int64) (io.ReadCloser, blob.Info, error) {
	return io.NopCloser(&stalled{ctx: ctx, left: 10}), blob.Info{Key: key, Size: 1000, Tag: "t"}, nil
}

type stalled struct {
	ctx  context.Context
	left int
}

func (s *stalled) Read(p []byte) (int, error) {
	if s.left == 0 {
		<-s.ctx.Done()
		return 0, s.ctx.Err()
	}
	n := min(s.left, len(p))
	s.left -= n
	return n, nil
}

// TestSilentService wants a read of an object to end, also where nobody ends its request.
func TestSilentService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _, err := blob.Open(context.WithoutCancel(t.Context()), silent{}, "k")
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		begun := time.Now()
		if _, err := r.ReadAt(make([]byte, 100), 0); !errors.Is(err, blob.ErrUnavailable) {
			t.Errorf("error %v", err)
		}
		if took := time.Since(begun); took < time.Minute || took > 5*time.Minute {
			t.Errorf("it took %v", took)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if r, _, err = blob.Open(ctx, silent{}, "k"); err != nil {
			t.Fatal(err)
		}
		if _, err := r.ReadAt(make([]byte, 100), 0); !errors.Is(err, context.Canceled) {
			t.Errorf("of a request that has ended: %v", err)
		}
	})
}
