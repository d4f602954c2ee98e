package view

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"

	pprof "github.com/google/pprof/profile"
)

// maxPeek is how much text a page of callers and callees may have.
const maxPeek = 16 << 20

// bounded serves the driver's page of callers and callees, if it has a size for a browser. Each
// function stands there with all that it calls and that call it.
func (s *source) bounded(page http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		wanted, err := regexp.Compile(r.URL.Query().Get("f"))
		if err == nil && !s.hasRoomFor(wanted) {
			http.Error(w, fmt.Sprintf("Callers and callees of all these functions are more than %d MiB of text. "+
				"Search for fewer, by a part of their name.", maxPeek>>20), http.StatusRequestEntityTooLarge)
			return
		}
		page.ServeHTTP(w, r)
	})
}

// peekNode is a function and line on the page.
type peekNode struct {
	size   int // of its name
	wanted bool
}

// The page has a line for each node and each call.
const peekLine = 96 // bytes, without the name

// hasRoomFor reports whether the page of what is wanted has room.
func (s *source) hasRoomFor(wanted *regexp.Regexp) bool {
	nodes, ofLocation := s.peekNodes(wanted)
	left := maxPeek
	for _, n := range nodes {
		if n.wanted {
			left -= n.size + 2*peekLine
		}
	}
	calls := map[[2]int32]bool{}
	for _, sample := range s.shown.Sample {
		callee := int32(-1)
		for _, l := range sample.Location {
			for _, caller := range ofLocation[l] {
				call := [2]int32{caller, callee}
				if callee < 0 || caller == callee || !nodes[caller].wanted && !nodes[callee].wanted || calls[call] {
					callee = caller
					continue
				}
				calls[call] = true
				if nodes[caller].wanted {
					left -= nodes[callee].size + peekLine
				}
				if nodes[callee].wanted {
					left -= nodes[caller].size + peekLine
				}
				callee = caller
			}
			if left < 0 {
				return false
			}
		}
	}
	return left >= 0
}

// peekNodes returns the nodes of the page, and those of each location, innermost first.
func (s *source) peekNodes(wanted *regexp.Regexp) (nodes []peekNode, ofLocation map[*pprof.Location][]int32) {
	numbers := map[shownPlace]int32{}
	ofLocation = make(map[*pprof.Location][]int32, len(s.shown.Location))
	for _, l := range s.shown.Location {
		list := make([]int32, 0, len(l.Line))
		for _, line := range l.Line {
			f := line.Function
			if f == nil {
				continue
			}
			at := shownPlace{f, line.Line}
			n, ok := numbers[at]
			if !ok {
				n = int32(len(nodes))
				numbers[at] = n
				name := f.Name + " " + f.Filename + ":" + strconv.FormatInt(line.Line, 10)
				nodes = append(nodes, peekNode{len(name), wanted.MatchString(name)})
			}
			list = append(list, n)
		}
		ofLocation[l] = list
	}
	return nodes, ofLocation
}
