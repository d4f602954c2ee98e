package web

import "hallmark/profile/query"

// maxTracks is how many values of a label have a track.
const maxTracks = 30

type shownTrack struct {
	Label  string  `json:"label"`
	Filter string  `json:"filter,omitempty"`
	Total  int64   `json:"total"`
	Values []int64 `json:"values"`
}

// time answers with when the samples were taken: of all in columns and, in each column, rows; and
// of each value of a label in columns.
func (q *question) time() error {
	s, err := q.selection()
	if err != nil {
		return err
	}
	columns, err := q.number("columns", 120, 1, 2000)
	if err != nil {
		return err
	}
	rows, err := q.number("rows", 1, 1, 100)
	if err != nil {
		return err
	}
	whole, err := q.timeline()
	if err != nil {
		return err
	}
	a := struct {
		From   int64        `json:"from"`
		To     int64        `json:"to"`
		Heat   *shownTrack  `json:"heat"`
		Tracks []shownTrack `json:"tracks"`
		By     string       `json:"by"`
		Left   int          `json:"left"`
	}{From: 0, To: whole.To - whole.From, Tracks: []shownTrack{}, By: q.query.Get("by")}
	o := query.TimelineOptions{Buckets: int(columns * rows), From: whole.From, To: whole.To}
	if t := s.Timeline(o); len(t.Tracks) > 0 {
		a.Heat = &shownTrack{"", "", t.Tracks[0].Total, t.Tracks[0].Values}
	}
	if a.By != "" {
		t := s.Timeline(query.TimelineOptions{Buckets: int(columns), By: a.By, MaxTracks: maxTracks, From: whole.From, To: whole.To})
		a.Left = t.Left
		for _, track := range t.Tracks {
			a.Tracks = append(a.Tracks, shownTrack{plain(track.Label), labelFilter(a.By, track.Label), track.Total, track.Values})
		}
	}
	return q.send(a)
}
