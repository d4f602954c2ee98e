package web

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"hallmark/buildid"
	"hallmark/profile/query"
)

// Bounds of the lists in the details of a function.
const (
	maxPlaces = 40
	maxShares = 50
)

type (
	functionDetails struct {
		Frame      int     `json:"frame"`
		Key        string  `json:"key"`
		Name       string  `json:"name"`
		Kind       string  `json:"kind"`
		Unnamed    bool    `json:"unnamed,omitempty"`
		Reason     string  `json:"reason,omitempty"`
		Advice     string  `json:"advice,omitempty"`
		Source     string  `json:"source,omitempty"`
		Line       int64   `json:"line,omitempty"`
		Binary     int     `json:"binary"`
		File       string  `json:"file,omitempty"`
		Identity   string  `json:"identity,omitempty"`
		Claims     string  `json:"claims,omitempty"`
		Contested  bool    `json:"contested,omitempty"`
		Proof      string  `json:"proof,omitempty"` // of the identity: proven, claimed, contested
		Claimant   string  `json:"claimant,omitempty"`
		Package    string  `json:"package,omitempty"`
		Flat       int64   `json:"flat"`
		Cum        int64   `json:"cum"`
		BaseFlat   int64   `json:"baseFlat,omitempty"`
		BaseCum    int64   `json:"baseCum,omitempty"`
		Total      int64   `json:"total"`
		Unit       string  `json:"unit"`
		Places     []place `json:"places"`
		MorePlaces int     `json:"morePlaces"`
		Processes  []share `json:"processes"`
		Containers []share `json:"containers"`
		Lookup     string  `json:"lookup,omitempty"`

		BaseTotal    int64   `json:"baseTotal,omitempty"`
		Scale        float64 `json:"scale"`
		BaseIdentity string  `json:"baseIdentity,omitempty"` // of the build in the base, where it is another one
		BaseLookup   string  `json:"baseLookup,omitempty"`
	}
	place struct {
		Offset string `json:"offset"`
		Virt   string `json:"virt,omitempty"`
		Source string `json:"source,omitempty"`
		Line   int64  `json:"line,omitempty"`
		Value  int64  `json:"value"`
	}
	share struct {
		Name   string `json:"name"`
		Filter string `json:"filter,omitempty"`
		Value  int64  `json:"value"`
	}
)

// function answers with what is known of a function: where its code is, and who runs it.
func (q *question) function() error {
	s, frame, err := q.subject()
	if err != nil {
		return err
	}
	f := q.shown.Set.Frames()[frame]
	row := s.byFrame()[frame]
	d := functionDetails{
		Frame: frame, Key: f.Key, Name: plain(f.Name), Kind: string(f.Kind), Unnamed: f.Unnamed, Reason: plain(f.Reason), Advice: plain(f.Advice),
		Source: plain(f.Source), Line: f.Line, Binary: f.Binary,
		Flat: row.Flat, Cum: row.Cum, BaseFlat: row.BaseFlat, BaseCum: row.BaseCum, BaseTotal: s.BaseTotal(), Scale: q.scale(s), Total: s.Total(), Unit: plain(s.Unit()), Places: []place{},
	}
	binary, hasBinary := query.Binary{}, false
	if all := q.shown.Set.Binaries(); f.Binary >= 0 && f.Binary < len(all) {
		binary, hasBinary = all[f.Binary], true
	}
	addresses, others := ofBuild(s.Addresses(frame), binary)
	addresses = keep(addresses, func(r query.AddressRow) bool { return r.Cum != 0 })
	slices.SortStableFunc(addresses, func(a, b query.AddressRow) int { return cmp.Compare(b.Cum, a.Cum) })
	d.MorePlaces = max(0, len(addresses)-maxPlaces)
	for _, a := range addresses[:min(len(addresses), maxPlaces)] {
		d.Places = append(d.Places, place{
			fmt.Sprintf("%#x", uint64(a.Offset)), fmt.Sprintf("%#x", uint64(a.Virt)), plain(a.Source), a.Line, a.Cum,
		})
	}
	if b := binary; hasBinary {
		d.File, d.Identity, d.Claims, d.Contested = plain(b.File), plain(b.BuildID), plain(b.Claims), b.Contested
		d.Package = q.packageOf(b)
		if b.BuildID != "" {
			d.Proof = b.Proof.String()
		}
		if b.Claimant != nil {
			d.Claimant = b.Claimant.String()
		} else {
			d.Lookup = lookupCommand(b.BuildID, addresses)
		}
	}
	if len(others) > 0 {
		slices.SortStableFunc(others, func(a, b query.AddressRow) int { return cmp.Compare(b.BaseCum, a.BaseCum) })
		d.BaseIdentity, d.BaseLookup = plain(binary.BaseBuildID), lookupCommand(binary.BaseBuildID, others)
	}
	of := s.Of(frame)
	d.Processes = sharesOf(of, "process")
	d.Containers = sharesOf(of, "container")
	return q.send(d)
}

func sharesOf(s *query.Selection, key string) []share {
	rows, list := s.ByLabel(key), []share{}
	if len(rows) == 1 && rows[0].Missing {
		return list
	}
	for _, r := range rows[:min(len(rows), maxShares)] {
		list = append(list, share{plain(r.Value), labelFilter(key, r.Value), r.Flat})
	}
	return list
}

// ofBuild returns the instructions of a binary's own build, and those of its build in the base: an offset is of one
// build.
func ofBuild(rows []query.AddressRow, b query.Binary) (own, others []query.AddressRow) {
	for _, r := range rows {
		if r.BuildID == b.BuildID {
			own = append(own, r)
		} else {
			others = append(others, r)
		}
	}
	return own, others
}

// maxCommand is how many offsets the command looks up.
const maxCommand = 8

// lookupCommand returns the command that finds the functions and lines again, on any machine. It
// names the file by nothing but its identity, which no shell can take for something else.
func lookupCommand(build string, addresses []query.AddressRow) string {
	id, err := buildid.Parse(build)
	if err != nil || len(addresses) == 0 {
		return ""
	}
	var offsets []string
	for _, a := range addresses[:min(len(addresses), maxCommand)] {
		offsets = append(offsets, fmt.Sprintf("%#x", uint64(a.Offset)))
	}
	return "hallmark lookup " + id.String() + " " + strings.Join(offsets, " ")
}
