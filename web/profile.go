package web

import (
	"net/http"
	"strconv"
	"time"

	"hallmark/internal/plaintext"
	"hallmark/profile"
)

// labelKey is a label that samples have.
type labelKey struct {
	Key    string `json:"key"`
	Values int    `json:"values"` // different ones
}

// A page has so many types of values and comments at most: a profile may have a million of each.
const maxTypes, maxNotes = 1000, 1000

// profile answers with what is known of the profile as a whole.
func (q *question) profile() error {
	p := q.shown.Set.Profile()
	type sampleType struct {
		Type string `json:"type"`
		Name string `json:"name"` // by which a question names it: its number where others have its name
		Unit string `json:"unit"`
	}
	a := struct {
		Title        string       `json:"title"`
		Base         string       `json:"base"`
		Types        []sampleType `json:"types"`
		Type         int          `json:"type"`
		Time         string       `json:"time"`
		Duration     int64        `json:"duration"`
		BaseDuration int64        `json:"baseDuration,omitempty"`
		Notes        []string     `json:"notes"`
		Labels       []labelKey   `json:"labels"`
		Times        bool         `json:"times"`
		Texts        bool         `json:"texts"`
		Code         bool         `json:"code"`
		Download     bool         `json:"download"`
		Stacks       int          `json:"stacks"`
		Version      string       `json:"version,omitempty"`
	}{
		Title: plain(q.shown.Title), Base: plain(q.shown.BaseTitle), Types: []sampleType{}, Notes: []string{}, Labels: []labelKey{},
		Duration: int64(p.Duration()), Times: p.HasTimes(), Texts: q.shown.Texts != nil, Code: q.shown.Code != nil,
		Download: q.shown.Download != nil, Stacks: p.Stacks().Len(), Version: q.shown.Version,
	}
	if base := q.shown.Set.Base(); base != nil {
		a.BaseDuration = int64(base.Duration())
	}
	chosen, err := p.SampleType(q.shown.SampleType)
	if err != nil {
		return refuse(http.StatusBadRequest, "%s", err)
	}
	for i, t := range p.SampleTypes() {
		if i >= maxTypes && i != chosen {
			continue
		}
		if i == chosen {
			a.Type = len(a.Types)
		}
		shown := sampleType{plain(t.Type), t.Type, plain(t.Unit)}
		if n, err := p.SampleType(t.Type); err != nil || n != i || shown.Type != t.Type {
			shown.Name = strconv.Itoa(i)
		}
		a.Types = append(a.Types, shown)
	}
	if n := len(p.SampleTypes()) - len(a.Types); n > 0 {
		a.Notes = append(a.Notes, plaintext.Plural(int64(n), "more type of values is not listed here", "more types of values are not listed here"))
	}
	if t := p.Time(); !t.IsZero() {
		a.Time = t.UTC().Format(time.RFC3339)
	}
	notes := p.Notes()
	for _, n := range notes[:min(len(notes), maxNotes)] {
		a.Notes = append(a.Notes, plain(n))
	}
	if n := len(notes) - maxNotes; n > 0 {
		a.Notes = append(a.Notes, plaintext.Plural(int64(n), "more comment of the profile is not shown here", "more comments of the profile are not shown here"))
	}
	for _, k := range q.shown.Set.LabelKeys() {
		if plain(k.Key) == k.Key { // a filter could not name another one
			a.Labels = append(a.Labels, labelKey{k.Key, k.Values})
		}
	}
	return q.send(a)
}

// shownGap is what lacks something for one reason.
type shownGap struct {
	Lacks    string   `json:"lacks"`
	Reason   string   `json:"reason"`
	Advice   string   `json:"advice,omitempty"`
	Count    int64    `json:"count"`
	Binaries []string `json:"binaries,omitempty"`
	Unsure   bool     `json:"unsure,omitempty"` // of stacks: nobody knows whether frames are missing
}

// maxNamed is how many binaries are named for one reason.
const maxNamed = 6

// coverage answers with how much is known, and why not all.
func (q *question) coverage() error {
	s, err := q.selection()
	if err != nil {
		return err
	}
	c := s.covered()
	a := struct {
		Frames     int64      `json:"frames"`
		Identified int64      `json:"identified"`
		Claimed    int64      `json:"claimed"` // those whose identity is not proven
		Symbolized int64      `json:"symbolized"`
		Samples    int64      `json:"samples"`
		Complete   int64      `json:"complete"`
		Unsure     int64      `json:"unsure,omitempty"` // samples of which nobody knows whether their stacks are complete
		Gaps       []shownGap `json:"gaps"`
	}{Frames: c.Frames, Identified: c.Identified, Claimed: c.Claimed, Symbolized: c.Symbolized, Gaps: shownGaps(c.Gaps)}
	if c.Stacks != nil {
		a.Samples, a.Complete = c.Stacks.Samples, c.Stacks.Complete
		for _, g := range c.Stacks.Gaps {
			gap := shownGap{Lacks: "stack", Reason: g.Reason.String(), Advice: plain(g.Advice()), Count: g.Samples, Unsure: g.Reason.Unsure()}
			if gap.Unsure {
				a.Unsure += g.Samples
			}
			for _, b := range g.Binaries[:min(len(g.Binaries), maxNamed)] {
				gap.Binaries = append(gap.Binaries, plain(profile.ShortName(b.File)))
			}
			a.Gaps = append(a.Gaps, gap)
		}
	}
	return q.send(a)
}

func shownGaps(gaps []profile.Gap) []shownGap {
	list := []shownGap{}
	for _, g := range gaps {
		gap := shownGap{Lacks: string(g.Lacks), Reason: g.Reason.String(), Advice: plain(g.Advice()), Count: g.Frames}
		for _, b := range g.Binaries[:min(len(g.Binaries), maxNamed)] {
			gap.Binaries = append(gap.Binaries, plain(profile.ShortName(b.File)))
		}
		list = append(list, gap)
	}
	return list
}

// search answers with the functions that match, and with what goes through them.
func (q *question) search() error {
	s, err := q.selection()
	if err != nil {
		return err
	}
	re, err := q.pattern("q")
	if err != nil {
		return err
	}
	a := struct {
		Frames []int `json:"frames"`
		Total  int64 `json:"total"`
		Base   int64 `json:"base"`
		Whole  int64 `json:"whole"`
	}{Frames: []int{}, Whole: s.Total()}
	if re != nil {
		found, err := q.find(s, re)
		if err != nil {
			return err
		}
		a.Total, a.Base = found.Total, found.BaseTotal
		if found.Frames != nil {
			a.Frames = found.Frames
		}
	}
	return q.send(a)
}
