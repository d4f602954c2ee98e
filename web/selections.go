package web

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"

	"hallmark/profile"
	"hallmark/profile/query"
)

// selected is a selection of a profile, with what several questions ask of it.
type selected struct {
	*query.Selection
	shown *Profile

	functions func() []query.FunctionRow
	byFrame   func() map[int]query.FunctionRow
	covered   func() profile.Coverage
	wholeTime func() query.Timeline
}

func newSelected(p *Profile, s *query.Selection) *selected {
	functions := sync.OnceValue(s.Functions)
	return &selected{
		Selection: s,
		shown:     p,
		functions: functions,
		byFrame: sync.OnceValue(func() map[int]query.FunctionRow {
			rows := functions()
			m := make(map[int]query.FunctionRow, len(rows))
			for _, row := range rows {
				m[row.Frame] = row
			}
			return m
		}),
		covered: sync.OnceValue(func() profile.Coverage {
			c := s.Coverage()
			if p.FitAdvice != nil {
				p.FitAdvice(&c)
			}
			return c
		}),
		wholeTime: sync.OnceValue(func() query.Timeline { return s.Timeline(query.TimelineOptions{Buckets: 1}) }),
	}
}

// cache keeps the selections that were asked for last: the parts of a page ask about the same one,
// and a selection takes as long as the profile has stacks.
type cache struct {
	mu  sync.Mutex
	all []*cached // last used first
}

const maxSelections = 8

type cached struct {
	shown *Profile
	key   filterKey

	mu       sync.Mutex // held while it is made
	selected *selected
	err      error
}

// get makes the selection, once. It ends with ctx, and whoever asks next makes it then.
func (e *cached) get(ctx context.Context, f query.Filter) (*selected, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.selected != nil || e.err != nil {
		return e.selected, e.err
	}
	searching, cancel := context.WithTimeout(ctx, maxSearch)
	defer cancel()
	s, err := e.shown.Set.SelectContext(searching, f)
	switch {
	case err == nil:
		e.selected = newSelected(e.shown, s)
	case ctx.Err() != nil:
		return nil, err
	case errors.Is(err, context.DeadlineExceeded):
		e.err = errSearch
	default:
		e.err = refuse(400, "%s", err)
	}
	return e.selected, e.err
}

// filterKey has all of a filter: filters with the same one choose the same.
type filterKey struct {
	sampleType, labels        string
	focus, ignore, hide, show string
	with, without, binaries   string
	from, to                  int64
	unknown                   query.Unknown
}

func keyOfFilter(f *query.Filter) filterKey {
	text := func(re *regexp.Regexp) string {
		if re == nil {
			return ""
		}
		return "=" + re.String()
	}
	return filterKey{
		sampleType: f.SampleType, labels: fmt.Sprintf("%#v", f.Labels), binaries: fmt.Sprint(f.Binaries),
		with: fmt.Sprint(f.With), without: fmt.Sprint(f.Without),
		focus: text(f.Focus), ignore: text(f.Ignore), hide: text(f.Hide), show: text(f.Show),
		from: f.From, to: f.To, unknown: f.Unknown,
	}
}

// get returns what a filter selects.
func (c *cache) get(ctx context.Context, p *Profile, f query.Filter) (*selected, error) {
	return c.entry(p, f).get(ctx, f)
}

func (c *cache) entry(p *Profile, f query.Filter) *cached {
	key := keyOfFilter(&f)
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.all, func(e *cached) bool { return e.shown == p && e.key == key })
	if i >= 0 {
		e := c.all[i]
		c.all = slices.Insert(slices.Delete(c.all, i, i+1), 0, e)
		return e
	}
	e := &cached{shown: p, key: key}
	c.all = slices.Insert(c.all, 0, e)
	if len(c.all) > maxSelections {
		c.all = slices.Delete(c.all, maxSelections, len(c.all))
	}
	return e
}
