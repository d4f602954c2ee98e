package web

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"

	"hallmark/addr"
	"hallmark/profile/query"
)

type instruction struct {
	Flat   int64  `json:"flat,omitempty"`
	Cum    int64  `json:"cum,omitempty"`
	Offset string `json:"offset"`
	Virt   string `json:"virt"`
	Text   string `json:"text"`
	Source string `json:"source,omitempty"`
	Line   int64  `json:"line,omitempty"`
	Gap    bool   `json:"gap,omitempty"` // instructions before this one are left out
}

// maxInstructions is how many instructions are shown.
const maxInstructions = 4000

// code answers with the instructions of a function at the identity that the profile has, and with
// what each costs. Samples of callers are at the last byte of their call.
func (q *question) code() error {
	s, frame, err := q.subject()
	if err != nil {
		return err
	}
	f := q.shown.Set.Frames()[frame]
	a := struct {
		Name         string        `json:"name"`
		File         string        `json:"file"`
		Identity     string        `json:"identity"`
		Unit         string        `json:"unit"`
		Cum          int64         `json:"cum"`
		Why          string        `json:"why,omitempty"`
		Advice       string        `json:"advice,omitempty"`
		Other        string        `json:"other,omitempty"` // build ID of the base's build, whose instructions are not here
		Instructions []instruction `json:"instructions"`
	}{Name: plain(f.Name), Unit: plain(s.Unit()), Cum: s.byFrame()[frame].Cum, Instructions: []instruction{}}
	all := q.shown.Set.Binaries()
	if f.Binary < 0 || f.Binary >= len(all) || q.shown.Code == nil {
		return refuse(http.StatusNotFound, "the code of this function is in no file that can be shown")
	}
	b := all[f.Binary]
	a.File, a.Identity = plain(b.File), plain(b.BuildID)
	rows, others := ofBuild(s.Addresses(frame), b)
	if len(others) > 0 {
		a.Other = plain(b.BaseBuildID)
	}
	functions, err := q.codeOf(q.ctx, b, rows)
	defer closeAll(functions)
	if err != nil {
		a.Why = plain(err.Error())
		a.Advice = "The file of this identity has to be on this machine, at its path or below --debug-path."
	}
	a.Instructions = annotate(functions, rows)
	return q.send(a)
}

// maxParts is how many functions of code one function of the profile is: the outlined part of a
// function has a symbol of its own, and what was inlined is in those of its callers.
const maxParts = 8

// codeOf returns the code around the instructions that cost something, the most first.
func (q *question) codeOf(ctx context.Context, b query.Binary, rows []query.AddressRow) ([]*Function, error) {
	known, ok := q.binary(b)
	if !ok {
		return nil, fmt.Errorf("the file has no identity")
	}
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(a, b query.AddressRow) int { return cmp.Compare(b.Cum, a.Cum) })
	var parts []*Function
	for _, r := range rows {
		if slices.ContainsFunc(parts, func(f *Function) bool { return f.has(r.Offset) }) {
			continue
		}
		if len(parts) == maxParts {
			break
		}
		f, err := q.shown.Code.Code(ctx, &known, r.Offset)
		if err != nil {
			if len(parts) == 0 {
				return nil, err
			}
			continue
		}
		parts = append(parts, f)
	}
	slices.SortFunc(parts, func(a, b *Function) int { return cmp.Compare(a.Start, b.Start) })
	return parts, nil
}

func closeAll(functions []*Function) {
	for _, f := range functions {
		if f.Close != nil {
			f.Close()
		}
	}
}

func (f *Function) has(o addr.Offset) bool {
	return o >= f.Start && uint64(o-f.Start) < uint64(len(f.Bytes))
}

// annotate returns the instructions of functions with what they cost; and those that cost
// something and are in none of them, without a text.
func annotate(functions []*Function, rows []query.AddressRow) []instruction {
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(a, b query.AddressRow) int { return cmp.Compare(a.Offset, b.Offset) })
	list := []instruction{}
	for i, f := range functions {
		code := disassemble(f)
		lines := linesOf(f, code)
		for j, in := range code {
			if len(list) == maxInstructions {
				return list
			}
			made := instruction{
				Offset: fmt.Sprintf("%#x", uint64(in.offset)), Virt: fmt.Sprintf("%#x", uint64(in.virt)), Text: plain(in.text), Gap: i > 0 && j == 0,
			}
			if lines != nil {
				made.Source, made.Line = plain(lines[j].File), lines[j].Line
			}
			first, _ := slices.BinarySearchFunc(rows, in.offset, func(r query.AddressRow, o addr.Offset) int { return cmp.Compare(r.Offset, o) })
			for ; first < len(rows) && uint64(rows[first].Offset) < uint64(in.offset)+uint64(in.size); first++ {
				made.Flat, made.Cum = made.Flat+rows[first].Flat, made.Cum+rows[first].Cum
			}
			list = append(list, made)
		}
	}
	for _, r := range rows {
		if len(list) == maxInstructions {
			break
		}
		if !slices.ContainsFunc(functions, func(f *Function) bool { return f.has(r.Offset) }) {
			list = append(list, instruction{
				Flat: r.Flat, Cum: r.Cum, Offset: fmt.Sprintf("%#x", uint64(r.Offset)), Virt: fmt.Sprintf("%#x", uint64(r.Virt)), Source: plain(r.Source), Line: r.Line,
			})
		}
	}
	return list
}

// linesOf returns the source line of each instruction, nil where none are known.
func linesOf(f *Function, code []decoded) []Line {
	if f.Lines == nil || len(code) == 0 {
		return nil
	}
	addresses := make([]addr.Virt, len(code))
	for i := range code {
		addresses[i] = code[i].virt
	}
	return f.Lines(addresses)
}
