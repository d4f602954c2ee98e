package contentcache

import (
	"context"
	"os"
	"runtime"

	"hallmark/buildid"
	"hallmark/internal/trust"
)

// WithBudgets returns a context under which contents are hashed within a budget. There is one for
// the files that only root and this user can have written, and one for all others, of which
// only a few are hashed at a time: nobody can use up what is for the former, nor their time.
func WithBudgets(ctx context.Context, b buildid.Budget) context.Context {
	l := &limits{trusted: buildid.WithBudget(context.Background(), b), turns: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))}
	return context.WithValue(buildid.WithBudget(ctx, b), limitsKey{}, l)
}

type limitsKey struct{}

// limits are those of a context.
type limits struct {
	trusted context.Context // has the budget of the files that are trusted
	turns   chan struct{}   // has room for each other file that is hashed
}

// begin returns the context to hash a file under, when its turn has come, and what to call
// afterwards.
func begin(ctx context.Context, f *os.File) (with context.Context, done func()) {
	l, ok := ctx.Value(limitsKey{}).(*limits)
	if !ok {
		return ctx, func() {}
	}
	if trust.LevelOf(f, "") != trust.Others {
		return budgeted{ctx, l.trusted}, func() {}
	}
	select {
	case l.turns <- struct{}{}:
		return ctx, func() { <-l.turns }
	case <-ctx.Done():
		return ctx, func() {}
	}
}

// budgeted is a context with the values of another one, before its own.
type budgeted struct {
	context.Context
	values context.Context
}

func (c budgeted) Value(key any) any {
	if v := c.values.Value(key); v != nil {
		return v
	}
	return c.Context.Value(key)
}
