package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// self is what we are called among the peers.
const self = "hallmark"

// said is who says what of the addresses of one input.
type said map[string]map[uint64]answer

// agreement asks everybody for the same addresses and counts who agrees.
func agreement(b *bench) error {
	r := b.report
	summary := r.table("Where all who read everything agree with each other, do we?",
		"input", "different addresses", "they agree", "of these with us", "share")
	pairs := r.table("Each with us: frames, files and lines; and the names too",
		"input", "", "addresses", "agree", "share", "names too")
	names := r.table("Other names for the same frames",
		"input", "", "for instance")
	disputes := r.table("Disputes among these: groups that say the same, and some addresses",
		"input", "groups", "addresses", "for instance")
	for _, in := range b.inputs {
		answers, exact, err := b.ask(in)
		if err != nil {
			return fmt.Errorf("%s: %w", in.name, err)
		}
		settled, ours := answers.consensus(exact)
		summary.row(in.name, len(answers[self]), settled, ours, share(ours, settled))
		for _, name := range slices.Sorted(maps.Keys(answers)) {
			if name != self {
				c := answers.compare(name)
				pairs.row(in.name, name, c.asked, c.same, share(c.same, c.asked), c.same-c.renamed)
				if c.renamed > 0 {
					names.row(in.name, name, strings.Join(c.examples, ", "))
				}
			}
		}
		for _, d := range answers.disputes(append(exact, self)) {
			disputes.row(in.name, d.groups, len(d.addresses), d.examples(5))
		}
	}
	return nil
}

// ask returns everybody's answers, and the names of those that read the same of debug
// information as we do.
func (b *bench) ask(in *input) (answers said, exact []string, err error) {
	index, err := b.index(in.raw)
	if err != nil {
		return nil, nil, err
	}
	answers = said{}
	if answers[self], err = ownAnswers(index, in.uniform); err != nil {
		return nil, nil, err
	}
	peers := b.directPeers()
	all := make([]map[uint64]answer, len(peers))
	errs := make([]error, len(peers))
	var wg sync.WaitGroup
	turn := make(chan struct{}, runtime.NumCPU())
	for i, p := range peers {
		wg.Go(func() {
			turn <- struct{}{}
			all[i], errs[i] = p.ask(in.raw, in.uniform)
			<-turn
		})
	}
	wg.Wait()
	for i, p := range peers {
		answers[p.name] = all[i]
		if p.exact {
			exact = append(exact, p.name)
		}
	}
	return answers, exact, errors.Join(errs...)
}

// consensus returns of how many addresses the peers say the same, and of how many of
// these we do too.
func (s said) consensus(peers []string) (theirs, ours int) {
	for at, own := range s[self] {
		places := map[string]bool{}
		for _, p := range peers {
			places[s[p][at].place()] = true
		}
		if len(places) == 1 {
			theirs++
			if places[own.place()] {
				ours++
			}
		}
	}
	return theirs, ours
}

// A comparison is how often a peer says the same as we do.
type comparison struct {
	asked, same int
	renamed     int // the same, but of functions with other names
	examples    []string
}

func (s said) compare(name string) (c comparison) {
	for _, at := range slices.Sorted(maps.Keys(s[name])) {
		ours, theirs := s[self][at], s[name][at]
		c.asked++
		if ours.place() != theirs.place() {
			continue
		}
		c.same++
		if i := firstRenamed(ours, theirs); i >= 0 {
			c.renamed++
			if len(c.examples) < 4 {
				c.examples = append(c.examples, fmt.Sprintf("%#x %s, not %s", at, ours[i].name, theirs[i].name))
			}
		}
	}
	return c
}

// firstRenamed returns the first frame that has another name, -1 for none.
func firstRenamed(ours, theirs answer) int {
	for i := range ours {
		if !sameName(ours[i], theirs[i]) {
			return i
		}
	}
	return -1
}

// sameName says whether a peer's name of a frame is one of the two that we have.
func sameName(ours, theirs frame) bool {
	return theirs.name == ours.name || ours.also != "" && theirs.name == ours.also
}

// A dispute is the addresses of which the same ones say something else.
type dispute struct {
	groups    string
	addresses []uint64
}

// disputes returns them, the most frequent first.
func (s said) disputes(who []string) []dispute {
	all := map[string][]uint64{}
	for at := range s[self] {
		if g := s.groups(at, who); len(g) > 1 {
			all[strings.Join(g, " · ")] = append(all[strings.Join(g, " · ")], at)
		}
	}
	var list []dispute
	for groups, addresses := range all {
		slices.Sort(addresses)
		list = append(list, dispute{groups, addresses})
	}
	slices.SortFunc(list, func(a, b dispute) int {
		return cmp.Or(len(b.addresses)-len(a.addresses), strings.Compare(a.groups, b.groups))
	})
	return list
}

// groups returns the names of those that say the same, joined, ours first.
func (s said) groups(at uint64, who []string) []string {
	byPlace := map[string][]string{}
	for _, name := range who {
		place := s[name][at].place()
		byPlace[place] = append(byPlace[place], name)
	}
	var groups []string
	for _, names := range byPlace {
		slices.Sort(names)
		if i := slices.Index(names, self); i > 0 {
			names = slices.Insert(slices.Delete(names, i, i+1), 0, self)
		}
		groups = append(groups, strings.Join(names, " = "))
	}
	slices.SortFunc(groups, func(a, b string) int {
		ours := func(g string) int { return strings.Index(g+self, self) }
		return cmp.Or(ours(a)-ours(b), strings.Compare(a, b))
	})
	return groups
}

// examples returns some of the addresses, from everywhere.
func (d *dispute) examples(n int) string {
	var some []string
	step := max(1, len(d.addresses)/n)
	for i := 0; i < len(d.addresses) && len(some) < n; i += step {
		some = append(some, fmt.Sprintf("%#x", d.addresses[i]))
	}
	return strings.Join(some, " ")
}
