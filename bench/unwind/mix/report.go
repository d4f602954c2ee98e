package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

func report(recorders []*recorder) {
	fmt.Printf("%d Hz, %d s, %d rounds\n\n", *rate, *seconds, *rounds)
	fmt.Println("| recorder | stacks that reach an entry % | in processes that lived < 10 ms % | by what it says itself % | frames a stack | BPF ns a sample | recorder's CPU ms a round | peak MiB | MB written |")
	fmt.Println("|---|--:|--:|--:|--:|--:|--:|--:|--:|")
	for _, r := range recorders {
		fmt.Printf("| %s | %v | %v | %v | %.1f | %s | %d | %d | %.1f |\n", r.name, r.all, r.brief, r.told, float64(r.frames)/float64(max(r.all.n, 1)),
			r.bpf, r.cpu.Milliseconds()/int64(max(r.rounds, 1)), r.peak>>10, float64(r.size)/1e6/float64(max(r.rounds, 1)))
	}
	for _, r := range recorders {
		r.showWorst()
	}
}

// String is the time of a sample.
func (t bpfTime) String() string {
	if t.runs == 0 {
		return ""
	}
	return fmt.Sprint(int64(t.total) / int64(t.runs))
}

// showWorst shows where incomplete stacks ended, and what is in dispute.
func (r *recorder) showWorst() {
	for what, of := range map[string]map[string]int{"end at": r.ends, "in dispute:": r.disputes} {
		names := slices.SortedFunc(maps.Keys(of), func(a, b string) int {
			return cmp.Or(cmp.Compare(of[b], of[a]), cmp.Compare(a, b))
		})
		for _, name := range names[:min(*worst, len(names))] {
			fmt.Printf("%s: %d %s %s\n", r.name, of[name], what, name)
		}
	}
	if *worst > 0 {
		fmt.Printf("%s: %d of processes that ended\n", r.name, r.ended)
	}
}
